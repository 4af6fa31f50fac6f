"""Every number of a report follows from the raw predictions, by a path that is none of ours."""

import html
import json
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from experiments import write_runs
from scipy import stats
from sklearn import metrics

from psdnorm.report.building import build_report
from psdnorm.training.grid import Axes

COHORTS = {"ABC": 6, "CHAT": 9, "MASS": 7}
NORMS = {"batch": "BatchNorm", "instance": "InstanceNorm", "psd": "PSDNorm"}
STAGES = ("W", "N1", "N2", "N3", "REM")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Folders of runs and of the report on them."""
    folder = tmp_path_factory.mktemp("recomputed")
    axes = Axes(norms=tuple(NORMS), hold_outs=tuple(COHORTS), seeds=(0, 1, 2))
    write_runs(folder / "runs", [axes], COHORTS, keep="predictions")
    build_report(folder / "runs", folder / "report", figures=False)
    return folder


@pytest.fixture(scope="module")
def raw(report):
    """Metrics of every norm, seed, cohort and subject from the predictions, in percent."""
    rows = []
    for path in sorted((report / "runs").glob("cells/*/predictions.parquet")):
        cell = json.loads((path.parent / "config.json").read_text())["cell"]
        table = pd.read_parquet(path)
        table = table[table["central"] & (table["true"] >= 0)]
        for (cohort, subject), night in table.groupby(["cohort", "subject"]):
            owner = {"norm": cell["norm"], "seed": cell["seed"], "cohort": cohort}
            rows.append(owner | {"subject": subject, **scored(night)})
    return pd.DataFrame(rows)


def scored(night):
    true = night["true"].to_numpy()
    p = night[[f"p{n}" for n in range(5)]].to_numpy()
    guess = p.argmax(axis=1)
    f1 = metrics.f1_score(true, guess, labels=range(5), average=None, zero_division=np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # stages that are predicted and never true
        balanced = metrics.balanced_accuracy_score(true, guess)
    top, bins = p.max(axis=1), np.ceil(p.max(axis=1) * 15)
    error = sum(
        abs((guess == true)[bins == n].mean() - top[bins == n].mean()) * (bins == n).mean()
        for n in np.unique(bins)
    )
    found = {
        "balanced_accuracy": balanced,
        "accuracy": metrics.accuracy_score(true, guess),
        "macro_f1": metrics.f1_score(true, guess, average="macro"),
        "weighted_f1": metrics.f1_score(true, guess, average="weighted"),
        "cohen_kappa": metrics.cohen_kappa_score(true, guess),
        **{f"f1_{stage}": value for stage, value in zip(STAGES, f1, strict=True)},
        "calibration_error": error,
    }
    return {name: 100 * value for name, value in found.items()}


def recomputed(raw, norm, metric, dataset):
    """Mean and standard deviation over seeds."""
    by_seed = []
    for _, run in raw[raw["norm"] == norm].groupby("seed"):
        means = [run[run["cohort"] == cohort][metric].mean() for cohort in COHORTS]
        values = dict(zip(COHORTS, means, strict=True))
        values |= {"Mean(Dataset)": np.mean(means), "Mean(Subject)": run[metric].mean()}
        by_seed.append(values[dataset])
    return np.mean(by_seed), np.std(by_seed, ddof=1)


@pytest.fixture(scope="module")
def page(report):
    """The text of the page's elements, as it is shown."""
    return (report / "report" / "index.html").read_text()


def plain(page):
    return html.unescape(re.sub("<[^>]*>", "\n", page)).replace("\u00a0", " ")


def points(text):
    return float(text.replace("−", "-"))


