"""The numbers of a verdict, for programs."""

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from psdnorm.evaluation.statistics import (
    FewerSubjectsResult,
    HardestResult,
    friedman,
    nemenyi,
    wilcoxon_holm,
)
from psdnorm.report.verdict.duels import Duel, Gain

if TYPE_CHECKING:
    from psdnorm.report.verdict.verdict import Verdict


def numbers_of(verdict: "Verdict") -> dict[str, Any]:
    """Return the numbers of a verdict, scores and gains as shares; None where there is none.

    Parameters
    ----------
    verdict : Verdict

    Returns
    -------
    dict
        ``gains_over_batchnorm`` and ``gains_over_best_baseline`` by norm and mean;
        ``improved`` and ``hardest_fifth`` against BatchNorm by norm; ``tests`` over datasets and
        over subjects, with p-values of every pair; ``fewer_subjects`` by label.
    """
    duels = verdict.duels.items()
    tables = verdict.contest.tables
    return {
        "gains_over_batchnorm": {norm: _gains(duel.gains) for norm, duel in duels},
        "gains_over_best_baseline": {
            norm: _gains(gains) for norm, gains in verdict.over_best.items()
        },
        "improved": {norm: _improved(duel) for norm, duel in duels},
        "hardest_fifth": {
            norm: {
                "by_mean_of_both": _hardest(duel.hardest),
                "by_reference": _hardest(duel.hardest_by_reference),
            }
            for norm, duel in duels
        },
        "tests": {
            "datasets": _tests(tables.datasets),
            "subjects": _tests(tables.subjects),
        },
        "fewer_subjects": {
            label: _fewer(result, by_seed) for label, (result, by_seed) in verdict.factors.items()
        },
    }


def _gains(gains: dict[str, Gain]) -> dict[str, Any]:
    return {
        mean: {name: _known(value) for name, value in vars(gain).items()}
        for mean, gain in gains.items()
    }


def _improved(duel: Duel) -> dict[str, Any]:
    found = duel.improved
    numbers = {name: _known(getattr(found, name)) for name in ("share", "low", "high")}
    counts = {"improved": found.improved, "tied": found.tied, "worse": found.worse}
    return {**numbers, **counts, "subjects": found.n_blocks}


def _hardest(found: HardestResult) -> dict[str, Any]:
    return {"gain": _known(found.gain), "subjects": found.n_hardest}


def _tests(values: pd.DataFrame) -> dict[str, Any]:
    """Return Friedman's test, and Nemenyi's and Wilcoxon's of every pair."""
    overall, ranks, pairs = friedman(values), nemenyi(values), wilcoxon_holm(values)
    return {
        "blocks": overall.n_blocks,
        "mean_ranks": {norm: _known(rank) for norm, rank in overall.mean_ranks.items()},
        "friedman": {"statistic": _known(overall.statistic), "p": _known(overall.p)},
        "nemenyi": {
            "critical_difference": _known(ranks.critical_difference),
            "p": _by_pair(ranks.p),
        },
        "wilcoxon_holm": {"p": _by_pair(pairs.p)},
        "notes": [
            f"{test}: {result.note}"
            for test, result in (("Friedman", overall), ("Nemenyi", ranks), ("Wilcoxon", pairs))
            if result.note
        ],
        "caveat": overall.caveat,
    }


def _by_pair(p: pd.DataFrame) -> dict[str, dict[str, Any]]:
    return {
        str(norm): {str(other): _known(value) for other, value in row.items() if other != norm}
        for norm, row in p.iterrows()
    }


def _fewer(result: FewerSubjectsResult, by_seed: list[float]) -> dict[str, Any]:
    return {
        "factor": _known(result.factor),
        "at_least": _known(result.at_least),
        "factors_of_seeds": by_seed,
        "target": _known(result.target / 100),  # curves are in percent
        "reference_size": _known(result.reference_size),
        "norm_size": _known(result.norm_size),
        "note": result.note,
    }


def _known(value: Any) -> Any:
    """Return a number as JSON has it: None for NaN."""
    if isinstance(value, str):
        return value
    return None if math.isnan(value) else float(value)
