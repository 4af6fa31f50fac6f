"""Every number of a report follows from the raw predictions, by a path that is none of ours."""

import functools
import html
import io
import json
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from experiment_runs import write_runs
from scipy import stats
from sklearn import metrics

from psdnorm.experiments.grid import Axes
from psdnorm.report.report_page import build_report
from psdnorm.training import Run

COHORTS = {"ABC": 6, "CHAT": 9, "MASS": 7}
NORMS = {"batch": "BatchNorm", "instance": "InstanceNorm", "psd": "PSDNorm"}
STAGES = ("W", "N1", "N2", "N3", "REM")
METRICS = ("balanced_accuracy", "accuracy", "macro_f1", "weighted_f1", "cohen_kappa")
METRICS += (*(f"f1_{stage}" for stage in STAGES), "calibration_error")

LACKING = [Run("usleep", "psd", hold_out="CHAT", seed=1).name]
GRIDS = [
    pytest.param(((0, 1, 2), []), id="equal seeds"),
    pytest.param(((1, 2), []), id="unequal seeds", marks=pytest.mark.slow),
    pytest.param(((0, 1, 2), LACKING), id="a run that lacks", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=GRIDS)
def report(request, tmp_path_factory):
    """Folders of runs and of the report on them; PSDNorm may lack a seed that others have."""
    folder = tmp_path_factory.mktemp("recomputed")
    own, lacking = request.param
    axes = [
        Axes(norms=(norm,), hold_outs=tuple(COHORTS), seeds=seeds)
        for norm, seeds in zip(NORMS, [(0, 1, 2), (0, 1, 2), own], strict=True)
    ]
    write_runs(folder / "runs", axes, COHORTS, keep="predictions", unfinished=lacking)
    build_report(folder / "runs", folder / "report", figures=False)
    return folder


@pytest.fixture(scope="module")
def raw(report):
    """Metrics of every norm, seed, cohort and subject from the predictions, in percent."""
    rows = []
    for path in sorted((report / "runs").glob("cells/*/predictions.parquet")):
        run = json.loads((path.parent / "config.json").read_text())["cell"]
        owner = {"norm": run["norm"], "seed": run["seed"]}
        rows += [owner | row for row in scored_file(path.read_bytes())]
    return pd.DataFrame(rows)


@functools.cache  # grids share most of their runs
def scored_file(content):
    """Metrics of every subject in a file of predictions."""
    table = pd.read_parquet(io.BytesIO(content))
    table = table[table["central"] & (table["true"] >= 0)]
    return [
        {"cohort": cohort, "subject": subject, **scored(night)}
        for (cohort, subject), night in table.groupby(["cohort", "subject"])
    ]


@pytest.fixture(scope="module")
def shared(raw):
    """Of these, the cohorts and seeds that all norms have: what norms are compared by."""
    norms = raw.groupby(["cohort", "seed"])["norm"].transform("nunique")
    return raw[norms == len(NORMS)]


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
    found = [
        balanced,
        metrics.accuracy_score(true, guess),
        metrics.f1_score(true, guess, average="macro"),
        metrics.f1_score(true, guess, average="weighted"),
        metrics.cohen_kappa_score(true, guess),
        *f1,
        error,
    ]
    return {name: 100 * value for name, value in zip(METRICS, found, strict=True)}


def recomputed(raw, norm, metric, dataset):
    """Mean and standard deviation over the seeds that have a dataset, for means all of them."""
    by_seed = []
    for _, run in raw[raw["norm"] == norm].groupby("seed"):
        values = run.groupby("cohort")[metric].mean().to_dict()
        if len(values) == len(COHORTS):
            over_datasets = np.mean(list(values.values()))
            values |= {"Mean(Dataset)": over_datasets, "Mean(Subject)": run[metric].mean()}
        by_seed += [values[dataset]] if dataset in values else []
    return np.mean(by_seed), np.std(by_seed, ddof=1)


def judged(shared, norm, mean):
    """A mean of balanced accuracies in the verdict: each cohort over the seeds that it has."""
    own = shared[shared["norm"] == norm].groupby(["cohort", "subject"])["balanced_accuracy"].mean()
    return own.mean() if mean == "Mean(Subject)" else own.groupby("cohort").mean().mean()


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
            own = raw[raw["norm"] == row.norm].groupby("seed")["cohort"].agg(set)
            needed = {row.dataset} & {*COHORTS} or {*COHORTS}
            assert row.seeds == sum(needed <= cohorts for cohorts in own)
            seen.add((row.metric, row.dataset))
    assert {metric for metric, _ in seen} >= {*METRICS} - {"macro_f1"}
    assert {dataset for _, dataset in seen} == {*COHORTS, "Mean(Dataset)", "Mean(Subject)"}


def test_every_subject_in_the_table_of_subjects(report, raw):
    table = pd.read_csv(report / "report" / "tables" / "subjects.csv", dtype={"subject": str})
    assert len(table) == len(NORMS) * sum(COHORTS.values())
    names = {"usleep batch @all": "batch", "usleep instance d3 @all": "instance"}
    by_owner = raw.groupby(["norm", "cohort", "subject"])
    for row in table.to_dict("records"):
        norm = names.get(row["arm"], "psd")
        own = by_owner.get_group((norm, row["cohort"], row["subject"]))
        assert row["seeds"] == len(own) >= 2
        found = [100 * row[metric] for metric in METRICS]
        assert found == pytest.approx(own[[*METRICS]].mean().to_list(), abs=1e-3, nan_ok=True)


def test_the_subjects_of_the_page(page, shared):
    found = re.findall(r'<script type="application/json" id="\w+">(.*?)</script>', page)
    assert len(found) == len(COHORTS)
    mean = shared.groupby(["norm", "cohort", "subject"])["balanced_accuracy"].mean()
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


def drawn_means(shared, norms, cohorts, seed):
    """Both means in draws of cohorts, and of their subjects and seeds, (2, 4000, n_norms)."""
    known = shared.set_index(["cohort", "subject", "seed", "norm"])["balanced_accuracy"].unstack()
    tables = []
    for cohort in cohorts:
        own = known.loc[cohort, list(norms)]
        n_seeds = own.index.unique("seed").size
        tables.append(own.to_numpy().reshape(-1, n_seeds, len(norms)))
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(tables), size=(4000, len(tables)))
    means = np.empty((*drawn.shape, len(norms)))
    for number, table in enumerate(tables):
        places = drawn == number
        n_people, n_seeds = table.shape[:2]
        people = rng.integers(n_people, size=(places.sum(), n_people, 1))
        seeds = rng.integers(n_seeds, size=(places.sum(), 1, n_seeds))
        means[places] = table[people, seeds].mean(axis=(1, 2))
    sizes = np.array([len(table) for table in tables])[drawn][..., None]
    return np.stack([means.mean(axis=1), (means * sizes).sum(axis=1) / sizes.sum(axis=1)])


