"""Tables of scores hold what the raw counts give, and name what is missing."""

import dataclasses

import numpy as np
import pytest
from experiment_runs import write_runs

from psdnorm.report.results import read_results
from psdnorm.report.tables import build_tables
from psdnorm.training import Run

from .conftest import COHORTS, MAIN, STAGES, axes, blocks, by_hand, ours

MEANS = ("Mean(Dataset)", "Mean(Subject)")
SCORES = (
    "results", "f1", "whitening", "cnn-transformer", "low-data", "adabn", "classwise-batch",
    "classwise-layer", "classwise-instance", "classwise-tma", "classwise-psd", "other-metrics",
    "filter-size-usleep-all", "filter-size-usleep-40", "norm-depth-usleep-all",
    "training-size-usleep",
)  # fmt: skip


def recomputed(path, facts, cache, seeds=(0, 1), cohorts=COHORTS):
    """Mean and spread of a number, from the counts of its runs, in plain loops."""
    metric, dataset = facts["metric"], facts["dataset"]
    per_seed = []
    for seed in seeds:
        subjects = {}
        for cohort in cohorts if dataset in MEANS else [dataset]:
            size = None if facts["balanced"] == "all" else facts["balanced"]
            arm = [facts[name] for name in ("model", "norm", "filter_size", "norm_depth")]
            name = Run(*arm, cohort, size, seed).name
            if (name, metric) not in cache:
                cache[name, metric] = by_hand(path, name, metric)
            subjects[cohort] = [s for s in cache[name, metric] if not np.isnan(s)]
        if dataset == "Mean(Dataset)":
            per_seed.append(np.mean([np.mean(people) for people in subjects.values()]))
        else:
            per_seed.append(np.mean(np.concatenate([*subjects.values()])))
    return 100 * np.mean(per_seed), 100 * np.std(per_seed, ddof=1)


@pytest.fixture(scope="module")
def cache():
    return {}


@pytest.mark.parametrize("name", SCORES)
def test_every_number_follows_from_the_raw_counts(name, whole, tables, cache):
    entries = [entry for entry in ours(tables[name]) if entry.value is not None]
    assert entries
    for entry in entries:
        mean, std = recomputed(whole, entry.facts, cache)
        assert entry.value == pytest.approx(mean)
        assert entry.facts["std"] == pytest.approx(std, abs=1e-9)
        assert entry.text == f"{entry.value:.2f} ± {entry.facts['std']:.2f}"
        assert entry.facts["seeds"] == 2


@pytest.mark.parametrize("name", SCORES)
def test_only_what_was_not_run_is_absent(name, whole, tables):
    for entry in ours(tables[name]):
        facts = entry.facts
        cohort = "ABC" if facts["dataset"] in MEANS else facts["dataset"]
        size = None if facts["balanced"] == "all" else facts["balanced"]
        arm = [facts[key] for key in ("model", "norm", "filter_size", "norm_depth")]
        there = (whole / "cells" / Run(*arm, cohort, size, 0).name).exists()
        assert there == (entry.value is not None), facts
        assert there or entry.text == "–"


def test_every_result_is_in_some_table(results, tables):
    keys = ("model", "norm", "filter_size", "norm_depth", "balanced", "dataset")
    shown = {
        tuple(entry.facts.get(key) for key in keys)
        for name in SCORES
        for entry in ours(tables[name])
    }
    for run in results.runs.itertuples():
        assert f"{run.model} {run.norm}" in run.arm
        sizes = [run.filter_size, run.norm_depth, run.balanced]
        f, d, balanced = (None if np.isnan(float(s)) else int(s) for s in _floats(sizes))
        assert (run.model, run.norm, f, d, balanced or "all", run.hold_out) in shown, run.arm


def _floats(sizes):
    return [np.nan if str(size) == "<NA>" else size for size in sizes]


def test_every_table_names_its_recipe_and_says_that_nights_are_simulated(built):
    for table in built.tables:
        assert table.title.endswith(", of simulated nights, recipe paper")
        assert "The nights are simulated: this says nothing about patients." in table.notes
        assert {entry.facts["recipe"] for entry in ours(table)} == {"paper"}
        assert {entry.facts["simulated"] for entry in ours(table)} == {"yes"}


