"""``psdnorm simulate`` writes cohorts or a store, and refuses in one sentence."""

import sys

import pytest
from stores import tree

from psdnorm.cli import main
from psdnorm.cohorts import COHORTS, find_nights
from psdnorm.errors import MissingExtraError
from psdnorm.lab.simulate import cohort_files as files
from psdnorm.store import Store

SHORT = ("--hours", "0.05", "--subjects", "2")


@pytest.fixture
def simulate(monkeypatch, capsys, tmp_path):
    """Run the command on a folder; returns its exit code, output and errors."""

    def run(*arguments):
        # in this process, where a test can look into it
        command = ["psdnorm", "simulate", str(tmp_path / "out"), "--jobs", "1", *arguments]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        return stop.value.code, said.out, said.err

    run.out = tmp_path / "out"
    return run


def test_all_cohorts_are_written_as_they_are_downloaded(simulate):
    code, said, _ = simulate("--hours", "0.02", "--subjects", "1")
    assert code == 0
    assert said.startswith(f"{simulate.out} has simulated nights of ABC, CCSHS, CFS, ")
    assert {path.name for path in simulate.out.iterdir()} == set(COHORTS)
    for cohort in COHORTS:
        assert len(find_nights(cohort, simulate.out / cohort).nights) == 1


def test_the_bytes_are_said_before_and_fewer_visits_too(simulate):
    code, said, errors = simulate("--cohorts", "shhs, CCSHS", "--nights", "2", *SHORT)
    assert code == 0
    signals = sum(path.stat().st_size for path in simulate.out.rglob("*.edf"))
    assert f"nights of SHHS, CCSHS: 6, {signals:,} bytes to write" in errors
    assert "CCSHS has 1 night per subject, not 2" in errors
    assert said.endswith("has simulated nights of SHHS, CCSHS: 6\n")


def test_into_a_store_it_needs_a_recipe_or_takes_robust(simulate):
    assert simulate("--into-store", "--cohorts", "MASS", *SHORT)[0] == 0
    store = Store.open(simulate.out)
    assert store.recipe["name"] == "robust"
    assert store.index["recording"].tolist() == ["MASS-01-03-0001", "MASS-01-03-0002"]
    assert store.index["simulated"].all()


def test_into_a_store_that_gets_no_night_nothing_is_left(simulate, monkeypatch):
    def fail(*arguments):
        raise MissingExtraError("there is no SciPy")

    with monkeypatch.context() as patch:
        patch.setattr(files, "preprocess", fail)
        code, _, errors = simulate("--into-store", "--cohorts", "MASS", *SHORT)
    assert code == 2
    assert errors.endswith("psdnorm: there is no SciPy\n")
    assert not simulate.out.exists()
    assert simulate("--into-store", "--recipe", "paper", "--cohorts", "MASS", *SHORT)[0] == 0


def test_a_recipe_is_taken_by_name(simulate):
    simulate("--into-store", "--recipe", "paper", "--cohorts", "MASS", *SHORT)
    assert Store.open(simulate.out).recipe["name"] == "paper"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--cohorts", "ABCD"), "cohort 'ABCD' has no profile"),
        (("--recipe", "paper"), "expected none without --into-store"),
        (("--into-store", "--recipe", "papre"), "recipe is 'papre', expected paper"),
        (("--subjects", "0"), "subjects is 0, expected at least 1"),
        (("--hours", "0"), "hours is 0.0, expected more than 0"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(simulate, arguments, said):
    code, _, errors = simulate(*arguments)
    assert code == 2
    last = errors.splitlines()[-1]
    assert last.startswith("psdnorm: ")
    assert said in last
    assert "Traceback" not in errors


def test_interrupted_and_started_again_it_is_as_if_undisturbed(simulate, monkeypatch, tmp_path):
    options = ("--cohorts", "SHHS", *SHORT)
    assert simulate(*options)[0] == 0
    undisturbed = tree(simulate.out)
    simulate.out.rename(tmp_path / "undisturbed")
    write, calls = files.write_edf, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        write(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_edf", interrupted)
        code, _, errors = simulate(*options)
    assert code == 130
    assert errors.endswith("psdnorm: interrupted\n")
    assert 0 < len(list(simulate.out.rglob("*.edf"))) < 2
    assert simulate(*options)[0] == 0
    assert tree(simulate.out) == undisturbed
