"""Sentences below a table: what it lacks, and what has to be known to read it."""

from collections.abc import Collection, Sequence

from psdnorm.models.card import STAGES
from psdnorm.report.naming import AUTO_SIZE, listed
from psdnorm.report.tables.table_scores import Arm, Scores

SIMULATED = "The nights are simulated: this says nothing about patients."
PROTOCOL = (
    "Norms have the filter size (f = 5) and depth (first 3 blocks) of the protocol where they have "
    "any; other sizes and depths are in the tables of filter sizes and depths."
)
SPREAD = "± is the standard deviation over seeds (ddof = 1)."
BOLD = "The best of a row is in bold; numbers that are printed alike are equally good."
NO_BOLD = "nothing is in bold, as the numbers are over different seeds."
METRIC_NAMES = {
    "balanced_accuracy": "Balanced accuracy",
    "accuracy": "Accuracy",
    "macro_f1": "Macro F1",
    "weighted_f1": "Weighted F1",
    "cohen_kappa": "Cohen's κ × 100",
    "calibration_error": "Expected calibration error",
    **{f"f1_{stage}": f"F1 of {stage}" for stage in STAGES},
}


def block_notes(
    heading: str,
    arms: Sequence[Arm],
    datasets: Sequence[str],
    metrics: Sequence[str],
    scores: Scores,
) -> list[str]:
    """Name what a block lacks.

    Parameters
    ----------
    heading : str
    arms : sequence of Arm
        Those that it should show.
    datasets : sequence of str
        Those that it shows.
    metrics : sequence of str
    scores : Scores

    Returns
    -------
    list of str
    """
    several = len({arm.balanced for arm in arms}) > 1
    names = {arm: arm.named() + (f" @{arm.balanced}" if several else "") for arm in arms}
    seeds = _expected_seeds(arms, datasets, scores)
    said: dict[str, list[str]] = {}
    for arm in arms:
        if not scores.datasets(arm):
            said.setdefault("no result", []).append(names[arm])
            continue
        for sentence in (
            *_lacks(arm, datasets, seeds, scores),
            *_undefined(arm, datasets, metrics, scores),
        ):
            said.setdefault(sentence, []).append(names[arm])
    notes = [f"{listed(who)}: {sentence}" for sentence, who in said.items()]
    asked = {name for arm, name in scores.lacking if arm in names}
    without = sorted(asked - {*datasets})
    if without:
        notes.append(
            f"{listed(without)}: asked for, but without any result, so that means are over "
            f"{counted(len(datasets), 'dataset')}"
        )
    if not any(len(scores.seeds(arm, name)) > 1 for arm in arms for name in datasets):
        notes.append("one seed only, so that there is no ±")
    return [f"{heading}; {note}." for note in notes]


def chosen_notes(heading: str, arms: Sequence[Arm], scores: Scores) -> list[str]:
    """Say which filter sizes were chosen, by the cohort held out, where arms have them chosen."""
    cells = scores.results.cells
    notes = []
    for arm in arms:
        own = cells[cells["arm"] == scores.label(arm)]
        if arm.filter_size != AUTO_SIZE or own.empty:
            continue
        by_cohort = own.groupby("hold_out")["chosen"].agg(lambda sizes: sorted({*sizes}))
        said = [f"{cohort} {', '.join(map(str, sizes))}" for cohort, sizes in by_cohort.items()]
        notes.append(
            f"{heading}; {arm.named()}: the sizes that the cohorts that train led to, by the one "
            f"held out: {'; '.join(said)}."
        )
    return notes


def general_notes(scores: Scores, datasets: Collection[str], metrics: Sequence[str]) -> list[str]:
    """Say who lacks a stage, and whether the nights are simulated."""
    people = scores.people.loc[[*datasets]]
    lack, n_subjects = int(people["lack"].sum()), int(people["subjects"].sum())
    notes = []
    if lack:
        notes.append(
            f"{lack:,} of {counted(n_subjects, 'subject')} lack{'s' * (lack == 1)} a stage; as in "
            f"scikit-learn, {_handling(metrics)}."
        )
    return [*notes, SIMULATED] if scores.results.simulated else notes


def counted(number: int, what: str) -> str:
    """Write a number of things down, in the plural unless it is one.

    Examples
    --------
    >>> counted(1, "dataset"), counted(1200, "subject")
    ('1 dataset', '1,200 subjects')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


def _expected_seeds(arms: Sequence[Arm], datasets: Sequence[str], scores: Scores) -> set[int]:
    """Return the seeds that any arm has on any dataset, and those that were asked for."""
    places = [(arm, dataset) for arm in arms for dataset in datasets]
    found = (scores.seeds(*place) | scores.lacking.get(place, set()) for place in places)
    return set().union(*found)


def _lacks(arm: Arm, datasets: Sequence[str], seeds: set[int], scores: Scores) -> list[str]:
    """Say which datasets and seeds an arm lacks, and what that does to its means."""
    have = {dataset: scores.seeds(arm, dataset) for dataset in datasets}
    lacking = [dataset for dataset in datasets if not have[dataset]]
    sentences = [f"no result on {listed(lacking)}, and therefore no means"] if lacking else []
    fewer: dict[str, list[str]] = {}
    for dataset, found in have.items():
        if found and found != seeds:
            fewer.setdefault(_seed_list(seeds - found), []).append(dataset)
    if not fewer:
        return sentences
    what = "; ".join(f"{which} on {listed(where)}" for which, where in fewer.items())
    whole = seeds.intersection(*have.values())
    if lacking:
        means = ""
    elif whole:
        means = f", so that means are over {_seed_list(whole)} only"
    else:
        means = ", so that no seed has every dataset, and there are no means"
    return [*sentences, f"no {what}{means}"]


def _seed_list(seeds: Collection[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {listed([str(seed) for seed in sorted(seeds)])}"


def _undefined(
    arm: Arm, datasets: Sequence[str], metrics: Sequence[str], scores: Scores
) -> list[str]:
    notes = []
    for metric in metrics:
        where = [
            dataset
            for dataset in datasets
            if scores.seeds(arm, dataset) and scores.score(arm, metric, dataset, ()) is None
        ]
        if where:
            notes.append(
                f"{METRIC_NAMES[metric]} is undefined for every subject of {listed(where)}, so "
                "that it has no means"
            )
    return notes


def _handling(metrics: Sequence[str]) -> str:
    ways = []
    if {"balanced_accuracy"} & {*metrics}:
        ways.append("balanced accuracy is the mean recall over the stages that a subject has")
    if any(metric.startswith("f1_") for metric in metrics):
        ways.append(
            "a subject counts in a stage's F1 if the subject has the stage or it was predicted"
        )
    if "macro_f1" in metrics:
        ways.append("macro F1 is over the stages that a subject has or that were predicted")
    if "weighted_f1" in metrics:
        ways.append("a stage that a subject lacks has no weight in the weighted F1")
    return "; ".join(ways) or "every metric is over the epochs that a subject has"