def test_every_score_in_the_tables(report, raw):
    seen = set()
    for path in (report / "report" / "tables").glob("*.csv"):
        if path.stem == "subjects":
            continue
        table = pd.read_csv(path)
        for row in table[(table["block"] == "ours") & table["metric"].isin(raw)].itertuples():
            if pd.isna(row.mean):
                assert row.norm not in NORMS
                continue
            expected = recomputed(raw, row.norm, row.metric, row.dataset)
            assert (row.mean, row.std) == pytest.approx(expected), (path.name, row)
            assert row.seeds == 3
            seen.add((row.metric, row.dataset))
    assert {metric for metric, _ in seen} >= {*scored_names()} - {"macro_f1"}
    assert {dataset for _, dataset in seen} == {*COHORTS, "Mean(Dataset)", "Mean(Subject)"}


def scored_names():
    some = pd.DataFrame(
        {"true": [0, 1], **{f"p{n}": [float(n == 0), float(n == 1)] for n in range(5)}}
    )
    return scored(some)


def test_every_subject_in_the_table_of_subjects(report, raw):
    table = pd.read_csv(report / "report" / "tables" / "subjects.csv", dtype={"subject": str})
    assert len(table) == len(NORMS) * sum(COHORTS.values())
    names = {"usleep batch @all": "batch", "usleep instance d3 @all": "instance"}
    for row in table.to_dict("records"):
        norm = names.get(row["arm"], "psd")
        own = raw[(raw["norm"] == norm) & (raw["cohort"] == row["cohort"])]
        own = own[own["subject"] == row["subject"]]
        assert row["seeds"] == len(own) == 3
        for metric in scored_names():
            assert 100 * row[metric] == pytest.approx(own[metric].mean(), abs=1e-3, nan_ok=True)


def test_the_subjects_of_the_page(page, raw):
    found = re.findall(r'<script type="application/json" id="\w+">(.*?)</script>', page)
    assert len(found) == len(COHORTS)
    mean = raw.groupby(["norm", "cohort", "subject"])["balanced_accuracy"].mean()
    for cohort, text in zip(sorted(COHORTS), found, strict=True):
        data = json.loads(text)
        names = [name for name, _ in data["columns"]]
        assert names[:2] == ["subject", "PSDNorm − BatchNorm"]
        assert len(data["rows"]) == COHORTS[cohort]
        for row in data["rows"]:
            shown = dict(zip(names, row, strict=True))
            for norm, name in NORMS.items():
                value = 100 * mean[norm, cohort, row[0]]
                assert shown[name] == pytest.approx(value, abs=0.501)
            gain = 100 * (mean["psd", cohort, row[0]] - mean["batch", cohort, row[0]])
            assert shown[names[1]] == pytest.approx(gain, abs=0.501)


def subject_gains(raw, reference):
    mean = raw.groupby(["norm", "cohort", "subject"])["balanced_accuracy"].mean()
    return mean["psd"] - mean[reference]


def test_the_gain_over_batchnorm_and_its_interval(page, raw):
    text = plain(page)
    found = re.search(
        r"PSDNorm has the highest balanced accuracy, (\S+) % \(Mean\(Dataset\)\): (\S+) points "
        r"\(95 % interval (\S+) to (\S+)\) over BatchNorm\.",
        text,
    )
    shown = list(map(points, found.groups()))
    gains = subject_gains(raw, "batch")
    assert shown[0] == pytest.approx(
        recomputed(raw, "psd", "balanced_accuracy", "Mean(Dataset)")[0], abs=0.0051
    )
    assert shown[1] == pytest.approx(gains.groupby("cohort").mean().mean(), abs=0.0051)
    rng = np.random.default_rng(7)
    cohorts = [gains[cohort].to_numpy() for cohort in COHORTS]
    draws = [
        np.mean([rng.choice(cohorts[n], len(cohorts[n])).mean() for n in rng.integers(3, size=3)])
        for _ in range(4000)
    ]
    assert shown[2:] == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.25)
    share = re.search(r"PSDNorm is better than BatchNorm: .*? above 0 in (\S+) % of draws", text)[1]
    assert float(share) == pytest.approx(100 * np.mean(np.array(draws) > 0), abs=1)
    over_subjects = re.search(r"better than BatchNorm: .*?; Mean\(Subject\) (\S+) points", text)[1]
    assert points(over_subjects) == pytest.approx(gains.mean(), abs=0.0051)


