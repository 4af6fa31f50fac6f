"""A night on disk becomes a :class:`Recording`: signal in µV, stages in place, no identity."""

from psdnorm.constants import EPOCH_S, STAGES, UNSCORED
from psdnorm.io.edf import read_channels, read_header
from psdnorm.io.reading import read_recording
from psdnorm.io.recording import Recording
from psdnorm.io.scoring import read_stages

__all__ = [
    "EPOCH_S",
    "STAGES",
    "UNSCORED",
    "Recording",
    "read_channels",
    "read_header",
    "read_recording",
    "read_stages",
]
