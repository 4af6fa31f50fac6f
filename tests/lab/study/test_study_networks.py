"""Networks of a study that cannot be built or run raise before nights are made."""

from pathlib import Path

import pytest
import torch
from studies import written_study

from psdnorm.convert import record_calls
from psdnorm.errors import ArgumentError, ShapeError
from psdnorm.experiments.grid import ExperimentFolder
from psdnorm.lab.study import read_study
from psdnorm.lab.study.study import check_networks
from psdnorm.layer import PSDNorm
from psdnorm.prepare.recipe import RECIPES
from psdnorm.training import Protocol, Run
from psdnorm.training.network import build_model

FILES = sorted((Path(__file__).parents[3] / "experiments").glob("*.yaml"))
SMALL = {"length": 1, "stride": 1}  # sequences of one epoch, 3000 samples
USLEEP = {"depth": 4, "n_time_filters": 4}
TRANSFORMER = {"channels": [4, 8, 8], "strides": [3, 5, 2], "n_heads": 2, "n_layers": 1}
PSD = {"norms": ["psd"]}


def checked(folder, grid, **protocol):
    """Read and check a study; return its file and the error that it raises, or ""."""
    study = read_study(written_study(folder, grid=grid, protocol=SMALL | protocol))
    try:
        check_networks(study, ExperimentFolder(folder / "work"))
    except ArgumentError as error:
        return study.path, str(error)
    return study.path, ""


def same(**others):
    return {"model_arguments": USLEEP | {"filter_schedule": "same"} | others}


def test_a_filter_that_is_longer_than_a_deep_feature_map_is_named_with_entry_block_and_length(
    tmp_path,
):
    grid = [{"norms": ["batch"]}, PSD | {"filter_sizes": [5, 751]}]
    path, raised = checked(tmp_path, grid, **same())
    assert raised == (
        f"{path}: grid[1]: filter_size is 751, which makes PSDNorm's f = 751 in block 2 of usleep, "
        "expected at most the 750 samples that a sequence (length 1) has there"
    )


@pytest.mark.parametrize(
    ("block", "schedule"),
    [
        (PSD | {"filter_sizes": [750]}, "same"),
        (PSD | {"filter_sizes": [751], "norm_depths": [2]}, "same"),
        (PSD | {"filter_sizes": [3000]}, "halved"),
        (PSD | {"filter_sizes": ["auto"]}, "halved"),
        ({"norms": ["layer", "instance", "adabn3"], "filter_sizes": [10**6]}, "same"),
    ],
)
def test_what_fits_does_not_raise(tmp_path, block, schedule):
    arguments = USLEEP | {"filter_schedule": schedule}
    assert checked(tmp_path, [block], model_arguments=arguments)[1] == ""


def test_deeper_blocks_are_looked_at_where_the_norm_stands_there(tmp_path):
    grid = [PSD | {"filter_sizes": [500], "norm_depths": [3]}]
    assert checked(tmp_path, grid, **same())[1] == ""
    grid = [PSD | {"filter_sizes": [500], "norm_depths": [3, 4]}]
    assert (
        "f = 500 in block 3 of usleep, expected at most the 375 samples"
        in (checked(tmp_path, grid, **same())[1])
    )


@pytest.mark.parametrize(
    ("size", "strides", "sentence"),
    [
        (300, [3, 5, 2], "f = 300 in block 1 of cnn-transformer, expected at most the 200 samples"),
        (800, [1, 1, 1], "f = 800 in block 2 of usleep, expected at most the 750 samples"),
    ],
)
def test_each_model_is_looked_at_by_itself(tmp_path, size, strides, sentence):
    grid = [PSD | {"models": ["usleep", "cnn-transformer"], "filter_sizes": [size]}]
    own = {"usleep": USLEEP, "cnn-transformer": TRANSFORMER | {"strides": strides}}
    arguments = {model: own[model] | {"filter_schedule": "same"} for model in own}
    assert sentence in checked(tmp_path, grid, model_arguments=arguments)[1]


def test_a_size_that_is_chosen_later_must_fit_whichever_it_will_be(tmp_path):
    grid = [PSD | {"filter_sizes": ["auto"], "norm_depths": [10]}]
    arguments = {"depth": 10, "n_time_filters": 4, "filter_schedule": "same"}
    raised = checked(tmp_path, grid, model_arguments=arguments)[1]
    assert "filter_size is auto, which may make PSDNorm's f = 21 in block 8 of usleep" in raised
    assert "at most the 12 samples" in raised


@pytest.mark.parametrize(
    ("block", "sentence"),
    [
        (PSD | {"norm_depths": [5]}, "norm_depth is 5, expected at most the 4 blocks of usleep"),
        (
            {"norms": ["tma"], "filter_sizes": [3001]},
            "filter_size is 3001, expected at most the 3000 samples of an epoch",
        ),
    ],
)
def test_what_else_cannot_be_built_is_named_with_its_entry(tmp_path, block, sentence):
    path, raised = checked(tmp_path, [block], model_arguments=USLEEP)
    assert raised == f"{path}: grid[0]: {sentence}"


@pytest.mark.parametrize(
    ("model", "arguments"), [("usleep", USLEEP), ("cnn-transformer", TRANSFORMER)]
)
def test_the_longest_filter_that_is_let_through_runs_and_the_next_one_does_not(
    tmp_path, model, arguments
):
    arguments = arguments | {"filter_schedule": "same"}
    protocol = Protocol(**SMALL, model_arguments=arguments)

    def built(size):
        return build_model(Run(model, "psd", size), protocol, RECIPES["paper"].layout())

    x = torch.randn(1, 1, 2, 3000)
    probe = built(1)
    norms = [module for module in probe.modules() if isinstance(module, PSDNorm)]
    calls = record_calls(probe, (x,), norms)
    shortest = min(shape[-1] for shapes in calls.values() for shape in shapes)
    grid = [PSD | {"models": [model], "filter_sizes": [shortest]}]
    assert checked(tmp_path, grid, model_arguments=arguments)[1] == ""
    built(shortest).eval()(x)
    grid = [PSD | {"models": [model], "filter_sizes": [shortest + 1]}]
    assert f"f = {shortest + 1} in block 2" in checked(tmp_path, grid, model_arguments=arguments)[1]
    with pytest.raises(ShapeError):
        built(shortest + 1).eval()(x)


def test_what_is_finished_is_not_looked_at(tmp_path):
    grid = [PSD | {"filter_sizes": [3001]}]
    study = read_study(written_study(tmp_path, grid=grid, protocol=SMALL))
    experiment = ExperimentFolder(tmp_path / "work")
    for run in study.runs:
        experiment.folder(run).mkdir(parents=True)
        (experiment.folder(run) / "done.json").touch()
    check_networks(study, experiment)


def test_looking_moves_nobodys_seed(tmp_path):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert checked(tmp_path, [PSD], model_arguments=USLEEP)[1] == ""
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_networks_of_all_experiments_can_run(path, tmp_path):
    check_networks(read_study(path), ExperimentFolder(tmp_path))
