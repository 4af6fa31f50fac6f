"""Many nights: failures are named and stop nothing, what is done is not done again."""

import csv
import json

import numpy as np
import pytest
from cohort_folder import signal
from small_stagers import flat, recording, small_model, small_network, undrawn
from stores import tree

from psdnorm.errors import CheckpointError, StoreError
from psdnorm.prepare.recipe import RECIPES
from psdnorm.staging import batch as many
from psdnorm.staging.batch import FAILED, STAGED, SUMMARY_TABLE, THERE, Options, StagingJob
from psdnorm.staging.night_files import find_recordings


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(small_model(tmp_path_factory.mktemp("models") / "small"))


def nights_of(folder, out, **options):
    return StagingJob(find_recordings([str(folder)]).names, out, Options(**options))


def table_of(out):
    with (out / SUMMARY_TABLE).open() as file:
        return {row["name"]: row for row in csv.DictReader(file, delimiter="\t")}


@pytest.fixture
def counted(monkeypatch):
    """The files that were truly staged."""
    files = []

    def stage(path, *arguments, original=many.stage, **options):
        files.append(path.name)
        return original(path, *arguments, **options)

    monkeypatch.setattr(many, "stage", stage)
    return files


def test_of_twelve_nights_two_that_are_bad_are_named_and_the_others_staged(
    tmp_path, model, monkeypatch, counted
):
    undrawn(monkeypatch)
    for number in range(10):
        recording(tmp_path / "in" / f"S{number}.edf", seed=number, n_epochs=1 + number % 3)
    (tmp_path / "in" / "bad.edf").write_bytes(b"no edf")
    recording(tmp_path / "in" / "deaf.edf", labels=("ECG", "EMG"))
    nights = nights_of(tmp_path / "in", tmp_path / "out", model=model)
    outcomes = {outcome.name: outcome for outcome in nights.run()}
    assert len(outcomes) == len(nights) == 12
    failed = {name for name, outcome in outcomes.items() if outcome.status == FAILED}
    assert failed == {"bad", "deaf"}
    assert "bad.edf is not an EDF" in outcomes["bad"].reason
    assert "found ECG, EMG" in outcomes["deaf"].reason
    rows = table_of(tmp_path / "out")
    assert set(rows) == set(outcomes)
    assert rows["S1"]["status"] == STAGED
    assert float(rows["S1"]["hours"]) == pytest.approx(1 / 60, rel=1e-3)
    assert rows["S1"]["verdict"] == "unusual"  # the model does not know its training nights
    assert rows["S1"]["reason"] == "n/a"
    assert rows["deaf"]["verdict"] == rows["deaf"]["tst_min"] == "n/a"
    summary = json.loads((tmp_path / "out" / "S1.json").read_text())
    assert float(rows["S1"]["mean_confidence"]) == pytest.approx(
        summary["mean_confidence"], rel=1e-3
    )
    before = tree(tmp_path / "out")
    again = {outcome.name: outcome.status for outcome in nights.run()}
    assert {name for name, status in again.items() if status == THERE} == set(outcomes) - failed
    assert len(counted) == 10 + 2 + 2  # what failed is tried again
    assert rows["S1"] | {"status": THERE} == table_of(tmp_path / "out")["S1"]
    assert set(tree(tmp_path / "out")) == set(before)


def test_another_way_to_stage_or_another_model_stages_again(tmp_path, model, monkeypatch, counted):
    undrawn(monkeypatch)
    recording(tmp_path / "in" / "S1.edf")
    other = str(small_model(tmp_path / "paper", recipe="paper"))
    out = tmp_path / "out"
    for options in ({"model": model}, {"model": model, "channels": "C3-M2"}, {"model": other}):
        list(nights_of(tmp_path / "in", out, **options).run())
        list(nights_of(tmp_path / "in", out, **options).run())
    assert len(counted) == 3


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path, model, monkeypatch, counted):
    undrawn(monkeypatch)
    for number in range(4):
        recording(tmp_path / "in" / f"S{number}.edf", seed=number)
    nights = nights_of(tmp_path / "in", tmp_path / "out", model=model)
    run = nights.run()
    done = [next(run).name, next(run).name]
    run.close()
    assert set(table_of(tmp_path / "out")) == set(done)
    statuses = [outcome.status for outcome in nights.run()]
    assert sorted(statuses) == [THERE, THERE, STAGED, STAGED]
    assert len(counted) == 4
    assert len(table_of(tmp_path / "out")) == 4


