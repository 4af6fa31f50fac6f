"""B against A: the same people, the same seeds, and what cannot be compared is refused."""

import dataclasses
import html
import json
import re

import numpy as np
import pandas as pd
import pytest
from experiment_runs import COHORTS, MERIT, write_runs
from stores import filled, night

import psdnorm
from psdnorm.compare import compare, comparison_page, write_comparison
from psdnorm.errors import ArgumentError
from psdnorm.evaluation.statistics import bootstrap_gains
from psdnorm.experiments.grid import Axes
from psdnorm.report.contest import contests
from psdnorm.report.figures import Figures
from psdnorm.report.results import read_results
from psdnorm.report.verdict.verdict import judge
from psdnorm.training import Run

AXES = Axes(norms=("batch", "psd"), hold_outs=("ABC", "CHAT"), seeds=(0, 1))
NO_FIGURES = Figures([], [])
BETTER = {norm: merit + 0.1 for norm, merit in MERIT.items()}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    write_runs(folder / "a", [AXES], epochs=60, keep="predictions")
    write_runs(folder / "b", [AXES], epochs=60, keep="predictions", merit=BETTER)
    return folder


@pytest.fixture(scope="module")
def found(folders):
    """B, which is better, against A."""
    return compare(folders / "a", folders / "b")


@pytest.fixture(scope="module")
def written(found, tmp_path_factory):
    """The folder of that comparison, figures and all."""
    out = tmp_path_factory.mktemp("written") / "out"
    write_comparison(found, out, "psdnorm compare a b")
    return out


def accuracies(folder, norm):
    """Balanced accuracy by cohort, subject and seed, from the predictions."""
    found = {}
    for path in folder.glob(f"cells/usleep_{norm}_*/predictions.parquet"):
        seed = path.parent.name[-1]
        table = pd.read_parquet(path)
        table = table[table["central"] & (table["true"] >= 0)]
        guess = table[[f"p{n}" for n in range(5)]].to_numpy().argmax(axis=1)
        table = table.assign(right=guess == table["true"])
        for owner, own in table.groupby(["cohort", "subject"]):
            found[(*owner, seed)] = own.groupby("true")["right"].mean().mean()
    return pd.Series(found)


def test_arms_that_both_have_are_compared(found):
    assert [arm.arm for arm in found.arms] == ["usleep batch @all", "usleep psd f5 d3 @all"]
    assert found.simulated


def test_people_read_names_as_the_paper_writes_them(tmp_path):
    axes = Axes(norms=("batch", "psd"), filter_sizes=(5, 17), norm_depths=(2,), balanced=(40,))
    axes = dataclasses.replace(axes, hold_outs=("ABC",), seeds=(0,))
    write_runs(tmp_path / "a", [axes], epochs=30)
    found = compare(tmp_path / "a", tmp_path / "a")
    assert [arm.name for arm in found.arms] == [
        "BatchNorm in U-Sleep, balanced@40",
        "PSDNorm (2 blocks) in U-Sleep, balanced@40",
        "PSDNorm (f = 17, 2 blocks) in U-Sleep, balanced@40",
    ]
    page = comparison_page(found, "command", NO_FIGURES).html()
    assert "usleep" not in page
    assert "PSDNorm (2 blocks) in U-Sleep, balanced@40: B is not distinguishable from A" in page


def test_gains_are_those_of_the_raw_predictions(folders, found):
    arm = found.arms[1]
    a, b = (accuracies(folders / name, "psd") for name in "ab")
    gains = (b - a).groupby(level=[0, 1]).mean()
    by_cohort = gains.groupby(level=0).mean()
    rows = {row[0]: row for row in arm.rows()}
    for cohort, gain in by_cohort.items():
        own = gains[cohort]
        assert rows[cohort][1] == str(len(own))
        assert float(rows[cohort][4].replace("−", "-")) == pytest.approx(100 * gain, abs=0.0051)
        assert float(rows[cohort][7]) == pytest.approx(100 * (own > 0).mean(), abs=0.0051)
    for name, gain in (("Mean(Dataset)", by_cohort.mean()), ("Mean(Subject)", gains.mean())):
        assert float(rows[name][4].replace("−", "-")) == pytest.approx(100 * gain, abs=0.0051)
    mean_a = a.groupby(level=[0, 1]).mean()
    assert float(rows["Mean(Subject)"][2]) == pytest.approx(100 * mean_a.mean(), abs=0.0051)


def test_a_folder_against_itself_is_not_distinguishable(folders):
    arm = compare(folders / "a", folders / "a").arms[0]
    assert arm.sentences[0].startswith("B is not distinguishable from A: Mean(Dataset) 0.00 points")