def test_the_gain_over_the_best_baseline(page, raw):
    found = re.search(
        r"the best baseline \((\w+) in this data.*?Mean\(Dataset\) (\S+) points", plain(page)
    )
    means = {norm: recomputed(raw, norm, "balanced_accuracy", "Mean(Dataset)")[0] for norm in NORMS}
    best = max(("batch", "instance"), key=means.get)
    assert found[1] == NORMS[best]
    assert points(found[2]) == pytest.approx(means["psd"] - means[best], abs=0.0051)


def test_who_gains(page, raw):
    text, gains = plain(page), subject_gains(raw, "batch")
    share, low, high, better, alike, worse = re.search(
        r"(\S+) % of 22 subjects do better with PSDNorm than with BatchNorm "
        r"\(95 % interval (\S+) to (\S+) %\): (\d+) better, (\d+) alike, (\d+) worse",
        text,
    ).groups()
    n = int((gains > 0).sum())
    wilson = stats.binomtest(n, 22).proportion_ci(method="wilson")
    assert [float(share), float(low), float(high)] == pytest.approx(
        [100 * n / 22, 100 * wilson.low, 100 * wilson.high], abs=0.0051
    )
    assert (int(better), int(alike), int(worse)) == (
        n,
        int((gains == 0).sum()),
        int((gains < 0).sum()),
    )
    hardest = re.search(
        r"The hardest 20 % \((\d+) subjects.*?gain (\S+) points; .*?favours PSDNorm, (\S+) points",
        text,
    ).groups()
    mean = raw.groupby(["norm", "cohort", "subject"])["balanced_accuracy"].mean()
    by_mean = ((mean["psd"] + mean["batch"]) / 2).nsmallest(4).index
    by_batch = mean["batch"].nsmallest(4).index
    assert int(hardest[0]) == 4
    assert points(hardest[1]) == pytest.approx(gains[by_mean].mean(), abs=0.0051)
    assert points(hardest[2]) == pytest.approx(gains[by_batch].mean(), abs=0.0051)


def test_friedmans_p(page, raw):
    shown = re.search(r"Friedman's test over 3 datasets: p = (\S+) ", plain(page))[1]
    subjects = raw.groupby(["norm", "cohort", "subject"])["balanced_accuracy"].mean()
    cohorts = subjects.groupby(["norm", "cohort"]).mean()
    expected = stats.friedmanchisquare(*(cohorts[norm] for norm in NORMS)).pvalue
    assert float(shown) == pytest.approx(expected, rel=0.06)


def test_the_table_of_the_verdict(page, raw):
    table = re.search(r"<caption[^>]*>U-Sleep, all subjects: balanced.*?</table>", page, re.S)[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("<tr>")[2:]]
    assert [row[0] for row in rows] == list(NORMS.values())
    for norm, row in zip(NORMS, rows, strict=True):
        for place, dataset in ((1, "Mean(Dataset)"), (2, "Mean(Subject)")):
            mean, std = map(float, row[place].split(" ± "))
            assert (mean, std) == pytest.approx(
                recomputed(raw, norm, "balanced_accuracy", dataset), abs=0.0051
            )


def test_the_metrics_of_each_cohort(page, raw):
    for cohort in COHORTS:
        table = re.search(rf"<caption[^>]*>{cohort}: %, mean over subjects.*?</table>", page, re.S)[
            0
        ]
        rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("<tr>")[2:]]
        for norm, (name, *cells) in zip(NORMS, rows, strict=True):
            assert name == NORMS[norm]
            for metric, cell in zip(scored_names(), cells, strict=True):
                shown = tuple(map(float, cell.split(" ± ")))
                assert shown == pytest.approx(recomputed(raw, norm, metric, cohort), abs=0.0051)


