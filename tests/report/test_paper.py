"""The paper's tables: complete, in the names of our runs, with means that follow from the rows."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from psdnorm.errors import ArgumentError
from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT, METRICS, aggregate
from psdnorm.report.paper import misprints, paper_table, paper_tables
from psdnorm.training import Run
from psdnorm.training.run import MODELS

COHORTS = ("ABC", "CCSHS", "CFS", "CHAT", "HPAP", "MASS", "MROS", "PHYS", "SHHS", "SOF")
MAIN = ("batch", "layer", "instance", "tma", "psd")
STAGES = ("f1_W", "f1_N1", "f1_N2", "f1_N3", "f1_REM", "weighted_f1")
ADABN = ("batch", "layer", "instance", "adabn3", "adabn12", "adabnall", "tma", "psd")
# rows of a table and the columns beside each other on the page
LODO = {
    "results": (("all", 400), MAIN),
    "f1": (("all", 400), MAIN),
    "whitening": ((400,), ("batch", "instance", "psd", "psd-white")),
    "cnn-transformer": ((400,), ("batch", "instance", "tma", "psd")),
    **{f"classwise-{norm}": ((400,), STAGES) for norm in MAIN},
    "low-data": ((40,), ("batch", "layer", "instance", "psd5", "psd15")),
    "adabn": ((400,), ADABN),
}


def column_of(row, name):
    """Return what the row's column on the page is called above."""
    if name.startswith("classwise"):
        return row.metric
    return f"{row.norm}{row.filter_size}" if (name, row.norm) == ("low-data", "psd") else row.norm


def subjects():
    rows = paper_table("datasets").rows.query("metric == 'subjects'")
    return dict(zip(rows["dataset"], rows["value"].astype(int), strict=True))


def recomputed(name):
    """Return the table's means, printed and by the rule of ``aggregate``, one subject a row."""
    rows = paper_table(name).rows
    rows["column"] = [column_of(row, name) for row in rows.itertuples()]
    rows["filter_size"] = rows["filter_size"].fillna(0).astype(int)
    by = ["column", "balanced", "norm", "filter_size"]
    sizes = subjects()
    of_cohorts = rows[rows["dataset"].isin(COHORTS)]
    frames = []
    for metric, group in of_cohorts.groupby("metric"):
        people = group.loc[group.index.repeat(group["dataset"].map(sizes))]
        runs = people.rename(columns={"dataset": "cohort", "value": metric}).assign(seed=0)
        runs["subject"] = runs.groupby(["cohort", *by]).cumcount()
        frames.append(aggregate(runs[[*by, "seed", "cohort", "subject", metric]], by=by))
    keys = [*by, "metric", "dataset"]
    means = rows[rows["dataset"].isin([MEAN_DATASET, MEAN_SUBJECT])]
    both = means.merge(pd.concat(frames), on=keys, how="left", validate="one_to_one")
    assert both["mean"].notna().all()
    return both.assign(off=(both["mean"] - both["value"]).abs())


def test_an_unknown_table_is_named_with_those_that_exist():
    with pytest.raises(ArgumentError, match="'table9', expected one of datasets, results, "):
        paper_table("table9")


def test_every_file_is_a_table_and_the_other_way_round():
    folder = Path(__file__).parents[2] / "src" / "psdnorm" / "report" / "paper"
    assert {file.stem for file in folder.glob("*.csv")} == set(paper_tables())


@pytest.mark.parametrize("name", paper_tables())
def test_every_table_says_what_it_is(name):
    table = paper_table(name)
    assert re.fullmatch(r"(tab|fig|app):\w+", table.label)
    assert table.caption
    assert not table.rows.duplicated(
        ["metric", "model", "balanced", "norm", "filter_size", "dataset"]
    ).any()


@pytest.mark.parametrize("name", LODO)
def test_a_table_has_every_norm_on_every_cohort_and_its_means(name):
    settings, columns = LODO[name]
    table = paper_table(name)
    means = {"datasets": MEAN_DATASET, "subjects": MEAN_SUBJECT}
    datasets = [*COHORTS, *(means[over] for over in table.mean_over)]
    found = [(row.balanced, row.dataset, column_of(row, name)) for row in table.rows.itertuples()]
    assert found == [(s, d, c) for s in settings for d in datasets for c in columns]
    assert table.mean_over
    assert set(table.rows["metric"]) <= set(METRICS)


def test_rows_of_scores_are_runs_of_a_grid():
    for name in LODO:
        rows = paper_table(name).rows
        assert set(rows["model"]) <= set(MODELS)
        for row in rows.itertuples():
            size = None if pd.isna(row.filter_size) else row.filter_size
            run = Run(row.model, row.norm, size, None, row.dataset)
            assert (run.norm, run.filter_size) == (row.norm, size), row


