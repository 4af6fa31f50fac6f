"""The file of a study describes it, and errors in it are one sentence."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from studies import described, trained_study, written_study

from psdnorm.errors import ArgumentError
from psdnorm.experiments.estimate import Amounts
from psdnorm.experiments.presets import PAPER_COHORTS
from psdnorm.lab.study import SimulatedNights, available, experiment_of, read_study
from psdnorm.lab.study.study import (
    made_store,
    planned_amounts,
    planned_nights,
    seconds_of,
    store_folder,
)

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
FILES = sorted(EXPERIMENTS.glob("*.yaml"))
PAPERS = [path for path in FILES if path.stem != "dissection"]  # which nobody else has
GRID = {"norms": ["psd"]}


def test_what_is_not_said_is_usual(tmp_path):
    study = read_study(written_study(tmp_path))
    assert study.nights.shift == {"ABC": 1.0, "MASS": 1.0}
    assert (study.nights.hours, study.nights.seed, study.keep) == (8.0, 0, "scores")
    assert {run.name for run in study.runs} == {
        f"usleep_{norm}_{cohort}_all_seed0"
        for norm in ("batch", "psd_f5_d3")
        for cohort in ("ABC", "MASS")
    }


def test_blocks_are_put_together_and_runs_are_there_once(tmp_path):
    blocks = [
        {"norms": ["psd"], "filter_sizes": [3, 5], "hold_outs": ["MASS"], "seeds": 2},
        {"norms": ["psd", "adabn3"], "balanced": [4, "all"], "hold_outs": ["MASS"], "seeds": 1},
    ]
    study = read_study(written_study(tmp_path, grid=blocks, protocol={"max_epochs": 7}))
    assert {run.name for run in study.runs} == {
        *(f"usleep_psd_f{f}_d3_MASS_all_seed{seed}" for f in (3, 5) for seed in (0, 1)),
        "usleep_psd_f5_d3_MASS_at4_seed0",
        *(f"usleep_{norm}_MASS_{n}_seed0" for norm in ("batch", "adabn3") for n in ("at4", "all")),
    }
    assert study.protocol.max_epochs == 7
    assert study.expected_epochs == 7  # no more than there may be


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"grids": []}, "the file has the key 'grids', expected one of name, about, store, grid"),
        ({"name": "Main table"}, "name is 'Main table', expected small letters and digits"),
        ({"about": ""}, "about is '', expected words"),
        ({"keep": "all"}, "keep is 'all', expected one of scores, predictions, weights"),
        ({"expected_epochs": 0}, "expected_epochs is 0, expected a whole number from 1 on"),
        ({"store": {"recipe": "paper"}}, "store is missing the key 'subjects'"),
        ({"store": 3}, "store is 3, expected the keys subjects, recipe, hours, shift, seed"),
        (
            {"store": {"recipe": "paper", "subjects": {"ABC": 3}}},
            "store.subjects is {'ABC': 3}, expected a number for each of at least two cohorts",
        ),
        (
            {"store": {"recipe": "paper", "subjects": {"ABC": 3, "mass": 3}}},
            "store.subjects is 'mass', expected one of ABC",
        ),
        (
            {"store": {"recipe": "paper", "subjects": {"ABC": 3, "MASS": 1}}},
            "store.subjects.MASS is 1, expected a whole number from 2 on",
        ),
        (
            {"store": {"recipe": "best", "subjects": {"ABC": 3, "MASS": 3}}},
            "store.recipe is 'best', expected one of paper, ",
        ),
        (
            {"store": {"recipe": "paper", "subjects": {"ABC": 3, "MASS": 3}, "shift": {"ABC": 1}}},
            "store.shift is ['ABC'], expected one number, or one for each of ['ABC', 'MASS']",
        ),
        (
            {"store": {"recipe": "paper", "subjects": {"ABC": 3, "MASS": 3}, "shift": "far"}},
            "store.shift.ABC is 'far', expected a number from 0 to 10",
        ),
        (
            {"store": {"recipe": "paper", "subjects": {"ABC": 3, "MASS": 3}, "hours": 49}},
            "store.hours is 49, expected a number from 0.02 to 48",
        ),
        ({"grid": GRID}, "grid is {'norms': ['psd']}, expected a list of blocks"),
        ({"grid": [{"seeds": 2}]}, "grid[0] is missing the key 'norms'"),
        ({"grid": [GRID, GRID | {"norm": 1}]}, "grid[1] has the key 'norm', expected one of "),
        ({"grid": [{"norms": ["psdd"]}]}, "grid[0]: norm is 'psdd', expected one of batch, "),
        ({"grid": [GRID | {"models": "usleep"}]}, "grid[0].models is 'usleep', expected a list"),
        ({"grid": [GRID | {"seeds": [0]}]}, "grid[0].seeds is [0], expected a whole number"),
        ({"grid": [GRID | {"balanced": ["al"]}]}, "grid[0].balanced is 'al', expected a whole"),
        (
            {"grid": [GRID | {"filter_sizes": ["best"]}]},
            "grid[0].filter_sizes is 'best', expected auto, or a whole number from 1 on",
        ),
        (
            {"grid": [{"norms": ["tma"], "filter_sizes": ["auto"]}]},
            "grid[0]: filter_size is 'auto' with norm 'tma', expected a whole number from 1 on: ",
        ),
        ({"grid": [GRID | {"hold_outs": ["SOF"]}]}, "grid[0].hold_outs is 'SOF', expected one of"),
        ({"protocol": {"patient": 3}}, "protocol has the key 'patient', expected one of lr, "),
        ({"protocol": {"patience": 0}}, "protocol: patience "),
    ],
)
def test_what_is_wrong_is_one_sentence_with_the_file(tmp_path, changes, sentence):
    path = written_study(tmp_path, **changes)
    with pytest.raises(ArgumentError) as raised:
        read_study(path)
    assert str(raised.value).startswith(f"{path}: {sentence}")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: a\nname: b\n", ", line 2: expected YAML, found that the key 'name' appears twice"),
        ("1: a\n", ", line 1: expected YAML, found that the key 1 is not a word"),
        ("name: [a\nabout: b", "expected YAML, found that "),
        ("", "the file is None, expected the keys name, about"),
    ],
)
def test_invalid_yaml_raises(tmp_path, text, words):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ArgumentError) as raised:
        read_study(path)
    assert words in str(raised.value)
    assert str(path) in str(raised.value)
    with pytest.raises(ArgumentError, match=r"none\.yaml cannot be read: No such file"):
        read_study(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"borrow": "main"}, "borrow is 'main', expected a list of names of studies"),
        ({"borrow": []}, "borrow is [], expected a list of names of studies"),
        ({"borrow": [3]}, "borrow is 3, expected small letters and digits"),
        ({"borrow": ["../main"]}, "borrow is '../main', expected small letters and digits"),
        ({"borrow": ["tiny"]}, "borrow is 'tiny', expected the name of another study"),
        ({"keep": "weights"}, "keep is 'weights' with borrow, expected scores: a borrowed run"),
        ({"borrow": ["none"]}, "borrow is 'none', but {folder}/none.yaml cannot be read: No such"),
        ({"borrow": ["wrong"]}, "borrow is 'wrong', but {folder}/wrong.yaml: the file is None, "),
        ({"borrow": ["other"]}, "borrow is 'other', but {folder}/other.yaml has the name 'main'"),
        (
            {"store": {"recipe": "paper", "subjects": {"ABC": 4, "MASS": 5}, "shift": 2}},
            "borrow is 'main', whose store.shift is {{'ABC': 1.0, 'MASS': 1.0}}, expected "
            "{{'ABC': 2.0, 'MASS': 2.0}} as in this study",
        ),
        (
            {"protocol": {"patience": 7}},
            "borrow is 'main', whose protocol.patience is 3, expected 7 as in this study",
        ),
    ],
)
def test_what_cannot_be_borrowed_is_one_sentence_with_the_file(tmp_path, changes, sentence):
    written_study(tmp_path, name="main").with_name("other.yaml").write_text(
        (tmp_path / "main.yaml").read_text()
    )
    (tmp_path / "wrong.yaml").write_text("")
    path = written_study(tmp_path, **{"borrow": ["main"]} | changes)
    with pytest.raises(ArgumentError) as raised:
        read_study(path)
    assert str(raised.value).startswith(f"{path}: {sentence.format(folder=tmp_path)}")
    assert "\n" not in str(raised.value)


def test_two_studies_may_borrow_from_each_other(tmp_path):
    one = written_study(tmp_path, name="one", borrow=["two"])
    two = written_study(tmp_path, name="two", borrow=["one"], expected_epochs=3)
    assert read_study(one).borrow == ("two",)
    assert read_study(two).borrow == ("one",)


def test_an_experiment_trains_no_run_that_one_before_it_has():
    before, studies = set(), {path.stem: read_study(path) for path in FILES}
    order = ["main", "low-data", "filter-size", "whitening", "norm-depth", "training-size"]
    for study in map(studies.get, order):
        left = before.intersection(study.runs)
        for lender in study.borrow:
            # none is named in vain
            assert left.intersection(studies[lender].runs), (study.name, lender)
            left -= set(studies[lender].runs)
        assert not left, study.name
        before |= set(study.runs)


def test_json_that_tests_write_is_what_yaml_reads(tmp_path):
    assert yaml.safe_load(written_study(tmp_path).read_text()) == described()


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_each_experiment_is_named_as_its_file_and_can_be_estimated(path):
    study = read_study(path)
    assert study.name == path.stem
    assert min(seconds_of(study, planned_amounts(study)).values()) > 0


@pytest.mark.parametrize("path", PAPERS, ids=[path.stem for path in PAPERS])
def test_the_papers_experiments_have_its_cohorts_one_subject_in_50(path):
    study = read_study(path)
    assert study.nights.subjects == {
        cohort: max(8, round(subjects / 50)) for cohort, (subjects, _) in PAPER_COHORTS.items()
    }


def test_networks_to_dissect_are_trained_without_a_shift_and_keep_their_weights():
    study = read_study(EXPERIMENTS / "dissection.yaml")
    assert set(study.nights.shift.values()) == {0.0}
    assert study.keep == "weights"
    trained = [run for run in study.runs if not run.is_adapted]
    shapes = {(run.norm, run.filter_size) for run in trained}
    norms = {"batch", "layer", "instance", "tma", "psd", "psd-night", "psd-night-unit"}
    assert {norm for norm, _ in shapes} == norms
    assert ("psd", 17) in shapes
    assert len(trained) == 3 * len(shapes) == 3 * 8


def test_all_experiments_of_the_paper_are_there():
    # cause-… are ours: what a difference from the paper may come from
    names = {path.stem for path in PAPERS if not path.stem.startswith("cause-")}
    ours = {"unit-power", "night-domains", "night-domains-transformer"}
    assert names - ours == {
        *("main", "cnn-transformer", "whitening", "as-released", "filter-size"),
        *("training-size", "norm-depth", "low-data"),
    }


def test_the_main_table_is_whole_and_estimated_to_fit_60_minutes_of_one_gpu():
    study = read_study(EXPERIMENTS / "main.yaml")
    trained = [run for run in study.runs if not run.is_adapted]
    assert {run.norm for run in trained} == {"batch", "layer", "instance", "tma", "psd"}
    assert (len(trained), len(study.runs)) == (10 * 5 * 3, 10 * 8 * 3)
    seconds = seconds_of(study, planned_amounts(study))
    # a sixth is left for what the estimate leaves out
    assert sum(seconds.values()) < 50 * 60


@pytest.mark.parametrize(
    ("name", "norms"),
    [
        ("unit-power", {"psd-unit"}),
        ("night-domains", {"psd-night", "psd-night-unit"}),
        ("night-domains-transformer", {"psd-night", "psd-night-unit"}),
    ],
)
def test_studies_of_new_options_train_these_alone(tmp_path, name, norms):
    study = replace(read_study(EXPERIMENTS / f"{name}.yaml"), results=EXPERIMENTS / "results")
    folder = experiment_of(study, tmp_path)
    here = {run for each in available(study, folder) for run in each.runs}
    left = set(study.runs) - here
    assert {run.norm for run in left} <= norms
    assert {run.norm for run in study.runs} >= {"batch", "psd", *norms}
    seconds = seconds_of(study, planned_amounts(study))
    assert sum(seconds[run] for run in study.runs if run.norm in norms) < 6 * 60


SMALL = SimulatedNights({"ABC": 2, "CFS": 4}, {"ABC": 1.0, "CFS": 0.5}, "paper", 0.1, 3)


def made(work, nights):
    return made_store(work, nights, 1, lambda made, total: made)


def test_each_cohort_has_its_number_and_its_shift():
    planned = planned_nights(SMALL)
    found = [(n.cohort, n.settings.shift, n.settings.seed, n.n_epochs) for n in planned]
    assert found == [("ABC", 1.0, 3, 12)] * 2 + [("CFS", 0.5, 3, 12)] * 4


def test_missing_nights_are_made_and_all_are_bit_identical(tmp_path):
    def interrupted(nights, total):
        yield next(nights)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made_store(tmp_path / "a", SMALL, 1, interrupted)
    assert len(list(store_folder(tmp_path / "a", SMALL).rglob("*.safetensors"))) == 1
    in_two, at_once = made(tmp_path / "a", SMALL), made(tmp_path / "b", SMALL)
    assert in_two.index.groupby("cohort").size().to_dict() == SMALL.subjects
    assert in_two.recipe["name"] == "paper"
    assert in_two.index["digest"].tolist() == at_once.index["digest"].tolist()


def test_studies_of_the_same_nights_share_them_and_others_do_not(tmp_path):
    own = store_folder(tmp_path, SMALL)
    assert own == store_folder(tmp_path, replace(SMALL))
    others = [
        replace(SMALL, seed=4),
        replace(SMALL, hours=0.2),
        replace(SMALL, recipe="robust"),
        replace(SMALL, shift={"ABC": 1.0, "CFS": 0.4}),
        replace(SMALL, subjects={"ABC": 2, "CFS": 5}),
    ]
    assert len({own, *(store_folder(tmp_path, other) for other in others)}) == 6


def test_planned_amounts_are_those_of_the_nights_that_are_made(tmp_path):
    path = written_study(
        tmp_path,
        store={"subjects": {"ABC": 3, "CFS": 6}, "recipe": "paper", "hours": 0.4},
        grid=[{"norms": ["psd"], "balanced": [2, 4, "all"]}],
        protocol={"length": 9, "stride": 5},
    )
    study = read_study(path)
    there = Amounts(made(tmp_path, study.nights), study.protocol)
    planned = planned_amounts(study)
    assert [planned.of(run) for run in study.runs] == [there.of(run) for run in study.runs]


def test_a_study_of_seconds_is_what_tests_train(tmp_path):
    study = read_study(trained_study(tmp_path))
    assert len(planned_nights(study.nights)) == 4
