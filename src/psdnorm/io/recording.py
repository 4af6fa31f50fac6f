"""Read a night on disk, its signal and its scoring, into a :class:`Recording`."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psdnorm.constants import EPOCH_S, STAGES, UNSCORED
from psdnorm.errors import ArgumentError, RecordingError
from psdnorm.io import edf, mne_formats
from psdnorm.io.channels import Header, Wanted, candidates, one_rate, resolve
from psdnorm.io.edf import Gaps
from psdnorm.io.scoring import Bout, grid_s, place, read_bouts, whole_epochs

_OURS = (".edf", ".rec", ".bdf")
_ROUNDING_S = 1e-6  # less than a sample at any supported rate, so it never reaches another epoch


@dataclass(frozen=True, eq=False)
class Recording:
    """One night: a signal, the stages aligned with it, and its source.

    It does not identify the sleeper: names, birth dates and patient ids stay in the file.

    Attributes
    ----------
    signal : ndarray, (C, T), float32
        In µV.
    stages : ndarray, (E,), int8
        W, N1, N2, N3, REM = 0…4 and -1 where unscored, for each of the E complete 30 s epochs of
        the signal, counted from its first sample.
    start : datetime or None
        Time of the first sample, without a time zone, if the file gives it.
    gaps_s : tuple of (float, float)
        Pauses of the recording, in seconds from the first sample; the signal is 0 there.
    """

    signal: NDArray[np.float32]
    channels: tuple[str, ...]
    sfreq: float
    stages: NDArray[np.int8]
    start: datetime | None
    source: str
    gaps_s: Gaps = ()

    def __post_init__(self) -> None:
        if self.signal.ndim != 2 or self.signal.dtype != np.float32:
            raise RecordingError(
                f"{self.source}: signal has shape {self.signal.shape} and type "
                f"{self.signal.dtype}, expected (C, T) and float32"
            )
        if len(self.channels) != len(self.signal):
            raise RecordingError(
                f"{self.source}: channels has {len(self.channels)} names, expected one for each "
                f"of the signal's {len(self.signal)} rows"
            )
        if not 0 < self.sfreq < np.inf:
            raise RecordingError(f"{self.source}: sfreq is {self.sfreq}, expected a rate in Hz")
        expected = whole_epochs(self.signal.shape[1] / self.sfreq)
        if self.stages.shape != (expected,) or self.stages.dtype != np.int8:
            raise RecordingError(
                f"{self.source}: stages has shape {self.stages.shape} and type "
                f"{self.stages.dtype}, expected ({expected},), the signal's whole 30 s epochs, "
                "and int8"
            )
        if np.any((self.stages < UNSCORED) | (self.stages >= len(STAGES))):
            raise RecordingError(
                f"{self.source}: stages reach from {self.stages.min()} to {self.stages.max()}, "
                f"expected {UNSCORED} to {len(STAGES) - 1}"
            )

    @property
    def in_gap(self) -> NDArray[np.bool_]:
        """Mask of the epochs that contain a gap, (E,); they are unscored."""
        return epochs_in_gaps(self.gaps_s, len(self.stages))


def epochs_in_gaps(gaps_s: Iterable[tuple[float, float]], n_epochs: int) -> NDArray[np.bool_]:
    """Return a mask of the epochs that contain a gap, (E,)."""
    in_gap = np.zeros(n_epochs, bool)
    for begin_s, end_s in gaps_s:
        first = np.floor((begin_s + _ROUNDING_S) / EPOCH_S)
        end = np.ceil((end_s - _ROUNDING_S) / EPOCH_S)
        in_gap[max(0, int(first)) : max(0, int(end))] = True
    return in_gap


@dataclass(frozen=True, eq=False)
class Source:
    """An opened file or MNE Raw: its header is read once, channels on demand."""

    name: str  # of the file, without its folder
    called: str  # the path of a file; its name in error messages
    header: Header
    raw: Any = None  # None for EDF and BDF

    def read(self, wanted: Wanted) -> Recording:
        """Read channels as :func:`read_channels` does."""
        named, labels = candidates(wanted), self.header.labels
        found = [resolve(options, labels, self.called)[1] for options in named.values()]
        used = sorted({index for weights in found for index in weights})
        sfreq = one_rate({labels[i]: self.header.channels[i].sfreq for i in used}, self.called)
        start, first_s, gaps_s = self.header.start, 0.0, Gaps()
        if self.raw is None:
            signal, first_s, gaps_s = edf.read_signals(self.called, self.header, found, sfreq)
        else:
            signal = mne_formats.read_signals(self.raw, self.header, found, self.called)
        if start is not None:
            start += timedelta(seconds=first_s)
        stages = np.full(whole_epochs(signal.shape[1] / sfreq), UNSCORED, np.int8)
        return Recording(signal, tuple(named), sfreq, stages, start, self.called, gaps_s)


def open_source(raw_or_path: Any) -> Source:
    """Open a file or an MNE Raw and read its header."""
    if isinstance(raw_or_path, str | os.PathLike):
        path = Path(raw_or_path)
        if path.suffix.lower() in _OURS:
            return Source(path.name, str(path), edf.parse_header(path))
        raw = mne_formats.open_raw(path)
        return Source(path.name, str(path), mne_formats.header_of(raw), raw)
    if not (hasattr(raw_or_path, "info") and hasattr(raw_or_path, "get_data")):
        raise ArgumentError(
            f"raw_or_path is a {type(raw_or_path).__name__}, expected a path or an MNE Raw"
        )
    files = [file for file in getattr(raw_or_path, "filenames", ()) or () if file]
    name = Path(files[0]).name if files else "raw"
    return Source(name, name, mne_formats.header_of(raw_or_path), raw_or_path)


def read_header(path: str | Path) -> Header:
    """Read the header of a file (channels, start, duration); formats as in :func:`read_channels`.

    Neither samples nor identity are read. A missing or damaged file raises RecordingError.
    """
    return open_source(path).header


def read_channels(path: str | Path, wanted: Wanted) -> Recording:
    """Read only the wanted channels, as a recording without stages.

    RecordingError is raised if the file is damaged or a channel is missing (the error lists those
    found), is not measured in volts, or has a different rate from the others.

    Parameters
    ----------
    path : str or Path
        EDF, EDF+ or BDF, or any other format that MNE reads (needs ``psdnorm[recordings]``).
    wanted : sequence of str, or mapping of str to str or sequence of str
        Expressions such as ``"C3-A2"``, C3 minus A2 unless the file has a channel of that name, or
        ``"(Fp1+Fp2)/2-Cz"``; or a mapping of names to candidate expressions, in order of
        preference. Blanks and case are ignored.
    """
    return open_source(path).read(wanted)


def read_recording(
    path: str | Path | Source, wanted: Wanted, scoring: str | Path | None = None
) -> Recording:
    """Read the channels of a night, like :func:`read_channels`, and its stages.

    If the scorer's 30 s epochs begin, say, 7 s into the signal, those 7 s are cut off and ``start``
    is 7 s later, so that epochs are those the scorer saw. An epoch that contains a gap is unscored.
    Files that are damaged or do not belong together raise RecordingError.

    Parameters
    ----------
    scoring : str or Path, optional
        The stages, see :func:`read_stages`; without it every epoch is unscored. It may be ``path``
        itself, an EDF+ that contains both.
    """
    source = path if isinstance(path, Source) else open_source(path)
    read = source.read(wanted)
    signal, start, gaps_s = read.signal, read.start, read.gaps_s
    bouts = list[Bout]()
    if scoring is not None:
        is_within = Path(scoring) == Path(source.called)
        bouts = read_bouts(scoring, start, source.header if is_within else None)
        cut = round(grid_s(bouts) * read.sfreq)
        cut_s = cut / read.sfreq
        signal = signal[:, cut:]
        start = None if start is None else start + timedelta(seconds=cut_s)
        gaps_s = tuple((begin_s - cut_s, end_s - cut_s) for begin_s, end_s in gaps_s)
        bouts = [bout._replace(onset_s=bout.onset_s - cut_s) for bout in bouts]
    duration_s = signal.shape[1] / read.sfreq
    if whole_epochs(duration_s) == 0:
        raise RecordingError(
            f"{source.called} lasts {duration_s:g} s, expected at least {EPOCH_S} s"
        )
    stages = place(bouts, duration_s, scoring or source.called)
    stages[epochs_in_gaps(gaps_s, len(stages))] = UNSCORED
    if scoring is not None and (stages == UNSCORED).all():
        raise RecordingError(f"{scoring} scores no epoch of {source.called} without a gap")
    return replace(read, signal=signal, stages=stages, start=start, gaps_s=gaps_s)
