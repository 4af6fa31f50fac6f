"""Presets are the paper's experiments, and say what they cost."""

import numpy as np
import pytest

from psdnorm.errors import ArgumentError
from psdnorm.experiments.estimate import EPOCHS, H200
from psdnorm.experiments.presets import PAPER_COHORTS, paper_amount, paper_presets, preset_named
from psdnorm.training import Run


def kinds(name):
    """All that tells runs apart but cohort and seed."""
    return {
        (c.model, c.norm, c.filter_size, c.norm_depth, c.balanced)
        for c in paper_presets()[name].runs(["CHAT"])
    }


def test_the_cohorts_are_those_of_the_papers_tables():
    subjects, recordings = (sum(column) for column in zip(*PAPER_COHORTS.values(), strict=True))
    assert (len(PAPER_COHORTS), subjects, recordings) == (10, 11032, 14710)


@pytest.mark.parametrize(
    ("balanced", "mean", "std"),
    [(40, 360, 0), (100, 787, 19), (200, 1387, 63), (400, 2466, 157), (None, 9929, 1659)],
)
def test_training_sets_have_the_papers_numbers_of_subjects(balanced, mean, std):
    sizes = {cohort: n for cohort, (n, _) in PAPER_COHORTS.items()}
    found = [
        sum(min(balanced or n, n) for cohort, n in sizes.items() if cohort != out) for out in sizes
    ]
    assert int(np.mean(found)) in (mean, mean - 1)  # the paper cuts some and rounds others
    assert int(np.std(found)) == std


def test_the_main_table_is_five_norms_with_all_subjects_and_balanced_at_400():
    norms = (("batch", None, None), ("layer", None, 3), ("instance", None, 3))
    norms += (("tma", 5, None), ("psd", 5, 3))
    assert kinds("table1") == {("usleep", *norm, n) for norm in norms for n in (None, 400)}
    assert len(paper_presets()["table1"].runs()) == 5 * 2 * 10 * 3


def test_the_other_tables_have_the_columns_that_the_paper_prints():
    def norms(name):
        return sorted({(norm, f) for _, norm, f, _, _ in kinds(name)}, key=str)

    assert {(model, n) for model, _, _, _, n in kinds("cnn-transformer")} == {
        ("cnn-transformer", 400)
    }
    assert norms("cnn-transformer") == [
        ("batch", None),
        ("instance", None),
        ("psd", 5),
        ("tma", 5),
    ]
    assert norms("whitening") == [
        ("batch", None),
        ("instance", None),
        ("psd", 5),
        ("psd-white", 5),
    ]
    low = kinds("low-data")
    assert {n for *_, n in low} == {40}
    assert norms("low-data") == [
        ("batch", None),
        ("instance", None),
        ("layer", None),
        ("psd", 15),
        ("psd", 5),
    ]
    adapted = {norm for norm, _ in norms("adabn")}
    assert adapted == {"batch", "layer", "instance", "tma", "psd", "adabn3", "adabn12", "adabnall"}


def test_the_figures_have_their_axes():
    sizes = {f for _, norm, f, _, _ in kinds("filter-size") if norm == "psd"}
    assert sizes == {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21}
    assert {(f, n) for _, norm, f, _, n in kinds("training-size") if norm == "psd"} == {
        (f, n) for f in (5, 17) for n in (40, 100, 200, 400, None)
    }
    depths = {d for _, norm, _, d, _ in kinds("norm-depth") if norm == "psd"}
    assert {1, 2, 3, 12} <= depths


def test_adabn_costs_no_training_and_shared_runs_are_done_once():
    adabn = paper_presets()["adabn"]
    assert (len(adabn.runs()), adabn.trainings) == (240, 150)
    everything = {run for p in paper_presets().values() if p.name != "paper" for run in p.runs()}
    assert set(paper_presets()["paper"].runs()) == everything
    assert paper_presets()["paper"].gpu_hours < sum(
        p.gpu_hours for p in paper_presets().values() if p.blocks and p.name != "paper"
    )


def test_hours_follow_from_subjects_rates_and_epochs():
    run = Run("usleep", "psd", hold_out="SHHS", balanced=40)
    nights = {c: (min(40, s) * r / s) for c, (s, r) in PAPER_COHORTS.items() if c != "SHHS"}
    sequences = 47 * sum(nights.values())
    amount = paper_amount(run)
    assert amount.training == pytest.approx(0.8 * sequences)
    assert amount.test == 47 * 8271
    rates = H200["usleep"]
    seconds = EPOCHS * (0.8 * sequences / rates.training + 0.2 * sequences / rates.prediction)
    seconds += 47 * 8271 / rates.prediction
    assert amount.seconds(run, rates) == pytest.approx(seconds)
    assert rates.training == 0.93 * 5122


def test_options_narrow_a_preset():
    runs = paper_presets()["filter-size"].runs(
        ["CHAT"], [0], filter_size=[17], norm=["psd", "batch"]
    )
    assert [run.name for run in runs] == [
        "usleep_batch_CHAT_at400_seed0",
        "usleep_psd_f17_d3_CHAT_at400_seed0",
    ]
    adapted = paper_presets()["adabn"].runs(["CHAT"], [0], norm=["adabn3"])
    assert [run.norm for run in adapted] == ["batch", "adabn3"]
    everybody = paper_presets()["table1"].runs(["CHAT"], [0], balanced=[None])
    assert {run.balanced for run in everybody} == {None}


def test_what_a_preset_has_not_is_refused():
    with pytest.raises(ArgumentError, match="norm is tma, expected of preset whitening one of bat"):
        paper_presets()["whitening"].runs(norm=["tma"])
    with pytest.raises(ArgumentError, match="balanced is all, expected of preset adabn one of 400"):
        paper_presets()["adabn"].runs(balanced=[None])
    with pytest.raises(ArgumentError, match="filter_size is 4, expected of preset low-data one of"):
        paper_presets()["low-data"].runs(filter_size=[4])
    with pytest.raises(ArgumentError, match="preset is 'table9', expected one of table1, cnn-tran"):
        preset_named("table9")
    with pytest.raises(ArgumentError, match=r"timing is not a grid: run python -m benchmarks.step"):
        preset_named("timing")