def test_a_folder_against_itself_is_said_to_be_one(folders):
    one = folders / "a"
    run = one / "cells" / Run("usleep", "psd", hold_out="ABC").name
    for path, other in ((one, one / "cells" / ".."), (run, run)):
        assert compare(path, other).nights == ["A and B are the same folder: nothing can differ."]


def test_arms_are_in_the_order_of_the_paper(tmp_path):
    axes = Axes(norms=("psd", "tma", "instance", "batch"), balanced=(40, None), hold_outs=("ABC",))
    write_runs(tmp_path / "a", [dataclasses.replace(axes, seeds=(0,))], epochs=30)
    found = compare(tmp_path / "a", tmp_path / "a")
    norms = ["batch", "instance d3", "tma f5", "psd f5 d3"]
    assert [arm.arm for arm in found.arms] == [
        f"usleep {norm} @{size}" for size in ("all", "40") for norm in norms
    ]


def test_two_runs_are_compared_whatever_their_norm(folders):
    runs = folders / "a" / "cells"
    batch, psd = (Run("usleep", norm, hold_out="ABC").name for norm in ("batch", "psd"))
    (arm,) = compare(runs / batch, runs / psd).arms
    assert arm.arm == "usleep psd f5 d3 @all (B) against usleep batch @all (A)"
    assert arm.name == (
        "PSDNorm in U-Sleep, all subjects (B) against BatchNorm in U-Sleep, all subjects (A)"
    )
    assert [row[0] for row in arm.rows()] == ["ABC"]
    assert arm.rows()[0][1] == "6"


def test_a_run_whose_filter_size_was_chosen_is_compared_as_such(tmp_path):
    sizes = Axes(norms=("psd",), filter_sizes=(5, "auto"), hold_outs=("ABC",), seeds=(0,))
    write_runs(tmp_path, [sizes], epochs=30)
    fixed, chosen = (Run(filter_size=f, hold_out="ABC").name for f in (5, "auto"))
    (arm,) = compare(tmp_path / "cells" / fixed, tmp_path / "cells" / chosen).arms
    assert arm.name.startswith("PSDNorm (f auto) in U-Sleep, all subjects (B) against PSDNorm in")


def test_runs_of_other_seeds_are_compared_and_it_is_said(folders):
    runs = folders / "a" / "cells"
    names = [Run("usleep", "psd", hold_out="ABC", seed=seed).name for seed in (0, 1)]
    found = compare(*(runs / name for name in names))
    assert any("different seeds" in remark for remark in found.remarks)


def test_the_weights_of_a_run_stand_for_it(folders):
    run = folders / "a" / "cells" / Run("usleep", "psd", hold_out="ABC").name
    (run / "weights").mkdir(exist_ok=True)
    assert compare(run / "weights", run).a.path == run


def test_single_arms_of_two_folders_are_compared(tmp_path):
    for norm in ("batch", "psd"):
        write_runs(
            tmp_path / norm, [Axes(norms=(norm,), hold_outs=("ABC",), seeds=(0,))], epochs=30
        )
    (arm,) = compare(tmp_path / "batch", tmp_path / "psd").arms
    assert "against usleep batch @all (A)" in arm.arm


def refused(a, b):
    with pytest.raises(ArgumentError) as error:
        compare(a, b)
    return str(error.value)


def test_cohorts_that_have_nothing_in_common_are_rejected(folders):
    runs = folders / "a" / "cells"
    abc, chat = (runs / Run("usleep", "psd", hold_out=name).name for name in ("ABC", "CHAT"))
    assert refused(abc, chat) == (
        f"{abc} holds out ABC and {chat} CHAT: they have no cohort in common, so nothing can "
        "be compared"
    )


def test_arms_that_have_nothing_in_common_are_rejected(tmp_path):
    for name, norms in (("a", ("batch", "layer")), ("b", ("psd",))):
        write_runs(tmp_path / name, [Axes(norms=norms, hold_outs=("ABC",), seeds=(0,))], epochs=30)
    assert refused(tmp_path / "a", tmp_path / "b").endswith(
        "expected an arm that both have, or one arm each"
    )


def test_an_arm_that_shares_no_cohort_is_named_and_the_others_are_compared(tmp_path):
    for name, hold_out in (("a", "ABC"), ("b", "CHAT")):
        both = Axes(norms=("batch",), hold_outs=("ABC", "CHAT"), seeds=(0,))
        own = Axes(norms=("psd",), hold_outs=(hold_out,), seeds=(0,))
        write_runs(tmp_path / name, [both, own], epochs=30)
    found = compare(tmp_path / "a", tmp_path / "b")
    assert [arm.arm for arm in found.arms] == ["usleep batch @all"]
    lacks = "PSDNorm in U-Sleep, all subjects: A and B share no subject in the same seed."
    assert lacks in found.remarks


