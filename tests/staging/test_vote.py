"""Groups of channels vote softly; who measured nothing says nothing."""

import numpy as np
import torch
from small_stagers import small_model

from psdnorm.staging import load_model
from psdnorm.staging.derivations import PreparedNight
from psdnorm.staging.trust import UNUSUAL
from psdnorm.staging.vote import (
    STRIDE_ALONE,
    STRIDE_TOGETHER,
    count_votes,
    dissenters,
    predict_groups,
)
from psdnorm.training.predict import predict_epochs

CPU = torch.device("cpu")


def votes(n_groups, n_epochs, seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(5), (n_groups, n_epochs)).astype(np.float32)


def test_votes_of_groups_that_measured_all_count_the_same():
    found = votes(3, 7)
    stages, probabilities = count_votes(found, np.ones((3, 7)))
    np.testing.assert_allclose(probabilities, found.mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(stages, found.mean(axis=0).argmax(axis=1))


def test_a_vote_counts_by_the_share_of_its_channels_that_were_measured():
    found = votes(2, 1)
    _, probabilities = count_votes(found, np.array([[1.0], [0.5]]))
    np.testing.assert_allclose(probabilities[0], (2 * found[0, 0] + found[1, 0]) / 3, rtol=1e-6)


def test_an_epoch_without_votes_is_unscored():
    found = votes(2, 2)
    found[:, 1] = np.nan
    stages, probabilities = count_votes(found, np.array([[1.0, 0.0], [1.0, 0.0]]))
    assert stages[0] >= 0
    assert stages[1] == -1
    assert np.isnan(probabilities[1]).all()


def test_without_groups_all_epochs_are_unscored():
    stages, probabilities = count_votes(np.empty((0, 3, 5), np.float32), np.empty((0, 3)))
    assert stages.tolist() == [-1] * 3
    assert np.isnan(probabilities).all()


def test_a_pair_that_disagrees_with_the_vote_more_often_than_not_makes_the_night_unusual():
    stages = np.array([2, 2, 2, 2, -1], np.int8)
    found = np.full((3, 5, 5), 0.1, np.float32)
    for pair, own in enumerate(([2, 2, 2, 2], [2, 2, 0, 0], [2, 0, 0, 0])):
        found[pair, np.arange(4), own] = 0.6
    found[:, 4] = np.nan
    found[2, 0] = np.nan  # an epoch of which it says nothing is no agreement
    groups = (("F3", "C3"), ("F3", "O1"), ("C3", "O1"))
    (reason,) = dissenters(groups, found, stages)
    assert reason.verdict == UNUSUAL
    assert reason.sentence.startswith("C3 and O1 alone disagree with the vote in ")
    assert reason.sentence.endswith("in 100 % of the epochs.")


def test_a_channel_that_disagrees_is_named_in_the_singular():
    other = np.full((1, 3, 5), 0.1, np.float32)
    other[..., 2] = 0.6
    (reason,) = dissenters([("Cz", "Cz")], other, np.zeros(3, np.int8))
    assert reason.sentence == "Cz alone disagrees with the vote in 100 % of the epochs."


def test_a_pair_that_says_nothing_does_not_disagree():
    nothing = np.full((1, 3, 5), np.nan, np.float32)
    assert dissenters((("F3", "C3"),), nothing, np.full(3, -1, np.int8)) == []


def test_each_group_is_shown_its_own_channels_in_order_and_no_epoch_without_a_signal(
    tmp_path,
):
    model = load_model(small_model(tmp_path))
    rng = np.random.default_rng(0)
    prepared = {name: rng.standard_normal((36, 3000)).astype(np.float16) for name in "abc"}
    measured = {name: np.ones(36, bool) for name in "abc"}
    measured["a"][3] = measured["b"][3] = False
    groups = [("a", "b"), ("b", "c")]
    night = PreparedNight(36, prepared, measured)
    found = predict_groups(model, night, groups, CPU)
    for vote, group in zip(found, groups, strict=True):
        signals = np.stack([prepared[name] for name in group], axis=1)
        seen = ~np.isnan(vote[:, 0])
        expected = predict_epochs(model.network, signals[seen], stride=STRIDE_TOGETHER)
        np.testing.assert_array_equal(vote[seen], expected)
    assert np.flatnonzero(np.isnan(found[0, :, 0])).tolist() == [3]
    assert not np.isnan(found[1]).any()
    alone = predict_groups(model, night, groups[1:], CPU)[0]
    signals = np.stack([prepared["b"], prepared["c"]], axis=1)
    expected = predict_epochs(model.network, signals, stride=STRIDE_ALONE)
    np.testing.assert_array_equal(alone, expected)