def test_only_adabn_has_values_that_were_not_run():
    for name in LODO:
        rows = paper_table(name).rows
        assert set(rows.loc[rows["value"].isna(), "norm"]) <= {"adabn12", "adabnall"}
        single = rows["value"].notna() & rows["std"].isna()
        assert single.sum() == (3 if name == "adabn" else 0)
    assert paper_table("adabn").rows["value"].isna().sum() == 9


def test_the_cohorts_add_up_to_their_totals():
    rows = paper_table("datasets").rows.pivot(index="dataset", columns="metric", values="value")
    cohorts = rows.loc[list(COHORTS)]
    for count in ("subjects", "recordings"):
        assert cohorts[count].sum() == rows.loc["Total", count]
    assert (cohorts["female_percent"] + cohorts["male_percent"] == 100).all()
    assert (cohorts["recordings"] >= cohorts["subjects"]).all()
    assert len(rows) == 11


def test_balanced_sizes_follow_from_the_cohorts():
    sizes = np.array([subjects()[cohort] for cohort in COHORTS])
    for row in paper_table("balanced-sizes").rows.itertuples():
        kept = sizes if row.balanced == "all" else np.minimum(sizes, row.balanced)
        of_folds = kept.sum() - kept
        assert of_folds.mean() == pytest.approx(row.value, abs=1)
        assert of_folds.std() == pytest.approx(row.std, abs=1)


@pytest.mark.parametrize("setting", ["all", 400])
@pytest.mark.parametrize("mean", [MEAN_DATASET, MEAN_SUBJECT])
def test_both_means_of_the_main_table_follow_from_its_rows(setting, mean):
    means = recomputed("results").query("balanced == @setting and dataset == @mean")
    assert means["norm"].tolist() == list(MAIN)
    assert means["off"].max() < 0.05


def test_the_main_table_names_the_means_that_rounding_does_not_explain():
    # a mean of numbers that are rounded to 0.01, itself rounded, is at most 0.01 away
    means = recomputed("results").query("off > 0.0101")
    (note,) = (text for text in paper_table("results").notes if "rounding" in text)
    listed = re.findall(r"(\d+\.\d+) \(printed (\d+\.\d+)\)", note)
    found = [(f"{row.mean:.2f}", f"{row.value:.2f}") for row in means.itertuples()]
    assert found == listed
    assert means["norm"].tolist() == ["tma", "layer"]


def test_means_that_do_not_follow_from_their_rows_are_exactly_the_misprints():
    off = {
        (name, row.norm, row.balanced, row.dataset, round(row.mean, 2))
        for name in LODO
        for row in recomputed(name).query("off > 0.05").itertuples()
    }
    listed = [m for m in misprints() if m.kind == "mean"]
    assert off == {(m.tables[0], m.norm, m.balanced, m.dataset, m.value) for m in listed}


def test_rows_without_their_best_value_in_bold_are_exactly_the_misprints():
    wrong = set()
    for name in paper_tables():
        rows = paper_table(name).rows
        if not rows["bold"].any():
            continue
        for (metric, _, balanced, dataset), row in rows.groupby(
            ["metric", "model", "balanced", "dataset"]
        ):
            value = row["value"]
            best = value.idxmin() if metric.endswith("_s") else value.idxmax()
            if row.index[row["bold"]].tolist() != [best]:
                wrong.add((name, row.loc[best, "norm"], balanced, dataset, value[best]))
    listed = [m for m in misprints() if m.kind == "bold"]
    assert wrong == {(m.tables[0], m.norm, m.balanced, m.dataset, m.value) for m in listed}


@pytest.mark.parametrize("name", ["whitening", "adabn"])
def test_runs_that_two_tables_share_have_the_same_scores(name):
    keys = ["norm", "balanced", "dataset"]
    both = paper_table(name).rows.merge(paper_table("results").rows, on=keys)
    assert set(both["norm"]) == set(paper_table(name).rows["norm"]) & set(MAIN)
    assert len(both) == 11 * both["norm"].nunique()
    assert (both["value_x"] == both["value_y"]).all()
    assert (both["std_x"] == both["std_y"]).all()


@pytest.mark.parametrize("norm", MAIN)
def test_class_wise_tables_end_in_the_scores_of_the_f1_table(norm):
    keys = ["metric", "norm", "balanced", "dataset"]
    both = paper_table(f"classwise-{norm}").rows.merge(paper_table("f1").rows, on=keys)
    cohorts = both[both["dataset"].isin(COHORTS)]
    assert len(cohorts) == 10
    assert (cohorts["value_x"] == cohorts["value_y"]).all()
    assert (cohorts["std_x"] == cohorts["std_y"]).all()


@pytest.mark.parametrize("norm", MAIN)
def test_the_f1_of_the_class_wise_tables_is_not_the_mean_of_the_stages(norm):
    rows = paper_table(f"classwise-{norm}").rows
    scores = rows.pivot(index="dataset", columns="metric", values="value")
    macro = scores[list(STAGES[:-1])].mean(axis=1)
    assert (scores["weighted_f1"] - macro).min() > 1
