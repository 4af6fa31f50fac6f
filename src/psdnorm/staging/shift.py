"""How far a night is from what a model has learned from, and whether to trust its hypnogram."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import ArgumentError
from psdnorm.models.checkpoint import Pretrained
from psdnorm.staging.conditions import Condition
from psdnorm.staging.verdict import (
    IN_RANGE,
    NOT_TRUSTED,
    UNUSUAL,
    VERDICTS,
    Reason,
    reasons_of,
    remarks_of,
    worst_of,
)
from psdnorm.training.spectra import NightSpectra, bin_weights, measure_night
from psdnorm.training.spread import Spread, measures, spread_of

__all__ = ["IN_RANGE", "NOT_TRUSTED", "UNUSUAL", "Distance", "ShiftReport", "shift_report"]
_UNKNOWN = (
    "The model does not know its training nights, so that nobody can say how far this night is "
    "from them."
)


@dataclass(frozen=True)
class Distance:
    """How far a night's PSDs are from a barycenter, against the nights of the training.

    Attributes
    ----------
    where : str
        ``input``, or the name of a PSDNorm layer in the model.
    value : float
        Bures–Wasserstein distance, in the unit of the prepared signal (of the layer's input).
    typical : float
        Median over the training nights.
    limit : float
        What 99 % of the training nights stay below, in this and all other measures at once.
    rank : float
        Share of the training nights that are nearer, from 0 to 1.
    """

    where: str
    value: float
    typical: float
    limit: float
    rank: float


@dataclass(frozen=True, eq=False)
class ShiftReport:
    """Whether to trust a night's hypnogram.

    Attributes
    ----------
    verdict : {"in range", "unusual", "do not trust"}
    reasons : tuple of str
        One sentence each; empty where the night is in range.
    distances : tuple of Distance
        Of the input (unless a channel was not measured), then of each PSDNorm layer; empty if the
        model does not know its training nights.
    channels : tuple of str
        C names: of the pair that the model was shown.
    frequencies_hz : ndarray, (F,)
    night_psd, training_psd : ndarray, (C, F)
        PSDs of the prepared night, and of the training's barycenter (NaN where it is unknown):
        one-sided densities in squared units of the recipe per Hz.
    filter_db : ndarray, (C, F)
        Response of the Monge filter that would map the first onto the second; NaN where there is
        none.
    remarks : tuple of str
        What weakens the verdict, whatever it is.
    """

    verdict: str
    reasons: tuple[str, ...]
    distances: tuple[Distance, ...]
    channels: tuple[str, ...]
    frequencies_hz: NDArray[np.float64]
    night_psd: NDArray[np.float64]
    training_psd: NDArray[np.float64]
    filter_db: NDArray[np.float64]
    remarks: tuple[str, ...] = ()


def shift_report(
    model: Pretrained,
    signals: NDArray[np.floating],
    channels: Sequence[str],
    sfreq: float,
    conditions: Sequence[Condition] = (),
) -> ShiftReport:
    """Hold a night against those that a model was trained on.

    Parameters
    ----------
    model : Pretrained
        With the spread of its training nights in its card; without it the verdict is "unusual" at
        best, as nothing is known.
    signals : ndarray, (E, C, T)
        The night as the model is shown it: prepared by its recipe. Epochs that are not finite are
        left out.
    channels : sequence of str
        C names.
    sfreq : float
        Of ``signals``, in Hz.
    conditions : sequence of Condition
        What :func:`~psdnorm.staging.conditions.channel_conditions` found in these channels.

    Returns
    -------
    ShiftReport

    Raises
    ------
    ShapeError, ArgumentError
        If the night is not of the shape, or the rate, that the model expects.
    CheckpointError
        If the model's spread does not fit the model.
    """
    rate = model.config["sfreq"]
    if sfreq != rate:
        raise ArgumentError(f"sfreq is {sfreq:g} Hz, expected the model's {rate:g} Hz")
    if len(channels) != model.config["n_chans"]:
        raise ArgumentError(
            f"channels has {len(channels)} names, expected the model's {model.config['n_chans']}"
        )
    spread = spread_of(model)
    night = measure_night(model, signals)
    reasons = [(each.verdict, each.sentence) for each in conditions]
    reasons += _dead(night, channels, conditions)
    distances: tuple[Distance, ...] = ()
    if spread is None:
        target = np.full_like(night.sqrt_psd, np.nan)
        reasons.append((UNUSUAL, _UNKNOWN))
    else:
        target = spread.sqrt_barycenter
        found = measures(night, target)
        reasons += reasons_of(night, found, spread, channels)
        distances = _distances(found, spread)
    reasons = list(dict.fromkeys(reasons))  # a channel that is fed twice is wrong once
    reasons.sort(key=lambda reason: VERDICTS.index(reason[0]), reverse=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = target / night.sqrt_psd
        filter_db = 20 * np.log10(np.where(ratio > 0, ratio, np.nan))
    return ShiftReport(
        verdict=worst_of([verdict for verdict, _ in reasons]),
        reasons=tuple(sentence for _, sentence in reasons),
        distances=distances,
        channels=tuple(channels),
        frequencies_hz=night.frequencies_hz,
        night_psd=_density(night.sqrt_psd, night),
        training_psd=_density(target, night),
        filter_db=np.where(np.isfinite(filter_db), filter_db, np.nan),
        remarks=remarks_of(model, spread),
    )


def _dead(
    night: NightSpectra, channels: Sequence[str], conditions: Sequence[Condition]
) -> list[Reason]:
    """Name channels without any power, unless a condition says so."""
    said = {each.channel for each in conditions if each.verdict == NOT_TRUSTED}
    alive = night.sqrt_psd.sum(axis=1) > 0  # NaN is not
    return [
        (NOT_TRUSTED, f"{channel} is flat or was not measured.")
        for channel, lives in zip(channels, alive, strict=True)
        if not lives and channel not in said
    ]


def _distances(found: Mapping[str, float], spread: Spread) -> tuple[Distance, ...]:
    names = ["input", *(name for name in found if name.startswith("layer/"))]
    known = [(n, spread.ranges[n]) for n in names if n in spread.ranges and isfinite(found[n])]
    return tuple(
        Distance(
            name.removeprefix("layer/"),
            found[name],
            limits.typical,
            limits.high,
            limits.rank(found[name]),
        )
        for name, limits in known
    )


def _density(sqrt_psd: NDArray[np.float64], night: NightSpectra) -> NDArray[np.float64]:
    """Return a one-sided density, (C, F): its sum times the width of a bin is the variance."""
    return sqrt_psd**2 * bin_weights(night.size) * night.size / night.sfreq