def subject_gains(shared, reference):
    mean = shared.groupby(["norm", "cohort", "subject"])["balanced_accuracy"].mean()
    return mean["psd"] - mean[reference]


def test_the_gain_over_batchnorm_and_its_interval(page, shared):
    text = plain(page)
    found = re.search(
        r"PSDNorm has the highest balanced accuracy, (\S+) % \(Mean\(Dataset\)\): (\S+) points "
        r"\(95 % interval (\S+) to (\S+)\) over BatchNorm(?:, but not distinguishable from \w+)? "
        r"\(3 cohorts, (?:2 to )?\d seeds\)\.",
        text,
    )
    shown = list(map(points, found.groups()))
    gains = subject_gains(shared, "batch")
    assert shown[0] == pytest.approx(judged(shared, "psd", "Mean(Dataset)"), abs=0.0051)
    assert shown[1] == pytest.approx(gains.groupby("cohort").mean().mean(), abs=0.0051)
    over_datasets = drawn_means(shared, ["psd", "batch"], COHORTS, 7)[0]
    draws = over_datasets[:, 0] - over_datasets[:, 1]
    assert shown[2:] == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.3)
    share = re.search(r"PSDNorm is ahead of BatchNorm .*? above 0 in (\S+) % of draws", text)[1]
    assert float(share) == pytest.approx(100 * np.mean(draws > 0), abs=1)
    over_subjects = re.search(r"ahead of BatchNorm .*?; Mean\(Subject\) (\S+) points", text)[1]
    assert points(over_subjects) == pytest.approx(gains.mean(), abs=0.0051)


def test_the_gain_over_the_best_baseline(page, shared):
    found = re.search(
        r"the best baseline \(here (\w+), .*?Mean\(Dataset\) (\S+) points", plain(page)
    )
    means = {norm: judged(shared, norm, "Mean(Dataset)") for norm in NORMS}
    best = max(("batch", "instance"), key=means.get)
    assert found[1] == NORMS[best]
    assert points(found[2]) == pytest.approx(means["psd"] - means[best], abs=0.0051)


