"""What the shift report must be worth is shown on nights that nobody was trained on."""

import csv

import numpy as np
import pytest


@pytest.fixture
def shift(from_benchmarks):
    return from_benchmarks("shift")


@pytest.mark.slow
def test_untouched_nights_are_in_range_spoilt_ones_are_not_and_accuracy_falls(shift, tmp_path):
    table = tmp_path / "shift.csv"
    assert shift.main(["--nights", "60", "--spoilt", "4", "--csv", str(table)]) == 0
    with table.open() as file:
        rows = {row["kind"]: row for row in csv.DictReader(file)}
    assert float(rows["untouched"]["in range"]) >= 0.95
    for kind in shift.UNTRUSTED:
        assert float(rows[kind]["do not trust"]) == 1
    means = [float(rows[f"all {verdict}"]["balanced_accuracy"]) for verdict in shift.VERDICTS]
    assert means == sorted(means, reverse=True)
    assert means[0] > 0.5


def test_nights_to_train_on_are_not_looked_at(shift, capsys):
    with pytest.raises(SystemExit):
        shift.main(["--seed", "0"])
    assert "--seed 0 is that of the nights to train on" in capsys.readouterr().err


def looked(shift, **changes):
    """Nights of which all is as it must be, but for the ``changes``: verdict and accuracy."""
    nights = {"untouched": ("in range", 0.8), "shift 6": ("unusual", 0.6)}
    nights |= dict.fromkeys(shift.UNTRUSTED, ("do not trust", 0.3))
    nights |= {kind.replace("_", " "): each for kind, each in changes.items()}
    return [shift.Looked(kind, *each) for kind, each in nights.items()]


def test_what_is_not_shown_is_said(shift):
    assert shift.misses(looked(shift)) == []
    for changes, said in (
        ({"untouched": ("unusual", 0.9)}, "0.0% of the untouched nights are in range"),
        ({"gain_50": ("unusual", 0.3)}, "1 nights of the kind 'gain 50' are trusted"),
        ({"shift_6": ("unusual", 0.9)}, "accuracy goes"),
    ):
        assert any(said in each for each in shift.misses(looked(shift, **changes)))


def test_nights_without_a_hypnogram_count_for_verdicts_but_not_for_accuracy(shift):
    changes = {"one_flat_channel": ("do not trust", np.nan)}
    rows = {row["kind"]: row for row in shift.table_of(looked(shift, **changes))}
    assert rows["one flat channel"]["balanced_accuracy"] == ""
    assert rows["all do not trust"]["nights"] == "4"
    assert rows["all do not trust"]["staged"] == "3"
    assert float(rows["all do not trust"]["balanced_accuracy"]) == pytest.approx(0.3)


@pytest.mark.parametrize("kind", ["inverted", "mirrored"])
def test_inverting_keeps_the_size_and_turns_the_spectrum(shift, kind):
    rng = np.random.default_rng(0)
    slow = np.cumsum(rng.standard_normal((2, 60_000)), axis=1)
    slow -= np.convolve(slow[0], np.ones(400) / 400, "same")  # no drift
    made = getattr(shift, kind)(slow, 100.0, rng)
    np.testing.assert_allclose(made.std(axis=1), slow.std(axis=1))
    power = np.abs(np.fft.rfft(made[0])) ** 2
    hz = np.fft.rfftfreq(60_000, 0.01)
    assert power[(hz > 20) & (hz < 30)].mean() > 3 * power[(hz > 1) & (hz < 5)].mean()
