"""A night in, a hypnogram out: its statistics, its agreement with a human scoring, its files."""

from psdnorm.staging.batch import SUMMARY_TABLE, THERE, Options, StagingJob, StagingOutcome
from psdnorm.staging.derivations import Spectrogram
from psdnorm.staging.models import StagingModel, load_model
from psdnorm.staging.night_files import (
    Change,
    Correction,
    FoundRecordings,
    ReopenedNight,
    find_recordings,
    least_confident,
    read_corrected,
    read_summary,
    read_tsv,
    reopen,
    write_edf_annotations,
    write_json,
    write_night,
    write_review,
    write_text,
    write_tsv,
)
from psdnorm.staging.night_statistics import (
    Agreement,
    Disagreement,
    SleepStatistics,
    agreement,
    short_rows,
    sleep_statistics,
)
from psdnorm.staging.stager import StagedNight, stage
from psdnorm.staging.trust import (
    ChannelCondition,
    Distance,
    ShiftReport,
    channel_conditions,
    shift_report,
)

__all__ = [
    "Agreement",
    "Change",
    "ChannelCondition",
    "Correction",
    "Disagreement",
    "Distance",
    "ShiftReport",
    "SleepStatistics",
    "Spectrogram",
    "StagedNight",
    "StagingModel",
    "agreement",
    "channel_conditions",
    "least_confident",
    "load_model",
    "read_corrected",
    "read_tsv",
    "shift_report",
    "sleep_statistics",
    "stage",
    "write_edf_annotations",
    "write_json",
    "write_night",
    "write_review",
    "write_text",
    "write_tsv",
]
