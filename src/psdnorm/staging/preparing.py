"""The signals of one night as the model expects them."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from psdnorm.constants import EPOCH_S
from psdnorm.errors import MissingExtraError, RecordingError
from psdnorm.io import Recording, Source, whole_epochs
from psdnorm.prepare import Recipe, between_gaps, examine, in_time, preprocess
from psdnorm.staging.derivations import PlannedChannel, doubt_unit, spread_uv
from psdnorm.staging.result import Spectrogram

_SEGMENT_S = 4
_HIGHEST_HZ = 30.0
_LEAST_POWER = 1e-4  # µV²/Hz: what a flat signal is drawn as


def spectrogram_of(
    row: NDArray[np.float32], sfreq: float, n_epochs: int, channel: str
) -> Spectrogram:
    """Return the PSD of each epoch up to 30 Hz.

    Parameters
    ----------
    row : ndarray, (T,)
        One channel in µV.
    sfreq : float
        Its rate in Hz.
    n_epochs : int
        E.
    channel : str
        Its name.

    Returns
    -------
    Spectrogram
        Welch's, of half-overlapping Hann windows of 4 s; NaN in epochs that are not finite.
    """
    try:
        from scipy.signal import welch
    except ImportError as error:
        raise MissingExtraError('staging needs SciPy: pip install "psdnorm[recordings]"') from error
    length = min(round(_SEGMENT_S * sfreq), int(EPOCH_S * sfreq))
    frequencies_hz = np.fft.rfftfreq(length, 1 / sfreq).astype(np.float64)
    shown = frequencies_hz <= _HIGHEST_HZ
    power_db = np.full((n_epochs, int(shown.sum())), np.nan, np.float32)
    edges = np.rint(np.arange(n_epochs + 1) * EPOCH_S * sfreq).astype(int)
    for epoch in range(n_epochs):
        samples = row[edges[epoch] : edges[epoch + 1]]
        if np.isfinite(samples).all():
            power = welch(samples, sfreq, "hann", length, detrend="constant")[1][shown]
            power_db[epoch] = 10 * np.log10(np.maximum(power, _LEAST_POWER))
    return Spectrogram(channel, frequencies_hz[shown], power_db)


# samples that are read at a time: 8 h of six channels at 256 Hz come at once, 48 h one by one
_AT_ONCE = 2**26
_LEAST_REST_S = 0.01  # less is rounding

Look = Callable[[Recording], None]


@dataclass(eq=False)
class PreparedNight:
    """A night as a model sees it, channel by channel.

    Attributes
    ----------
    n_epochs : int
        E.
    prepared : dict of str to ndarray, (E, T)
        Channels that can be used, in the type of the recipe: what ``prepare`` stores.
    measured : dict of str to ndarray of bool, (E,)
        Epochs of them that are finite, not flat, and in no gap.
    refused : dict of str to str
        Channels that cannot be used, and why.
    spectrogram : Spectrogram or None
        Of the first channel that can be used, else of the first.
    start : datetime or None
    notes : list of str
    unit_doubt : str
        Why its unit may be another than it says; "" where there is no doubt.
    """

    n_epochs: int = 0
    prepared: dict[str, NDArray[np.float16 | np.float32]] = field(default_factory=dict)
    measured: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    spectrogram: Spectrogram | None = None
    start: datetime | None = None
    notes: list[str] = field(default_factory=list)
    unit_doubt: str = ""

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels that can be used."""
        return tuple(self.prepared)


def prepare_channels(
    source: Source, planned: Sequence[PlannedChannel], recipe: Recipe, unit: str | None, look: Look
) -> PreparedNight:
    """Read channels and prepare each as in training; none stops the others.

    Parameters
    ----------
    source : Source
    planned : sequence of PlannedChannel
        From :func:`~psdnorm.staging.derivations.plan_channels`.
    recipe : Recipe
    unit : str or None
        As given, for what is said about it.
    look : callable
        Is shown the channels as they were read, some at a time, in µV.

    Returns
    -------
    PreparedNight

    Raises
    ------
    RecordingError
        If the file cannot be read, is shorter than an epoch, or its unit must be another.
    """
    night = PreparedNight()
    spreads_uv: list[float] = []
    ends: list[float] = []
    for read, some in _read(source, planned, night):
        recording = _in_microvolts(read, some)
        in_gap = recording.in_gap
        night.start = recording.start
        if not ends:
            night.notes += _gap_notes(read, in_gap)
        ends.append(recording.signal.shape[1] / recording.sfreq)
        spreads_uv += [spread_uv(row, recording.sfreq) for row in recording.signal]
        doubt_unit(spreads_uv, unit, source.called)  # before what takes long
        between = between_gaps(recording)
        look(between)
        _prepare_each(recording, between, in_gap, recipe, night)
    if not ends:
        raise RecordingError(next(iter(night.refused.values())))
    night.n_epochs = whole_epochs(min(ends))
    _cut_to(night)
    night.notes += _notes_on(planned, min(ends) - EPOCH_S * night.n_epochs)
    night.unit_doubt = doubt_unit(spreads_uv, unit, source.called)
    # in the order of the montage, not of the rates
    order = [each.name for each in planned if each.name in night.prepared]
    night.prepared = {name: night.prepared[name] for name in order}
    return night


