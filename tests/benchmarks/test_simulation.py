"""The benchmark times nights that are right, and refuses those that are not."""

import csv

import numpy as np
import pytest


@pytest.fixture
def simulation(from_benchmarks):
    return from_benchmarks("simulation")


def test_every_cohort_has_a_row_for_each_way(simulation, tmp_path):
    table = tmp_path / "simulation.csv"
    assert simulation.main(["--hours", "0.1", "--repeats", "1", "--csv", str(table)]) == 0
    with table.open() as file:
        rows = list(csv.DictReader(file))
    expected = [(c, w) for c in ("PHYS", "SHHS", "MROS") for w in ("night", "files", "store")]
    assert [(row["cohort"], row["way"]) for row in rows] == expected
    assert all(float(row["seconds"]) > 0 for row in rows)


@pytest.mark.parametrize(
    ("way", "seconds", "missed"),
    [("night", 2.9, False), ("night", 3.1, True), ("files", 3.1, False), ("store", 3.1, False)],
)
def test_a_bar_that_is_missed_is_told(simulation, way, seconds, missed):
    assert simulation.misses(way, seconds) is missed


def test_the_command_fails_if_the_bar_is_missed(simulation, tmp_path, monkeypatch):
    monkeypatch.setattr(simulation, "measure", lambda cohort, *_: 9.0 if cohort == "PHYS" else 1.0)
    table = tmp_path / "simulation.csv"
    assert simulation.main(["--csv", str(table)]) == 1
    assert len(table.read_text().splitlines()) == 10  # the others are timed all the same
    assert simulation.main(["--cohorts", "SHHS", "--csv", str(table)]) == 0


def test_a_night_that_is_not_finite_is_not_timed(simulation, tmp_path, monkeypatch, capsys):
    made = simulation.simulate_night

    def broken(*arguments, **knobs):
        night = made(*arguments, **knobs)
        night.signal[0, 0] = np.nan
        return night

    monkeypatch.setattr(simulation, "simulate_night", broken)
    table = tmp_path / "simulation.csv"
    assert simulation.main(["--hours", "0.1", "--repeats", "1", "--csv", str(table)]) == 1
    assert "not finite" in capsys.readouterr().err
