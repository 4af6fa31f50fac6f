"""What is in a store, in numbers."""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from psdnorm import ops
from psdnorm.constants import BANDS_HZ, STAGES
from psdnorm.errors import StoreError
from psdnorm.store.folder import Store

_HALF_HOUR = 60  # epochs that are read together: enough for a spectrum, a small read
_UNITS = {"none": "µV", "epoch": "SD", "recording": "IQR"}  # by the recipe's scaling
_HOW_MUCH = re.compile(r"\s+[\d.]+ ?%$")


class CohortPSD(NamedTuple):
    """Mean power spectral density of a cohort."""

    freqs_hz: NDArray[np.float64]  # (F,)
    psd: NDArray[np.float64]  # (C, F), squared units of the recipe per Hz
    n_nights: int
    channels: tuple[str, ...]  # C names; where nights differ, the commonest and how many others

    def band_powers_db(self) -> dict[str, list[float]]:
        """Return the mean density of each channel in each of :data:`BANDS_HZ`, in dB.

        NaN where there is no power, or no bin in the band.
        """
        densities = {}
        for band, (low_hz, high_hz) in BANDS_HZ.items():
            inside = (low_hz <= self.freqs_hz) & (self.freqs_hz < high_hz)
            sums = self.psd[:, inside].sum(axis=1)  # (C,)
            densities[band] = [
                10 * math.log10(total / inside.sum()) if total > 0 else math.nan for total in sums
            ]
        return densities


def summarize(store: Store) -> pd.DataFrame:
    """Count what a store holds.

    Parameters
    ----------
    store : Store

    Returns
    -------
    DataFrame
        One row per cohort and a last one, ``all``: ``subjects``, ``nights``, ``hours``; the share
        of each stage among scored epochs (NaN where none is) and of ``unscored`` among all;
        ``age_mean``, ``age_min``, ``age_max`` in years and ``female``, the share of subjects, both
        over subjects of whom it is known (NaN where of none); ``simulated`` and ``flagged``, in
        nights; ``bytes`` on disk.
    """
    index = store.index
    if index.empty:
        raise StoreError(f"{store.path} is empty: no night was prepared into it yet")
    groups = [(str(cohort), nights) for cohort, nights in index.groupby("cohort")]
    rows = [_summary(nights, store.layout.epoch_s) for _, nights in [*groups, ("all", index)]]
    names = [*(cohort for cohort, _ in groups), "all"]
    return pd.DataFrame(rows, index=pd.Index(names, name="cohort"))


def count_flags(index: pd.DataFrame) -> dict[str, int]:
    """Count the nights that have each flag, the commonest first.

    ``C3-A2 flat 12 %`` and ``C3-A2 flat 3 %`` are one flag.
    """
    flags = index["flags"].str.split(";").map(lambda each: {_HOW_MUCH.sub("", f) for f in each})
    counts = flags.explode().loc[lambda each: each != ""].value_counts()
    return {str(flag): int(n) for flag, n in sorted(counts.items(), key=lambda c: (-c[1], c[0]))}


def unit_of(recipe: Mapping[str, Any]) -> str:
    """Return the unit of a store's samples: µV, SD (of an epoch) or IQR (of a recording)."""
    return _UNITS.get(str(recipe.get("scaling")), "unit")


def describe(
    store: Store, summary: pd.DataFrame, spectra: Mapping[str, CohortPSD]
) -> dict[str, Any]:
    """Return all that is known about a store, as JSON holds it.

    Parameters
    ----------
    store : Store
    summary : DataFrame
        Of :func:`summarize`.
    spectra : dict of str to CohortPSD
        Of :func:`mean_psd`.

    Returns
    -------
    dict
        What is not known is None.
    """
    index, unit = store.index, unit_of(store.recipe)
    rows = [
        {key: _plain(value) for key, value in row.items()} for row in summary.to_dict("records")
    ]
    cohorts = {}
    for (cohort, nights), row in zip(index.groupby("cohort"), rows[:-1], strict=True):
        spectrum = spectra[str(cohort)]
        cohorts[str(cohort)] = {
            **row,
            "flags": count_flags(nights),
            "channels": list(spectrum.channels),
            "band_powers_db": {
                band: [_plain(power) for power in powers]
                for band, powers in spectrum.band_powers_db().items()
            },
            "spectrum": {
                "nights": spectrum.n_nights,
                "freqs_hz": spectrum.freqs_hz.tolist(),
                "psd": spectrum.psd.tolist(),
            },
        }
    return {
        "store": str(store.path),
        "recipe": store.recipe,
        "recipe_hash": store.hash,
        "layout": dataclasses.asdict(store.layout),
        "units": {"spectrum": f"{unit}²/Hz", "band_powers_db": f"dB re 1 {unit}²/Hz"},
        "cohorts": cohorts,
        "all": {**rows[-1], "flags": count_flags(index)},
    }