def test_real_nights_are_not_called_simulated(tmp_path):
    write_runs(tmp_path, [axes(norms=("batch",), seeds=(0,))], COHORTS, 25, simulated=False)
    for table in build_tables(read_results(tmp_path)).tables:
        assert table.title.endswith(", recipe paper")
        assert "simulated" not in " ".join([table.title, *table.notes])


def test_the_best_of_a_row_is_in_bold(tables):
    for heading, rows in blocks(tables["results"]):
        for _, *entries in rows:
            known = [entry.value for entry in entries if entry.value is not None]
            assert known
            if heading.startswith("U-Sleep") and len(known) > 1:
                assert [e.bold for e in entries] == [e.value == max(known) for e in entries]


def test_a_calibration_error_is_best_where_it_is_lowest(tables):
    _, rows = blocks(tables["other-metrics"])[0]
    (errors,) = (row for row in rows if row[0].text == "Expected calibration error")
    best = min((entry for entry in errors if entry.value is not None), key=lambda e: e.value)
    assert [entry for entry in errors if entry.bold] == [best]


def test_stages_are_not_compared_with_each_other(tables):
    assert not any(entry.bold for entry in ours(tables["classwise-psd"]))
    assert tables["classwise-psd"].head == ["Dataset", *STAGES, "Weighted F1"]


def test_tables_take_the_filter_size_and_depth_of_the_protocol_and_say_so(tables):
    main = tables["results"]
    facts = [entry.facts for entry in ours(main) if entry.facts["norm"] == "psd"]
    assert {(f["filter_size"], f["norm_depth"]) for f in facts} == {(5, 3)}
    (note,) = (note for note in main.notes if "as in the protocol" in note)
    for other in ("PSDNorm (f = 9)", "PSDNorm (1 block)", "PSDNorm (f = 9, 1 block)"):
        assert other in note
    for name in ("classwise-psd", "other-metrics", "timing"):
        assert any("f = 5" in note and "of the protocol" in note for note in tables[name].notes)
    assert tables["low-data"].head[-2:] == ["PSDNorm (f = 5)", "PSDNorm (f = 15)"]


def test_subjects_without_all_stages_are_counted(whole, tables):
    import pandas as pd

    lack = 0
    for cohort in COHORTS:
        run = Run("usleep", "batch", hold_out=cohort)
        scores = pd.read_parquet(whole / "cells" / run.name / "scores.parquet")
        for row in scores.to_dict("records"):
            lack += any(sum(row[f"{s}_as_{g}"] for g in STAGES) == 0 for s in STAGES)
    assert lack > 0
    expected = f"Subjects without an epoch of some stage: {lack} of 9; as in scikit-learn, "
    assert any(note.startswith(expected) for note in tables["f1"].notes)


@pytest.fixture(scope="module")
def partial(tmp_path_factory):
    """PSDNorm lacks MASS, LayerNorm a seed of CHAT, TMA all; SOF was asked for in vain."""
    path = tmp_path_factory.mktemp("partial")
    cohorts = COHORTS | {"MASS": 3, "SOF": 3}
    runs = [
        Run("usleep", norm, hold_out=cohort, seed=seed)
        for norm in MAIN
        for cohort in cohorts
        for seed in (0, 1)
    ]
    gone = [run.name for run in runs if run.norm == "tma" or run.hold_out == "SOF"]
    gone += [run.name for run in runs if (run.norm, run.hold_out) == ("psd", "MASS")]
    gone.append(Run("usleep", "layer", hold_out="CHAT", seed=1).name)
    write_runs(path, [axes(hold_outs=tuple(cohorts))], cohorts, 25, unfinished=gone)
    return path, build_tables(read_results(path))


def test_a_mean_is_only_there_where_every_dataset_is(partial):
    _, (tables, _) = partial
    values = {(e.facts["norm"], e.facts["dataset"]): e.text for e in ours(tables[0])}
    for mean in MEANS:
        assert values["psd", mean] == values["tma", mean] == "–"
        assert values["batch", mean] != "–"
    assert values["psd", "MASS"] == "–"
    assert values["psd", "ABC"] != "–"


