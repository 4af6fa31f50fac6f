"""Every epoch of a night is predicted, from the window in whose middle it is."""

import numpy as np
import pytest
import torch
from small_runs import LAYOUT, learnable, small_store

from psdnorm import domains
from psdnorm.batches import window_starts
from psdnorm.errors import ShapeError
from psdnorm.models import USleep
from psdnorm.training import predict_epochs, predict_night, predict_nights
from psdnorm.training.predict import assemble


def by_number(x):
    """Logits that say each epoch's number modulo 5, which its first sample holds."""
    numbers = x[:, :, 0, 0].long() % 5  # (N, S)
    return 50.0 * torch.nn.functional.one_hot(numbers, 5).transpose(1, 2)


def numbered(n_epochs):
    signals = np.zeros((n_epochs, 2, 8), np.float32)
    signals[:, :, 0] = np.arange(n_epochs)[:, None]
    return signals


@pytest.mark.parametrize("n_epochs", [1, 2, 7, 8, 34, 35, 36, 55, 56, 57, 77, 120])
def test_every_epoch_gets_its_own_prediction(n_epochs):
    probabilities, central = predict_night(by_number, numbered(n_epochs), batch_size=3)
    assert probabilities.shape == (n_epochs, 5)
    assert np.array_equal(probabilities.argmax(axis=1), np.arange(n_epochs) % 5)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert central.shape == (n_epochs,)


@pytest.mark.parametrize(("n_epochs", "first", "last"), [(35, 7, 28), (56, 7, 49), (60, 7, 53)])
def test_all_but_the_first_and_last_seven_are_central(n_epochs, first, last):
    _, central = predict_night(by_number, numbered(n_epochs))
    assert np.array_equal(np.flatnonzero(central), np.arange(first, last))


def test_a_night_shorter_than_a_window_is_central_where_its_window_is():
    assert not predict_night(by_number, numbered(7))[1].any()
    assert np.flatnonzero(predict_night(by_number, numbered(20))[1]).tolist() == [*range(7, 20)]


@pytest.mark.parametrize("n_epochs", [98, 100, 117])
def test_an_epoch_comes_from_the_window_whose_middle_is_nearest(n_epochs):
    starts = window_starts(n_epochs)
    places = np.arange(35) / 100 + np.arange(len(starts))[:, None]  # window . place in it
    found, central = assemble(np.repeat(places[..., None], 5, axis=-1), starts, n_epochs)
    for epoch, value in enumerate(found[:, 0]):
        window, place = divmod(round(100 * value), 100)
        assert starts[window] + place == epoch
        distances = np.abs(starts + 17 - epoch)
        assert distances[window] == distances.min()
        assert central[epoch] == (7 <= place < 28)


def test_all_batches_have_one_shape(tmp_path):
    shapes = set()

    def forward(x):
        shapes.add(tuple(x.shape))
        return by_number(x)

    store = small_store(tmp_path, [learnable("abc-1", 30), learnable("abc-2", 3)])
    list(predict_nights(forward, store, store.index, length=9, stride=5, batch_size=4))
    predict_night(forward, numbered(30)[:, :, :], length=9, stride=5, batch_size=4)
    assert shapes == {(4, 9, 2, LAYOUT.n_times), (4, 9, 2, 8)}


def test_many_nights_are_predicted_as_one_by_one(tmp_path):
    made = [
        learnable("abc-1", 40),
        learnable("abc-2", 3),  # shorter than a window
        learnable("abc-3", 1),
        learnable("abc-4", 25),
    ]
    made[3].stages[:] = -1  # nobody scored it: it is predicted all the same
    store = small_store(tmp_path, made)
    torch.manual_seed(0)
    model = USleep(n_times=LAYOUT.n_times, sfreq=LAYOUT.sfreq, depth=2, norm="psd").eval()
    options = {"length": 9, "stride": 5, "batch_size": 4}
    found = list(predict_nights(model, store, store.index, **options))
    assert [night for night, _, _ in found] == [0, 1, 2, 3]
    for night, probabilities, central in found:
        signals = store.signals(store.index["recording"][night])
        expected = predict_night(model, signals, **options)
        np.testing.assert_allclose(probabilities, expected[0], atol=1e-6)
        assert np.array_equal(central, expected[1])


@pytest.fixture(scope="module")
def by_night():
    """A network with statistics by domain, in which filters differ from 1."""
    torch.manual_seed(0)
    arguments = {"statistics": "domain", "target_power": "unit"}
    shape = {"n_times": LAYOUT.n_times, "sfreq": LAYOUT.sfreq, "depth": 3}
    return USleep(**shape, norm="psd", norm_arguments=arguments).eval()


@pytest.mark.parametrize("batch_size", [3, 5, 64])
def test_a_night_is_a_domain_whatever_the_batches(by_night, batch_size):
    signals = learnable("abc-1", 40).signals.astype(np.float32)
    starts = window_starts(40, 9, 5)
    windows = torch.from_numpy(np.stack([signals[start : start + 9] for start in starts]))
    with domains([0] * len(windows)), torch.no_grad():
        expected = by_night(windows).softmax(dim=1).transpose(1, 2).numpy()
    options = {"length": 9, "stride": 5, "batch_size": batch_size}
    found, _ = predict_night(by_night, signals, **options)
    np.testing.assert_allclose(found, assemble(expected, starts, 40, 5)[0], atol=1e-5)
    for fill in (False, True):
        weighted = predict_epochs(by_night, signals, **options, fill=fill)
        alone = predict_epochs(by_night, signals, length=9, stride=5, batch_size=len(windows))
        np.testing.assert_allclose(weighted, alone, atol=1e-5)


@pytest.mark.parametrize("batch_size", [4, 64])
def test_other_nights_do_not_change_the_statistics_of_a_night(tmp_path, by_night, batch_size):
    gains = {"abc-1": 1, "abc-2": 20, "abc-3": 5}
    made = [learnable(name, 7 + 12 * i, gain=g) for i, (name, g) in enumerate(gains.items())]
    store = small_store(tmp_path, made)
    options = {"length": 9, "stride": 5, "batch_size": batch_size}
    found = list(predict_nights(by_night, store, store.index, **options))
    assert [night for night, _, _ in found] == [0, 1, 2]
    for night, probabilities, central in found:
        signals = store.signals(store.index["recording"][night])
        expected = predict_night(by_night, signals, **options)
        np.testing.assert_allclose(probabilities, expected[0], atol=1e-5)
        assert np.array_equal(central, expected[1])


def test_accelerated_networks_have_nights_as_domains_too(by_night):
    class Accelerated:
        model = by_night

        def __call__(self, x):
            return by_night(x)

    signals = learnable("abc-1", 40).signals.astype(np.float32)
    options = {"length": 9, "stride": 5, "batch_size": 4}
    expected, _ = predict_night(by_night, signals, **options)
    assert np.array_equal(predict_night(Accelerated(), signals, **options)[0], expected)


def test_a_night_of_the_wrong_shape_is_refused():
    for wrong in (np.zeros((2, 8)), np.zeros((0, 2, 8))):
        with pytest.raises(ShapeError, match=r"signals have shape .*, expected \(E, C, T\)"):
            predict_night(by_number, wrong)