def test_seeds_that_have_nothing_in_common_are_rejected(tmp_path):
    for seed in (0, 1):
        axes = Axes(norms=("psd",), hold_outs=("ABC",), seeds=(seed,))
        write_runs(tmp_path / str(seed), [axes], epochs=30)
    assert refused(tmp_path / "0", tmp_path / "1").endswith("share no subject in the same seed")


def test_a_run_against_an_experiment_is_rejected(folders):
    run = folders / "a" / "cells" / Run("usleep", "psd", hold_out="ABC").name
    assert refused(folders / "a", run).endswith("a single run, expected two of a kind")


def test_a_store_is_rejected_as_one(folders, tmp_path):
    filled(tmp_path / "store", [night()])
    with pytest.raises(ArgumentError, match="is a store of prepared nights, expected"):
        compare(tmp_path / "store", folders / "a")


def test_a_folder_of_something_else_is_rejected(folders, tmp_path):
    assert refused(tmp_path, folders / "a") == (
        f"{tmp_path} has neither grid.json nor scores.parquet, expected the folder of psdnorm "
        "lodo, of one of its runs, or a checkpoint"
    )


def test_where_runs_lie_side_by_side_they_are_named(folders):
    assert refused(folders / "a", folders) == (
        f"{folders} holds the runs of a, b: give one of them, {folders / 'a'}"
    )


def test_what_else_differs_is_said(folders, tmp_path):
    write_runs(tmp_path, [Axes(norms=("batch",), hold_outs=("ABC",), seeds=(0,))], epochs=60)
    for path in tmp_path.glob("cells/*/config.json"):
        config = json.loads(path.read_text())
        config["recipe"]["name"], config["protocol"]["lr"] = "robust", 0.1
        path.write_text(json.dumps(config))
    remarks = compare(folders / "a", tmp_path).remarks
    assert "The recipes differ: paper (A) and robust (B)." in remarks
    assert "lr is 0.001 in A and 0.1 in B." in remarks
    assert "Not compared, as only one of the two holds them out: CHAT." in remarks
    assert "BatchNorm in U-Sleep, all subjects: B is missing 6 of the 12 scores of ABC." in remarks
    assert "Only A has PSDNorm in U-Sleep, all subjects." in remarks


def edit_configs(folder, edit, runs="*"):
    paths = list(folder.glob(f"cells/{runs}/config.json"))
    assert paths
    for path in paths:
        config = json.loads(path.read_text())
        edit(config)
        path.write_text(json.dumps(config))


def with_other_nights(part):
    def edit(config):
        config["data"][part]["sha256"] = "1" * 64

    return edit


def test_other_nights_are_said_first_on_the_page_and_among_the_remarks(folders, tmp_path):
    write_runs(tmp_path, [AXES], epochs=60)
    edit_configs(tmp_path, with_other_nights("test"), "usleep_psd_*_CHAT_*seed1")
    found = compare(folders / "a", tmp_path)
    sentence = (
        "A and B were tested on different nights of CHAT: subjects of the same name may be "
        "different people."
    )
    assert found.nights == found.remarks[:1] == [sentence]
    page = comparison_page(found, "command", NO_FIGURES).html()
    assert page.count(sentence) == 1
    assert page.index(sentence) < page.index('class="verdict"')


def test_the_same_nights_give_no_remark_on_them(found):
    assert found.nights == []


def test_other_nights_of_two_runs_are_said_too(tmp_path):
    write_runs(tmp_path, [AXES], epochs=60)
    batch, psd = (Run("usleep", norm, hold_out="ABC").name for norm in ("batch", "psd"))
    edit_configs(tmp_path, with_other_nights("test"), psd)
    found = compare(tmp_path / "cells" / batch, tmp_path / "cells" / psd)
    assert "tested on different nights of ABC" in found.remarks[0]


@pytest.mark.parametrize("part", ["train", "validation"])
def test_other_nights_to_learn_from_are_said(folders, tmp_path, part):
    write_runs(tmp_path, [AXES], epochs=60)
    edit_configs(tmp_path, with_other_nights(part))
    assert compare(folders / "a", tmp_path).nights == [
        "A and B were trained or validated on different nights where ABC and CHAT were held out: "
        "gains may come from these."
    ]


def test_nights_of_another_recipe_cannot_be_told_apart_and_it_is_said(folders, tmp_path):
    write_runs(tmp_path, [AXES], epochs=60)
    edit_configs(tmp_path, lambda config: config.update(recipe_sha256="1" * 64))
    remarks = compare(folders / "a", tmp_path).remarks
    assert "cannot be told whether A and B were tested on the same nights" in remarks[0]
    assert "The recipes differ: paper is 000000000000 in A and 111111111111 in B." in remarks


