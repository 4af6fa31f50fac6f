"""What is in a store, in numbers."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from psdnorm.errors import StoreError
from psdnorm.models.card import STAGES
from psdnorm.ops import reference
from psdnorm.store.folder import Store

_HALF_HOUR = 60  # epochs that are read together: enough for a spectrum, a small read


class CohortPSD(NamedTuple):
    """Mean power spectral density of a cohort."""

    freqs_hz: NDArray[np.float64]  # (F,)
    psd: NDArray[np.float64]  # (C, F), squared units of the recipe per Hz
    n_nights: int


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
        nights.
    """
    index = store.index
    rows = {
        str(cohort): _summary(nights, store.layout.epoch_s)
        for cohort, nights in index.groupby("cohort")
    }
    rows["all"] = _summary(index, store.layout.epoch_s)
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("cohort")


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
        result[str(cohort)] = CohortPSD(freqs_hz, psd, len(chosen))
    return result


def _summary(nights: pd.DataFrame, epoch_s: float) -> dict[str, float]:
    subjects = nights.drop_duplicates(["cohort", "subject"])
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
    }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _night_psd(store: Store, recording: str, size: int) -> NDArray[np.float64]:
    """One-sided density of the middle of a night, (C, F)."""
    n_epochs = len(store.signals(recording))
    read = min(n_epochs, _HALF_HOUR)
    signals, _ = store.read(recording, (n_epochs - read) // 2, read)
    rows = reference.center(torch.from_numpy(signals))  # (S, C, T)
    psd = reference.welch_psd(rows, size, "hann").double().mean(dim=0)  # (C, F), two-sided
    psd[:, 1 : (size + 1) // 2] *= 2  # but not at 0 and at half of the rate
    return psd.numpy() / store.layout.sfreq
