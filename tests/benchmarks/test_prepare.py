"""The benchmark of preparing has a row for each step, and tells when the bar is missed."""

import csv

import pytest


@pytest.fixture
def prepare(from_benchmarks):
    return from_benchmarks("prepare")


def small(table, folder):
    return ["--hours", "0.05", "--repeats", "1", "--csv", str(table), "--folder", str(folder)]


def test_every_recipe_has_a_row_for_each_step(prepare, tmp_path):
    table = tmp_path / "prepare.csv"
    assert prepare.main(small(table, tmp_path)) == 0
    with table.open() as file:
        rows = list(csv.DictReader(file))
    expected = [(r, s) for r in ("paper", "as-released", "robust") for s in prepare.STEPS]
    assert [(row["recipe"], row["what"]) for row in rows] == expected
    assert all(float(row["times_read"]) > 0 for row in rows)
    assert not any(path.is_dir() for path in tmp_path.iterdir())


@pytest.mark.parametrize(("seconds", "missed"), [(5.9, False), (6.1, True)])
def test_a_bar_that_is_missed_is_told(prepare, seconds, missed):
    assert prepare.misses({"all": seconds}) is missed


def test_the_command_fails_if_the_bar_is_missed(prepare, tmp_path, monkeypatch):
    def seconds(night, recipe):
        return dict.fromkeys(prepare.STEPS, 1.0) | {"all": 7.0 if recipe == "paper" else 5.0}

    monkeypatch.setattr(prepare, "make_night", lambda *_: None)
    monkeypatch.setattr(prepare, "time_once", seconds)
    chosen = small(tmp_path / "prepare.csv", tmp_path)
    assert prepare.main(chosen) == 1
    assert prepare.main([*chosen, "--recipes", "robust"]) == 0


def test_a_night_that_fails_is_not_timed(prepare, tmp_path, monkeypatch):
    from psdnorm.prepare.prepare import PreparationOutcome

    failed = PreparationOutcome("n", "n.edf", "failed", "n.edf is truncated")
    monkeypatch.setattr(prepare, "prepare_night", lambda *_: failed)
    with pytest.raises(ValueError, match=r"^the night was not prepared: n.edf is truncated$"):
        prepare.main(small(tmp_path / "prepare.csv", tmp_path))
