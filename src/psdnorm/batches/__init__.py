"""Load data for a network: splits by subject, sequences of epochs, and batches of sequences."""

from psdnorm.batches.loader import (
    LENGTH,
    STRIDE,
    Loader,
    Sequences,
    available_memory,
    resolve_residence,
    window_starts,
)
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
