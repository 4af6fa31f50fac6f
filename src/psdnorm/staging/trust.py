"""Who votes on a night, and how far to trust what they say."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from psdnorm.staging.derivations import groups_of
from psdnorm.staging.models import StagingModel
from psdnorm.staging.preparing import PreparedNight
from psdnorm.staging.shift import (
    NOT_TRUSTED,
    Condition,
    PairShift,
    Reason,
    ShiftReport,
    measure_pair,
    night_report,
)


class Electorate(NamedTuple):
    """The groups of channels of a night, each held against the training nights.

    Attributes
    ----------
    voters : tuple of PairShift
    unheard : tuple of PairShift
        Those that do not vote, as they are not to be trusted and others are.
    """

    voters: tuple[PairShift, ...]
    unheard: tuple[PairShift, ...]

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The channels of those that vote."""
        return tuple(pair.channels for pair in self.voters)


def choose_voters(
    model: StagingModel, night: PreparedNight, conditions: Sequence[Condition]
) -> Electorate:
    """Measure all groups of channels; those that are not to be trusted vote only if all are such.

    Parameters
    ----------
    model : StagingModel
    night : PreparedNight
        Its notes get to know who does not vote, and why.
    conditions : sequence of Condition
        What is wrong with its channels as they were read.
    """
    pairs = []
    for group in _groups(night, conditions, model.recipe.n_channels):
        # not aligned, as the nights were not that the model was held against
        signals = np.stack([night.prepared[name] for name in group], axis=1)  # (E, C, T)
        measured = np.all([night.measured[name] for name in group], axis=0)
        if measured.any():  # zeros in a pause are no spectrum of the night
            signals = signals[measured]
        pairs.append(measure_pair(model.network, signals, group, model.recipe.sfreq))
    trusted = tuple(pair for pair in pairs if pair.verdict != NOT_TRUSTED)
    if not trusted:
        return Electorate(tuple(pairs), ())
    unheard = tuple(pair for pair in pairs if pair.verdict == NOT_TRUSTED)
    why: dict[str, list[str]] = {}
    for pair in unheard:
        assert pair.worst is not None  # none is without a reason
        why.setdefault(pair.worst.sentence, []).append(_called(pair))
    night.notes += [
        f"{', '.join(names)} {'does' if len(names) == 1 else 'do'} not vote: {sentence}"
        for sentence, names in why.items()
    ]
    return Electorate(trusted, unheard)


def doubt_of_unit(
    night: PreparedNight, groups: Sequence[tuple[str, ...]], conditions: Sequence[Condition]
) -> list[Reason]:
    """Return the doubt of the unit as a reason, if all that votes is of the size that it says.

    Else it is a note of the night: where channels vote that are as large as EEG, others or a drift
    have raised it.

    Parameters
    ----------
    night : PreparedNight
    groups : sequence of tuple of str
        The channels that vote.
    conditions : sequence of Condition
    """
    sizes = ("amplitude", "flat")
    wrong = {c.channel for c in conditions if c.kind in sizes and c.verdict == NOT_TRUSTED}
    if night.unit_doubt and wrong.issuperset(name for group in groups for name in group):
        return [Reason(NOT_TRUSTED, f"{night.unit_doubt}.")]
    night.notes += filter(None, [night.unit_doubt])
    return []


def how_far_to_trust(
    model: StagingModel,
    night: PreparedNight,
    electorate: Electorate,
    conditions: Sequence[Condition],
    doubts: Sequence[Reason] = (),
) -> ShiftReport:
    """Return the verdict of those that voted; a remark names the others.

    Parameters
    ----------
    model : StagingModel
    night : PreparedNight
    electorate : Electorate
    conditions : sequence of Condition
    doubts : sequence of Reason
        Further ones, told before all that is not worse.
    """
    voters = electorate.voters
    if not voters:
        return _of_none(night, conditions, doubts)
    heard = {name for pair in voters for name in pair.channels}
    concerned = [each for each in conditions if each.channel in heard]
    report = night_report(model.network, voters, concerned, doubts)
    silent = [name for name in (*night.channels, *night.refused) if name not in heard]
    silent += [_called(pair) for pair in electorate.unheard if heard.issuperset(pair.channels)]
    if not silent:
        return report
    remark = f"{' and '.join(silent)} did not vote, and the verdict is without: the notes say why."
    return dataclasses.replace(report, remarks=(*report.remarks, remark))


def _of_none(
    night: PreparedNight, conditions: Sequence[Condition], doubts: Sequence[Reason]
) -> ShiftReport:
    """Return the report of a night of which no channel can be staged."""
    names = tuple(night.refused)
    nothing = np.empty((len(names), 0))
    reasons = dict.fromkeys(
        [each.sentence for each in conditions if each.verdict == NOT_TRUSTED]
        or [f"{name} cannot be used: {why}" for name, why in night.refused.items()]
    )
    said = (*(doubt.sentence for doubt in doubts), "No channel could be staged.", *reasons)
    return ShiftReport(NOT_TRUSTED, said, (), names, np.empty(0), nothing, nothing, nothing)


def _groups(
    night: PreparedNight, conditions: Sequence[Condition], n_channels: int
) -> tuple[tuple[str, ...], ...]:
    """Return which channels vote together; those that cannot be trusted only if all are such."""
    night.notes += [f"{name} is not used: {why}" for name, why in night.refused.items()]
    doubted = {each.channel: each.sentence for each in conditions if each.verdict == NOT_TRUSTED}
    trusted = [name for name in night.channels if name not in doubted]
    if trusted:
        others = [name for name in night.channels if name in doubted]
        night.notes += [f"{name} is not used: {doubted[name]}" for name in others]
    names = trusted or night.channels
    if not names:
        return ()
    groups, note = groups_of(names, n_channels)
    night.notes += [note] if note else []
    return groups


def _called(pair: PairShift) -> str:
    return " + ".join(pair.channels)
