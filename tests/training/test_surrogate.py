"""The stand-in for a network sees what PSDNorm gives, and tells stages apart by it."""

import numpy as np
import pytest
import torch
from small_runs import LAYOUT, learnable, nights, small_store

from psdnorm import PSDNorm
from psdnorm.ops import reference
from psdnorm.training import filter_size as surrogate
from psdnorm.training.filter_size import left_out_accuracy, normalized_spectra, sample_nights


def layer_output(store, filter_size, target):
    """Windows of nine epochs after the layer itself, whose barycenter is that of all windows."""
    windows = []
    for recording, n_epochs in zip(store.index["recording"], store.index["epochs"], strict=True):
        signals, _ = store.read(recording, 0, int(n_epochs))
        windows += [signals[start : start + 9] for start in (0, 9, 18, 27, n_epochs - 9)]
    x = torch.from_numpy(np.stack(windows)).double()  # (N, S, C, T)
    norm = PSDNorm(LAYOUT.n_channels, filter_size, target=target, dtype=torch.float64)
    rows = x.transpose(1, 2).flatten(2)
    norm.train()(rows)  # the first batch sets the barycenter whole
    y = norm.eval()(rows)
    return y.unflatten(2, (9, LAYOUT.n_times)).transpose(1, 2).flatten(0, 1)


@pytest.mark.parametrize("target", ["barycenter", "white"])
@pytest.mark.parametrize("filter_size", [1, 4, 9])
def test_the_spectra_are_those_of_the_layers_output(tmp_path, filter_size, target):
    store = small_store(tmp_path, nights(("abc", "mno"), 2))
    sample = sample_nights(store, store.index, [filter_size], length=9)
    learned = torch.arange(len(sample.psd[filter_size]))
    found = normalized_spectra(sample, filter_size, learned, target)
    y = layer_output(store, filter_size, target)  # (E, C, T)
    power = reference.welch_psd(reference.center(y), 40, "hann")  # 2 s: bins of 0.5 Hz
    hz = np.arange(21) * 0.5
    bands = [power[..., (hz >= low) & (hz < low + 1)].mean(-1) for low in np.arange(0.5, 10.5)]
    expected = torch.stack(bands, dim=-1).log10().flatten(1).numpy()
    assert found.shape == expected.shape
    # a filter reaches over the ends of an epoch and of a segment, which a product does not know
    assert np.abs(found - expected).mean() < (1e-3 if filter_size == 1 else 0.05)


def test_stages_of_a_cohort_that_was_left_out_are_recognised(tmp_path):
    store = small_store(tmp_path)
    sample = sample_nights(store, store.index, [1, 5], length=9)
    assert {left_out_accuracy(sample, f, c) > 0.9 for f in (1, 5) for c in ("abc", "xyz")} == {True}


def test_stages_of_the_cohort_that_is_left_out_teach_nothing(tmp_path):
    made = nights()
    store = small_store(tmp_path / "right", made)
    right = left_out_accuracy(sample_nights(store, store.index, [5], length=9), 5, "abc")
    for night in made:
        if night.recording.startswith("abc"):
            night.stages[:] = (night.stages + 1) % 5
    store = small_store(tmp_path / "wrong", made)
    wrong = left_out_accuracy(sample_nights(store, store.index, [5], length=9), 5, "abc")
    assert right > 0.9
    assert wrong < 0.1  # had it learned from them, it would have come up


def test_the_target_is_that_of_the_cohorts_that_teach(tmp_path, monkeypatch):
    store = small_store(tmp_path)
    sample = sample_nights(store, store.index, [5], length=9)
    taken = []

    def watched(sample, filter_size, learned, target):
        taken.extend(learned.tolist())
        return normalized_spectra(sample, filter_size, learned, target)

    monkeypatch.setattr(surrogate, "normalized_spectra", watched)
    left_out_accuracy(sample, 5, "mno")
    of_others = sample.window.numpy()[sample.cohort != "mno"]
    assert sorted(taken) == sorted({*of_others.tolist()})


def test_stages_are_told_apart_as_by_scikit_learn_with_equal_priors():
    discriminant_analysis = pytest.importorskip("sklearn.discriminant_analysis")
    rng = np.random.default_rng(0)
    stages = np.repeat(np.arange(3, dtype=np.int8), (900, 60, 20))  # far from equal
    spread = np.array([[4.0, 0.2], [0.2, 1.0], [1.0, 1.0]])[stages]  # nor is each spread alike
    x = np.array([[0.0, 0.0], [1.5, 1.0], [-1.0, 2.0]])[stages] + spread * rng.normal(size=(980, 2))
    other = rng.uniform(-6, 6, size=(2000, 2))
    theirs = discriminant_analysis.LinearDiscriminantAnalysis("lsqr", priors=[1 / 3] * 3)
    expected = theirs.fit(x, stages).predict(other)
    # ours has a ridge, too
    assert np.mean(surrogate._discriminant(x, stages, other) == expected) > 0.995


def test_an_epoch_is_seen_with_those_around_it(tmp_path, monkeypatch):
    made = [learnable(recording, 160) for recording in ("abc-1", "mno-1")]
    rng = np.random.default_rng(0)
    t = np.arange(LAYOUT.n_times) / LAYOUT.sfreq
    for night in made:  # every other epoch is noise, whose stage only its neighbours tell
        night.stages[:] = np.repeat(rng.permutation(20) % 5, 8)
        night.signals[:] = np.sin(2 * np.pi * (1 + 1.5 * night.stages[:, None, None]) * t)
        night.signals[1::2] = rng.standard_normal(night.signals[1::2].shape)
    store = small_store(tmp_path, made)
    sample = sample_nights(store, store.index, [1], length=160)
    seen = left_out_accuracy(sample, 1, "abc")
    monkeypatch.setattr(surrogate, "with_neighbours", lambda x, window: x)
    assert left_out_accuracy(sample, 1, "abc") < 0.7 < seen - 0.1


def test_a_long_night_is_no_more_work_than_a_short_one(tmp_path):
    store = small_store(tmp_path, [learnable("abc-1", 400), learnable("abc-2", 5)])
    long, short = (sample_nights(store, store.index[i : i + 1], [5], length=9) for i in (0, 1))
    assert len(long.stages) == 8 * 9
    _, whole = store.read("abc-1", 0, 400)
    assert long.stages[:9].tolist() == whole[:9].tolist()  # from its beginning
    assert long.stages[-9:].tolist() == whole[-9:].tolist()  # to its end
    assert len(short.stages) == 5  # one window, not filled up
