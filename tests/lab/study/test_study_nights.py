"""The nights of a study depend on its settings alone."""

from dataclasses import replace

import pytest
from studies import trained_study, written_study

from psdnorm.experiments.estimate import Amounts
from psdnorm.lab.study import Nights, read_study
from psdnorm.lab.study.study import (
    made_store,
    planned_amounts,
    planned_nights,
    store_folder,
)

SMALL = Nights({"ABC": 2, "CFS": 4}, {"ABC": 1.0, "CFS": 0.5}, "paper", 0.1, 3)


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
    assert [planned.of(cell) for cell in study.cells] == [there.of(cell) for cell in study.cells]


def test_a_study_of_seconds_is_what_tests_train(tmp_path):
    study = read_study(trained_study(tmp_path))
    assert len(planned_nights(study.nights)) == 4
