"""Pages and plot style shared by reports, comparisons, staging and the demo."""

from psdnorm.present.figure import (
    DPI,
    CannotDraw,
    Drawing,
    Figure,
    matplotlib,
    new_canvas,
    panels,
    rendered,
    styled,
)
from psdnorm.present.page import FRAME_BYTES, Page, Part
from psdnorm.present.style import (
    BLACK,
    BLUE,
    GREY,
    SKY,
    STAGE_COLOURS,
    VERMILION,
    EndLabel,
    label_ends,
    look_of,
)
