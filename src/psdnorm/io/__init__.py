"""A night on disk becomes a :class:`Recording`: signal in µV, stages in place, no identity."""

from psdnorm.constants import EPOCH_S, STAGES, UNSCORED
from psdnorm.io.channels import (
    Channels,
    Wanted,
    Weights,
    candidates,
    check_expression,
    fold,
    microvolts,
    one_rate,
    resolve,
)
from psdnorm.io.edf import read_channels, read_header
from psdnorm.io.edf_header import SIMULATED, Header, decode, write_annotations
from psdnorm.io.reading import read_recording
from psdnorm.io.recording import PausedRecording, Recording, epochs_in_gaps, whole_epochs
from psdnorm.io.scoring import (
    epochs_as_bouts,
    holds_stages,
    place,
    read_bouts,
    read_stages,
    write_stages,
)

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
