"""Groups of channels vote on every epoch."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from psdnorm.constants import UNSCORED
from psdnorm.prepare import percent
from psdnorm.staging.models import StagingModel
from psdnorm.staging.shift import UNUSUAL, Reason, together
from psdnorm.training import Forward, predict_epochs

# an epoch is seen by five windows where one group speaks, by two of each where several do
STRIDE_ALONE, STRIDE_TOGETHER = 7, 17
MOST_DISSENT = 0.5  # of the epochs: who disagrees more often than not, or the others, are wrong


def dissenters(
    groups: Sequence[tuple[str, ...]], votes: NDArray[np.float32], stages: NDArray[np.int8]
) -> list[Reason]:
    """Name the pairs that disagree with the vote in more than half of the epochs.

    Parameters
    ----------
    groups : sequence of tuple of str
        P groups of channels.
    votes : ndarray of float32, (P, E, 5)
        NaN where a group says nothing.
    stages : ndarray of int8, (E,)
        What the votes amount to.

    Returns
    -------
    list of Reason
        Each makes the night unusual: noise may have the spectrum of EEG, but not its stages.
    """
    reasons = []
    for group, vote in zip(groups, votes, strict=True):
        speaks = ~np.isnan(vote).any(axis=1)
        share = float(np.mean(vote[speaks].argmax(axis=1) != stages[speaks])) if speaks.any() else 0
        if share > MOST_DISSENT:
            sentence = (
                f"Shown {together(group)} alone, the model gives another stage than the vote in "
                f"{percent(share)} of the epochs."
            )
            reasons.append(Reason(UNUSUAL, sentence))
    return reasons


def predict_groups(
    model: StagingModel,
    prepared: Mapping[str, NDArray[np.float16 | np.float32]],
    measured: Mapping[str, NDArray[np.bool_]],
    groups: Sequence[tuple[str, ...]],
    device: torch.device,
    forward: Forward | None = None,
) -> NDArray[np.float32]:
    """Return what the model says of each epoch when it is shown each group of channels.

    Parameters
    ----------
    model : StagingModel
    prepared : mapping of str to ndarray, (E, T)
        Channels by name.
    measured : mapping of str to ndarray of bool, (E,)
        Which epochs of them hold a signal.
    groups : sequence of tuple of str
        P groups of C names.
    device : torch.device
    forward : callable, optional
        The model's network, faster: what :func:`psdnorm.models.accelerate` made of it.

    Returns
    -------
    ndarray of float32, (P, E, 5)
        NaN in epochs in which no channel of the group was measured; the model is shown the others
        as if they followed each other.
    """
    stride = STRIDE_ALONE if len(groups) == 1 else STRIDE_TOGETHER
    speak = model.network.to(device) if forward is None else forward
    votes = []
    for group in groups:
        signals = np.stack([prepared[name] for name in group], axis=1)  # (E, C, T)
        heard = np.any([measured[name] for name in group], axis=0)
        vote = np.full((len(signals), 5), np.nan, np.float32)
        if heard.any():
            # those of a pause are not shown: zeros would spoil what norms measure over a window
            shown = model.inputs(signals[heard])
            vote[heard] = predict_epochs(
                speak, shown, stride=stride, fill=forward is not None, device=device
            )
        votes.append(vote)
    return np.stack(votes)


def count_votes(
    votes: NDArray[np.float32], shares: NDArray[np.float64]
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return the stages and probabilities that votes amount to.

    Parameters
    ----------
    votes : ndarray of float32, (P, E, 5)
        NaN where a group says nothing.
    shares : ndarray, (P, E)
        Of the channels of a group that were measured: what its vote counts.

    Returns
    -------
    stages : ndarray of int8, (E,)
        -1 where nobody says anything.
    probabilities : ndarray of float32, (E, 5)
        Weighted means over the groups; NaN where nobody says anything.
    """
    counts = np.where(np.isnan(votes).any(axis=2), 0.0, shares)  # (P, E)
    total = counts.sum(axis=0)
    silent = total == 0
    summed = np.einsum("pe,pek->ek", counts, np.nan_to_num(votes.astype(np.float64)))
    means = summed / np.where(silent, 1.0, total)[:, None]
    means[silent] = np.nan
    stages = np.where(silent, UNSCORED, np.nan_to_num(means).argmax(axis=1)).astype(np.int8)
    return stages, means.astype(np.float32)
