"""The paper's figures stand below ours as printed, and our means are taken by its rules."""

import numpy as np
import pandas as pd
import pytest

from psdnorm.evaluation import METRICS
from psdnorm.evaluation.scores import COUNTS
from psdnorm.report.paper import misprints, paper_table
from psdnorm.report.results import Results
from psdnorm.report.tables.layout import Scores, fill
from psdnorm.report.tables.paper_tables import lodo_layouts
from psdnorm.training import Arm

from .conftest import blocks, ours

MEANS = ("Mean(Dataset)", "Mean(Subject)")
WITH_PAPER = (
    "results", "f1", "whitening", "cnn-transformer", "low-data", "adabn", "timing", "datasets",
    "balanced-sizes", *(f"classwise-{n}" for n in ("batch", "layer", "instance", "tma", "psd")),
)  # fmt: skip


def of_paper(table):
    return [entry for row in table.rows for entry in row if entry.facts.get("block") == "paper"]


@pytest.mark.parametrize("name", WITH_PAPER)
def test_every_printed_figure_is_there_once_and_nothing_else(name, tables):
    keys = ("metric", "model", "balanced", "norm", "dataset")
    if name == "low-data":
        keys = (*keys, "filter_size")
    printed = paper_table(name).rows
    expected = {}
    for row in printed.to_dict("records"):
        known = {key: None if pd.isna(row[key]) else row[key] for key in keys}
        if not pd.isna(row["value"]):
            expected[tuple(known.values())] = (row["value"], row["bold"])
    found = [entry for entry in of_paper(tables[name]) if entry.value is not None]
    found = [e for e in found if e.facts["metric"] != "overhead_percent"]
    shown = {tuple(e.facts.get(key) for key in keys): (e.value, e.bold) for e in found}
    assert len(shown) == len(found)
    assert shown == expected


@pytest.mark.parametrize("name", WITH_PAPER)
def test_the_block_is_headed_with_the_papers_label_and_its_misprints_are_named(name, tables):
    table = tables[name]
    label = paper_table(name).label
    assert any(heading.startswith(f"The paper ({label})") for heading, _ in blocks(table))
    notes = " ".join(table.notes)
    for misprint in misprints():
        assert (misprint.shows in notes) == (name in misprint.tables), misprint.name


def test_only_wrong_numbers_are_called_misprints_and_claims_contradictions(tables):
    heads = {"claim": "The paper contradicts itself (text)"}
    heads |= dict.fromkeys(("mean", "bold", "rounding"), "Misprint in the paper (table)")
    for misprint in misprints():
        for name in {*misprint.tables} & {*tables}:
            (note,) = (n for n in tables[name].notes if n.endswith(f"show: {misprint.shows}."))
            assert note.startswith(heads.get(misprint.kind, "")), misprint.name
            assert note.startswith("Misprint") == (misprint.kind in ("mean", "bold", "rounding"))


def test_means_over_other_datasets_are_not_for_comparison(tables):
    notes = " ".join(tables["results"].notes)
    assert "its means are over 10 datasets, ours over 2; these are not the same" in notes


def as_results(name, path):
    """The paper's figures as if every subject of a dataset had scored them."""
    people = paper_table("datasets").rows.query("metric == 'subjects'")
    sizes = dict(zip(people["dataset"], people["value"].astype(int), strict=True))
    rows = paper_table(name).rows
    rows = rows[rows["dataset"].isin([*sizes]) & rows["value"].notna()]
    runs, subjects = [], []
    for number, row in enumerate(rows.to_dict("records")):
        size = None if row["balanced"] == "all" else row["balanced"]
        run = {"run": number, "model": row["model"], "norm": row["norm"], "balanced": size}
        run |= {"filter_size": row["filter_size"], "hold_out": row["dataset"], "seed": 0}
        run["norm_depth"] = 3 if row["norm"] in ("layer", "instance", "psd") else None
        run["arm"] = Arm.of_row(run).label
        runs.append(run | {"epochs": 1, "seconds": 1.0, "folder": path})
        n = sizes[row["dataset"]]
        table = pd.DataFrame({"run": number, "subject": np.arange(n)})
        table["cohort"], table["missing_stages"] = row["dataset"], 0
        subjects.append(table.assign(**{row["metric"]: row["value"] / 100}))
    types = dict.fromkeys(["filter_size", "norm_depth", "balanced"], "Int64")
    everyone = pd.concat(subjects, ignore_index=True)
    assert set(everyone) & set(METRICS)
    everyone = everyone.join(pd.DataFrame(0, everyone.index, COUNTS, dtype=np.int8))
    config = {"recipe": {"name": "paper"}}
    return Results(path, pd.DataFrame(runs).astype(types), everyone, config, False)


@pytest.mark.parametrize("name", ["results", "f1", "low-data"])
def test_our_means_of_the_papers_figures_are_those_that_it_prints(name, tmp_path):
    scores = Scores(as_results(name, tmp_path))
    layouts, _ = lodo_layouts(scores)
    (table,) = (fill(layout, scores) for layout in layouts if layout.name == name)
    computed = {_key(entry): entry.value for entry in ours(table)}
    off = {}
    for entry in of_paper(table):
        if entry.facts["dataset"] in MEANS and entry.value is not None:
            off[_key(entry)] = abs(computed[_key(entry)] - entry.value)
    assert len(off) == {"results": 20, "f1": 20, "low-data": 5}[name]
    listed = {
        (m.norm, None, m.balanced, m.dataset)
        for m in misprints()
        if m.kind == "mean" and m.tables[0] == name
    }
    assert {key for key, distance in off.items() if distance >= 0.05} == listed


def _key(entry):
    facts = entry.facts
    return facts["norm"], facts["filter_size"], facts["balanced"], facts["dataset"]
