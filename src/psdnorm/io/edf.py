"""EDF, EDF+ and BDF: the channels that are needed, in µV, at their own rate and in their time."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import RecordingError
from psdnorm.io import mne_formats as other_formats
from psdnorm.io.channels import Channels, Wanted, Weights, candidates, microvolts, one_rate, resolve
from psdnorm.io.edf_header import Annotation, Channel, Header, parse_annotations, parse_header

_OURS = (".edf", ".rec", ".bdf")
_AT_ONCE = 2**20  # samples that are held in double precision
_LONGEST_S = 7 * 86400.0  # gaps are filled up to a week: more is a damaged clock


def read_header(path: str | Path) -> Header:
    """Read what a file says about its channels; no sample and no identity.

    Parameters
    ----------
    path : str or Path
        EDF, EDF+ or BDF; whatever else MNE reads (needs ``psdnorm[recordings]``).

    Returns
    -------
    Header
        Labels, rates, units and ranges of its channels, start, duration, discontinuous or not.

    Raises
    ------
    RecordingError
        If there is no such file, or it is damaged.
    """
    if Path(path).suffix.lower() not in _OURS:
        return other_formats.read_header(path)
    with _reading(path):
        return parse_header(Path(path))


def read_channels(path: str | Path, wanted: Wanted) -> Channels:
    """Read the channels that are wanted and none besides.

    Parameters
    ----------
    path : str or Path
        EDF, EDF+ or BDF; whatever else MNE reads (needs ``psdnorm[recordings]``).
    wanted : sequence of str, or mapping of str to str or sequence of str
        Expressions such as ``"C3-A2"``, C3 minus A2 unless the file has a channel of that name, or
        ``"(Fp1+Fp2)/2-Cz"``; or names, each with the expressions that may stand for it, in order.
        Blanks and case do not count.

    Returns
    -------
    Channels
        The signal, (C, T), in µV; where an EDF+D pauses it is 0, and ``gaps_s`` says where.

    Raises
    ------
    RecordingError
        If a channel is missing (the error lists those found), is not measured in volts, or has
        another rate than the others; if the file is damaged.
    """
    names = candidates(wanted)
    if Path(path).suffix.lower() not in _OURS:
        return other_formats.read_channels(path, names)
    with _reading(path):
        header = parse_header(Path(path))
        found = [resolve(options, header.labels, path) for options in names.values()]
        used = sorted({index for _, weights in found for index in weights})
        sfreq = one_rate({header.labels[i]: header.channels[i].sfreq for i in used}, path)
        if header.duration_s == 0:
            raise RecordingError(f"{path} has channels but not one record of them")
        records = _records(header, Path(path))
        first_s, runs = _runs(header, records, sfreq, path)
        signal = np.stack([_derive(records, header, weights, path) for _, weights in found])
    start = None if header.start is None else header.start + timedelta(seconds=first_s)
    signal, gaps_s = _in_time(signal, runs, sfreq, header.n_records, path)
    expressions = tuple(expression for expression, _ in found)
    return Channels(signal, tuple(names), expressions, sfreq, start, gaps_s, str(path))


def read_annotations(path: str | Path) -> tuple[list[Annotation], datetime | None]:
    """Read the annotations of an EDF+ file.

    Returns
    -------
    annotations : list of Annotation
        In the order of the file, without those that only keep time.
    start : datetime or None
        What their onsets are counted from.
    """
    with _reading(path):
        header = parse_header(Path(path))
    if not header.annotation_spans:
        raise RecordingError(
            f"{path} has no annotations, found the channels {', '.join(header.labels)}, "
            "expected an EDF+ with 'EDF Annotations'"
        )
    return list(each_annotation(path)), header.start


def each_annotation(path: str | Path) -> Iterator[Annotation]:
    """Yield the annotations of :func:`read_annotations` as they are read; none of a plain EDF."""
    with _reading(path):
        header = parse_header(Path(path))
        for record in _records(header, Path(path)) if header.annotation_spans else ():
            for begin, end in header.annotation_spans:
                annotations = parse_annotations(record[begin:end].tobytes(), path)
                yield from (annotation for annotation in annotations if annotation.text)


@contextmanager
def _reading(path: str | Path) -> Iterator[None]:
    """Say in one sentence what the operating system says of a file."""
    try:
        yield
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror or error}") from error


def _records(header: Header, path: Path) -> NDArray[np.uint8]:
    """Return the data records, (n_records, bytes), which are read when they are looked at."""
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


Runs = list[tuple[int, float]]  # records that follow each other: the first one, and its time in s


def _runs(
    header: Header, records: NDArray[np.uint8], sfreq: float, path: str | Path
) -> tuple[float, Runs]:
    """Return when the first record begins, in s after the header's start, and the runs after it."""
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
        # onsets are written with few digits: what is off by up to a sample follows on
        if late_s < -1.01 / sfreq:
            raise RecordingError(
                f"{path} has record {index} begin at {onset_s:g} s, {-late_s:g} s before the one "
                "before it ends"
            )
        if late_s > 1.01 / sfreq:
            runs.append((index, onset_s - onsets_s[0]))
    return onsets_s[0], runs


def _onset(record: NDArray[np.uint8], header: Header, path: str | Path) -> float:
    """Return when a record begins: its first annotation signal begins with that."""
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
) -> tuple[NDArray[np.float32], tuple[tuple[float, float], ...]]:
    """Put runs of records where they belong, with zeros between; say in seconds where those are."""
    if len(runs) == 1:
        return signal, ()
    per_record = signal.shape[1] // n_records
    firsts = [first * per_record for first, _ in runs] + [signal.shape[1]]
    places = [round(begin_s * sfreq) for _, begin_s in runs]
    length = places[-1] + firsts[-1] - firsts[-2]
    if length > _LONGEST_S * sfreq:
        raise RecordingError(
            f"{path} reaches over {length / sfreq:.0f} s with its gaps, expected at most "
            f"{_LONGEST_S:.0f} s"
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
