"""A run that another study has finished is unpacked from its results, and not repeated."""

import json
import shutil

import pytest
from stores import tree
from studies import drawn_study, written_study

from psdnorm.errors import ArgumentError
from psdnorm.lab.study import read_study
from psdnorm.lab.study.result_cache import (
    borrow,
    loans,
    pack,
    packed_path,
    restore,
)
from psdnorm.lab.study.study import check_folder, experiment_of, note_nights
from psdnorm.report.results import read_results
from psdnorm.runtime import write_json
from psdnorm.runtime.files import held

ADABN = ["batch", "adabn3", "psd"]
ABC, MASS = (f"usleep_batch_{cohort}_all_seed0" for cohort in ("ABC", "MASS"))


def lent(folder, norms=("batch", "psd"), unfinished=(), name="main", data="0" * 64):
    """Write a study and its packed results, on nights of a digest; return its folder of runs."""
    study, experiment = drawn_study(folder, folder / "lent", norms, unfinished, name=name)
    change(experiment.path / "grid.json", data=data)
    write_json(experiment.path / "cost.json", {"pieces": []})
    pack(study, experiment)
    return experiment


def borrower(folder, norms=("batch", "psd"), lenders=("main",)):
    """Write a study that borrows; return it and its folder of runs, which does not exist."""
    grid = [{"norms": list(norms), "seeds": 1}]
    study = read_study(written_study(folder, grid=grid, borrow=list(lenders)))
    return study, experiment_of(study, folder / "work")


def change(path, **changes):
    write_json(path, json.loads(path.read_text()) | changes)


def names(found):
    return {(loan.lender, run.name) for loan in found for run in loan.runs}


def test_runs_of_both_studies_are_taken_and_no_others(tmp_path):
    lender = lent(tmp_path, ["batch", "layer", "psd"], unfinished=[MASS])
    study, experiment = borrower(tmp_path, ["batch", "instance", "psd"])
    psd = {f"usleep_psd_f5_d3_{cohort}_all_seed0" for cohort in ("ABC", "MASS")}
    assert names(borrow(study, experiment)) == {("main", name) for name in {ABC, *psd}}
    assert {path.name for path in (experiment.path / "cells").iterdir()} == {ABC, *psd}
    for name in (ABC, *psd):
        taken, its = tree(experiment.path / "cells" / name), tree(lender.path / "cells" / name)
        config = json.loads(taken.pop("config.json"))
        assert config == json.loads(its.pop("config.json")) | {"borrowed_from": "main"}
        assert taken == its
    assert borrow(study, experiment) == []  # nothing is left to take


def test_only_looking_writes_nothing(tmp_path):
    lent(tmp_path)
    study, experiment = borrower(tmp_path)
    assert len(names(loans(study, experiment))) == 4
    assert not experiment.path.exists()


def test_what_is_finished_here_or_in_its_own_results_stays(tmp_path):
    lent(tmp_path)
    study, experiment = drawn_study(tmp_path, tmp_path / "work", unfinished=[MASS], borrow=["main"])
    pack(study, experiment)
    before = tree(experiment.path)
    assert names(loans(study, experiment_of(study, tmp_path / "new"))) == {("main", MASS)}
    assert names(borrow(study, experiment)) == {("main", MASS)}
    assert before.items() <= tree(experiment.path).items()


def test_the_first_study_that_has_a_run_lends_it(tmp_path):
    lent(tmp_path, ["batch"], name="first")
    lent(tmp_path, ["batch", "psd"], name="second")
    study, experiment = borrower(tmp_path, lenders=["first", "second"])
    for look in (loans, borrow):
        norms = {(loan.lender, run.norm) for loan in look(study, experiment) for run in loan.runs}
        assert norms == {("first", "batch"), ("second", "psd")}