def test_who_gains(page, shared):
    text, gains = plain(page), subject_gains(shared, "batch")
    share, low, high, better, alike, worse = re.search(
        r"(\S+) % of 22 subjects do better with PSDNorm than with BatchNorm "
        r"\(95 % interval (\S+) to (\S+) %\): (\d+) better, (\d+) alike, (\d+) worse",
        text,
    ).groups()
    n = int((gains > 0).sum())
    wilson = stats.binomtest(n, 22).proportion_ci(method="wilson")
    assert [float(share), float(low), float(high)] == pytest.approx(
        [100 * n / 22, 100 * wilson.low, 100 * wilson.high], abs=0.501
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
    mean = shared.groupby(["norm", "cohort", "subject"])["balanced_accuracy"].mean()
    by_mean = ((mean["psd"] + mean["batch"]) / 2).nsmallest(4).index
    by_batch = mean["batch"].nsmallest(4).index
    assert int(hardest[0]) == 4
    assert points(hardest[1]) == pytest.approx(gains[by_mean].mean(), abs=0.0051)
    assert points(hardest[2]) == pytest.approx(gains[by_batch].mean(), abs=0.0051)


def test_friedmans_p(page, shared):
    shown = re.search(r"Friedman's test over 3 datasets: p = (\S+) ", plain(page))[1]
    subjects = shared.groupby(["norm", "cohort", "subject"])["balanced_accuracy"].mean()
    cohorts = subjects.groupby(["norm", "cohort"]).mean()
    expected = stats.friedmanchisquare(*(cohorts[norm] for norm in NORMS)).pvalue
    assert float(shown) == pytest.approx(expected, rel=0.06)


def test_the_table_of_the_verdict(page, shared):
    table = re.search(r"<caption[^>]*>U-Sleep, all subjects: balanced.*?</table>", page, re.S)[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("<tr>")[2:]]
    assert [row[0] for row in rows] == list(NORMS.values())
    for norm, row in zip(NORMS, rows, strict=True):
        for place, dataset in ((1, "Mean(Dataset)"), (2, "Mean(Subject)")):
            expected = (
                judged(shared, norm, dataset),
                recomputed(shared, norm, "balanced_accuracy", dataset)[1],
            )
            shown = tuple(map(float, row[place].split(" ± ")))
            assert shown == pytest.approx(expected, abs=0.0051)


def test_the_metrics_of_each_cohort(page, shared):
    for cohort in COHORTS:
        table = re.search(rf"<caption[^>]*>{cohort}: %, mean over subjects.*?</table>", page, re.S)[
            0
        ]
        rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("<tr>")[2:]]
        for norm, (name, *cells) in zip(NORMS, rows, strict=True):
            assert name == NORMS[norm]
            for metric, cell in zip(METRICS, cells, strict=True):
                shown = tuple(map(float, cell.split(" ± ")))
                assert shown == pytest.approx(recomputed(shared, norm, metric, cohort), abs=0.0051)


def check_gains(cells, gains, both, draws):
    """Compare cells of a table with subjects' gains, means of both scores, and drawn gains."""
    gain, interval, above, improved, hardest = cells
    by_cohort = [own.to_numpy() for _, own in gains.groupby("cohort")]
    assert points(gain) == pytest.approx(np.mean([own.mean() for own in by_cohort]), abs=0.0051)
    assert float(improved) == pytest.approx(100 * (gains > 0).mean(), abs=0.0051)
    fifth = both.nsmallest(max(1, round(0.2 * len(both)))).index
    assert points(hardest) == pytest.approx(gains[fifth].mean(), abs=0.0051)
    low_high = list(map(points, interval.split(" to ")))
    assert low_high == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.5)
    assert float(above) == pytest.approx(100 * (draws > 0).mean(), abs=3)


def rows_of(page, caption):
    table = re.search(rf"<caption[^>]*>{caption}.*?</table>", page, re.S)[0]
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("<tr>")[2:]]


