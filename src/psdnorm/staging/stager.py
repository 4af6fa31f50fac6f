"""A recording in, its hypnogram out."""

import importlib
import os
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from psdnorm.cohorts import parse_channels
from psdnorm.constants import EPOCH_S, STAGES, UNSCORED
from psdnorm.errors import ArgumentError, MissingExtraError
from psdnorm.io import Wanted, open_source
from psdnorm.staging.derivations import (
    PreparedNight,
    Spectrogram,
    factor_of,
    plan_channels,
    prepare_night,
)
from psdnorm.staging.models import StagingModel, load_model
from psdnorm.staging.night_files import edf_start, write_edf_annotations, write_night, write_tsv
from psdnorm.staging.night_statistics import (
    Agreement,
    SleepStatistics,
    find_lights,
    sleep_statistics,
)
from psdnorm.staging.trust import ShiftReport, doubt_of_unit, report_of_votes
from psdnorm.staging.vote import (
    choose_voters,
    count_votes,
    dissenters,
    predict_groups,
    shares_measured,
)
from psdnorm.training import Forward, resolve_device

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class StagedNight:
    """A night and its hypnogram; nothing in it identifies the sleeper.

    Attributes
    ----------
    source : str
        The file's name, without its folder.
    start : datetime or None
        Time of the first sample, if the file says so.
    hypnogram : ndarray of int8, (E,)
        W, N1, N2, N3, REM = 0…4; -1 where no channel could be staged.
    probabilities : ndarray of float32, (E, 5)
        Mean over the pairs of channels that voted; NaN where no channel could be staged.
    pairs : tuple of tuple of str
        The P groups of channels, usually pairs, that voted.
    pair_probabilities : ndarray of float32, (P, E, 5)
        Those of each group; NaN where none of its channels was measured.
    shift : ShiftReport
        How far to trust it.
    spectrogram : Spectrogram
        Of the first channel.
    model : dict
        Name, architecture and checksum of the model.
    notes : tuple of str
        How it was staged: channels fed twice, units, gaps, flags.
    notice : str or None
        Printed on every output.
    """

    source: str
    start: datetime | None
    hypnogram: NDArray[np.int8]
    probabilities: NDArray[np.float32]
    pairs: tuple[tuple[str, ...], ...]
    pair_probabilities: NDArray[np.float32]
    statistics: SleepStatistics
    shift: ShiftReport
    spectrogram: Spectrogram
    model: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    notice: str | None = None

    @property
    def confidence(self) -> NDArray[np.float32]:
        """Probability of the stage given, (E,); NaN where there is none."""
        return self.probabilities.max(axis=1)

    @property
    def disagreement(self) -> NDArray[np.float32]:
        """Share of the pairs that disagree with the vote, (E,); NaN without votes."""
        votes = ~np.isnan(self.pair_probabilities).any(axis=2)  # (P, E)
        own = np.nan_to_num(self.pair_probabilities).argmax(axis=2)
        others = (votes & (own != self.hypnogram)).sum(axis=0)
        with np.errstate(invalid="ignore"):
            return (others / votes.sum(axis=0)).astype(np.float32)

    def plot(self) -> "Figure":
        """Draw hypnogram, probabilities, spectrogram and confidence."""
        from psdnorm.staging.night_page import draw_night

        return draw_night(self)

    def to_tsv(self, path: str | os.PathLike[str]) -> None:
        """Write the hypnogram as BIDS events; see :func:`psdnorm.staging.write_tsv`."""
        write_tsv(Path(path), self.hypnogram, self.probabilities)

    def to_edf(self, path: str | os.PathLike[str]) -> None:
        """Write the hypnogram as EDF+ annotations, which MNE and EDFbrowser read."""
        start = edf_start(self.start)
        write_edf_annotations(Path(path), self.hypnogram, start, notice=self.notice)

    def to_yasa(self) -> Any:
        """Return a ``yasa.Hypnogram``; needs YASA."""
        try:
            yasa = importlib.import_module("yasa")
        except ImportError as error:
            raise MissingExtraError("to_yasa needs YASA: pip install yasa") from error
        names = ["WAKE", *STAGES[1:]]
        values = ["UNS" if stage == UNSCORED else names[stage] for stage in self.hypnogram]
        start = None if self.start is None else self.start.isoformat(sep=" ", timespec="seconds")
        return yasa.Hypnogram(values, n_stages=5, freq=f"{EPOCH_S}s", start=start)

    def write(
        self,
        folder: str | os.PathLike[str],
        name: str | None = None,
        *,
        agreement: Agreement | None = None,
    ) -> list[Path]:
        """Write all files of the night; see :func:`psdnorm.staging.write_night`."""
        return write_night(folder, self, name, agreement=agreement)