def test_what_was_staged_whole_when_the_run_was_interrupted_is_in_the_table(
    tmp_path, model, monkeypatch, counted
):
    undrawn(monkeypatch)
    for number in range(5):
        recording(tmp_path / "in" / f"S{number}.edf", seed=number, n_epochs=1)
    nights = nights_of(tmp_path / "in", tmp_path / "out", model=model)
    with monkeypatch.context() as patch:
        lose_after(patch, "S3")
        with pytest.raises(KeyboardInterrupt):
            list(nights.run())
    assert [(outcome.name, outcome.status) for outcome in nights.not_yielded] == [("S3", STAGED)]
    rows = table_of(tmp_path / "out")
    assert {name: row["status"] for name, row in rows.items()} == dict.fromkeys(
        ("S0", "S1", "S2", "S3"), STAGED
    )
    list(nights.run())
    assert nights.not_yielded == []
    assert len(counted) == 5
    assert rows["S3"] | {"status": THERE} == table_of(tmp_path / "out")["S3"]


def test_an_interruption_leaves_rows_of_nights_that_it_did_not_reach_as_they_were(
    tmp_path, model, monkeypatch
):
    undrawn(monkeypatch)
    for number in range(3):
        recording(tmp_path / "in" / f"S{number}.edf", seed=number, n_epochs=1)
    nights = nights_of(tmp_path / "in", tmp_path / "out", model=model)
    list(nights.run())
    (tmp_path / "out" / "S2.tsv").unlink()  # not whole any more
    before = table_of(tmp_path / "out")
    run = nights.run()
    next(run)
    run.close()
    assert nights.not_yielded == []
    assert table_of(tmp_path / "out") == before | {"S0": before["S0"] | {"status": THERE}}


def test_a_night_that_was_staged_anew_when_interrupted_has_the_row_of_its_new_outputs(
    tmp_path, model, monkeypatch
):
    undrawn(monkeypatch)
    for number in range(2):
        recording(tmp_path / "in" / f"S{number}.edf", seed=number)
    list(nights_of(tmp_path / "in", tmp_path / "out", model=model).run())
    again = nights_of(tmp_path / "in", tmp_path / "out", model=model, channels="C3-M2")
    before = table_of(tmp_path / "out")
    lose_after(monkeypatch, "S0")
    with pytest.raises(KeyboardInterrupt):
        list(again.run())
    row = table_of(tmp_path / "out")["S0"]
    summary = json.loads((tmp_path / "out" / "S0.json").read_text())
    assert float(row["mean_confidence"]) == pytest.approx(summary["mean_confidence"], rel=1e-3)
    assert row["mean_confidence"] != before["S0"]["mean_confidence"]
    assert table_of(tmp_path / "out")["S1"] == before["S1"]


def lose_after(patch, name):
    """Interrupt when the files of a night are written and nobody was told."""

    def write(out, night, stem, original=many.write_night, **options):
        original(out, night, stem, **options)
        if stem == name:
            raise KeyboardInterrupt

    patch.setattr(many, "write_night", write)


def test_a_changed_recording_of_the_same_name_is_not_written_over(tmp_path, model, monkeypatch):
    undrawn(monkeypatch)
    path = recording(tmp_path / "in" / "S1.edf")
    list(nights_of(tmp_path / "in", tmp_path / "out", model=model).run())
    before = (tmp_path / "out" / "S1.tsv").read_bytes()
    path.write_bytes(signal(seed=5))
    (outcome,) = nights_of(tmp_path / "in", tmp_path / "out", model=model).run()
    assert outcome.status == FAILED
    assert "is the staging of another recording" in outcome.reason
    assert (tmp_path / "out" / "S1.tsv").read_bytes() == before