def test_a_run_that_is_lent_twice_names_the_study_that_trained_it(tmp_path):
    lent(tmp_path)
    grid = [{"norms": ["batch"], "seeds": 1}]
    middle = read_study(written_study(tmp_path, name="middle", grid=grid, borrow=["main"]))
    borrow(middle, experiment_of(middle, tmp_path / "work"))
    pack(middle, experiment_of(middle, tmp_path / "work"))
    study, experiment = borrower(tmp_path, ["batch"], lenders=["middle"])
    assert {loan.lender for loan in borrow(study, experiment)} == {"middle"}
    config = json.loads((experiment.path / "cells" / ABC / "config.json").read_text())
    assert config["borrowed_from"] == "main"


def test_the_folder_is_of_the_lenders_nights_and_of_this_studys_runs(tmp_path):
    lender = lent(tmp_path, ["batch", "layer"], data="7" * 64)
    study, experiment = borrower(tmp_path, ["batch", "psd"])
    borrow(study, experiment)
    assert experiment.settings() == lender.settings()
    assert experiment.settings()["data"] == "7" * 64
    assert [entry.run for entry in experiment.entries()] == [*study.runs]
    assert {run.norm for run in read_results(experiment.path).missing} == {"psd"}


def test_runs_that_a_folder_did_not_know_are_asked_for_when_they_are_taken(tmp_path):
    lent(tmp_path)
    before, experiment = drawn_study(tmp_path, tmp_path / "work", ["psd"])
    known = experiment.entries()
    study, _ = borrower(tmp_path)
    assert len(names(borrow(study, experiment))) == 2
    entries = experiment.entries()
    assert [entry.run for entry in entries] == [*study.runs]
    assert [entry for entry in entries if entry.run in before.runs] == known


def test_what_the_other_study_cost_stays_its_own(tmp_path):
    lender = lent(tmp_path)
    assert (lender.path / "cost.json").exists()
    study, experiment = borrower(tmp_path)
    borrow(study, experiment)
    assert not (experiment.path / "cost.json").exists()


def test_borrowed_runs_are_packed_with_the_rest(tmp_path):
    lent(tmp_path, ["batch"])
    study, experiment = drawn_study(
        tmp_path, tmp_path / "work", unfinished=[ABC, MASS], borrow=["main"]
    )
    borrow(study, experiment)
    pack(study, experiment)
    packed_path(study, "main").unlink()
    elsewhere = experiment_of(study, tmp_path / "elsewhere")
    assert restore(study, elsewhere) == 4
    assert tree(elsewhere.path) == tree(experiment.path)
    assert not read_results(elsewhere.path).missing


def test_a_batch_norm_run_is_taken_only_with_the_adabn_runs_that_are_asked_for(tmp_path):
    lent(tmp_path, ["batch", "psd"], name="without")
    study, experiment = borrower(tmp_path, ADABN, lenders=["without"])
    assert {run.norm for loan in loans(study, experiment) for run in loan.runs} == {"psd"}
    lent(tmp_path, ["batch", "adabn3", "adabn12"], name="with")
    study, experiment = borrower(tmp_path, ADABN, lenders=["without", "with"])
    borrow(study, experiment)
    assert all(map(experiment.is_done, study.runs))


def test_no_adabn_run_is_taken_beside_a_batch_norm_run_that_was_trained_here(tmp_path):
    lent(tmp_path, ADABN)
    study, experiment = borrower(tmp_path, ADABN)
    borrow(study, experiment)
    for cohort in ("ABC", "MASS"):
        shutil.rmtree(experiment.path / "cells" / f"usleep_adabn3_{cohort}_all_seed0")
    with open(experiment.path / "cells" / MASS / "scores.parquet", "ab") as scores:
        scores.write(b"of another training")
    # ABC as if borrowing had been stopped between the two
    assert names(borrow(study, experiment)) == {("main", "usleep_adabn3_ABC_all_seed0")}