def test_one_seed_and_one_training_are_limits_as_in_a_report(folders, found):
    limits = " ".join(found.limits)
    assert "One seed" not in limits
    assert "Nights are simulated" in limits
    assert "other trainings as far as 2 seeds show them" in limits
    run = folders / "a" / "cells" / Run("usleep", "psd", hold_out="ABC").name
    limits = " ".join(compare(run, run).limits)
    assert "One seed: one training cannot show how much of this is luck" in limits
    assert "as far as" not in limits
    assert "Intervals allow for other people, not for the spread between trainings" in limits


def test_limits_are_in_the_words_of_a_report(folders, found):
    results = read_results(folders / "a")
    (contest,) = contests(results)
    theirs = {*judge(results, contest).limits}
    shared = [limit for limit in found.limits if limit in theirs]
    assert shared == found.limits


def test_one_seed_in_one_cohort_is_said(folders, tmp_path):
    gone = [Run("usleep", "psd", hold_out="CHAT", seed=1).name]
    write_runs(tmp_path, [AXES], epochs=60, unfinished=gone)
    limits = " ".join(compare(folders / "a", tmp_path).limits)
    assert "One seed in some cohorts: one training cannot show" in limits


def test_intervals_are_of_other_trainings_too_where_there_are_several_seeds(found):
    arm = found.arms[0]
    drawn = bootstrap_gains(arm.scores, "A", resample_seeds=True).gains.set_index("mean")
    for mean, gain in arm.duel.gains.items():
        assert [gain.low, gain.high] == list(drawn.loc[mean, ["low", "high"]])


def test_a_missing_folder_is_rejected(folders, tmp_path):
    assert "nowhere does not exist" in refused(tmp_path / "nowhere", folders / "a")


def test_the_page_shows_all_of_it_and_the_files_are_beside(written):
    page = (written / "index.html").read_text()
    assert "These nights are simulated" in page
    assert page.count("<img") == 6
    drawn = {path.name for path in (written / "figures").iterdir()}
    assert {f"gains-usleep-batch-all.{kind}" for kind in ("png", "svg")} < drawn
    assert len(drawn) == 12
    assert page.count('class="sortable"') >= 2
    data = re.findall(r'<script type="application/json" id="\w+">(.*?)</script>', page)
    assert [len(json.loads(text)["rows"]) for text in data] == [
        COHORTS["ABC"] + COHORTS["CHAT"]
    ] * 2
    table = pd.read_csv(written / "tables" / "subjects.csv")
    assert np.allclose(table["B"] - table["A"], table["gain"], atol=1e-5)
    assert len(table) == 2 * (COHORTS["ABC"] + COHORTS["CHAT"])
    assert {*table["arm"]} == {"usleep batch @all", "usleep psd f5 d3 @all"}


def test_figures_are_left_out_if_they_are_not_asked_for(found, tmp_path):
    write_comparison(found, tmp_path / "out", "psdnorm compare a b", figures=False)
    page = (tmp_path / "out" / "index.html").read_text()
    assert "<img" not in page
    assert "Figures were not asked for." in page
    assert not (tmp_path / "out" / "figures").exists()


def test_the_page_and_the_record_say_how_it_was_made(folders, tmp_path):
    write_runs(tmp_path / "b", [AXES], epochs=60)
    edit_configs(tmp_path / "b", lambda config: config["protocol"].update(lr=0.1))
    found = compare(folders / "a", tmp_path / "b")
    write_comparison(found, tmp_path / "out", "psdnorm compare", figures=False)
    page = html.unescape((tmp_path / "out" / "index.html").read_text())
    for words in ("A: psdnorm 0, torch 0, python 0 (8 runs)", f"psdnorm {psdnorm.__version__}"):
        assert f"<li>{words}" in page or f"this comparison: {words}" in page
    for words in ("Recipe of both:", "Protocol of A:", "Protocol of B:", '"lowpass_hz": 30.0'):
        assert words in page
    record = json.loads((tmp_path / "out" / "report.json").read_text())
    assert record["psdnorm"] == psdnorm.__version__
    assert record["b"]["protocol"]["lr"] == 0.1
    assert record["a"]["recipe"]["name"] == "paper"
    assert record["a"]["versions"] == ["psdnorm 0, torch 0, python 0 (8 runs)"]
    assert record["limits"]


def test_no_path_from_the_root_is_shown(folders, written):
    for name in ("index.html", "report.json"):
        assert str(folders) not in (written / name).read_text()


def test_a_page_of_a_comparison_names_both_sides(found):
    page = comparison_page(found, "command", NO_FIGURES).html()
    assert "A is a, recipe paper." in page
    assert "<h1>b against a</h1>" in page
