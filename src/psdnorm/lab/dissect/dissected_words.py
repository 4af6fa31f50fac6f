"""A dissection in plain words: which norm for which trouble, and when nobody can tell."""

from dataclasses import dataclass

import pandas as pd

from psdnorm.lab.dissect.dissected import Losses, interval, is_beyond_noise
from psdnorm.lab.dissect.dissected_limits import strengths_in_words
from psdnorm.lab.dissect.troubles import Kind
from psdnorm.report.naming import listed

_NEARLY = 0.5  # points: a difference that decides nothing, however sure it is


@dataclass(frozen=True, eq=False)
class Choice:
    """What one kind of shift says about norms, at its greatest strength.

    Attributes
    ----------
    kind : Kind
    strength : float
    best : str
        The arm that loses least.
    alike : list of str
        Arms whose loss differs from that of the best by no more than noise: the interval of the
        difference, over subjects, holds zero.
    worse : list of str
        The others, from the least loss to the greatest.
    nearly_alike : bool
        Whether none is worse by half a point, so that there is nothing to pick.
    harmed : dict of str to list of float
        Arms that lose something beyond noise, and the strengths at which they do.
    absent : dict of str to list of float
        Arms that have no score at some strengths of this kind, and these.
    """

    kind: Kind
    strength: float
    best: str
    alike: list[str]
    worse: list[str]
    nearly_alike: bool
    harmed: dict[str, list[float]]
    absent: dict[str, list[float]]

    def not_compared(self) -> list[str]:
        """Return the arms that have no score at the greatest strength."""
        return [arm for arm, without in self.absent.items() if self.strength in without]


def choices(losses: Losses) -> list[Choice]:
    """Return what every kind of shift says about norms.

    Parameters
    ----------
    losses : Losses
    """
    return [_choice(losses, kind) for kind in losses.kinds()]


def _choice(losses: Losses, kind: Kind) -> Choice:
    own = losses.matrix[losses.matrix["kind"] == kind.name]
    strength = float(own["strength"].iloc[-1])
    at_most = own[own["strength"] == strength].set_index("arm").sort_values("lost", kind="stable")
    best, *others = (str(arm) for arm in at_most.index)
    by_subject = losses.by_subject.loc[(kind.name, strength)]
    alike = [arm for arm in others if not _is_more(by_subject[arm] - by_subject[best])]
    return Choice(
        kind=kind,
        strength=strength,
        best=best,
        alike=alike,
        worse=[arm for arm in others if arm not in alike],
        nearly_alike=bool(at_most["lost"].max() - at_most["lost"].min() < _NEARLY),
        harmed=_harmed(own, losses),
        absent=_absent(own, losses),
    )


def _is_more(differences: "pd.Series[float]") -> bool:
    """Tell whether a mean over subjects is above zero for sure."""
    return interval(differences.dropna().to_numpy())[0] > 0


def _harmed(own: pd.DataFrame, losses: Losses) -> dict[str, list[float]]:
    lost = own[
        [row.lost > 0 and is_beyond_noise(row.lost, row.low, row.high) for row in own.itertuples()]
    ]
    return _filled({arm: _strengths(lost, arm) for arm in losses.names})


def _absent(own: pd.DataFrame, losses: Losses) -> dict[str, list[float]]:
    strengths = list(dict.fromkeys(own["strength"]))
    there = {arm: _strengths(own, arm) for arm in losses.arms()}
    return _filled({arm: [s for s in strengths if s not in has] for arm, has in there.items()})


def _strengths(rows: pd.DataFrame, arm: str) -> list[float]:
    return list(rows[rows["arm"] == arm]["strength"])


def _filled(by_arm: dict[str, list[float]]) -> dict[str, list[float]]:
    return {arm: strengths for arm, strengths in by_arm.items() if strengths}


def sentences(losses: Losses, choice: Choice) -> list[str]:
    """Say what one kind of shift costs whom, and which norm to pick against it.

    Parameters
    ----------
    losses : Losses
    choice : Choice
        From :func:`choices`.

    Returns
    -------
    list of str
        The first says which norm to pick, and which ones were not there to be picked.
    """
    first, *others = _compared(losses, choice)
    return [" ".join([first, *_not_there(losses, choice)]), *others]


def _compared(losses: Losses, choice: Choice) -> list[str]:
    kind, names = choice.kind, losses.names
    own = losses.matrix[losses.matrix["kind"] == kind.name]
    rows = own[own["strength"] == choice.strength].set_index("arm")
    most = kind.words(choice.strength)
    subjects = int(rows["subjects"].min())
    if subjects < 2:
        return [f"{subjects} subject cannot tell norms apart: at {most}, {_all(rows, names)}."]
    fewer = _fewer_trainings(rows, names)
    if not choice.harmed and not choice.worse and len(rows) > 1:
        row = own.loc[own["lost"].idxmax()]
        return [
            f"Pick for other reasons: up to {most}, no norm loses more than noise among "
            f"{subjects} subjects. The greatest loss is {_points(row)}, of {row['norm']} at "
            f"{kind.words(row['strength'])}.",
            *fewer,
        ]
    if choice.worse and choice.nearly_alike:
        each = _listed([choice.best, *choice.alike, *choice.worse], rows, names)
        return [
            f"Pick for other reasons: at {most} all lose nearly the same, {_range(rows)}.",
            f"Less than half a point lies between them: {each}.",
            *_harm(losses, choice, own),
            *fewer,
        ]
    told = [_pick(choice, rows, names)]
    if choice.worse:
        told.append(f"These lose more: {_listed(choice.worse, rows, names)}.")
    return [*told, *_harm(losses, choice, own), *_other_winner(choice, losses, rows), *fewer]


