"""``psdnorm train``: one command from a store to a figure, which can be interrupted."""

import json
import os
import sys

import pytest
from small_runs import nights, small_store

import psdnorm.cli.cmd_train  # noqa: F401 (adds the command)
from psdnorm.cli import main
from psdnorm.runtime.files import held
from psdnorm.store.folder import night_path
from psdnorm.training import Bars

SMALL = json.dumps({"depth": 3, "n_time_filters": 4})


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return small_store(tmp_path_factory.mktemp("store"), nights(subjects=2)).path


@pytest.fixture
def train(monkeypatch, capsys):
    def run(*arguments, model_arguments=SMALL):
        common = ["--batch-size", "2", "--max-epochs", "2", "--model-arguments", model_arguments]
        monkeypatch.setattr(sys, "argv", ["psdnorm", "train", *map(str, arguments), *common])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return run


def test_it_prints_the_held_out_figure_and_where_everything_is(train, store, tmp_path):
    code, out, err = train(store, "--hold-out", "abc", "--norm", "psd", "--out", tmp_path / "run")
    assert code in (0, None)
    done = json.loads((tmp_path / "run" / "done.json").read_text())
    assert out.startswith(f"abc: balanced accuracy {done['balanced_accuracy']:.3f}, mean over 2 ")
    assert "2 subjects, simulated nights, recipe robust (" in out
    assert str(tmp_path / "run") in out
    lines = err.splitlines()
    assert lines[0] == f"usleep_psd_f5_d3_abc_all_seed0: trains in {tmp_path / 'run'}"
    assert [line.split(":")[0] for line in lines[1:]] == ["epoch 1", "epoch 2"]
    assert "balanced accuracy" in lines[1]
    assert (tmp_path / "run" / "weights" / "model.safetensors").exists()


def test_quietly_it_shows_no_progress(train, store, tmp_path):
    code, _, err = train(store, "--hold-out", "abc", "--out", tmp_path / "run", "--quiet")
    assert code in (0, None)
    assert len(err.splitlines()) == 1


def test_interrupted_it_says_so_and_goes_on_when_called_again(train, store, tmp_path, monkeypatch):
    arguments = [store, "--hold-out", "abc", "--out", tmp_path / "run"]
    with monkeypatch.context() as patch:

        def interrupt(self, row):
            raise KeyboardInterrupt

        patch.setattr(Bars, "end_epoch", interrupt)
        code, _, err = train(*arguments)
    assert code == 130
    assert f"{tmp_path / 'run'} can be resumed: run the same command again" in err
    assert err.endswith("psdnorm: interrupted\n")
    code, out, err = train(*arguments)
    assert code in (0, None)
    assert "epoch 2:" in err
    assert "epoch 1:" not in err
    assert out.startswith("abc: balanced accuracy")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--hold-out", "CHAT"], "--hold-out is 'CHAT', expected one of abc, mno, xyz"),
        (["--hold-out", "abc", "--norm", "group"], "--norm is 'group', expected one of batch"),
        (["--hold-out", "abc", "--device", "tpu"], "--device is 'tpu', expected 'auto'"),
        (["--hold-out", "abc", "--keep", "all"], "--keep is 'all', expected one of scores"),
        (["--hold-out", "abc", "--norm-depth", "4"], "--norm-depth is 4, expected at most the 3 "),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(train, store, tmp_path, wrong, said):
    code, out, err = train(store, *wrong, "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert err.startswith(f"psdnorm: {said}")
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("wrong", ["depth=3", "[3]"])
def test_model_arguments_that_are_no_json_object_are_named(train, store, wrong):
    code, _, err = train(store, "--hold-out", "abc", model_arguments=wrong)
    assert code == 2
    assert err.startswith(f"psdnorm: --model-arguments is '{wrong}', expected")


def test_a_typo_in_the_models_arguments_is_refused_before_anything_is_written(
    train, store, tmp_path
):
    arguments = (store, "--hold-out", "abc", "--out", tmp_path / "run")
    code, _, err = train(*arguments, model_arguments='{"dept": 2}')
    assert code == 2
    assert err.startswith("psdnorm: --model-arguments do not build a usleep: ")
    assert not (tmp_path / "run").exists()


def test_a_folder_in_which_another_process_works_is_refused(train, store, tmp_path):
    with held(tmp_path / "run"):
        code, out, err = train(store, "--hold-out", "abc", "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert err.startswith(f"psdnorm: process {os.getpid()} on ")
    assert err.endswith(f" is already working in {tmp_path / 'run'}\n")


def test_a_night_that_is_broken_is_named_with_what_to_do(train, tmp_path):
    path = small_store(tmp_path / "store", nights(subjects=2)).path
    os.truncate(night_path(path, "mno-1"), 500)
    code, _, err = train(path, "--hold-out", "abc", "--out", tmp_path / "run")
    assert code == 2
    assert f"{night_path(path, 'mno-1')} is truncated" in err
    assert "; run psdnorm prepare again" in err


@pytest.mark.slow
def test_processes_of_a_processor_do_not_share_batchnorm_which_is_all_that_is_printed(
    monkeypatch, capfd, store, tmp_path
):
    common = ["--batch-size", "2", "--max-epochs", "1", "--model-arguments", SMALL, "--quiet"]
    where = ["--hold-out", "abc", "--device", "cpu", "--devices", "2", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["psdnorm", "train", str(store), *common, *where])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    first, second = capfd.readouterr().err.splitlines()
    assert first.endswith(f": trains in {tmp_path}")
    assert second == (
        "the network's BatchNorm layers (7) are not synchronized between the 2 CPU "
        "processes: each uses its own part of the batch"
    )


def test_a_folder_that_is_no_store_is_named(train, tmp_path):
    code, _, err = train(tmp_path, "--hold-out", "abc")
    assert code == 2
    assert str(tmp_path) in err


def test_a_filter_size_that_is_chosen_is_told(train, store, tmp_path):
    arguments = (store, "--hold-out", "abc", "--out", tmp_path / "run", "--quiet")
    code, out, _ = train(*arguments, "--filter-size", "auto")
    assert code in (0, None)
    choice = json.loads((tmp_path / "run" / "done.json").read_text())["filter_size_choice"]
    assert f"recipe robust, filter size {choice['filter_size']} (auto) (" in out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ("--filter-size", "best"),
            "--filter-size is 'best', expected a whole number from 1 on, or",
        ),
        (
            ("--filter-size", "3,5"),
            "--filter-size is '3,5', expected a whole number from 1 on, or a",
        ),
        (("--filter-size", "auto", "--norm", "tma"), "-size is 'auto' with norm 'tma', expected"),
    ],
)
def test_a_filter_size_that_cannot_be_is_refused(train, store, tmp_path, given, said):
    code, out, err = train(store, "--hold-out", "abc", "--out", tmp_path / "run", *given)
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())
    assert not (tmp_path / "run").exists()
