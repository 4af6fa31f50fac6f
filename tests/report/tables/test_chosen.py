"""A chosen filter size has a column of its own, and a note says which it was."""

import csv
import io

import pytest
from experiment_runs import write_runs

from psdnorm.report.results import read_results
from psdnorm.report.tables import build_tables
from psdnorm.report.tables.table import csv_text
from psdnorm.training import Run

from .conftest import COHORTS, axes, by_hand


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    path = tmp_path_factory.mktemp("chosen")
    blocks = [
        axes(norms=("batch", "tma", "psd")),
        axes(norms=("psd",), filter_sizes=(5, 9, "auto")),
    ]
    write_runs(path, blocks, COHORTS, epochs=25)
    return path


@pytest.fixture(scope="module")
def tables(chosen):
    return build_tables(read_results(chosen)).tables


@pytest.fixture(scope="module")
def table(tables):
    return {table.name: table for table in tables}["filter-size-usleep-all"]


def test_it_has_a_column_of_its_own_behind_the_fixed_sizes(table, chosen):
    assert table.head[-3:] == ["PSDNorm (f = 5)", "PSDNorm (f = 9)", "PSDNorm (f auto)"]
    rows = list(csv.DictReader(io.StringIO(csv_text(table))))
    (own,) = [r for r in rows if r["filter_size"] == "auto" and r["dataset"] == "ABC"]
    names = [Run("usleep", "psd", "auto", hold_out="ABC", seed=s).name for s in (0, 1)]
    by_seed = [by_hand(chosen, name, "balanced_accuracy") for name in names]
    mean = sum(sum(scores) / len(scores) for scores in by_seed) / 2
    assert float(own["mean"]) == pytest.approx(100 * mean)


def test_a_note_says_which_size_each_cohort_got(table):
    (note,) = [note for note in table.notes if "f auto" in note]
    assert note.endswith("by held-out cohort: ABC 7, 9; CHAT 7, 9.")


def test_tables_of_the_protocol_do_not_take_it_for_the_protocols_size(tables):
    main = tables[0]
    assert "PSDNorm" in main.head
    assert "PSDNorm (f auto)" not in main.head


def test_a_missing_one_is_named(tmp_path):
    lacking = Run("usleep", "psd", "auto", hold_out="CHAT", seed=0).name
    blocks = [axes(norms=("psd",), filter_sizes=(5, "auto"))]
    write_runs(tmp_path, blocks, COHORTS, epochs=25, unfinished=[lacking])
    tables = {table.name: table for table in build_tables(read_results(tmp_path)).tables}
    notes = " ".join(tables["filter-size-usleep-all"].notes)
    assert "PSDNorm (f auto): no seed 0 on CHAT" in notes


def test_a_seed_that_was_asked_of_it_alone_is_missed(tmp_path):
    blocks = [
        axes(norms=("psd",), filter_sizes=(f,), seeds=s) for f, s in ((5, (0,)), ("auto", (0, 1)))
    ]
    lacking = [Run("usleep", "psd", "auto", hold_out=name, seed=1).name for name in COHORTS]
    write_runs(tmp_path, blocks, COHORTS, epochs=25, unfinished=lacking)
    tables = {table.name: table for table in build_tables(read_results(tmp_path)).tables}
    notes = " ".join(tables["filter-size-usleep-all"].notes)
    assert "PSDNorm and PSDNorm (f auto): no seed 1 on ABC and CHAT" in notes
