"""The benchmark of training has a row for each number of nights and each residence of them."""

import csv

import pytest


@pytest.fixture
def train(from_benchmarks, monkeypatch):
    train = from_benchmarks("train")
    small = {"N_EPOCHS": 20, "N_TIMES": 600, "EPOCHS": 2, "ITERATIONS": 1}
    for name, value in small.items():
        monkeypatch.setattr(train, name, value)
    return train


@pytest.mark.slow
def test_every_size_and_residence_has_a_row(train, tmp_path):
    table = tmp_path / "train.csv"
    arguments = [
        "--device",
        "cpu",
        "--model",
        "cnn-transformer",
        "--batch",
        "2",
        "--nights",
        "8",
        "14",
    ]
    assert train.main([*arguments, "--csv", str(table), "--folder", str(tmp_path)]) == 0
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["residence"] for row in rows] == 2 * list(train.RESIDENCES)
    assert [row["sequences"] for row in rows] == 3 * ["6"] + 3 * ["10"]
    assert all(float(row["training_per_s"]) > 0 for row in rows)
    assert not any(path.is_dir() for path in tmp_path.iterdir())