def mean_psd(
    store: Store, most_nights: int = 20, segment_s: float = 4.0, seed: int = 0
) -> dict[str, CohortPSD]:
    """Estimate the mean spectrum of each cohort from a bounded sample of its nights.

    Parameters
    ----------
    store : Store
    most_nights : int
        Nights per cohort at most, drawn by ``seed``; half an hour in the middle of each is read.
    segment_s : float
        Length of the Hann-windowed segments of the Welch estimate, in seconds.
    seed : int

    Returns
    -------
    dict of str to CohortPSD
        One-sided densities, so that their sum times the bin width is the variance.
    """
    size = round(segment_s * store.layout.sfreq)
    if not 1 < size <= store.layout.n_times:
        raise StoreError(f"segment_s is {segment_s}, expected part of {store.layout.epoch_s} s")
    result = {}
    for cohort, nights in store.index.groupby("cohort"):
        recordings = nights["recording"].to_numpy(object)
        chosen = np.random.default_rng(seed).permutation(len(recordings))[:most_nights]
        psd = np.mean([_night_psd(store, recordings[i], size) for i in sorted(chosen)], axis=0)
        freqs_hz = np.arange(psd.shape[-1]) * store.layout.sfreq / size
        names = _channel_names(nights["channels"], store.layout.n_channels)
        result[str(cohort)] = CohortPSD(freqs_hz, psd, len(chosen), names)
    return result


def _summary(nights: pd.DataFrame, epoch_s: float) -> dict[str, float]:
    # of each, the first visit at which it is known
    subjects = nights.groupby(["cohort", "subject"])[["age", "sex"]].first()
    scored = int(nights[list(STAGES)].to_numpy().sum())
    epochs = int(nights["epochs"].sum())
    ages, sexes = subjects["age"].dropna(), subjects["sex"].dropna()
    return {
        "subjects": len(subjects),
        "nights": len(nights),
        "hours": epochs * epoch_s / 3600,
        **{stage: _share(int(nights[stage].sum()), scored) for stage in STAGES},
        "unscored": _share(int(nights["unscored"].sum()), epochs),
        "age_mean": float(ages.mean()) if len(ages) else float("nan"),
        "age_min": float(ages.min()) if len(ages) else float("nan"),
        "age_max": float(ages.max()) if len(ages) else float("nan"),
        "female": _share(int((sexes == "F").sum()), len(sexes)),
        "simulated": int(nights["simulated"].sum()),
        "flagged": int((nights["flags"] != "").sum()),
        "bytes": int(nights["bytes"].sum()),
    }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _plain(value: float) -> float | int | None:
    return None if math.isnan(value) else value


def _channel_names(channels: "pd.Series[str]", n_channels: int) -> tuple[str, ...]:
    """Return a name for each channel of a cohort's nights, from those of each, joined by ``;``."""
    split = [names for names in channels.str.split(";") if len(names) == n_channels]
    result = []
    for place in range(n_channels):
        counts = pd.Series([names[place] for names in split], dtype=object).value_counts()
        if counts.empty or counts.index[0] == "":
            result.append(f"channel {place + 1}")
            continue
        others = {1: "", 2: " and 1 other"}.get(len(counts), f" and {len(counts) - 1} others")
        result.append(f"{counts.index[0]}{others}")
    return tuple(result)


def _night_psd(store: Store, recording: str, size: int) -> NDArray[np.float64]:
    """One-sided density of the middle of a night, (C, F)."""
    n_epochs = len(store.signals(recording))
    read = min(n_epochs, _HALF_HOUR)
    signals, _ = store.read(recording, (n_epochs - read) // 2, read)
    rows = ops.center(torch.from_numpy(signals))  # (S, C, T)
    psd = ops.welch_psd(rows, size, "hann").double().mean(dim=0)  # (C, F), two-sided
    if not psd.isfinite().all():
        raise StoreError(f"recording {recording!r} of {store.path} has samples that are not finite")
    psd[:, 1 : (size + 1) // 2] *= 2  # but not at 0 and at half of the rate
    return psd.numpy() / store.layout.sfreq
