"""A night in, a hypnogram out: its statistics, its agreement with a human scoring, its files."""

from psdnorm.staging.agreement import Agreement, Disagreement, agreement
from psdnorm.staging.outputs import write_edf_annotations, write_json, write_text, write_tsv
from psdnorm.staging.reading import read_tsv
from psdnorm.staging.review import (
    Change,
    Correction,
    least_confident,
    read_corrected,
    write_review,
)
from psdnorm.staging.statistics import SleepStatistics, sleep_statistics

__all__ = [
    "Agreement",
    "Change",
    "Correction",
    "Disagreement",
    "SleepStatistics",
    "agreement",
    "least_confident",
    "read_corrected",
    "read_tsv",
    "sleep_statistics",
    "write_edf_annotations",
    "write_json",
    "write_review",
    "write_text",
    "write_tsv",
]
