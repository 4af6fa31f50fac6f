"""What EDF+ adds to EDF: annotations in time, as bytes."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from psdnorm.errors import RecordingError

# EDF+ separates by control characters: a list ends with NUL, its parts with DC4, and NAK stands
# before a duration
_END, _PART, _DURATION = b"\x00", b"\x14", b"\x15"
_LAST_S = 30 * 86400.0  # no recording is longer than a month: what says so is damaged
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


@dataclass(frozen=True)
class Annotation:
    """A text at a time, in seconds; ``duration_s`` is None where none is given."""

    onset_s: float
    duration_s: float | None
    text: str


def parse_annotations(content: bytes, path: str | Path) -> list[Annotation]:
    """Return what an annotation signal says in one data record, in the order of the file.

    Parameters
    ----------
    content : bytes
        The record's annotation signal.
    path : str or Path
        The file, for the error.

    Returns
    -------
    list of Annotation
        The first one of a record has an empty text: its onset is the record's.
    """
    annotations = []
    for entry in content.split(_END):
        if not entry:
            continue
        time, *texts = entry.split(_PART)
        onset, mark, duration = time.partition(_DURATION)
        annotations += [
            Annotation(
                _seconds(onset, path, signed=True),
                _seconds(duration, path) if mark else None,
                decode(text),
            )
            for text in (texts[:-1] or [b""])
        ]
    return annotations


def decode(text: bytes) -> str:
    """Return text as UTF-8, which EDF+ asks for, or Latin-1, which many programs write."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text.decode("latin-1")


def write_annotations(
    path: str | Path, annotations: Iterable[tuple[float, float, str]], start: datetime | None = None
) -> None:
    """Write an EDF+ file that holds annotations alone, as Sleep-EDF's hypnograms are.

    Parameters
    ----------
    path : str or Path
    annotations : iterable of (float, float, str)
        Onset and duration in seconds, and text.
    start : datetime, optional
        What onsets are counted from; 1 January 1985, midnight, where it is not known.
    """
    start = start or datetime(1985, 1, 1)
    content = b"+0" + 2 * _PART + _END
    for onset_s, duration_s, text in annotations:
        time = f"{onset_s:+.10g}".encode() + _DURATION + f"{duration_s:.10g}".encode()
        content += time + _PART + text.encode() + _PART + _END
    content += len(content) % 2 * _END  # a sample has two bytes
    date = f"{start.day:02d}-{_MONTHS[start.month - 1]}-{start.year}"
    fields = [
        ("0", 8),
        ("X X X X", 80),
        (f"Startdate {date} X X X", 80),
        (f"{start:%d.%m.%y}", 8),
        (f"{start:%H.%M.%S}", 8),
        ("512", 8),
        ("EDF+C", 44),
        ("1", 8),
        ("0", 8),
        ("1", 4),
        ("EDF Annotations", 16),
        ("", 80),
        ("", 8),
        ("-1", 8),
        ("1", 8),
        ("-32768", 8),
        ("32767", 8),
        ("", 80),
        (str(len(content) // 2), 8),
        ("", 32),
    ]
    header = "".join(text.ljust(width) for text, width in fields).encode("ascii")
    Path(path).write_bytes(header + content)


def _seconds(text: bytes, path: str | Path, *, signed: bool = False) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    # an onset has a sign, a duration has none
    if not abs(value) <= _LAST_S or text.startswith((b"+", b"-")) != signed:
        raise RecordingError(
            f"{path} has {decode(text)!r:.50} as the time of an annotation, expected seconds "
            f"within {_LAST_S:.0f}"
        )
    return value