@pytest.mark.parametrize("cohort", [None, *COHORTS])
def test_the_gains_of_every_norm_over_all_cohorts_and_in_each(page, shared, cohort):
    mean = shared.groupby(["norm", "cohort", "subject"])["balanced_accuracy"].mean()
    if cohort is None:
        rows = {row[0]: row[3:8] for row in rows_of(page, "U-Sleep, all subjects: balanced")}
        assert rows.pop("BatchNorm") == ["–"] * 5
    else:
        rows = {row[0]: row[1:] for row in rows_of(page, f"{cohort}: gain over BatchNorm")}
        mean = mean[mean.index.get_level_values("cohort") == cohort]
    assert list(rows) == ["InstanceNorm", "PSDNorm"]
    for norm in ("instance", "psd"):
        both = (mean[norm] + mean["batch"]) / 2
        drawn = drawn_means(shared, [norm, "batch"], [cohort] if cohort else COHORTS, 3)[0]
        draws = drawn[:, 0] - drawn[:, 1]
        check_gains(rows[NORMS[norm]], mean[norm] - mean["batch"], both, draws)


def test_the_gain_of_every_norm_over_the_best_other_baseline(page, shared):
    means = {norm: judged(shared, norm, "Mean(Dataset)") for norm in NORMS}
    rows = rows_of(page, "U-Sleep, all subjects: balanced")
    for norm, row in zip(NORMS, rows, strict=True):
        others = [name for name in ("batch", "instance") if name != norm]
        gain, low, high = re.fullmatch(r"(\S+) \((\S+) to (\S+)\)", row[8]).groups()
        best = max(means[name] for name in others)
        assert points(gain) == pytest.approx(means[norm] - best, abs=0.0051)
        drawn = drawn_means(shared, [norm, *others], COHORTS, 5)[0]
        gains = drawn[:, 0] - drawn[:, 1:].max(axis=1)
        ends = np.quantile(gains, [0.025, 0.975])
        assert [points(low), points(high)] == pytest.approx(ends, abs=0.5)


def test_the_confusion_matrices_of_each_cohort(report, page, shared):
    for cohort in COHORTS:
        seeds = {*shared[shared["cohort"] == cohort]["seed"]}
        fold = re.search(rf"<summary>{cohort}: .*?</details>", page, re.S)[0]
        for norm, name in NORMS.items():
            counts = np.zeros((5, 5), dtype=int)
            for seed in seeds:
                (path,) = report.glob(f"runs/cells/usleep_{norm}_*{cohort}_all_seed{seed}")
                table = pd.read_parquet(path / "predictions.parquet")
                table = table[table["central"] & (table["true"] >= 0)]
                guess = table[[f"p{n}" for n in range(5)]].to_numpy().argmax(axis=1)
                counts += metrics.confusion_matrix(table["true"], guess, labels=range(5))
            rows = rows_of(fold, f"{name}: predicted stages")
            assert [row[0] for row in rows] == list(STAGES)
            shown = np.array([row[1:] for row in rows], dtype=float)
            shares = 100 * counts / counts.sum(axis=1, keepdims=True)
            assert shown == pytest.approx(shares, abs=0.0501)
            matrix = re.search(rf"<caption[^>]*>{name}: predicted stages.*?</table>", fold, re.S)[0]
            told = re.findall(r'title="([\d,]+) of ([\d,]+) epochs"', matrix)
            assert [int(n.replace(",", "")) for n, _ in told] == counts.ravel().tolist()
            assert [int(n.replace(",", "")) for _, n in told] == np.repeat(
                counts.sum(axis=1), 5
            ).tolist()


@pytest.mark.parametrize(
    ("reference", "against"),
    [("BatchNorm", ["batch"]), (r"the best baseline \([^)]*\)", ["batch", "instance"])],
    ids=["BatchNorm", "best baseline"],
)
def test_intervals_and_shares_of_draws_in_both_means(page, shared, reference, against):
    number = r"\S+ points \(95 % interval (\S+) to ([^)]+)\), above 0 in (\S+) % of draws"
    found = re.search(
        rf"PSDNorm is ahead of {reference} in this data \([^)]*\): Mean\(Dataset\) {number}; "
        rf"Mean\(Subject\) {number}",
        plain(page),
    )
    shown = list(map(points, found.groups()))
    for place, drawn in enumerate(drawn_means(shared, ["psd", *against], COHORTS, 11)):
        gains = drawn[:, 0] - drawn[:, 1:].max(axis=1)
        low, high, share = shown[3 * place : 3 * place + 3]
        assert [low, high] == pytest.approx(np.quantile(gains, [0.025, 0.975]), abs=0.3)
        assert share == pytest.approx(100 * (gains > 0).mean(), abs=2.5)
