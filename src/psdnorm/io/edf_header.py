"""The header of EDF, EDF+ and BDF files, and the annotations of EDF+."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
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


_SAMPLE_BYTES = {b"0".ljust(8): 2, b"\xffBIOSEMI": 3}
_LONGEST_S = 30 * 86400.0
# what a simulated file says of itself where others name hospital and technician
SIMULATED = b"psdnorm simulated"
# widths in bytes of what a header says of each signal, all labels first, then all transducers …
_WIDTHS = {
    "label": 16,
    "transducer": 80,
    "unit": 8,
    "physical_min": 8,
    "physical_max": 8,
    "digital_min": 8,
    "digital_max": 8,
    "filter": 80,
    "n_samples": 8,
    "reserved": 32,
}


@dataclass(frozen=True)
class Channel:
    """What a file says of one channel.

    Attributes
    ----------
    label : str
    sfreq : float
        Its own sampling rate in Hz.
    unit : str
        As written, "" where none is given.
    physical_range : tuple of (float, float)
        In that unit; nan where the file gives no numbers.
    digital_range : tuple of (float, float)
        The stored values that it belongs to.
    span : tuple of (int, int)
        Its bytes in a data record.
    """

    label: str
    sfreq: float
    unit: str
    physical_range: tuple[float, float]
    digital_range: tuple[float, float] = (math.nan, math.nan)
    span: tuple[int, int] = field(default=(0, 0), repr=False)


@dataclass(frozen=True)
class Header:
    """What a file says of itself.

    Attributes
    ----------
    channels : tuple of Channel
        Without those that hold annotations.
    start : datetime or None
        What the file gives as its start, None where that is no date.
    duration_s : float
        Recorded time in seconds, without the gaps of a discontinuous file.
    discontinuous : bool
        Whether the recording paused (EDF+D).
    simulated : bool
        Whether psdnorm made it up; all else that the same field may say is not looked at.
    """

    channels: tuple[Channel, ...]
    start: datetime | None
    duration_s: float
    discontinuous: bool
    simulated: bool = False
    # where the samples are
    n_records: int = field(default=0, repr=False)
    record_s: float = field(default=0.0, repr=False)
    header_bytes: int = field(default=0, repr=False)
    record_bytes: int = field(default=0, repr=False)
    sample_bytes: int = field(default=2, repr=False)
    annotation_spans: tuple[tuple[int, int], ...] = field(default=(), repr=False)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the channels."""
        return tuple(channel.label for channel in self.channels)


def parse_header(path: Path) -> Header:
    """Read and check a header; raises OSError as opening a file does."""
    with path.open("rb") as file:
        fixed = file.read(256)
        if not fixed:
            raise RecordingError(f"{path} is no EDF: it is empty")
        sample_bytes = _SAMPLE_BYTES.get(fixed[:8])
        if sample_bytes is None or len(fixed) < 256:
            raise RecordingError(
                f"{path} is no EDF: it begins with {fixed[:8]!r} and has {len(fixed)} of the 256 "
                "bytes of a header, expected '0'"
            )
        n_signals = _count(fixed[252:256], "number of signals", path, least=1)
        header_bytes = 256 * (n_signals + 1)
        signals = file.read(header_bytes - 256)
        size = file.seek(0, 2)
    if len(signals) < header_bytes - 256:
        raise RecordingError(
            f"{path} is truncated: it has {size} bytes, its header alone needs {header_bytes}"
        )
    stated = _count(fixed[184:192], "size of the header", path)
    if stated != header_bytes:
        raise RecordingError(
            f"{path} gives {stated} bytes as the size of its header, expected {header_bytes} for "
            f"{n_signals} signals"
        )
    record_s = _number(fixed[244:252], "duration of a record", path, least=0)
    columns = _columns(signals, n_signals)
    channels, annotation_spans, record_bytes = _layout(columns, record_s, sample_bytes, path)
    n_records = _n_records(fixed[236:244], size - header_bytes, record_bytes, path)
    duration_s = n_records * record_s
    if duration_s > _LONGEST_S:
        raise RecordingError(
            f"{path} lasts {duration_s:g} s by its header, expected at most {_LONGEST_S:.0f} s"
        )
    return Header(
        channels,
        _start(fixed[168:184]),
        duration_s,
        decode(fixed[192:236]).startswith(("EDF+D", "BDF+D")),
        SIMULATED in fixed[88:168].lower(),
        n_records,
        record_s,
        header_bytes,
        record_bytes,
        sample_bytes,
        annotation_spans,
    )


