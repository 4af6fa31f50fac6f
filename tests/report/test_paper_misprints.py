"""What the paper says and its tables do not: each number recomputed from the tables."""

import re

import numpy as np
import pytest

from psdnorm.report.paper import misprints, paper_table, paper_tables

STAGES = ["f1_W", "f1_N1", "f1_N2", "f1_N3", "f1_REM"]
MAIN = ("batch", "layer", "instance", "tma", "psd")
MISPRINTS = {misprint.name: misprint for misprint in misprints()}


def page(name, balanced=400, column="norm", values="value"):
    """Return a table as on the page: a line per dataset, a column per norm (or metric)."""
    rows = paper_table(name).rows
    rows = rows[rows["balanced"] == balanced]
    if name == "low-data":  # which has PSDNorm twice
        rows = rows[rows["filter_size"].fillna(15) == 15]
    return rows.pivot(index="dataset", columns=column, values=values)


def cohorts(*args, **kwargs):
    """Return the same without the means."""
    table = page(*args, **kwargs)
    return table[~table.index.str.startswith("Mean")]


def subjects(datasets):
    rows = paper_table("datasets").rows.query("metric == 'subjects'")
    return rows.set_index("dataset")["value"].reindex(datasets)


def over_subjects(scores):
    scores = scores.dropna()
    return np.average(scores, weights=subjects(scores.index))


def gains(name, dataset, *norms, balanced=400):
    line = page(name, balanced).loc[dataset]
    return [line["psd"] - line[norm] for norm in norms]


def times_bold(name, *norms, balanced=400):
    rows = paper_table(name).rows
    rows = rows[rows["bold"] & (rows["balanced"] == balanced)]
    rows = rows[~rows["dataset"].str.startswith("Mean")]
    return [(rows["norm"] == norm).sum() for norm in norms]


def times_above(name, norm, *others, balanced=400):
    table = cohorts(name, balanced)
    return [(table[norm] > table[other]).sum() for other in others]


def overheads():
    rows = paper_table("timing").rows.query("metric == 'train_epoch_s'")
    seconds = rows.pivot(index="model", columns="norm", values="value")
    percent = 100 * (seconds["psd"] / seconds["batch"] - 1)
    return [percent["cnn-transformer"], percent["usleep"]]


def minutes_with_all_subjects():
    people = subjects(cohorts("results").index).drop("CHAT")
    seconds = paper_table("timing").rows["value"][0]
    return [seconds * people.sum() / people.clip(upper=400).sum() / 60, seconds]


def balanced_size(most):
    kept = subjects(cohorts("results").index).clip(upper=most)
    of_folds = kept.sum() - kept
    return [of_folds.mean(), of_folds.std(ddof=0)]


def classwise(norm, mean):
    """Return the five stages' means over datasets or over subjects."""
    scores = cohorts(f"classwise-{norm}", column="metric")[STAGES]
    if mean == "printed":
        return page(f"classwise-{norm}", column="metric").loc["Mean(Dataset)", STAGES]
    return scores.apply(over_subjects)


def stages_led_by_psd(mean):
    leaders = np.argmax([classwise(norm, mean) for norm in MAIN], axis=0)
    return (leaders == MAIN.index("psd")).sum()


def single_seeds():
    value, spread = page("adabn"), page("adabn", values="std")
    return [(value.notna() & spread.isna()).to_numpy().sum()]


def adabn_full():
    scores = cohorts("adabn")
    shared = scores.dropna()
    full, twelve = over_subjects(shared["adabnall"]), over_subjects(shared["adabn12"])
    return over_subjects(scores["adabnall"]), full, twelve


def adabn_more_layers():
    means = page("adabn").loc["Mean(Subject)"]
    _, full, twelve = adabn_full()
    return [means["adabnall"] - means["adabn12"], twelve - full]


