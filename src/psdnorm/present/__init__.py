"""Pages and plot style shared by reports, comparisons, staging and the demo."""

from psdnorm.present.figure import (
    BLACK,
    BLUE,
    DPI,
    GREY,
    SKY,
    STAGE_COLOURS,
    VERMILION,
    CannotDraw,
    Drawing,
    EndLabel,
    Figure,
    label_ends,
    look_of,
    matplotlib,
    new_canvas,
    panels,
    rendered,
    styled,
)
from psdnorm.present.page import FRAME_BYTES, Page, Part, TableCell
