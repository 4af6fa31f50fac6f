"""Exceptions for users, in one hierarchy."""

import contextlib
from collections.abc import Iterator


class PsdnormError(Exception):
    """Base of every error that psdnorm raises on purpose."""


class ShapeError(PsdnormError, ValueError):
    """A tensor has the wrong number of dimensions, channels or samples."""


class ArgumentError(PsdnormError, ValueError):
    """An argument has a value that is not allowed."""


class DtypeError(PsdnormError, TypeError):
    """A tensor, or something passed as one, has the wrong type."""


class BackendError(PsdnormError, RuntimeError):
    """The backend asked for, or a torch transform, cannot serve this call."""


class ConversionError(PsdnormError, ValueError):
    """A model's norm layers cannot be swapped or adapted as asked."""


class CheckpointError(PsdnormError, ValueError):
    """A model cannot be saved, or a saved one cannot be loaded."""


class StoreError(PsdnormError, ValueError):
    """A store of prepared nights, or a file in it, cannot be written or read."""


class RecordingError(PsdnormError, ValueError):
    """A recording or its scoring is missing, damaged, or not what was expected."""


class TrainingError(PsdnormError, RuntimeError):
    """Training cannot continue: its loss is not finite, or its saved state cannot be read."""


class MissingExtraError(PsdnormError, ImportError):
    """An optional dependency is not installed."""


@contextlib.contextmanager
def os_errors_as(kind: type[PsdnormError], path: object, problem: str) -> Iterator[None]:
    """Turn an OSError into one sentence: the path (if None, its own), what failed, and why.

    >>> with os_errors_as(StoreError, "a.bin", "cannot be read"):
    ...     open("a/folder/that/is/missing")
    Traceback (most recent call last):
    psdnorm.errors.StoreError: a.bin cannot be read: No such file or directory
    """
    try:
        yield
    except OSError as error:
        raise kind(f"{path or error.filename} {problem}: {error.strerror or error}") from error
