"""Times, training sizes and datasets are those that the runs recorded."""

import json

import numpy as np
import pandas as pd
import pytest
from experiment_runs import write_runs
from stores import filled, night

from psdnorm.report.results import read_results
from psdnorm.report.tables import build_tables
from psdnorm.training import Run

from .conftest import COHORTS, STAGES, axes, blocks, ours


def change(path, run, file, **news):
    target = path / "cells" / run.name / file
    target.write_text(json.dumps(json.loads(target.read_text()) | news))


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    path = tmp_path_factory.mktemp("timed")
    seconds = {("batch", "ABC"): 40, ("batch", "CHAT"): 80, ("psd", "ABC"): 50}
    gone = [Run("usleep", "psd", hold_out="CHAT", seed=seed).name for seed in (0, 1)]
    grid = axes(norms=("batch", "psd", "adabn3"), hold_outs=("ABC", "CHAT"))
    write_runs(path, [grid], COHORTS, 25, unfinished=gone)
    for (norm, cohort), time in seconds.items():
        for seed in (0, 1):
            run = Run("usleep", norm, hold_out=cohort, seed=seed)
            change(path, run, "done.json", seconds=time + seed, epochs=10)
    for norm, cohort, spent in (("batch", "ABC", 2.0), ("batch", "CHAT", 5.0), ("psd", "ABC", 3.0)):
        run = Run("usleep", norm, hold_out=cohort, seed=0)
        n = COHORTS[cohort]
        change(path, run, "done.json", prediction_seconds=spent, nights=n, sequences=10 * n)
    return build_tables(read_results(path))


def numbers(built, name):
    (table,) = (table for table in built.tables if table.name == name)
    return table, {
        (e.facts["metric"], e.facts.get("norm"), e.facts.get("dataset")): e for e in ours(table)
    }


def test_an_epoch_takes_the_seconds_of_a_run_by_its_epochs(timed):
    _, found = numbers(timed, "timing")
    per_epoch = [4.0, 4.1, 8.0, 8.1]
    entry = found["train_epoch_s", "batch", None]
    assert entry.text == f"{np.mean(per_epoch):.2f} ± {np.std(per_epoch, ddof=1):.2f}"
    assert found["cells", "batch", None].text == "4"


def test_norms_are_compared_on_the_runs_that_both_have(timed):
    _, found = numbers(timed, "timing")
    assert found["overhead_percent", "psd", None].value == pytest.approx(100 * (10.1 / 8.1 - 1))
    assert found["overhead_percent", "batch", None].value == 0
    assert found["overhead_percent", "tma", None].text == "–"


def test_times_are_called_this_machines_and_adabn_has_none(timed):
    table, found = numbers(timed, "timing")
    assert "adabn3" not in {norm for _, norm, _ in found}
    assert any("on the machine that did the runs" in note for note in table.notes)
    assert any("no time of LayerNorm, InstanceNorm and TMA" in note for note in table.notes)
    assert found["inference_s", "tma", None].text == "–"


def test_inference_is_the_prediction_of_the_held_out_datasets(timed):
    table, found = numbers(timed, "timing")
    spread = np.std([2.0, 5.0], ddof=1)
    assert found["inference_s", "batch", None].text == f"3.50 ± {spread:.2f}"
    assert found["inference_s", "psd", None].text == "3.00"
    n_sequences = 10 * (COHORTS["ABC"] + COHORTS["CHAT"])
    assert found["sequences_per_s", "batch", None].text == f"{n_sequences / 7:.1f}"
    assert found["sequences_per_s", "psd", None].text == f"{10 * COHORTS['ABC'] / 3:.1f}"
    paper = [e for row in table.rows for e in row if e.facts.get("block") == "paper"]
    assert any(e.facts["metric"] == "inference_s" and e.text == "98.72 ± 12.09" for e in paper)


def test_runs_that_did_not_record_their_inference_are_read_and_counted(timed, tmp_path):
    table, _ = numbers(timed, "timing")
    assert "Runs without a recorded time of inference: 3." in table.notes
    write_runs(tmp_path, [axes(norms=("batch", "psd"))], COHORTS, 25)
    _, found = numbers(build_tables(read_results(tmp_path)), "timing")
    for metric in ("inference_s", "sequences_per_s"):
        assert found[metric, "psd", None].text == "–"
        assert found[metric, "psd", None].value is None


def test_the_shortest_inference_is_in_bold_where_norms_have_the_same_runs(timed, tmp_path):
    runs = write_runs(tmp_path, [axes(norms=("batch", "psd"), seeds=(0,))], COHORTS, 25)
    for run in runs:
        spent = 4.0 if run.norm == "batch" else 3.0
        change(tmp_path, run, "done.json", prediction_seconds=spent, nights=4, sequences=40)
    _, found = numbers(build_tables(read_results(tmp_path)), "timing")
    assert found["inference_s", "psd", None].bold
    assert not found["inference_s", "batch", None].bold


