"""Groups of channels vote on every epoch."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from psdnorm.constants import STAGES, UNSCORED
from psdnorm.prepare import share_in_words
from psdnorm.runtime import listed, verb
from psdnorm.staging.derivations import PreparedNight, groups_of
from psdnorm.staging.models import StagingModel
from psdnorm.staging.trust import NOT_TRUSTED, UNUSUAL, PairShift, Reason, measure_pair, together
from psdnorm.training import Forward, predict_epochs

# an epoch is seen by five windows of a group that votes alone, by two where several groups vote
STRIDE_ALONE, STRIDE_TOGETHER = 7, 17
MOST_DISSENT = 0.5  # of the epochs; beyond, either the group or the others are wrong


def choose_voters(
    model: StagingModel, night: PreparedNight
) -> tuple[list[PairShift], list[PairShift]]:
    """Compare all groups of channels with the training nights; return who votes and who does not.

    Untrusted groups vote only if no group is trusted. The night's notes name those that do not.
    """
    pairs = []
    for group in _groups(night, model.recipe.n_channels):
        # not aligned: the model's training nights were not either when their spread was measured
        signals = np.stack([night.prepared[name] for name in group], axis=1)  # (E, C, T)
        measured = np.all([night.measured[name] for name in group], axis=0)
        if measured.any():  # zeros in a pause have no spectrum
            signals = signals[measured]
        pairs.append(measure_pair(model.network, signals, group, model.recipe.sfreq))
    trusted = [pair for pair in pairs if pair.verdict != NOT_TRUSTED]
    if not trusted:
        return pairs, []
    excluded = [pair for pair in pairs if pair.verdict == NOT_TRUSTED]
    names_by_reason: dict[str, list[str]] = {}
    for pair in excluded:
        assert pair.worst is not None
        names_by_reason.setdefault(pair.worst.sentence, []).append(pair.name)
    for sentence, names in names_by_reason.items():
        do = "does" if len(names) == 1 else "do"
        night.notes.append(f"{listed(names)} {do} not vote: {sentence}")
    return trusted, excluded


def _groups(night: PreparedNight, n_channels: int) -> tuple[tuple[str, ...], ...]:
    """Return the groups of channels; untrusted channels are used only if none is trusted."""
    doubts = {c.channel: c.sentence for c in night.conditions if c.verdict == NOT_TRUSTED}
    trusted = [name for name in night.prepared if name not in doubts]
    unused = dict(night.unusable)
    if trusted:
        unused |= {name: doubts[name] for name in night.prepared if name in doubts}
    night.notes += [f"{name} is not used: {why}" for name, why in unused.items()]
    names = trusted or list(night.prepared)
    if not names:
        return ()
    groups, note = groups_of(names, n_channels)
    night.notes += [note] if note else []
    return groups


def predict_groups(
    model: StagingModel,
    night: PreparedNight,
    groups: Sequence[tuple[str, ...]],
    device: torch.device,
    forward: Forward | None = None,
) -> NDArray[np.float32]:
    """Return the model's probabilities for each group of channels, (P, E, 5).

    NaN in epochs in which no channel of the group was measured; the model is shown the others as
    if they were consecutive.
    """
    stride = STRIDE_ALONE if len(groups) == 1 else STRIDE_TOGETHER
    predict = model.network.to(device) if forward is None else forward
    votes = np.full((len(groups), night.n_epochs, len(STAGES)), np.nan, np.float32)
    for vote, group in zip(votes, groups, strict=True):
        measured = np.any([night.measured[name] for name in group], axis=0)
        if measured.any():
            # leave out pauses: zeros would spoil the statistics that norms measure over a window
            signals = np.stack([night.prepared[name][measured] for name in group], axis=1)
            shown, fill = model.inputs(signals), forward is not None
            vote[measured] = predict_epochs(predict, shown, stride=stride, fill=fill, device=device)
    return votes


def count_votes(
    votes: NDArray[np.float32], shares: NDArray[np.float64]
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return stages, (E,), and mean probabilities, (E, 5), weighted by ``shares``, (P, E).

    A share is the fraction of the group's channels that were measured. Where no group votes, the
    stage is -1 and the probabilities are NaN.
    """
    counts = np.where(np.isnan(votes).any(axis=2), 0.0, shares)  # (P, E)
    total = counts.sum(axis=0)
    silent = total == 0
    summed = np.einsum("pe,pek->ek", counts, np.nan_to_num(votes.astype(np.float64)))
    means = summed / np.where(silent, 1.0, total)[:, None]
    means[silent] = np.nan
    stages = np.where(silent, UNSCORED, np.nan_to_num(means).argmax(axis=1)).astype(np.int8)
    return stages, means.astype(np.float32)


def shares_measured(night: PreparedNight, groups: Sequence[tuple[str, ...]]) -> NDArray[np.float64]:
    """Return the share of the channels of each group that were measured, (P, E)."""
    shares = [np.mean([night.measured[name] for name in group], axis=0) for group in groups]
    return np.array(shares).reshape(len(groups), night.n_epochs)


def dissenters(
    groups: Sequence[tuple[str, ...]], votes: NDArray[np.float32], stages: NDArray[np.int8]
) -> list[Reason]:
    """Name the groups that disagree with the vote in more than half of the epochs.

    Each makes the night unusual: noise may have the spectrum of EEG, but not its stages.
    """
    reasons = []
    for group, vote in zip(groups, votes, strict=True):
        here = ~np.isnan(vote).any(axis=1)
        share = float(np.mean(vote[here].argmax(axis=1) != stages[here])) if here.any() else 0.0
        if share > MOST_DISSENT:
            disagree = verb(set(group), "disagrees", "disagree")
            sentence = (
                f"{together(group)} alone {disagree} with the vote in {share_in_words(share)} of "
                "the epochs."
            )
            reasons.append(Reason(UNUSUAL, sentence))
    return reasons
