"""EDF, EDF+ and BDF: headers, annotations, and signals in µV at their original rate and time.

A custom reader: MNE joins the pieces of an EDF+D silently, edfio and pyedflib do not read it.
"""

import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import ArgumentError, MissingExtraError, RecordingError, os_errors_as
from psdnorm.io.channels import Channel, Header, Weights, microvolts

_AT_ONCE = 2**20  # samples held in double precision at a time
_LAST_S = 30 * 86400.0  # no recording is longer than a month: such a file is damaged
_MOST_WITH_GAPS_S = 7 * 86400.0  # gaps are filled up to a week: beyond, the clock is damaged

_SAMPLE_BYTES = {b"0".ljust(8): 2, b"\xffBIOSEMI": 3}
_ANNOTATIONS = ({"EDF Annotations"}, {"BDF Annotations"})
Gaps = tuple[tuple[float, float], ...]  # begin and end of each, in s from the first sample
# marks a simulated file in the field where others name hospital and technician
SIMULATED = b"psdnorm simulated"
# per-signal header fields (all labels first, then all transducers …): the field's offset in a
# header of one signal, and its width in bytes
_LABEL, _UNIT, _N_SAMPLES = (0, 16), (96, 8), (216, 8)
_PHYSICAL, _DIGITAL = ((104, 8), (112, 8)), ((120, 8), (128, 8))  # minimum and maximum


class Annotation(NamedTuple):
    onset_s: float
    duration_s: float | None
    text: str


def read_signals(
    path: str | Path, header: Header, found: Sequence[Weights], sfreq: float
) -> tuple[NDArray[np.float32], float, Gaps]:
    """Return derivations, (C, T) in µV and 0 in gaps, the delay of their start in s, and gaps."""
    if header.duration_s == 0:
        raise RecordingError(f"{path} has channels but no data record")
    with os_errors_as(RecordingError, path, "cannot be read"):
        records = _records(header, path)
        first_s, runs = _runs(header, records, sfreq, path)
        signal = np.stack([_derive(records, header, weights, path) for weights in found])
    signal, gaps_s = _in_time(signal, runs, sfreq, header.n_records, path)
    return signal, first_s, gaps_s


def read_annotations(
    path: str | Path, header: Header | None = None
) -> tuple[list[Annotation], datetime | None]:
    """Read the annotations of an EDF+ file and the time from which their onsets are counted."""
    header = header or parse_header(path)
    if not header.annotation_spans:
        raise RecordingError(
            f"{path} has no annotations, found the channels {', '.join(header.labels)}, "
            "expected an EDF+ with 'EDF Annotations'"
        )
    return list(each_annotation(path, header)), header.start


def each_annotation(path: str | Path, header: Header) -> Iterator[Annotation]:
    """Yield annotations as they are read, without the time-keeping ones."""
    with os_errors_as(RecordingError, path, "cannot be read"):
        for record in _records(header, path) if header.annotation_spans else ():
            for begin, end in header.annotation_spans:
                annotations = parse_annotations(record[begin:end].tobytes(), path)
                yield from (annotation for annotation in annotations if annotation.text)


def write_annotations(
    path: str | Path, annotations: Iterable[tuple[float, float, str]], start: datetime | None = None
) -> None:
    """Write an anonymous EDF+ file with only annotations (onset and duration in s, text)."""
    try:
        import edfio
    except ImportError as error:
        raise MissingExtraError(
            'writing EDF needs edfio: pip install "psdnorm[recordings]"'
        ) from error
    notes = [edfio.EdfAnnotation(*each) for each in annotations]
    if not notes:
        raise ArgumentError(f"{path} would hold no annotation, expected at least one")
    day = date(1985, 1, 1)  # without a start, or if EDF cannot represent its year
    if start is not None and 1985 <= start.year <= 2084:
        day = start.date()
    edf = edfio.Edf(
        [],
        annotations=notes,
        patient=edfio.Patient(),
        recording=edfio.Recording(startdate=day),
        starttime=time() if start is None else start.time(),
    )
    content = io.BytesIO()  # edfio's error for a full disk does not name the file
    edf.write(content)
    Path(path).write_bytes(content.getvalue())


