"""One night in, its hypnogram out."""

import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from psdnorm.cohorts import parse_channels
from psdnorm.constants import EPOCH_S, UNSCORED
from psdnorm.errors import ArgumentError
from psdnorm.io import Recording, Wanted, open_source
from psdnorm.staging.derivations import electrode_conditions, factor_of, plan_channels
from psdnorm.staging.models import StagingModel, load_model
from psdnorm.staging.preparing import PreparedNight, prepare_channels
from psdnorm.staging.result import StagedNight
from psdnorm.staging.shift import Condition, channel_conditions
from psdnorm.staging.sleep_statistics import find_lights, sleep_statistics
from psdnorm.staging.trust import choose_voters, doubt_of_unit, how_far_to_trust
from psdnorm.staging.vote import count_votes, dissenters, predict_groups
from psdnorm.training import Forward, resolve_device

_CLOCKS = ("%H:%M", "%H:%M:%S")


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
        EDF, EDF+ or BDF, or whatever else MNE reads (BrainVision, FIF, …).
    model : StagingModel, path or None
        What :func:`~psdnorm.staging.load_model` takes or gives; without, the model that comes with
        psdnorm.
    channels : str, sequence or mapping, optional
        EEG channels or derivations to use, as ``"Fpz-Cz, Pz-Oz"``; without, all that are known by
        their labels. All groups of as many as the model takes vote, ten at most, but for those
        that are not to be trusted while others are.
    unit : {"V", "mV", "uV", "nV"}, optional
        What the numbers in the file are in, if not in what it says; for what MNE reads, it says V.
    lights_off, lights_on : float or str, optional
        Seconds from the start of the recording, or a clock time as ``"23:15"``.
    device : str or torch.device, optional
        Where the model computes; a CUDA device where there is one.
    forward : callable, optional
        The model's network, faster, as :func:`psdnorm.models.accelerate` makes it; for many nights.

    Returns
    -------
    StagedNight

    Raises
    ------
    RecordingError
        If the recording cannot be read, has no EEG channel that is known, less than one epoch, or
        amplitudes that can be EEG in another unit alone. A night whose channels can be read but
        not staged, as they are flat, is returned without stages and is not to be trusted.
    """
    place = resolve_device("auto" if device is None else device)
    if unit is not None:
        factor_of(unit)
    wanted = parse_channels(channels.replace(",", ";")) if isinstance(channels, str) else channels
    chosen = model if isinstance(model, StagingModel) else load_model(model)
    source = open_source(raw_or_path)
    planned, notes = plan_channels(source, wanted, chosen.recipe, unit)
    conditions: list[Condition] = []

    def look(recording: Recording) -> None:
        found = channel_conditions(
            recording.signal, recording.sfreq, recording.channels, recording.source
        )
        conditions.extend(found)

    night = prepare_channels(source, planned, chosen.recipe, unit, look)
    conditions += electrode_conditions(source, planned, night.measured)
    # outputs travel: they name the file, and not whose folder it was in
    refused = night.refused.items()
    night.refused = {name: why.replace(source.called, source.name) for name, why in refused}
    off_s, on_s = _lights(lights_off, lights_on, night)
    if forward is None:
        chosen.network.to(place)
    electorate = choose_voters(chosen, night, conditions)
    groups = electorate.groups
    votes = np.empty((0, night.n_epochs, 5), np.float32)
    if groups:
        votes = predict_groups(chosen, night.prepared, night.measured, groups, place, forward)
    stages, probabilities = count_votes(votes, _shares(night, groups))
    doubts = doubt_of_unit(night, groups, conditions) + dissenters(groups, votes, stages)
    shift = how_far_to_trust(chosen, night, electorate, conditions, doubts)
    notes += night.notes
    assert night.spectrogram is not None  # a night has a channel at least
    return StagedNight(
        source=source.name,
        start=night.start,
        hypnogram=stages,
        probabilities=probabilities,
        pairs=groups,
        pair_probabilities=votes,
        statistics=sleep_statistics(stages, lights_off=off_s, lights_on=on_s),
        shift=shift,
        spectrogram=night.spectrogram,
        model=chosen.description,
        notes=tuple(dict.fromkeys(note.replace(source.called, source.name) for note in notes)),
        notice=chosen.notice,
    )


def seconds_of(name: str, time: float | str | None, start: datetime | None) -> float | None:
    """Return when something was, in seconds from the start of a recording.

    Parameters
    ----------
    name : str
        What the argument is called, for the error.
    time : float, str or None
        Seconds, or the first such time on the clock after the start: ``"23:15"``.
    start : datetime or None

    Examples
    --------
    >>> seconds_of("lights_off", "00:30", datetime(2021, 3, 4, 22, 30)), seconds_of("", "90", None)
    (7200.0, 90.0)
    """
    if time is None or isinstance(time, int | float):
        return time
    try:
        return float(time)
    except ValueError:
        pass
    for form in _CLOCKS:
        try:
            clock = datetime.strptime(time.strip(), form).time()
        except ValueError:
            continue
        if start is None:
            raise ArgumentError(
                f"{name} is {time!r}, but the recording does not say when it starts: expected "
                "seconds from its start"
            )
        wait = datetime.combine(start.date(), clock) - start
        return (wait % timedelta(days=1)).total_seconds()
    raise ArgumentError(f"{name} is {time!r}, expected seconds or a clock time as 23:15")


def _lights(
    off: float | str | None, on: float | str | None, night: PreparedNight
) -> tuple[float | None, float | None]:
    """Return both in seconds; refuse those that do not fit, before anything takes long."""
    off_s, on_s = (
        seconds_of(name, time, night.start)
        for name, time in (("lights_off", off), ("lights_on", on))
    )
    if _is_clock(on) and off_s is not None and on_s is not None:
        # of a recording that is longer than a day, the first time after lights off
        on_s = off_s + (on_s - off_s) % 86400
    for name, time, found_s in (("lights_off", off, off_s), ("lights_on", on, on_s)):
        duration_s = EPOCH_S * night.n_epochs
        if _is_clock(time) and found_s is not None and found_s >= duration_s + EPOCH_S:
            assert night.start is not None  # or there would be no time on the clock
            end = night.start + timedelta(seconds=duration_s)
            raise ArgumentError(
                f"{name} is {time!r}, expected a time within the recording, which goes from "
                f"{night.start:%H:%M:%S} to {end:%H:%M:%S}"
            )
    find_lights(np.full(night.n_epochs, UNSCORED, np.int8), off_s, on_s)
    return off_s, on_s


def _is_clock(time: float | str | None) -> bool:
    return isinstance(time, str) and ":" in time


def _shares(night: PreparedNight, groups: Sequence[tuple[str, ...]]) -> NDArray[np.float64]:
    """Return the share of the channels of each group that were measured, (P, E)."""
    shares = [np.mean([night.measured[name] for name in group], axis=0) for group in groups]
    return np.array(shares).reshape(len(groups), night.n_epochs)
