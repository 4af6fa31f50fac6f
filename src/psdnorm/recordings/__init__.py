"""A night on disk becomes a :class:`Recording`: signal in µV, stages in place, no identity."""

from psdnorm.recordings.edf import read_channels, read_header
from psdnorm.recordings.hypnogram import read_stages
from psdnorm.recordings.reading import read_recording
from psdnorm.recordings.recording import EPOCH_S, STAGES, UNSCORED, Recording

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
