"""Read a night into a :class:`Recording`: signal in µV, aligned stages, no identity."""

from psdnorm.constants import EPOCH_S, STAGES, UNSCORED
from psdnorm.io.channels import (
    MICROVOLTS,
    Wanted,
    Weights,
    candidates,
    check_expression,
    fold,
    microvolts,
    one_rate,
    resolve,
)
from psdnorm.io.edf import (
    SIMULATED,
    decode,
    holds_only_annotations,
    number_or_nan,
    write_annotations,
)
from psdnorm.io.recording import (
    Recording,
    Source,
    open_source,
    read_channels,
    read_header,
    read_recording,
)
from psdnorm.io.scoring import (
    EDF_STAGE_NAMES,
    epochs_as_bouts,
    holds_stages,
    place,
    read_bouts,
    read_rows,
    read_stages,
    whole_epochs,
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
