"""``psdnorm train``: one command from a store to a figure, which can be interrupted."""

import json
import sys

import pytest
from cells import nights, small_store

import psdnorm.cli.train_command  # noqa: F401 (adds the command)
from psdnorm.cli import main
from psdnorm.training import Bars

SMALL = json.dumps({"depth": 2, "n_time_filters": 4})


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
    assert "simulated nights" in out
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
    assert f"{tmp_path / 'run'} can be resumed: give the same command again" in err
    assert err.endswith("psdnorm: interrupted\n")
    code, out, err = train(*arguments)
    assert code in (0, None)
    assert "epoch 2:" in err
    assert "epoch 1:" not in err
    assert out.startswith("abc: balanced accuracy")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--hold-out", "CHAT"], "held_out is 'CHAT', expected one of abc, mno, xyz"),
        (["--hold-out", "abc", "--norm", "group"], "norm is 'group', expected one of batch"),
        (["--hold-out", "abc", "--device", "tpu"], "device is 'tpu', expected 'auto'"),
        (["--hold-out", "abc", "--keep", "all"], "keep is 'all', expected one of scores"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(train, store, tmp_path, wrong, said):
    code, out, err = train(store, *wrong, "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"psdnorm: {said}")
    assert "Traceback" not in err


@pytest.mark.parametrize("wrong", ["depth=3", "[3]"])
def test_model_arguments_that_are_no_json_object_are_named(train, store, wrong):
    code, _, err = train(store, "--hold-out", "abc", model_arguments=wrong)
    assert code == 2
    assert err.startswith(f"psdnorm: --model-arguments is '{wrong}', expected")


def test_a_folder_that_is_no_store_is_named(train, tmp_path):
    code, _, err = train(tmp_path, "--hold-out", "abc")
    assert code == 2
    assert str(tmp_path) in err
