"""A model keeps how its training nights spread, and nothing that it keeps is taken on trust."""

import json
from dataclasses import replace

import numpy as np
import pytest
from small_runs import LAYOUT, PROTOCOL, RUN, nights, small_store

from psdnorm.batches import leave_one_dataset_out
from psdnorm.drift import (
    QUANTILES,
    bures_wasserstein,
    measure_night,
    measure_spread,
    measures,
    spread_of,
    swap_gap,
)
from psdnorm.errors import CheckpointError
from psdnorm.models import USleep, from_pretrained
from psdnorm.training import train as runs
from psdnorm.training import train_run

MODEL = USleep(n_times=LAYOUT.n_times, sfreq=LAYOUT.sfreq, depth=3, n_time_filters=4, norm="psd")


def coloured(seed, n_epochs=12, tilt=1.0):
    """A night of noise, the first channel of which is slower, with a gain of its own."""
    rng = np.random.default_rng(seed)
    signals = np.exp(0.1 * rng.standard_normal()) * rng.standard_normal((n_epochs, 2, 60))
    signals[:, 0, 1:] += tilt * signals[:, 0, :-1]
    return signals.astype(np.float32)


def known(n_nights, first=0):
    model = USleep(**MODEL.config)
    model.load_state_dict(MODEL.state_dict())
    spread = measure_spread(model, (coloured(first + n) for n in range(n_nights)))
    model.card = {"training_spread": json.loads(json.dumps(spread))}
    return model


def excesses(model, signals, spread=None):
    spread = spread or spread_of(model)
    found = measures(measure_night(model, signals), spread.sqrt_barycenter)
    return {name: limits.excess(found[name]) for name, limits in spread.ranges.items()}


def test_the_barycenter_is_the_squared_mean_of_roots_and_quantiles_are_of_unseen_nights():
    spread = spread_of(known(30))
    roots = [measure_night(MODEL, coloured(n)).sqrt_psd for n in range(30)]
    np.testing.assert_allclose(spread.sqrt_barycenter, np.mean(roots, axis=0), rtol=1e-5)
    without = [np.mean([*roots[:n], *roots[n + 1 :]], axis=0) for n in range(30)]
    for channel in (0, 1):
        distances = [
            bures_wasserstein(own[channel], others[channel], 60)
            for own, others in zip(roots, without, strict=True)
        ]
        expected = np.quantile(distances, QUANTILES)
        limits = spread.ranges[f"channel/{channel}"]
        np.testing.assert_allclose(limits.quantiles, expected, rtol=1e-4)
        assert limits.typical == pytest.approx(np.median(distances), rel=1e-4)


def test_at_least_99_percent_of_the_training_nights_are_within_all_limits_at_once():
    model = known(200)
    spread = spread_of(model)
    worst = [max(excesses(model, coloured(n), spread).values()) for n in range(200)]
    assert np.mean(np.array(worst) <= 1) >= 0.985  # one night may be at the limit itself


def test_nights_like_those_of_the_training_are_in_range_and_others_are_not():
    model = known(100)
    spread = spread_of(model)
    worst = [max(excesses(model, coloured(1000 + n), spread).values()) for n in range(40)]
    assert np.mean(np.array(worst) <= 1) >= 0.95
    assert max(excesses(model, coloured(2000, tilt=-1)).values()) > 2
    assert excesses(model, 3 * coloured(2000))["level/1/power"] > 2


def test_with_few_nights_limits_are_wider():
    def reach(n_nights, first):
        limits = spread_of(known(n_nights, first)).ranges["level/1/power"]
        return limits.high - limits.low

    few = [reach(4, 4 * draw) for draw in range(8)]
    assert np.mean(few) > 1.5 * reach(100, 0)


def test_one_night_is_not_enough_and_a_flat_one_does_not_count():
    flat = coloured(1)
    flat[:, 1] = 0
    lost = coloured(2)
    lost[:, 0] = np.nan
    assert measure_spread(MODEL, [coloured(0), flat, lost]) is None
    assert measure_spread(MODEL, [coloured(0), flat, coloured(3)])["nights"] == 2


def test_nights_that_are_all_the_same_leave_limits_that_are_some():
    model = USleep(**MODEL.config)
    model.card = {"training_spread": measure_spread(model, [coloured(0)] * 5)}
    for limits in spread_of(model).ranges.values():
        assert limits.low < limits.typical < limits.high


def test_two_channels_are_nearer_to_their_own_barycenters_unless_they_are_swapped():
    spread, night = spread_of(known(50)), measure_night(MODEL, coloured(7))
    gap = swap_gap(night.sqrt_psd, spread.sqrt_barycenter, night.size)

    def square(order):
        distances = bures_wasserstein(night.sqrt_psd, spread.sqrt_barycenter[order], night.size)
        return np.sum(distances**2)

    assert gap == pytest.approx(square([1, 0]) - square([0, 1]), rel=1e-6)
    assert gap > spread.least_gap > 0
    assert swap_gap(night.sqrt_psd[::-1], spread.sqrt_barycenter, night.size) == -gap


def test_a_model_without_a_spread_has_none():
    assert spread_of(USleep(**MODEL.config)) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.pop("ranges"), "'ranges' is missing"),
        (lambda s: s.update(format=2), "its format is 2, expected 1"),
        (lambda s: s["ranges"].pop("input"), "the range of input is missing"),
        (lambda s: s["sqrt_barycenter"].pop(), "is not an array of \\(2, 31\\)"),
        (lambda s: s.update(sqrt_barycenter="wide"), "could not convert"),
        (lambda s: s["ranges"]["input"]["quantiles"].pop(), "has 14 quantiles"),
        (lambda s: s["ranges"]["input"].update(high=0.0), "a range must rise, found -inf, "),
        (lambda s: s.update(ranges=[]), "no attribute 'items'"),
    ],
)
def test_a_spread_that_does_not_fit_its_model_is_rejected_in_one_sentence(change, said):
    model = known(3)
    change(model.card["training_spread"])
    with pytest.raises(CheckpointError, match=f"training_spread cannot be used: .*{said}"):
        spread_of(model)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return small_store(tmp_path_factory.mktemp("shared") / "store", nights(subjects=5))


@pytest.mark.parametrize("norm", ["psd", "psd-night", "batch", "tma"])
def test_a_run_that_keeps_weights_keeps_the_spread_of_its_training_nights(store, tmp_path, norm):
    run = replace(RUN, norm=norm)
    train_run(store, run, replace(PROTOCOL, max_epochs=1), tmp_path, keep="weights", device="cpu")
    model = from_pretrained(tmp_path / "weights")
    train = leave_one_dataset_out(store.index, "abc", seed=0, fraction=0.34).train["recording"]
    expected = measure_spread(model, [store.signals(each) for each in train])
    found = model.card["training_spread"]
    assert found == json.loads(json.dumps(expected))
    assert found["nights"] == len(train)
    layers = [name for name in found["ranges"] if name.startswith("layer/")]
    assert len(layers) == (3 if norm.startswith("psd") else 0)


def test_of_many_training_nights_some_are_measured_evenly_drawn(store, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "_MOST_MEASURED", 3)
    train_run(store, RUN, replace(PROTOCOL, max_epochs=1), tmp_path, keep="weights", device="cpu")
    assert from_pretrained(tmp_path / "weights").card["training_spread"]["nights"] == 3