def test_a_run_that_a_process_works_on_is_left_to_it(tmp_path):
    lent(tmp_path)
    study, experiment = borrower(tmp_path, ["batch"])
    with held(experiment.path / "cells" / MASS):
        assert names(borrow(study, experiment)) == {("main", ABC)}
    assert names(borrow(study, experiment)) == {("main", MASS)}


def test_a_run_that_was_interrupted_is_taken_too(tmp_path):
    lender = lent(tmp_path)
    study, experiment = borrower(tmp_path)
    begun = experiment.path / "cells" / ABC
    begun.mkdir(parents=True)
    for name in ("config.json", "history.csv", "resume.pt"):
        (begun / name).write_text("{}")
    assert len(names(borrow(study, experiment))) == 4
    assert tree(begun).keys() == tree(lender.path / "cells" / ABC).keys()


def test_results_of_another_protocol_raise(tmp_path):
    lent(tmp_path)
    changed = {"protocol": {"patience": 7}}
    written_study(tmp_path, name="main", **changed)
    study = read_study(written_study(tmp_path, borrow=["main"], **changed))
    experiment = experiment_of(study, tmp_path / "work")
    with pytest.raises(ArgumentError, match=r"main\.tar\.xz was made with a different protocol"):
        borrow(study, experiment)
    assert not experiment.path.exists()


def test_results_of_other_nights_than_the_folder_has_raise(tmp_path):
    lent(tmp_path, data="1" * 64)
    study, experiment = drawn_study(tmp_path, tmp_path / "work", unfinished=[ABC], borrow=["main"])
    with pytest.raises(ArgumentError, match=r"main\.tar\.xz and .*/work/tiny differ in their data"):
        borrow(study, experiment)
    assert not experiment.folder(study.runs[0]).exists()


def test_results_of_other_nights_than_its_own_results_have_raise(tmp_path):
    lent(tmp_path, data="1" * 64)
    study, experiment = drawn_study(tmp_path, tmp_path / "work", unfinished=[ABC], borrow=["main"])
    pack(study, experiment)
    elsewhere = experiment_of(study, tmp_path / "elsewhere")
    with pytest.raises(ArgumentError, match=r"main\.tar\.xz and .*tiny\.tar\.xz differ in their"):
        borrow(study, elsewhere)
    assert not elsewhere.path.exists()


def test_results_of_two_studies_on_nights_that_differ_raise(tmp_path):
    lent(tmp_path, ["batch"], name="first")
    lent(tmp_path, ["psd"], name="second", data="1" * 64)
    study, experiment = borrower(tmp_path, lenders=["first", "second"])
    with pytest.raises(
        ArgumentError, match=r"second\.tar\.xz and .*first\.tar\.xz differ in their"
    ):
        borrow(study, experiment)
    assert not experiment.path.exists()


def test_without_a_file_to_borrow_from_nothing_is_taken_and_nothing_written(tmp_path):
    written_study(tmp_path, name="main")
    study, experiment = borrower(tmp_path)
    assert borrow(study, experiment) == []
    assert not experiment.path.exists()


def test_results_of_nights_that_the_files_no_longer_describe_raise(tmp_path):
    lender = lent(tmp_path)
    main = read_study(written_study(tmp_path, name="main"))
    note_nights(lender, main.nights.to_json())
    pack(main, lender)
    study, experiment = borrower(tmp_path)
    assert len(names(loans(study, experiment))) == 4
    store = {"subjects": {"ABC": 4, "MASS": 5}, "recipe": "paper", "seed": 1}
    written_study(tmp_path, name="main", store=store)
    changed = read_study(written_study(tmp_path, store=store, borrow=["main"]))
    with pytest.raises(ArgumentError, match=r"main\.tar\.xz has runs of nights whose seed is 0, "):
        borrow(changed, experiment)
    assert not experiment.path.exists()
    borrow(study, experiment)
    with pytest.raises(ArgumentError, match=r"work/tiny has runs of nights whose seed is 0, "):
        check_folder(changed, experiment)
