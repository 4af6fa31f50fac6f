"""From a store to a network: who trains, in which order, and how the bytes get there."""

from psdnorm.batches.loader import Loader, available_memory, resolve_residence
from psdnorm.batches.sequences import LENGTH, STRIDE, Sequences, window_starts
from psdnorm.batches.splits import (
    Split,
    balanced,
    class_weights,
    leave_one_dataset_out,
    split_subjects,
)

__all__ = [
    "Loader",
    "Sequences",
    "Split",
    "balanced",
    "class_weights",
    "leave_one_dataset_out",
    "split_subjects",
    "window_starts",
]