WHOLE = re.compile(r"(?<![\d.])\d+(?![\d.])")
# the number that speaks against the paper, then others that the entry shows
RECOMPUTED = {
    "mixed-means": lambda: [
        *gains("results", "Mean(Subject)", "instance", balanced="all"),
        *gains("results", "Mean(Dataset)", "instance", balanced="all"),
    ],
    "chat-margin": lambda: gains("results", "CHAT", "tma", balanced="all"),
    "gain-over-tma": lambda: [
        *gains("results", "Mean(Dataset)", "tma", balanced="all"),
        *gains("results", "Mean(Subject)", "tma", balanced="all"),
    ],
    "gains-exceed-spread": lambda: [
        *page("results", "all", values="std").loc["Mean(Subject)", ["psd", "instance"]],
        page("results", values="std").loc["Mean(Subject)", "psd"],
        *gains("results", "Mean(Subject)", "instance"),
        *gains("results", "Mean(Subject)", "instance", balanced="all"),
    ],
    "training-overhead": overheads,
    "balanced-digits": lambda: [
        *balanced_size(400),
        *(number for most in (100, 200, np.inf) for number in balanced_size(most)),
    ],
    "epoch-half-hour": minutes_with_all_subjects,
    "f1-wins-all": lambda: times_bold("f1", "psd", balanced="all"),
    "f1-baselines-all": lambda: [
        sum(times_bold("f1", "batch", "instance", balanced="all")),
        *times_bold("f1", "tma", balanced="all"),
    ],
    "f1-wins-400": lambda: times_bold("f1", "psd"),
    "f1-instance-400": lambda: times_bold("f1", "instance"),
    "f1-layer-mean-dataset": lambda: [cohorts("f1")["layer"].mean()],
    "f1-layer-mean-subject": lambda: [over_subjects(cohorts("f1")["layer"])],
    "whitening-wins": lambda: times_bold("whitening", "psd-white"),
    "barycenter-wins": lambda: [
        *times_bold("whitening", "psd"),
        *times_above("whitening", "psd", "psd-white"),
    ],
    "whitening-sof-bold": lambda: [page("whitening").loc["SOF"].max()],
    "cnn-wins": lambda: times_bold("cnn-transformer", "psd"),
    "cnn-baselines": lambda: times_bold("cnn-transformer", "instance", "tma"),
    "cnn-gain-batch": lambda: gains("cnn-transformer", "Mean(Subject)", "batch"),
    "cnn-gain-instance": lambda: [
        *gains("cnn-transformer", "Mean(Subject)", "instance"),
        (cohorts("cnn-transformer")["psd"] - cohorts("cnn-transformer")["instance"]).mean(),
    ],
    "diagram-worst": lambda: times_above("results", "batch", "layer", balanced="all"),
    "classwise-mean-spread": lambda: [page("f1", values="std").loc["Mean(Dataset)", "batch"]],
    "classwise-best": lambda: [stages_led_by_psd("printed")],
    "classwise-gains": lambda: [
        (classwise("instance", "printed") - classwise("batch", "printed"))["f1_N1"]
    ],
    "low-data-chat": lambda: [
        page("low-data", 40).loc["CHAT", "psd"] - page("low-data", 40).loc["CHAT", norm]
        for norm in ("instance", "batch", "layer")
    ],
    "adabn-single-seed": single_seeds,
    "adabn12-mean": lambda: [over_subjects(cohorts("adabn")["adabn12"])],
    "adabnall-mean": lambda: adabn_full()[:2],
    "adabn-against-tma": lambda: times_above("adabn", "adabn3", "tma"),
    "adabn-against-psd": lambda: times_above("adabn", "adabn3", "psd"),
    "adabn-more-layers": adabn_more_layers,
}


def is_shown(number, words):
    """Return whether the words have the number, rounded to the digits that they give."""
    tokens = re.findall(r"\d+(?:\.\d+)?", words)
    return any(round(float(number), len(t.partition(".")[2])) == float(t) for t in tokens)


def test_every_misprint_with_a_number_is_recomputed_here():
    assert set(RECOMPUTED) == {m.name for m in misprints() if m.value is not None}
    assert len(misprints()) == len(MISPRINTS)
    assert {m.kind for m in misprints() if m.value is None} == {"wording"}


@pytest.mark.parametrize("name", RECOMPUTED)
def test_a_misprint_shows_what_its_tables_give(name):
    misprint, numbers = MISPRINTS[name], RECOMPUTED[name]()
    assert set(misprint.tables) <= set(paper_tables())
    assert is_shown(numbers[0], str(misprint.value))
    for number in [misprint.value, *numbers]:
        # a count does not stand in for a score that is close to it
        words = misprint.shows if float(number).is_integer() else WHOLE.sub("", misprint.shows)
        assert is_shown(number, words), number


def test_the_texts_gains_of_cnn_transformer_are_those_over_datasets():
    means = cohorts("cnn-transformer").mean()
    assert means["psd"] - means["batch"] == pytest.approx(0.9, abs=0.005)
    assert means["psd"] - means["instance"] == pytest.approx(0.54, abs=0.01)


def test_over_subjects_psdnorm_leads_in_all_stages():
    assert stages_led_by_psd("over subjects") == 5


def test_layer_norm_loses_in_all_stages_and_instance_norm_in_two():
    of_batch = classwise("batch", "printed")
    assert (classwise("layer", "printed") < of_batch).all()
    losses = classwise("instance", "printed") < of_batch
    assert losses[losses].index.tolist() == ["f1_N2", "f1_N3"]


@pytest.mark.parametrize("norm", MAIN)
def test_the_spread_of_a_class_wise_mean_is_the_mean_of_its_columns(norm):
    spread = page(f"classwise-{norm}", column="metric", values="std")
    mean = spread.drop("Mean(Dataset)").mean()
    assert spread.loc["Mean(Dataset)"].to_numpy() == pytest.approx(mean.to_numpy(), abs=0.01)


def test_seeds_over_other_people_would_explain_the_mean_of_adabn_full():
    seven, four, _ = adabn_full()
    seeds = [seven, four, four]
    row = paper_table("adabn").rows.query("norm == 'adabnall' and dataset == 'Mean(Subject)'")
    assert np.mean(seeds) == pytest.approx(row["value"].item(), abs=0.2)
    assert np.std(seeds, ddof=1) == pytest.approx(row["std"].item(), abs=0.2)


@pytest.mark.parametrize("balanced", ["all", 400])
def test_tma_has_the_highest_mean_f1_over_datasets(balanced):
    assert page("f1", balanced).loc["Mean(Dataset)"].idxmax() == "tma"