def test_the_shortest_epoch_is_in_bold_only_where_norms_have_the_same_runs(timed, tmp_path):
    _, found = numbers(timed, "timing")
    assert not any(entry.bold for entry in found.values())  # PSDNorm lacks CHAT, the slow one
    runs = write_runs(tmp_path, [axes(norms=("batch", "psd"))], COHORTS, 25)
    for run in runs:
        change(tmp_path, run, "done.json", seconds=40 if run.norm == "batch" else 39, epochs=10)
    _, found = numbers(build_tables(read_results(tmp_path)), "timing")
    assert [key for key, entry in found.items() if entry.bold] == [("train_epoch_s", "psd", None)]
    assert found["overhead_percent", "psd", None].text == "−2.50"


def test_the_papers_overhead_is_that_of_its_own_times(timed):
    table, _ = numbers(timed, "timing")
    shown = [
        e for row in table.rows for e in row
        if e.facts.get("block") == "paper" and e.facts["metric"] == "overhead_percent"
    ]  # fmt: skip
    values = {(e.facts["model"], e.facts["norm"]): e.text for e in shown}
    assert values["usleep", "psd"] == "6.74"
    assert values["cnn-transformer", "psd"] == "16.77"


def test_training_sizes_are_those_of_the_runs(whole, built):
    table = next(table for table in built.tables if table.name == "balanced-sizes")
    (own,) = (rows for heading, rows in blocks(table) if heading == "Ours")
    assert [row[0].text for row in own] == ["40", "400", "all"]
    counts = []
    for cohort in COHORTS:
        run = Run("usleep", "batch", hold_out=cohort, balanced=40)
        config = json.loads((whole / "cells" / run.name / "config.json").read_text())
        counts.append(config["data"]["train"]["subjects"])
    assert len(set(counts)) > 1
    assert own[0][2].text == f"{np.mean(counts):.0f} ± {np.std(counts):.0f}"
    assert own[0][2].value == np.mean(counts)
    assert own[0][4].text == "2"


def test_a_configuration_that_is_gone_is_named(tmp_path):
    write_runs(tmp_path, [axes(norms=("batch",), seeds=(0,))], COHORTS, 25)
    results = read_results(tmp_path)
    gone = tmp_path / "cells" / Run("usleep", "batch", hold_out="ABC").name / "config.json"
    gone.unlink()
    built = build_tables(results)
    assert any(f"(balanced-sizes): {gone}" in text for text in built.missing)
    table, found = numbers(built, "datasets")
    assert found["recordings", None, "ABC"].text == found["recordings", None, "Total"].text == "–"
    assert any(str(gone) in note for note in table.notes)


def test_datasets_have_the_epochs_and_stages_of_the_confusion_matrices(whole, built):
    table, found = numbers(built, "datasets")
    for cohort, n_subjects in COHORTS.items():
        run = Run("usleep", "psd", hold_out=cohort)
        scores = pd.read_parquet(whole / "cells" / run.name / "scores.parquet")
        counts = [sum(scores[f"{s}_as_{g}"].sum() for g in STAGES) for s in STAGES]
        assert found["subjects", None, cohort].text == str(n_subjects)
        assert found["epochs", None, cohort].text == str(sum(counts))
        for stage, count in zip(STAGES, counts, strict=True):
            share = found[f"{stage}_percent", None, cohort]
            assert share.text == f"{100 * count / sum(counts):.2f}"
    assert found["subjects", None, "Total"].text == str(sum(COHORTS.values()))
    assert any(note.startswith("Age and sex are unknown") for note in table.notes)
    assert found["age_years", None, "ABC"].text == "–"


def test_age_and_sex_come_from_the_store_once_a_subject(tmp_path, results):
    people = [("1", "a", 20.0, "F"), ("1", "b", 20.0, "F"), ("2", "a", 50.0, "M")]
    people.append(("3", "a", 50.0, "M"))
    nights = [
        night(f"ABC-{subject}{visit}", 5, cohort="ABC", subject=subject, visit=visit, age=age,
              sex=sex)
        for subject, visit, age, sex in people
    ]  # fmt: skip
    store = filled(tmp_path / "store", nights)
    table, found = numbers(build_tables(results.of(norm="tma"), store), "datasets")
    assert found["age_years", None, "ABC"].text == f"40.0 ± {np.std([20, 50, 50], ddof=1):.1f}"
    assert found["female_percent", None, "ABC"].text == "33"
    assert found["male_percent", None, "ABC"].text == "67"
    assert "The store has no age or no sex for some of CHAT." in table.notes
