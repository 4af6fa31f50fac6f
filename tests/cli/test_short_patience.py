"""The commands that train say where early stopping may come before anything is learned."""

import pytest
from small_runs import nights, small_store
from studies import drawn_study, trained_study, written_study

import psdnorm.cli.cmd_train  # noqa: F401 (adds the command)
from psdnorm.lab.study.result_cache import pack

SMALL = (
    *("--batch-size", 4, "--model-arguments", '{"depth": 3, "n_time_filters": 4}'),
    *("--hold-out", "abc", "--max-epochs", 3),
)
SAID = "a noisy validation may stop such a training before it has learned; "


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return small_store(tmp_path_factory.mktemp("store"), nights(subjects=2)).path


@pytest.fixture
def errors_of(run_command):
    def run(*arguments):
        code, _, err = run_command(*arguments)
        assert code in (0, None)
        return err

    return run


def test_train_says_it_after_the_first_line_and_not_for_a_run_that_is_done(
    errors_of, store, tmp_path
):
    arguments = ("train", store, *SMALL, "--patience", 1, "--quiet", "--out", tmp_path / "run")
    first, second = errors_of(*arguments).splitlines()
    assert "trains in" in first
    assert second.startswith("an epoch of usleep_psd_f5_d3_abc_all_seed0 has ")
    assert SAID in second
    assert SAID not in errors_of(*arguments)


def test_lodo_says_it_of_what_is_left_to_run(errors_of, store, tmp_path):
    arguments = (
        "lodo",
        store,
        *SMALL,
        "--norms",
        "batch",
        "--seeds",
        1,
        "--out",
        tmp_path / "runs",
    )
    short = (*arguments, "--patience", 1)
    assert SAID in errors_of(*short, "--dry-run")
    assert SAID in errors_of(*short)
    assert SAID not in errors_of(*short, "--dry-run")
    assert SAID not in errors_of(*short)
    assert SAID not in errors_of(
        *arguments, "--patience", 2, "--out", tmp_path / "other", "--dry-run"
    )


def test_lodo_does_not_say_it_where_a_network_is_only_adapted(errors_of, store, tmp_path):
    arguments = ("lodo", store, *SMALL, "--seeds", 1, "--out", tmp_path, "--patience", 1)
    assert SAID in errors_of(*arguments, "--norms", "adabn1", "--dry-run")
    errors_of(*arguments, "--norms", "batch")
    assert SAID not in errors_of(*arguments, "--norms", "adabn1")


def test_a_studys_dry_run_says_it_of_what_is_neither_done_nor_packed(errors_of, tmp_path):
    fresh = written_study(tmp_path / "fresh")
    assert SAID in errors_of("study", fresh, "--work", tmp_path / "nothing", "--dry-run")
    study, runs = drawn_study(tmp_path / "drawn", tmp_path / "work")
    dry_run = ("study", study.path, "--dry-run", "--work")
    assert SAID not in errors_of(*dry_run, tmp_path / "work")
    pack(study, runs)
    assert SAID not in errors_of(*dry_run, tmp_path / "nothing")


@pytest.mark.slow
def test_a_study_says_it_before_its_runs_begin(errors_of, tmp_path):
    path = trained_study(tmp_path / "files", norms=("batch",))
    path.write_text(path.read_text().replace('"max_epochs": 2', '"max_epochs": 3, "patience": 1'))
    err = errors_of("study", path, "--work", tmp_path / "work", "--device", "cpu")
    assert err.index(SAID) < err.index("balanced accuracy")
