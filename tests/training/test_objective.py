"""The loss is one mean over epochs, however they are cut into batches."""

import numpy as np
import torch
from torch.nn import functional as F

from psdnorm.evaluation import confusion_matrix
from psdnorm.training.loop import confusion_counts, weighted_sums

WEIGHTS = torch.tensor([0.5, 2.0, 0.7, 0.0, 1.3])


def batch(n=6, n_epochs=7):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n, 5, n_epochs, generator=generator)
    return logits, torch.randint(-1, 5, (n, n_epochs), generator=generator)


def test_it_is_torchs_weighted_mean_over_scored_epochs():
    logits, stages = batch()
    total, weight = weighted_sums(logits, stages, WEIGHTS)
    expected = F.cross_entropy(logits, stages, WEIGHTS, ignore_index=-1)
    torch.testing.assert_close(total / weight, expected)


def test_the_sums_of_parts_are_the_sums_of_the_whole():
    logits, stages = batch()
    parts = [weighted_sums(logits[p], stages[p], WEIGHTS) for p in (slice(2), slice(2, None))]
    torch.testing.assert_close(sum(parts), weighted_sums(logits, stages, WEIGHTS))


def test_what_is_not_scored_moves_nothing():
    logits, stages = batch()
    other = torch.where((stages < 0)[:, None], 100 * logits, logits)
    one, two = (weighted_sums(x, stages, WEIGHTS) for x in (logits, other))
    assert torch.equal(one, two)


def test_the_gradient_of_an_unscored_epoch_is_zero():
    logits, stages = batch()
    logits.requires_grad_()
    weighted_sums(logits, stages, WEIGHTS)[0].backward()
    unscored = (stages < 0)[:, None].expand_as(logits)
    assert (logits.grad[unscored] == 0).all()
    assert (logits.grad[~unscored] != 0).any()


def test_confusions_are_counted_as_the_evaluation_counts_them():
    logits, stages = batch()
    predicted = logits.argmax(dim=1).numpy().ravel()
    expected = confusion_matrix(stages.numpy().ravel(), predicted)
    assert np.array_equal(confusion_counts(logits, stages).numpy(), expected)
