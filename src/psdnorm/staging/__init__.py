"""A night in, a hypnogram out: its statistics, its agreement with a human scoring, its files."""

from psdnorm.staging.batch import SUMMARY_TABLE, Nights, Options, Outcome, marks_of
from psdnorm.staging.models import StagingModel, load_model
from psdnorm.staging.result import Spectrogram, StagedNight
from psdnorm.staging.result_files import (
    FoundRecordings,
    find_recordings,
    read_tsv,
    write_edf_annotations,
    write_json,
    write_text,
    write_tsv,
)
from psdnorm.staging.review import (
    Change,
    Correction,
    least_confident,
    read_corrected,
    write_review,
)
from psdnorm.staging.shift import Condition, Distance, ShiftReport, channel_conditions, shift_report
from psdnorm.staging.sleep_statistics import (
    Agreement,
    Disagreement,
    SleepStatistics,
    agreement,
    sleep_statistics,
)
from psdnorm.staging.stager import stage
from psdnorm.staging.words import short_rows
from psdnorm.staging.writing import ReopenedNight, check_free, check_place, reopen, write_night

__all__ = [
    "Agreement",
    "Change",
    "Condition",
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
