"""The benchmark of staging runs the command itself, and tells which bar is missed."""

import csv

import pytest


@pytest.fixture
def benchmark(from_benchmarks):
    return from_benchmarks("stage")


@pytest.mark.parametrize(
    ("found", "missed"),
    [
        ({"stage": 29, "peak memory": 1.9}, []),
        ({"stage": 31, "peak memory": 2.1}, ["stage", "peak memory"]),
    ],
)
def test_a_bar_that_is_missed_is_told(benchmark, found, missed):
    assert benchmark.misses(found) == missed


def test_a_command_that_fails_is_no_figure(benchmark):
    with pytest.raises(RuntimeError, match="exit code 3: so it goes"):
        benchmark.run("import sys; sys.stderr.write('so it goes'); sys.exit(3)", [])


@pytest.mark.slow
def test_a_short_night_is_measured_and_its_table_written(benchmark, tmp_path, capsys):
    table = tmp_path / "stage.csv"
    code = benchmark.main(["--hours", "1", "--repeats", "1", "--csv", str(table)])
    with table.open() as file:
        rows = {row["what"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"imports", "stage", "peak memory"}
    assert float(rows["stage"]["figure"]) > float(rows["imports"]["figure"]) > 0
    assert (rows["stage"]["sfreq"], rows["stage"]["channels"]) == ("256.0", "2")
    assert (code == 0) == ("all bars are met" in capsys.readouterr().out)
