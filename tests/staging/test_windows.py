"""Every epoch is predicted from all windows that see it, those that see it best most."""

import numpy as np
import pytest
import torch
from small_stagers import small_network

from psdnorm.errors import ShapeError
from psdnorm.training.predict import predict_epochs


def forward(x):
    """Logits (N, 5, S) that depend on the epoch, its place in the window and its neighbours."""
    means = x.mean(dim=(2, 3))  # (N, S)
    place = torch.arange(x.shape[1]) / x.shape[1]
    parts = [means, place * means, means.roll(1, 1), -means, 0.1 * means.cumsum(1)]
    return torch.stack(parts, dim=1)


def night(n_epochs, seed=0):
    signals = np.random.default_rng(seed).standard_normal((n_epochs, 2, 8)).astype(np.float32)
    return signals + np.linspace(-1, 1, n_epochs, dtype=np.float32)[:, None, None]


def brute_force(signals, stride, length=35):
    n = len(signals)
    last = max(0, n - length)
    sums, weights = np.zeros((n, 5)), np.zeros(n)
    for start in {*range(0, last, stride), last}:
        window = [signals[(start + place) % n] for place in range(length)]
        found = forward(torch.tensor(np.stack(window))[None])[0].softmax(0).numpy()  # (5, S)
        for place in range(min(length, n)):
            weight = 1 + min(place, length - 1 - place)
            sums[start + place] += weight * found[:, place]
            weights[start + place] += weight
    return sums / weights[:, None]


@pytest.mark.parametrize("n_epochs", [1, 2, 34, 35, 36, 60, 121])
@pytest.mark.parametrize("stride", [7, 17])
def test_overlapping_windows_are_averaged_with_more_weight_in_the_middle(n_epochs, stride):
    signals = night(n_epochs)
    found = predict_epochs(forward, signals, stride=stride, batch_size=4)
    np.testing.assert_allclose(found, brute_force(signals, stride), atol=1e-5)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    assert found.dtype == np.float32


def test_filled_batches_are_of_one_shape_and_size_and_filling_change_nothing():
    shapes = []

    def watched(x):
        shapes.append(tuple(x.shape))
        return forward(x)

    filled = predict_epochs(watched, night(100), stride=7, batch_size=8, fill=True)
    assert set(shapes) == {(8, 35, 2, 8)}
    for batch_size in (3, 8):
        found = predict_epochs(watched, night(100), stride=7, batch_size=batch_size)
        np.testing.assert_allclose(found, filled, atol=1e-6)
    assert shapes[-1] == (3, 35, 2, 8)  # of eleven windows


def test_a_network_gives_every_epoch_a_distribution_from_half_precision_too():
    signals = np.random.default_rng(0).standard_normal((37, 2, 3000)).astype(np.float16)
    found = predict_epochs(small_network(), signals, stride=17)
    assert found.shape == (37, 5)
    assert np.isfinite(found).all()
    assert (found.std(axis=0) > 0).all()


def test_a_night_without_epochs_raises():
    with pytest.raises(ShapeError, match="E from 1"):
        predict_epochs(forward, np.zeros((0, 2, 8), np.float32), stride=7)