def _columns(signals: bytes, n_signals: int) -> dict[str, list[bytes]]:
    """Return each field's bytes, signal by signal."""
    columns = {}
    place = 0
    for name, width in _WIDTHS.items():
        ends = range(place + width, place + width * n_signals + 1, width)
        columns[name] = [signals[end - width : end] for end in ends]
        place += width * n_signals
    return columns


def _layout(
    columns: dict[str, list[bytes]], record_s: float, sample_bytes: int, path: Path
) -> tuple[tuple[Channel, ...], tuple[tuple[int, int], ...], int]:
    """Return the channels, the annotations' places in a record, and a record's bytes."""
    channels, annotation_spans = [], []
    place = 0
    for index, written in enumerate(columns["label"]):
        label = _text(written)
        n_samples = _count(columns["n_samples"][index], f"samples of {label!r} in a record", path)
        span = (place, place + sample_bytes * n_samples)
        place = span[1]
        if label in ("EDF Annotations", "BDF Annotations"):
            annotation_spans.append(span)
            continue
        if not record_s:
            raise RecordingError(
                f"{path} gives 0 s as the duration of a record, expected more with the channel "
                f"{label!r} in it"
            )
        ranges = [
            (
                _number_or_nan(columns[f"{kind}_min"][index]),
                _number_or_nan(columns[f"{kind}_max"][index]),
            )
            for kind in ("physical", "digital")
        ]
        unit = _text(columns["unit"][index])
        channels.append(Channel(label, n_samples / record_s, unit, ranges[0], ranges[1], span))
    return tuple(channels), tuple(annotation_spans), place


def _n_records(stated: bytes, data_bytes: int, record_bytes: int, path: Path) -> int:
    """Return the number of data records; refuse a file that has fewer or more of them."""
    n_records = _count(stated, "number of records", path, least=-1)
    held = data_bytes // record_bytes if record_bytes else 0
    if n_records == -1:  # EDF's word for a recorder that was switched off: what is there counts
        return held
    if record_bytes and held < n_records:
        raise RecordingError(
            f"{path} is truncated: it holds {held} of the {n_records} records that its header names"
        )
    # a rest that fills no record is padding, more is data that the header does not tell of
    if held > n_records:
        raise RecordingError(
            f"{path} holds {held} records, its header names {n_records}: one of them is wrong"
        )
    return n_records


def _start(written: bytes) -> datetime | None:
    match = re.fullmatch(r"(\d\d)\D(\d\d)\D(\d\d)(\d\d)\D(\d\d)\D(\d\d)", decode(written), re.ASCII)
    if match is None:
        return None
    day, month, year, hour, minute, second = map(int, match.groups())
    # two digits reach from 1985 to 2084
    try:
        return datetime(year + (1900 if year >= 85 else 2000), month, day, hour, minute, second)
    except ValueError:
        return None


def _text(written: bytes) -> str:
    # nothing that would break an error's one sentence or a terminal
    return "".join(c if c.isprintable() else "?" for c in decode(written).strip(" \x00"))


def _number_or_nan(written: bytes) -> float:
    try:
        return float(_text(written).replace(",", "."))  # some programs follow their country
    except ValueError:
        return math.nan


def _number(written: bytes, what: str, path: Path, least: float) -> float:
    value = _number_or_nan(written)
    if not least <= value < math.inf:
        raise RecordingError(
            f"{path} has {_text(written)!r} as the {what}, expected a number from {least:g} on"
        )
    return value


def _count(written: bytes, what: str, path: Path, least: int = 0) -> int:
    value = _number(written, what, path, least)
    if value != int(value):
        raise RecordingError(f"{path} has {value:g} as the {what}, expected a whole number")
    return int(value)