def stage(
    raw_or_path: Any,
    model: StagingModel | str | os.PathLike[str] | None = None,
    channels: str | Wanted | None = None,
    unit: str | None = None,
    lights_off: float | str | None = None,
    lights_on: float | str | None = None,
    device: str | torch.device | None = None,
    *,
    forward: Forward | None = None,
) -> StagedNight:
    """Stage a night.

    Parameters
    ----------
    raw_or_path : str, path or mne.io.BaseRaw
        EDF, EDF+, BDF, or another format that MNE reads (BrainVision, FIF, …).
    model : StagingModel, path or None
        A model, or a folder for :func:`~psdnorm.staging.load_model`; by default the model that
        comes with psdnorm.
    channels : str, sequence or mapping, optional
        EEG channels or derivations, as ``"Fpz-Cz, Pz-Oz"``; by default all with known labels. All
        groups of the model's number of channels vote, ten at most. Untrusted groups vote only if
        no group is trusted.
    unit : {"V", "mV", "uV", "nV"}, optional
        Unit of the numbers in the file, if the file is wrong about it.
    lights_off, lights_on : float or str, optional
        Seconds from the start of the recording, or a clock time as ``"23:15"``.
    device : str or torch.device, optional
        By default a CUDA device if there is one.
    forward : callable, optional
        The model's network as :func:`psdnorm.models.accelerate` made it; for many nights.

    Raises
    ------
    RecordingError
        If the recording cannot be read, has no known EEG channel, is shorter than an epoch, or has
        amplitudes that only a wrong unit can explain. A night whose channels are all flat is
        returned without stages, with the verdict "do not trust".
    """
    place = resolve_device("auto" if device is None else device)
    if unit is not None:
        factor_of(unit)
    wanted = parse_channels(channels.replace(",", ";")) if isinstance(channels, str) else channels
    chosen = model if isinstance(model, StagingModel) else load_model(model)
    source = open_source(raw_or_path)
    planned, notes = plan_channels(source, wanted, chosen.recipe, unit)
    night = prepare_night(source, planned, chosen.recipe, unit)
    # outputs may be shared: they name the file but not its folder
    unusable = night.unusable.items()
    night.unusable = {name: why.replace(source.called, source.name) for name, why in unusable}
    off_s, on_s = _lights_s(lights_off, lights_on, night)
    if forward is None:
        chosen.network.to(place)
    voters, excluded = choose_voters(chosen, night)
    groups = tuple(pair.channels for pair in voters)
    votes = predict_groups(chosen, night, groups, place, forward)
    stages, probabilities = count_votes(votes, shares_measured(night, groups))
    doubts = doubt_of_unit(night, groups) + dissenters(groups, votes, stages)
    notes += night.notes
    assert night.spectrogram is not None  # a night has at least one channel
    return StagedNight(
        source=source.name,
        start=night.start,
        hypnogram=stages,
        probabilities=probabilities,
        pairs=groups,
        pair_probabilities=votes,
        statistics=sleep_statistics(stages, lights_off=off_s, lights_on=on_s),
        shift=report_of_votes(chosen.network, night, voters, excluded, doubts),
        spectrogram=night.spectrogram,
        model=chosen.description,
        notes=tuple(dict.fromkeys(note.replace(source.called, source.name) for note in notes)),
        notice=chosen.notice,
    )


def seconds_of(name: str, time: float | str | None, start: datetime | None) -> float | None:
    """Return a time in seconds from the start of a recording; ``name`` is that of the argument.

    A clock time is the first one after the start.

    >>> seconds_of("lights_off", "00:30", datetime(2021, 3, 4, 22, 30)), seconds_of("", "90", None)
    (7200.0, 90.0)
    """
    if time is None or isinstance(time, int | float):
        return time
    with suppress(ValueError):
        return float(time)
    for form in ("%H:%M", "%H:%M:%S"):
        with suppress(ValueError):
            clock = datetime.strptime(time.strip(), form).time()
            break
    else:
        raise ArgumentError(f"{name} is {time!r}, expected seconds or a clock time as 23:15")
    if start is None:
        raise ArgumentError(
            f"{name} is {time!r}, but the recording does not say when it starts: expected "
            "seconds from its start"
        )
    return ((datetime.combine(start.date(), clock) - start) % timedelta(days=1)).total_seconds()


def _lights_s(
    off: float | str | None, on: float | str | None, night: PreparedNight
) -> tuple[float | None, float | None]:
    """Return both in seconds; raise if they do not fit, before any long computation."""
    off_s = seconds_of("lights_off", off, night.start)
    on_s = seconds_of("lights_on", on, night.start)
    if _is_clock(on) and off_s is not None and on_s is not None:
        # in a recording longer than a day, the first time after lights off
        on_s = off_s + (on_s - off_s) % 86400
    duration_s = EPOCH_S * night.n_epochs
    for name, time, found_s in (("lights_off", off, off_s), ("lights_on", on, on_s)):
        if _is_clock(time) and found_s is not None and found_s >= duration_s + EPOCH_S:
            assert night.start is not None  # else seconds_of raised
            end = night.start + timedelta(seconds=duration_s)
            raise ArgumentError(
                f"{name} is {time!r}, expected a time within the recording, which goes from "
                f"{night.start:%H:%M:%S} to {end:%H:%M:%S}"
            )
    find_lights(np.full(night.n_epochs, UNSCORED, np.int8), off_s, on_s)
    return off_s, on_s


def _is_clock(time: float | str | None) -> bool:
    return isinstance(time, str) and ":" in time
