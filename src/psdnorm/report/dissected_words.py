"""A dissection in plain words: which norm for which trouble, and when nobody can tell."""

from dataclasses import dataclass

import pandas as pd

from psdnorm.recordings.simulation.dissection import Kind
from psdnorm.report.dissected import Losses, interval
from psdnorm.report.naming import listed


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
    harmed : dict of str to list of float
        Arms that lose something beyond noise, and the strengths at which they do.
    """

    kind: Kind
    strength: float
    best: str
    alike: list[str]
    worse: list[str]
    harmed: dict[str, list[float]]


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
        harmed=_harmed(own, losses),
    )


def _is_more(differences: "pd.Series[float]") -> bool:
    """Tell whether a mean over subjects is above zero for sure."""
    return interval(differences.dropna().to_numpy())[0] > 0


def _harmed(own: pd.DataFrame, losses: Losses) -> dict[str, list[float]]:
    lost = own[own["low"] > 0]
    at = {arm: lost[lost["arm"] == arm]["strength"].tolist() for arm in losses.names}
    return {arm: strengths for arm, strengths in at.items() if strengths}


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
        The first says which norm to pick.
    """
    kind, names = choice.kind, losses.names
    own = losses.matrix[losses.matrix["kind"] == kind.name]
    rows = own[own["strength"] == choice.strength].set_index("arm")
    most = kind.words(choice.strength)
    subjects = int(rows["subjects"].min())
    if subjects < 2:
        return [f"{subjects} subject cannot tell norms apart: at {most}, {_all(rows, names)}."]
    if not choice.harmed and not choice.worse:
        row = own.loc[own["lost"].idxmax()]
        return [
            f"Pick for other reasons: up to {most}, no norm loses more than noise among "
            f"{subjects} subjects. The greatest loss is {_points(row)}, of {row['norm']} at "
            f"{kind.words(row['strength'])}."
        ]
    told = [_pick(choice, rows, names)]
    if choice.worse:
        told.append(f"More than it lose {_listed(choice.worse, rows, names)}.")
    if choice.harmed:
        together: dict[str, list[str]] = {}
        for arm, each in choice.harmed.items():
            together.setdefault(_strengths(kind, each), []).append(names[arm])
        where = "; ".join(f"{listed(arms)} at {each}" for each, arms in together.items())
        told.append(f"There is a loss beyond noise of {where}.")
        spared = [names[arm] for arm in rows.index if arm not in choice.harmed]
        if spared:
            verb = "loses" if len(spared) == 1 else "lose"
            told.append(f"{listed(spared)} {verb} nothing beyond noise at any strength.")
    told += _other_winner(choice, losses, rows)
    return told


def _pick(choice: Choice, rows: pd.DataFrame, names: dict[str, str]) -> str:
    best = f"{names[choice.best]} loses {_points(rows.loc[choice.best])}"
    at = choice.kind.words(choice.strength)
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


def _points(row: "pd.Series[float]", unit: str = " points") -> str:
    numbers = f"{row['lost']:.1f}{unit} ({row['low']:.1f} to {row['high']:.1f})"
    return numbers.replace("-0.0", "0.0").replace("-", "−")


def _strengths(kind: Kind, strengths: list[float]) -> str:
    *others, last = strengths
    return listed([*(kind.number(each) for each in others), kind.words(last)])
