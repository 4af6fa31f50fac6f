"""What of a dissection is not whole: scores, subjects and trainings that lack."""

from psdnorm.lab.dissect.dissected import CASE, Losses, ordered_cases
from psdnorm.lab.dissect.troubles import KINDS, UNSHIFTED, Kind
from psdnorm.report.naming import listed


def limits(losses: Losses) -> list[str]:
    """Say what of a dissection is not whole.

    Parameters
    ----------
    losses : Losses

    Returns
    -------
    list of str
        Sentences; none if every norm has all subjects and several trainings everywhere.
    """
    return [*_scores(losses), *_subjects(losses), *_trainings(losses)]


def strengths_in_words(kind: Kind, strengths: list[float]) -> str:
    """Return strengths of a kind as in a sentence, with their unit once.

    Examples
    --------
    >>> strengths_in_words(KINDS["electrode"], [2.0, 10.0])
    '2 and 10 µV RMS'
    """
    *others, last = strengths
    return listed([*(kind.number(each) for each in others), kind.words(last)])


def _scores(losses: Losses) -> list[str]:
    """Say which norms have no score of which shifts."""
    asked = [(each.kind, each.strength) for each in losses.conditions if each != UNSHIFTED]
    there = list(losses.matrix[["arm", *CASE]].itertuples(index=False, name=None))
    cases = ordered_cases({*asked, *((kind, strength) for _, kind, strength in there)})
    lacking: dict[tuple[tuple[str, float], ...], list[str]] = {}
    for arm, name in losses.names.items():
        without = tuple(case for case in cases if (arm, *case) not in there)
        if without:
            lacking.setdefault(without, []).append(name)
    told = []
    for without, names in lacking.items():
        nobody = "No norm has a" if len(names) == len(losses.names) else ""
        some = f"{listed(names)} {'has' if len(names) == 1 else 'have'} no"
        told.append(f"{nobody or some} score of {_shifts(list(without), cases)}.")
    return told


def _shifts(some: list[tuple[str, float]], cases: list[tuple[str, float]]) -> str:
    """Name shifts: a kind with its strengths, or alone where it is there with all of ``cases``."""
    if len(some) == len(cases):
        return "any shift"
    parts = []
    for kind in dict.fromkeys(kind for kind, _ in some):
        own, all_of_it = ([s for k, s in those if k == kind] for those in (some, cases))
        title = KINDS[kind].title.lower()
        strengths = "" if own == all_of_it else f" ({strengths_in_words(KINDS[kind], own)})"
        parts.append(f"{title}{strengths}")
    return listed(parts)


def _subjects(losses: Losses) -> list[str]:
    fewer = losses.matrix[losses.matrix["subjects"] < losses.subjects]
    told = []
    for (kind, strength), rows in fewer.groupby(CASE, sort=False):
        words = KINDS[str(kind)].words(float(str(strength)))
        told.append(
            f"{KINDS[str(kind)].title}, {words}: {rows['subjects'].min()} of {losses.subjects} "
            "subjects have a score with and without it."
        )
    return told


def _trainings(losses: Losses) -> list[str]:
    trainings = losses.matrix.groupby("arm", sort=False)["trainings"].agg(["min", "max"])
    told = []
    for arm, row in trainings[trainings["min"] != trainings["max"]].iterrows():
        told.append(
            f"{losses.names[str(arm)]} has {row['min']} of {row['max']} trainings in some "
            "conditions."
        )
    most = int(trainings["max"].max())
    for arm, row in trainings[trainings["max"] < most].iterrows():
        told.append(f"{losses.names[str(arm)]} has {row['max']} of {most} trainings.")
    if most == 1:
        told.append("There is one training of each norm: another seed may lose otherwise.")
    return told
