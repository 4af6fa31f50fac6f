"""The benchmark of the model's share of staging times what staging does, and holds a GPU to 1 s."""

import csv

import pytest


@pytest.fixture
def benchmark(from_benchmarks):
    return from_benchmarks("stage_model")


def test_a_night_is_measured_and_its_table_written(benchmark, tmp_path):
    table = tmp_path / "model.csv"
    arguments = ["--hours", "0.1", "--repeats", "1", "--csv", str(table)]
    assert benchmark.main(arguments) == 0
    with table.open() as file:
        rows = {row["what"]: row for row in csv.DictReader(file)}
    seconds = {name: float(row["seconds"]) for name, row in rows.items()}
    assert set(seconds) == {"votes", "verdict", "model"}
    assert seconds["model"] == pytest.approx(seconds["votes"] + seconds["verdict"], abs=0.002)
    assert rows["votes"]["epochs"] == "12"
    assert rows["model"]["bar"] == ""  # a processor has none


def test_a_table_in_a_folder_that_does_not_exist_is_refused(benchmark, tmp_path, capsys):
    with pytest.raises(SystemExit):
        benchmark.main(["--csv", str(tmp_path / "nowhere" / "model.csv")])
    assert "is in a folder that does not exist" in capsys.readouterr().err