def parse_header(path: str | Path) -> Header:
    """Read and check the header of an EDF or BDF file."""
    with os_errors_as(RecordingError, path, "cannot be read"), open(path, "rb") as file:
        fixed = file.read(256)
        if not fixed:
            raise RecordingError(f"{path} is not an EDF: it is empty")
        sample_bytes = _SAMPLE_BYTES.get(fixed[:8])
        if sample_bytes is None or len(fixed) < 256:
            raise RecordingError(
                f"{path} is not an EDF: it begins with {fixed[:8]!r} and has {len(fixed)} of the "
                "256 bytes of a header, expected '0'"
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
    channels, annotation_spans, record_bytes = _layout(
        signals, n_signals, record_s, sample_bytes, path
    )
    n_records = _n_records(fixed[236:244], size - header_bytes, record_bytes, path)
    duration_s = n_records * record_s
    if duration_s > _LAST_S:
        raise RecordingError(
            f"{path} lasts {duration_s:g} s by its header, expected at most {_LAST_S:.0f} s"
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


def holds_only_annotations(path: str | Path) -> bool:
    """Whether an EDF+ has only annotations, judging by its labels; False if unreadable."""
    try:
        with open(path, "rb") as file:
            n_signals = int(file.read(256)[252:256])
            labels = file.read(16 * n_signals)
    except (OSError, ValueError):
        return False
    return {_text(labels[i : i + 16]) for i in range(0, len(labels), 16)} in _ANNOTATIONS


def _layout(
    signals: bytes, n_signals: int, record_s: float, sample_bytes: int, path: str | Path
) -> tuple[tuple[Channel, ...], tuple[tuple[int, int], ...], int]:
    """Return the channels, the byte spans of annotations in a record, and its size in bytes."""

    def field(index: int, begin: int, width: int) -> bytes:
        return signals[n_signals * begin + width * index :][:width]

    channels, annotation_spans = [], []
    place = 0
    for index in range(n_signals):
        label = _text(field(index, *_LABEL))
        samples = field(index, *_N_SAMPLES)
        n_samples = _count(samples, f"samples of {label!r} in a record", path)
        span = (place, place + sample_bytes * n_samples)
        place = span[1]
        if {label} in _ANNOTATIONS:
            annotation_spans.append(span)
            continue
        if not record_s:
            raise RecordingError(
                f"{path} gives 0 s as the duration of a record, expected more with the channel "
                f"{label!r} in it"
            )
        unit = _text(field(index, *_UNIT))
        physical, digital = (
            (_number_or_nan(field(index, *low)), _number_or_nan(field(index, *high)))
            for low, high in (_PHYSICAL, _DIGITAL)
        )
        channels.append(Channel(label, n_samples / record_s, unit, physical, digital, span))
    return tuple(channels), tuple(annotation_spans), place


def _n_records(stated: bytes, data_bytes: int, record_bytes: int, path: str | Path) -> int:
    """Return the number of data records, which must match the header."""
    n_records = _count(stated, "number of records", path, least=-1)
    held = data_bytes // record_bytes if record_bytes else 0
    if n_records == -1:  # by EDF's definition, the recorder was switched off early
        return held
    if record_bytes and held < n_records:
        raise RecordingError(
            f"{path} is truncated: it holds {held} of the {n_records} records that its header names"
        )
    # less than a record is padding; more is data not described by the header
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
    # two-digit years range from 1985 to 2084
    try:
        return datetime(year + (1900 if year >= 85 else 2000), month, day, hour, minute, second)
    except ValueError:
        return None


def _text(written: bytes) -> str:
    # unprintable characters would garble an error message or a terminal
    return "".join(c if c.isprintable() else "?" for c in decode(written).strip(" \x00"))


def number_or_nan(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _number_or_nan(written: bytes) -> float:
    return number_or_nan(_text(written).replace(",", "."))  # some programs write a decimal comma


def _number(written: bytes, what: str, path: str | Path, least: float) -> float:
    value = _number_or_nan(written)
    if not least <= value < math.inf:
        raise RecordingError(
            f"{path} has {_text(written)!r} as the {what}, expected a number from {least:g} on"
        )
    return value


def _count(written: bytes, what: str, path: str | Path, least: int = 0) -> int:
    value = _number(written, what, path, least)
    if value != int(value):
        raise RecordingError(f"{path} has {value:g} as the {what}, expected a whole number")
    return int(value)


def _records(header: Header, path: str | Path) -> NDArray[np.uint8]:
    """Return the data records, (n_records, bytes), memory-mapped."""
    shape = (header.n_records, header.record_bytes)
    if 0 in shape:
        return np.zeros(shape, np.uint8)
    return np.memmap(path, np.uint8, "r", offset=header.header_bytes, shape=shape)


def _derive(
    records: NDArray[np.uint8], header: Header, weights: Weights, path: str | Path
) -> NDArray[np.float32]:
    """Return one derivation in µV, (n_records * samples,), without gaps."""
    used = [(header.channels[index], weight) for index, weight in weights.items()]
    scales = [_scale(channel, path) for channel, _ in used]
    begin, end = used[0][0].span
    n_samples = (end - begin) // header.sample_bytes
    derived = np.empty((header.n_records, n_samples), np.float32)
    step = max(1, _AT_ONCE // max(1, n_samples))
    for first in range(0, header.n_records, step):
        some = slice(first, first + step)
        parts = []
        for (channel, weight), (gain, offset) in zip(used, scales, strict=True):
            stored = _integers(records[some, slice(*channel.span)], header.sample_bytes)
            parts.append(weight * gain * stored + weight * offset)
        derived[some] = np.reshape(sum(parts), (-1, n_samples))
    return derived.ravel()


def _integers(stored: NDArray[np.uint8], sample_bytes: int) -> NDArray[np.integer]:
    """Return the digital values, (n_records * samples,), of (n_records, bytes)."""
    if sample_bytes == 2:
        return np.array(stored, order="C").view("<i2").ravel()
    low, middle, high = np.moveaxis(stored.reshape(-1, 3), 1, 0)
    # the sign is in the highest of three bytes
    return high.view(np.int8).astype(np.int32) * 65536 + middle.astype(np.int32) * 256 + low


def _scale(channel: Channel, path: str | Path) -> tuple[float, float]:
    """Return gain and offset, in µV, of a channel's digital values."""
    (low, high), (lowest, highest) = channel.physical_range, channel.digital_range
    if not (math.isfinite(high - low) and high != low and lowest < highest):
        raise RecordingError(
            f"{path} maps the digital values {lowest:g} to {highest:g} of {channel.label!r} to "
            f"{low:g} to {high:g}, expected two ranges"
        )
    unit = microvolts(channel, path)
    gain = (high - low) / (highest - lowest)
    return unit * gain, unit * (low - gain * lowest)


Runs = list[tuple[int, float]]  # runs of contiguous records: the first record, and its time in s


def _runs(
    header: Header, records: NDArray[np.uint8], sfreq: float, path: str | Path
) -> tuple[float, Runs]:
    """Return the first record's onset, in s after the header's start, and runs relative to it."""
    if not header.annotation_spans:
        if header.discontinuous:
            raise RecordingError(
                f"{path} is discontinuous (EDF+D) but has no 'EDF Annotations' that say when its "
                "records begin"
            )
        return 0.0, [(0, 0.0)]
    n_timed = header.n_records if header.discontinuous else 1
    onsets_s = [_onset(record, header, path) for record in records[:n_timed]]
    runs = [(0, 0.0)]
    for index, onset_s in enumerate(onsets_s):
        first, begin_s = runs[-1]
        late_s = onset_s - onsets_s[0] - begin_s - (index - first) * header.record_s
        # onsets are written with few digits: a record off by up to a sample is contiguous
        if late_s < -1.01 / sfreq:
            raise RecordingError(
                f"{path} has record {index} begin at {onset_s:g} s, {-late_s:g} s before the one "
                "before it ends"
            )
        if late_s > 1.01 / sfreq:
            runs.append((index, onset_s - onsets_s[0]))
    return onsets_s[0], runs


def _onset(record: NDArray[np.uint8], header: Header, path: str | Path) -> float:
    """Return the onset of a record, with which its first annotation signal begins."""
    begin, end = header.annotation_spans[0]
    content = record[begin:end].tobytes().partition(b"\x00")[0]
    annotations = parse_annotations(content, path)
    if annotations and not annotations[0].text:
        return annotations[0].onset_s
    if not header.discontinuous:
        return 0.0
    raise RecordingError(
        f"{path} is discontinuous (EDF+D) and does not say when each record begins"
    )


def _in_time(
    signal: NDArray[np.float32], runs: Runs, sfreq: float, n_records: int, path: str | Path
) -> tuple[NDArray[np.float32], Gaps]:
    """Place runs of records at their times, with zeros in the gaps between them."""
    if len(runs) == 1:
        return signal, ()
    per_record = signal.shape[1] // n_records
    firsts = [first * per_record for first, _ in runs] + [signal.shape[1]]
    places = [round(begin_s * sfreq) for _, begin_s in runs]
    length = places[-1] + firsts[-1] - firsts[-2]
    if length > _MOST_WITH_GAPS_S * sfreq:
        raise RecordingError(
            f"{path} reaches over {length / sfreq:.0f} s with its gaps, expected at most "
            f"{_MOST_WITH_GAPS_S:.0f} s"
        )
    filled = np.zeros((len(signal), length), np.float32)
    gaps_s = []
    end = 0
    for first, last, place in zip(firsts[:-1], firsts[1:], places, strict=True):
        if place > end:
            gaps_s.append((end / sfreq, place / sfreq))
        end = place + last - first
        filled[:, place:end] = signal[:, first:last]
    return filled, tuple(gaps_s)


# EDF+ separates by control characters: a list ends with NUL, its parts end with DC4, and NAK
# precedes a duration
_END, _PART, _DURATION = b"\x00", b"\x14", b"\x15"


def parse_annotations(content: bytes, path: str | Path) -> list[Annotation]:
    """Return the annotations of a data record; the first is time-keeping and has an empty text."""
    annotations = []
    for entry in content.split(_END):
        if not entry:
            continue
        time, *texts = entry.split(_PART)
        onset, mark, duration = time.partition(_DURATION)
        onset_s = seconds(decode(onset), path, signed=True)
        duration_s = seconds(decode(duration), path, signed=False) if mark else None
        annotations += [
            Annotation(onset_s, duration_s, decode(text)) for text in (texts[:-1] or [b""])
        ]
    return annotations


def decode(text: bytes) -> str:
    """Decode text as UTF-8, as EDF+ requires, or else as Latin-1, as many programs write."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text.decode("latin-1")


def seconds(text: str, path: str | Path, *, signed: bool | None = None) -> float:
    """Parse a time; in EDF+ annotations, an onset must be signed and a duration unsigned."""
    value = number_or_nan(text)
    mistaken = signed is not None and text.startswith(("+", "-")) != signed
    if mistaken or not abs(value) <= _LAST_S:
        raise RecordingError(
            f"{path} has {text.strip()!r:.50} as a time, expected seconds within {_LAST_S:.0f}"
        )
    return value
