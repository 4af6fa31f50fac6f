"""What cannot work is refused once, before anything is written."""

from dataclasses import replace

import pytest
from small_runs import PROTOCOL, RUN, nights, small_store

from psdnorm.errors import ArgumentError
from psdnorm.experiments import grid as grids
from psdnorm.experiments.execute import run_grid
from psdnorm.experiments.grid import Axes, grid_of
from psdnorm.training import Run, train_run

AXES = Axes(norms=("psd",), hold_outs=("abc", "mno"), seeds=(0,))
CNN = {"channels": [4, 8, 8, 8], "strides": [3, 4, 1, 1], "n_layers": 1, "n_heads": 2}


def with_model(**arguments):
    return replace(PROTOCOL, model_arguments=arguments)


@pytest.mark.parametrize(
    ("changed", "protocol", "options", "said"),
    [
        ({}, with_model(dept=2), {}, "model_arguments do not build a usleep: .*dept"),
        ({"norms": ("adabn1",)}, with_model(dept=2), {}, "model_arguments do not build a usleep"),
        ({}, PROTOCOL, {"device": "foo"}, "device is 'foo', expected 'auto', 'cpu' or 'cuda'"),
        ({}, PROTOCOL, {"device": "foo", "jobs": 2}, "device is 'foo', expected"),
        (
            {"balanced": (None, 1)},
            PROTOCOL,
            {},
            "no subjects left for validation when abc is held out with balanced 1",
        ),
        ({"norm_depths": (3, 4)}, PROTOCOL, {}, "norm_depth is 4, expected at most the 3 blocks"),
        ({}, with_model(depth=2), {}, "norm_depth is 3, expected at most the 2 blocks of usleep"),
        (
            {"norms": ("psd", "tma"), "filter_sizes": (5, 61)},
            PROTOCOL,
            {},
            "filter_size is 61, expected at most the 60 samples of an epoch",
        ),
        (
            {"norms": ("batch", "psd-white"), "filter_sizes": (5, 541)},
            PROTOCOL,
            {},
            "filter_size is 541, which makes PSDNorm's f = 541 in block 0 of usleep, expected at "
            r"most the 540 samples that a sequence \(length 9\) has there",
        ),
        (
            {"filter_sizes": (136,)},
            with_model(depth=3, filter_schedule="same"),
            {},
            "f = 136 in block 2 of usleep, expected at most the 135 samples",
        ),
        (
            {"models": ("usleep", "cnn-transformer")},
            with_model(usleep={"depth": 3}, **{"cnn-transformer": {"depth": 3}}),
            {},
            "model_arguments do not build a cnn-transformer: .*depth",
        ),
    ],
)
def test_a_grid_that_cannot_be_run_leaves_nothing(
    store, tmp_path, changed, protocol, options, said
):
    runs = grid_of([replace(AXES, **changed)])
    with pytest.raises(ArgumentError, match=said):
        run_grid(store, runs, protocol, tmp_path / "runs", **options)
    assert not (tmp_path / "runs").exists()


def test_cohorts_of_one_subject_each_are_refused(tmp_path):
    store = small_store(tmp_path / "store", nights(subjects=1))
    with pytest.raises(
        ArgumentError, match="validation when abc is held out, expected at least two"
    ):
        run_grid(store, grid_of([AXES]), PROTOCOL, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("run", "protocol", "said"),
    [
        (RUN, with_model(dept=2), "model_arguments do not build a usleep: .*dept"),
        (replace(RUN, norm_depth=4), PROTOCOL, "norm_depth is 4, .* 3 blocks of usleep"),
        (RUN, with_model(depth=2), "norm_depth is 3, expected at most the 2 blocks of usleep"),
        (
            Run("cnn-transformer", "layer", norm_depth=5, hold_out="abc"),
            with_model(**CNN),
            "norm_depth is 5, expected at most the 4 blocks of cnn-transformer",
        ),
        (
            Run("usleep", "tma", filter_size=61, hold_out="abc"),
            PROTOCOL,
            "filter_size is 61, expected at most the 60 samples of an epoch",
        ),
        (
            replace(RUN, filter_size=541),
            PROTOCOL,
            "filter_size is 541, which makes PSDNorm's f = 541 in block 0 of usleep, expected at ",
        ),
    ],
)
def test_a_run_that_cannot_be_trained_leaves_nothing(store, tmp_path, run, protocol, said):
    with pytest.raises(ArgumentError, match=said):
        train_run(store, run, protocol, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_finished_grid_needs_no_lock_and_no_room(store, tmp_path, monkeypatch):
    runs = grid_of([replace(AXES, hold_outs=("abc",))])
    short = replace(PROTOCOL, max_epochs=1)
    assert [o.status for o in run_grid(store, runs, short, tmp_path)] == ["done"]

    def refuse(folder):
        raise AssertionError(f"{folder} was locked")

    monkeypatch.setattr(grids, "held", refuse)
    assert [o.status for o in run_grid(store, runs, short, tmp_path)] == ["already there"]