def test_recordings_of_the_same_name_have_outputs_of_their_own(tmp_path, model, monkeypatch):
    undrawn(monkeypatch)
    for number, folder in enumerate(("a", "b")):
        recording(tmp_path / "in" / folder / "S1.edf", seed=number)
    list(nights_of(tmp_path / "in", tmp_path / "out", model=model).run())
    assert {"a-S1.tsv", "b-S1.tsv"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_the_table_keeps_nights_of_other_commands(tmp_path, model, monkeypatch):
    undrawn(monkeypatch)
    for folder in ("a", "b"):
        recording(tmp_path / folder / f"{folder}.edf")
        list(nights_of(tmp_path / folder, tmp_path / "out", model=model).run())
    assert list(table_of(tmp_path / "out")) == ["a", "b"]


def test_a_flat_night_is_no_failure(tmp_path, model, monkeypatch):
    undrawn(monkeypatch)
    recording(tmp_path / "in" / "S1.edf", labels=("C3-M2",), **{"C3-M2": flat()})
    (outcome,) = nights_of(tmp_path / "in", tmp_path / "out", model=model).run()
    assert outcome.status == STAGED
    row = table_of(tmp_path / "out")["S1"]
    assert (row["verdict"], row["tst_min"], row["mean_confidence"]) == (
        "do not trust",
        "n/a",
        "n/a",
    )


def test_a_fault_of_ours_stops_nothing_and_is_called_one(tmp_path, model, monkeypatch):
    def fail(*arguments, **options):
        raise ZeroDivisionError("by zero\nsecond line")

    monkeypatch.setattr(many, "stage", fail)
    recording(tmp_path / "in" / "S1.edf")
    (outcome,) = nights_of(tmp_path / "in", tmp_path / "out", model=model).run()
    assert outcome.reason.endswith("a bug in psdnorm: ZeroDivisionError by zero")


def test_what_makes_all_nights_impossible_is_told_at_once(tmp_path, model):
    recording(tmp_path / "in" / "S1.edf")
    with pytest.raises(CheckpointError):
        nights_of(tmp_path / "in", tmp_path / "out", model=str(tmp_path / "nowhere"))
    assert not (tmp_path / "out").exists()
    (tmp_path / "summary.tsv").write_text("mine\n")
    with pytest.raises(StoreError, match=r"summary\.tsv exists and was not written by"):
        nights_of(tmp_path / "in", tmp_path, model=model).run()


@pytest.mark.slow
def test_several_processes_leave_what_one_leaves(tmp_path, model):
    for number in range(3):
        recording(tmp_path / "in" / f"S{number}.edf", seed=number)
    for jobs in (1, 2):
        run = nights_of(tmp_path / "in", tmp_path / str(jobs), model=model).run(jobs)
        assert [outcome.reason for outcome in run] == [""] * 3
    one, two = tree(tmp_path / "1"), tree(tmp_path / "2")
    assert set(one) == set(two)
    for number in range(3):
        tables = [
            np.loadtxt(tmp_path / jobs / f"S{number}.tsv", skiprows=1, usecols=range(3, 8))
            for jobs in ("1", "2")
        ]
        np.testing.assert_allclose(*tables, atol=1e-5)


def test_other_weights_in_the_same_folder_are_another_model(tmp_path, monkeypatch, counted):
    undrawn(monkeypatch)
    for name in ("S1", "S2"):
        recording(tmp_path / "in" / f"{name}.edf", n_epochs=1)
    own = tmp_path / "own"
    for seed in (0, 1):
        recipe = RECIPES["robust"].to_dict()
        small_network(seed=seed).save_pretrained(own, recipe=recipe)
        list(nights_of(tmp_path / "in", tmp_path / "out", model=str(own)).run())
    assert counted == ["S1.edf", "S2.edf"] * 2


def test_the_table_names_files_and_not_the_folders_they_were_in(tmp_path, model, monkeypatch):
    undrawn(monkeypatch)
    folder = tmp_path / "Jane Roe"
    folder.mkdir()
    for name in ("bad", "worse"):
        (folder / f"{name}.edf").write_bytes(b"no edf")
    outcomes = list(nights_of(folder, tmp_path / "out", model=model).run())
    assert all(str(folder) in outcome.reason for outcome in outcomes)
    assert table_of(tmp_path / "out")["bad"]["reason"].startswith("bad.edf is not an EDF")
    assert "Jane" not in (tmp_path / "out" / SUMMARY_TABLE).read_text()
