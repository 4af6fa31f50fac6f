"""The benchmark of reports measures each part, and tells which bar is missed."""

import csv
from pathlib import Path

import numpy as np
import pytest

from psdnorm.evaluation.scores import confusions_of
from psdnorm.training import Run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def report(from_benchmarks, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the process that is measured
    return from_benchmarks("report")


def rows_of(table):
    with table.open() as file:
        return {row["what"]: row for row in csv.DictReader(file)}


def test_better_norms_have_better_scores_and_every_epoch_counts(report):
    scores = [report.drawn_scores(Run("usleep", norm), 400) for norm in ("batch", "psd")]
    batch, psd = (confusions_of(table) for table in scores)
    assert (batch.sum(axis=(1, 2)) == 900).all()
    assert np.einsum("nii->", psd) > np.einsum("nii->", batch)


@pytest.mark.parametrize(
    ("found", "missed"),
    [
        ({"all": 119, "peak memory": 3.9, "page": 4.9}, []),
        ({"all": 121, "peak memory": 4.1, "page": 5.1}, ["all", "peak memory", "page"]),
    ],
)
def test_a_bar_that_is_missed_is_told(report, found, missed):
    assert report.misses(found) == missed


@pytest.mark.slow
def test_a_small_grid_has_a_row_for_each_part(report, tmp_path):
    table = tmp_path / "report.csv"
    assert report.main(["--share", "0.005", "--csv", str(table), "--folder", str(tmp_path)]) == 0
    rows = rows_of(table)
    assert {"reading scores", "comparing norms", "drawing figures", "all", "page"} <= {*rows}
    assert rows["all"]["cells"] == "150"


@pytest.mark.slow
def test_a_full_grid_fits_into_4_gb_and_a_page_of_5_mb(report, tmp_path):
    table = tmp_path / "report.csv"
    report.main(["--csv", str(table), "--folder", str(tmp_path)])
    rows = rows_of(table)
    assert rows["all"]["subjects"] == "11032"
    assert float(rows["peak memory"]["figure"]) < 4
    assert float(rows["page"]["figure"]) < 5