def check_gains(cells, gains, both):
    """Compare cells of a table with the gains of subjects and the mean of both scores."""
    gain, interval, above, improved, hardest = cells
    by_cohort = [own.to_numpy() for _, own in gains.groupby("cohort")]
    assert points(gain) == pytest.approx(np.mean([own.mean() for own in by_cohort]), abs=0.0051)
    assert float(improved) == pytest.approx(100 * (gains > 0).mean(), abs=0.0051)
    fifth = both.nsmallest(max(1, round(0.2 * len(both)))).index
    assert points(hardest) == pytest.approx(gains[fifth].mean(), abs=0.0051)
    rng, n = np.random.default_rng(3), len(by_cohort)
    draws = np.array(
        [
            np.mean([rng.choice(by_cohort[k], len(by_cohort[k])).mean() for k in drawn])
            for drawn in rng.integers(n, size=(4000, n))
        ]
    )
    low_high = list(map(points, interval.split(" to ")))
    assert low_high == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.4)
    assert float(above) == pytest.approx(100 * (draws > 0).mean(), abs=3)


def rows_of(page, caption):
    table = re.search(rf"<caption[^>]*>{caption}.*?</table>", page, re.S)[0]
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("<tr>")[2:]]


@pytest.mark.parametrize("cohort", [None, *COHORTS])
def test_the_gains_of_every_norm_over_all_cohorts_and_in_each(page, raw, cohort):
    mean = raw.groupby(["norm", "cohort", "subject"])["balanced_accuracy"].mean()
    if cohort is None:
        rows = {row[0]: row[3:] for row in rows_of(page, "U-Sleep, all subjects: balanced")}
        assert rows.pop("BatchNorm") == ["–"] * 5
    else:
        rows = {row[0]: row[1:] for row in rows_of(page, f"{cohort}: gain over BatchNorm")}
        mean = mean[mean.index.get_level_values("cohort") == cohort]
    assert list(rows) == ["InstanceNorm", "PSDNorm"]
    for norm in ("instance", "psd"):
        both = (mean[norm] + mean["batch"]) / 2
        check_gains(rows[NORMS[norm]], mean[norm] - mean["batch"], both)


@pytest.mark.parametrize(
    ("reference", "against"),
    [("BatchNorm", ["batch"]), (r"the best baseline \([^)]*\)", ["batch", "instance"])],
    ids=["BatchNorm", "best baseline"],
)
def test_intervals_and_shares_of_draws_in_both_means(page, raw, reference, against):
    number = r"\S+ points \(95 % interval (\S+) to ([^)]+)\), above 0 in (\S+) % of draws"
    found = re.search(
        rf"PSDNorm is [a-z ]*? {reference}: Mean\(Dataset\) {number}; Mean\(Subject\) {number}",
        plain(page),
    )
    shown = list(map(points, found.groups()))
    mean = raw.groupby(["norm", "cohort", "subject"])["balanced_accuracy"].mean()
    scores = [mean.unstack("norm").loc[cohort, ["psd", *against]].to_numpy() for cohort in COHORTS]
    rng, draws = np.random.default_rng(11), []
    for drawn in rng.integers(3, size=(4000, 3)):
        parts = [scores[k][rng.integers(len(scores[k]), size=len(scores[k]))] for k in drawn]
        over_datasets = np.mean([part.mean(axis=0) for part in parts], axis=0)
        over_subjects = np.concatenate(parts).mean(axis=0)
        draws.append([m[0] - m[1:].max() for m in (over_datasets, over_subjects)])
    for place, gains in enumerate(np.array(draws).T):
        low, high, share = shown[3 * place : 3 * place + 3]
        assert [low, high] == pytest.approx(np.quantile(gains, [0.025, 0.975]), abs=0.3)
        assert share == pytest.approx(100 * (gains > 0).mean(), abs=2.5)