def _read(
    source: Source, planned: Sequence[PlannedChannel], night: PreparedNight
) -> Iterator[tuple[Recording, list[PlannedChannel]]]:
    """Read channels, together where that works; those that cannot be read are refused alone."""
    for some in _at_a_time(source, planned):
        together = _try(source, some)
        parts = [(together, some)]
        if isinstance(together, RecordingError) and len(some) > 1:
            parts = [(_try(source, [each]), [each]) for each in some]
        for read, part in parts:
            if isinstance(read, RecordingError):
                night.refused[part[0].name] = str(read)
            else:
                yield read, part


def _try(source: Source, some: Sequence[PlannedChannel]) -> Recording | RecordingError:
    try:
        return source.read({each.name: each.expression for each in some})
    except RecordingError as error:
        return error


def _at_a_time(source: Source, planned: Sequence[PlannedChannel]) -> Iterator[list[PlannedChannel]]:
    """Yield channels of one rate that fit into memory together."""
    for sfreq in dict.fromkeys(each.sfreq for each in planned):
        alike = [each for each in planned if each.sfreq == sfreq]
        step = max(1, int(_AT_ONCE // max(1.0, sfreq * source.header.duration_s)))
        for first in range(0, len(alike), step):
            yield alike[first : first + step]


def _in_microvolts(read: Recording, some: Sequence[PlannedChannel]) -> Recording:
    """Apply the unit that the user gave; raise RecordingError if it is shorter than an epoch."""
    for row, each in zip(read.signal, some, strict=True):
        if each.factor != 1:
            row *= np.float32(each.factor)
    if not len(read.stages):
        raise RecordingError(
            f"{read.source} lasts {read.signal.shape[1] / read.sfreq:g} s, expected at least "
            f"{EPOCH_S} s"
        )
    return read


def _prepare_each(
    recording: Recording,
    between: Recording,
    in_gap: NDArray[np.bool_],
    recipe: Recipe,
    night: PreparedNight,
) -> None:
    """Prepare channels one by one, so that a bad one does not refuse the others.

    They are prepared from what is ``between`` gaps, and put where they were in time.
    """
    alone = dataclasses.replace(recipe, n_channels=1)
    n_epochs = len(recording.stages)
    for index, name in enumerate(recording.channels):
        one = dataclasses.replace(
            between, signal=between.signal[index : index + 1], channels=(name,)
        )
        first = night.spectrogram is None
        try:
            prepared = preprocess(one, alone)
            stored = _as_stored(prepared.signals[:, 0], recipe, name)
        except RecordingError as error:
            night.refused[name] = str(error).removeprefix(f"{recording.source}: ")
        else:
            first = first or not night.prepared
            quality = examine(one)
            is_measured = ~(quality.not_finite | quality.flat)[:, 0]
            night.prepared[name] = in_time(stored, in_gap)
            night.measured[name] = in_time(is_measured, in_gap)
            night.notes += prepared.flags
        if first:
            row = recording.signal[index]
            night.spectrogram = spectrogram_of(row, recording.sfreq, n_epochs, name)


def _as_stored(
    epochs: NDArray[np.float32], recipe: Recipe, name: str
) -> NDArray[np.float16 | np.float32]:
    """Return epochs, (E, T), as a store holds them: a network has seen no finer ones."""
    with np.errstate(over="ignore"):
        stored = epochs.astype(recipe.dtype)
    if not np.isfinite(stored).all():
        raise RecordingError(f"{name} has samples that are not finite in {recipe.dtype}")
    return stored


def _cut_to(night: PreparedNight) -> None:
    """Leave the epochs that all channels have."""
    last = slice(night.n_epochs)
    night.prepared = {name: signal[last] for name, signal in night.prepared.items()}
    night.measured = {name: found[last] for name, found in night.measured.items()}
    if night.spectrogram is not None:
        power_db = night.spectrogram.power_db[last]
        night.spectrogram = dataclasses.replace(night.spectrogram, power_db=power_db)


def _notes_on(planned: Sequence[PlannedChannel], rest_s: float) -> list[str]:
    notes = []
    if rest_s >= _LEAST_REST_S:
        notes.append(f"the last {rest_s:.3g} s fill no epoch of {EPOCH_S} s, and are not staged")
    if len({each.sfreq for each in planned}) > 1:
        rates = ", ".join(f"{each.name} at {each.sfreq:g} Hz" for each in planned)
        notes.append(f"channels were recorded at several rates and resampled: {rates}")
    return notes


def _gap_notes(read: Recording, in_gap: NDArray[np.bool_]) -> list[str]:
    if not read.gaps_s:
        return []
    gone_s = sum(end_s - begin_s for begin_s, end_s in read.gaps_s)
    return [
        f"the recording paused {len(read.gaps_s)} times, for {gone_s:g} s in all: "
        f"{int(in_gap.sum())} epochs are not staged"
    ]
