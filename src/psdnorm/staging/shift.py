"""How far a night is from what a model has learned from, and whether to trust its hypnogram."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from psdnorm.drift.feature_spectra import NightSpectra, bin_weights, measure_night
from psdnorm.drift.spread import Spread, measures, spread_of
from psdnorm.errors import ArgumentError
from psdnorm.models.checkpoint import Pretrained
from psdnorm.staging.conditions import Condition
from psdnorm.staging.trust_verdict import (
    IN_RANGE,
    NOT_TRUSTED,
    UNUSUAL,
    Reason,
    dead,
    reasons_of,
    remarks_of,
    told,
    worst_of,
)

__all__ = [
    "IN_RANGE",
    "NOT_TRUSTED",
    "UNUSUAL",
    "Distance",
    "PairShift",
    "ShiftReport",
    "measure_pair",
    "night_report",
    "shift_report",
]
_UNKNOWN = Reason(
    UNUSUAL,
    "The model does not know its training nights, so that nobody can say how far this night is "
    "from them.",
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
        C names, of the pair whose distances and spectra these are: of several that voted, the one
        that is farthest out of range, or the first if all are in range.
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


@dataclass(frozen=True, eq=False)
class PairShift:
    """How far the channels that are shown to a model together are from its training nights.

    Attributes
    ----------
    channels : tuple of str
        C names.
    spectra : NightSpectra
    distances : tuple of Distance
        As in :class:`ShiftReport`.
    reasons : tuple of Reason
        Why they are not in range; empty if they are.
    """

    channels: tuple[str, ...]
    spectra: NightSpectra
    distances: tuple[Distance, ...]
    reasons: tuple[Reason, ...]

    @property
    def verdict(self) -> str:
        """What their spectra alone make of the night."""
        return worst_of([reason.verdict for reason in self.reasons])

    @property
    def worst(self) -> Reason | None:
        """The reason that weighs most; None where they are in range."""
        return max(self.reasons, key=lambda reason: reason.weight, default=None)


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
    pair = measure_pair(model, signals, channels, sfreq)
    return night_report(model, [pair], conditions)


def measure_pair(
    model: Pretrained, signals: NDArray[np.floating], channels: Sequence[str], sfreq: float
) -> PairShift:
    """Hold the spectra of one pair of channels against the training nights of a model.

    It costs the same for a night of any length beyond 280 epochs: eight windows of 35, evenly
    spaced, go through the model as far as its last PSDNorm layer.

    Parameters
    ----------
    model, signals, channels, sfreq
        As in :func:`shift_report`.
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
    alive = night.sqrt_psd.sum(axis=1) > 0  # NaN is not
    reasons = [dead(channel) for channel, lives in zip(channels, alive, strict=True) if not lives]
    if spread is None:
        return PairShift(tuple(channels), night, (), (*reasons, _UNKNOWN))
    found = measures(night, spread.sqrt_barycenter)
    reasons += reasons_of(night, found, spread, channels)
    return PairShift(tuple(channels), night, _distances(found, spread), tuple(reasons))


def night_report(
    model: Pretrained,
    pairs: Sequence[PairShift],
    conditions: Sequence[Condition] = (),
    others: Sequence[Reason] = (),
) -> ShiftReport:
    """Say whether to trust a night on which pairs of channels vote: no better than the worst.

    Parameters
    ----------
    model : Pretrained
        That they were measured with.
    pairs : sequence of PairShift
        Those that vote, one at least.
    conditions : sequence of Condition
        Of their channels.
    others : sequence of Reason
        What else there is to say; told before all that is not worse.
    """
    said = {dead(each.channel) for each in conditions if each.verdict == NOT_TRUSTED}
    # a wrong unit explains what else is wrong
    ordered = sorted(conditions, key=lambda each: each.kind != "amplitude")
    reasons = told(
        [
            *others,
            *(Reason(each.verdict, each.sentence) for each in ordered),
            *(reason for pair in pairs for reason in pair.reasons if reason not in said),
        ]
    )
    shown = max(pairs, key=lambda pair: pair.worst.weight if pair.worst else (0, 0.0))
    night, spread = shown.spectra, spread_of(model)
    target = np.full_like(night.sqrt_psd, np.nan) if spread is None else spread.sqrt_barycenter
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = target / night.sqrt_psd
        filter_db = 20 * np.log10(np.where(ratio > 0, ratio, np.nan))
    return ShiftReport(
        verdict=worst_of([reason.verdict for reason in reasons]),
        reasons=tuple(reason.sentence for reason in reasons),
        distances=shown.distances,
        channels=shown.channels,
        frequencies_hz=night.frequencies_hz,
        night_psd=_density(night.sqrt_psd, night),
        training_psd=_density(target, night),
        filter_db=np.where(np.isfinite(filter_db), filter_db, np.nan),
        remarks=remarks_of(model, spread),
    )


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