def test_what_is_missing_is_named_with_what_follows_from_it(partial):
    _, (tables, missing) = partial
    where = "U-Sleep, all subjects; "
    for note in (
        "TMA: no result.",
        "PSDNorm: no result on MASS, and therefore no means.",
        "LayerNorm: no seed 1 on CHAT, so means are over seed 0 only.",
        "SOF: requested, but without any result, so means are over 3 datasets.",
    ):
        assert where + note in tables[0].notes
    assert any("classwise-tma" in sentence for sentence in missing)


def test_nothing_is_in_bold_where_numbers_are_over_different_seeds(partial):
    _, (tables, _) = partial
    bold = {}
    for entry in ours(tables[0]):
        bold.setdefault(entry.facts["dataset"], []).append(entry.bold)
    # LayerNorm has one seed of CHAT, and therefore its means are over that one
    assert {name for name, found in bold.items() if any(found)} == {"ABC", "MASS"}
    assert (
        "U-Sleep, all subjects; CHAT, Mean(Dataset) and Mean(Subject): nothing is in bold, as the "
        "numbers are over different seeds."
    ) in tables[0].notes


def test_seeds_are_compared_not_how_many_there_are(tmp_path):
    gone = [
        Run("usleep", norm, hold_out="ABC", seed=seed).name
        for norm, seed in (("batch", 0), ("psd", 1))
    ]
    write_runs(tmp_path, [axes(norms=("batch", "psd"))], COHORTS, 25, unfinished=gone)
    table = build_tables(read_results(tmp_path)).tables[0]
    assert {e.facts["dataset"] for e in ours(table) if e.bold} == {"CHAT"}


def test_means_of_a_norm_without_a_seed_are_over_the_complete_ones(partial):
    path, (tables, _) = partial
    for mean in MEANS:
        (entry,) = (
            e for e in ours(tables[0]) if (e.facts["norm"], e.facts["dataset"]) == ("layer", mean)
        )
        expected, _ = recomputed(path, entry.facts, {}, (0, 0), [*COHORTS, "MASS"])
        assert entry.value == pytest.approx(expected)
        assert entry.text == f"{expected:.2f}"  # of one seed, there is no ±
        assert entry.facts["seeds"] == 1


def test_one_seed_has_no_spread_and_the_table_says_so(tmp_path):
    write_runs(tmp_path, [axes(norms=("batch", "psd"), seeds=(0,))], COHORTS, 25)
    tables = build_tables(read_results(tmp_path)).tables
    assert "±" not in "".join(entry.text for entry in ours(tables[0]))
    assert "U-Sleep, all subjects; only one seed, so there is no ±." in tables[0].notes


def test_a_table_without_any_result_is_named_and_not_built(tmp_path):
    write_runs(tmp_path, [axes(norms=("batch",), hold_outs=("ABC",))], COHORTS, 25)
    tables, missing = build_tables(read_results(tmp_path))
    names = {table.name for table in tables}
    sentences = " ".join(missing)
    absent = ["whitening", "cnn-transformer", "low-data", "adabn"]
    absent += [f"classwise-{norm}" for norm in MAIN[1:]]
    for name in absent:
        assert name not in names
        assert f"({name}): it needs a result of " in sentences
    for curve in ("filter size", "training subjects", "layers with the norm"):
        assert f"{curve}: it needs results of " in sentences


def test_a_metric_that_nobody_has_is_absent_with_its_reason(results):
    results = results.of(norm="batch")
    subjects = results.subjects.copy()
    subjects.loc[subjects["cohort"] == "CHAT", "f1_N3"] = np.nan
    changed = dataclasses.replace(results, subjects=subjects)
    table = next(t for t in build_tables(changed).tables if t.name == "classwise-batch")
    values = {(e.facts["metric"], e.facts["dataset"]): e.text for e in ours(table)}
    assert values["f1_N3", "CHAT"] == values["f1_N3", "Mean(Dataset)"] == "–"
    assert values["f1_N2", "CHAT"] != "–"
    assert any("F1 of N3 is undefined for every subject of CHAT" in n for n in table.notes)