def _not_there(losses: Losses, choice: Choice) -> list[str]:
    """Say whom the comparison lacks, and where."""
    own = losses.matrix[losses.matrix["kind"] == choice.kind.name]
    together: dict[tuple[float, ...], list[str]] = {}
    for arm, without in choice.absent.items():
        together.setdefault(tuple(without), []).append(losses.names[arm])
    told = []
    for lacking, arms in together.items():
        is_all = len(lacking) == own["strength"].nunique()
        at = "any strength" if is_all else strengths_in_words(choice.kind, list(lacking))
        one = len(arms) == 1
        who = f"{listed(arms)} {'is' if one else 'are'} not compared: {'it' if one else 'they'}"
        if choice.strength not in lacking:
            who = listed(arms)
        told.append(f"{who} {'has' if one else 'have'} no score at {at}.")
    return told


def _fewer_trainings(rows: pd.DataFrame, names: dict[str, str]) -> list[str]:
    most = int(rows["trainings"].max())
    fewer = rows[rows["trainings"] < most]
    each = [f"{names[str(arm)]} has {n}" for arm, n in fewer["trainings"].items()]
    return [f"Of {most} trainings {listed(each)} here."] if each else []


def _harm(losses: Losses, choice: Choice, own: pd.DataFrame) -> list[str]:
    """Say who loses something beyond noise at which strengths, and who does not."""
    if not choice.harmed:
        return []
    kind, names = choice.kind, losses.names
    together: dict[str, list[str]] = {}
    for arm, each in choice.harmed.items():
        together.setdefault(strengths_in_words(kind, each), []).append(names[arm])
    where = "; ".join(f"{listed(arms)} at {each}" for each, arms in together.items())
    told = [f"There is a loss beyond noise of {where}."]
    spared: dict[str, list[str]] = {}
    for arm in dict.fromkeys(own["arm"]):
        if arm not in choice.harmed:
            at = "any strength"
            if arm in choice.absent:
                at = strengths_in_words(kind, _strengths(own, arm))
            spared.setdefault(at, []).append(names[arm])
    for at, arms in spared.items():
        verb = "loses" if len(arms) == 1 else "lose"
        told.append(f"{listed(arms)} {verb} nothing beyond noise at {at}.")
    return told


def _pick(choice: Choice, rows: pd.DataFrame, names: dict[str, str]) -> str:
    best = f"{names[choice.best]} loses {_points(rows.loc[choice.best])}"
    at = choice.kind.words(choice.strength)
    if len(rows) == 1:
        return f"There is no norm to compare with: at {at} {best}."
    if not choice.alike:
        return (
            f"Pick {names[choice.best]}: at {at} it loses least, {_points(rows.loc[choice.best])}."
        )
    alike = _listed(choice.alike, rows, names)
    if not choice.worse:
        return f"No norm is better than another beyond noise: at {at} {best}, {alike}."
    return f"At {at} {best}, the least; within noise of it: {alike}. Pick one of these."


def _other_winner(choice: Choice, losses: Losses, rows: pd.DataFrame) -> list[str]:
    """Say who is the most accurate under the shift, where that is not who loses least."""
    winner = str(rows["shifted"].idxmax())
    if winner in (choice.best, *choice.alike):
        return []
    return [
        f"Under the shift {losses.names[winner]} is still the most accurate, with "
        f"{rows.loc[winner, 'shifted']:.1f} % against {rows.loc[choice.best, 'shifted']:.1f} % of "
        f"{losses.names[choice.best]}: it began at {rows.loc[winner, 'unshifted']:.1f} %."
    ]


def _listed(arms: list[str], rows: pd.DataFrame, names: dict[str, str]) -> str:
    return listed([f"{names[arm]} {_points(rows.loc[arm], unit='')}" for arm in arms])


def _all(rows: pd.DataFrame, names: dict[str, str]) -> str:
    return listed(
        [f"{names[str(arm)]} lost {rows.loc[arm, 'lost']:.1f} points" for arm in rows.index]
    )


def _range(rows: pd.DataFrame) -> str:
    least, most = (_signed(f"{rows['lost'].agg(end):.1f}") for end in ("min", "max"))
    return f"{least} points" if least == most else f"{least} to {most} points"


def _points(row: "pd.Series[float]", unit: str = " points") -> str:
    return _signed(f"{row['lost']:.1f}{unit} ({row['low']:.1f} to {row['high']:.1f})")


def _signed(numbers: str) -> str:
    return numbers.replace("-0.0", "0.0").replace("-", "−")
