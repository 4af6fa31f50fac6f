"""Commands that a report prints make the very grid that it is about."""

import dataclasses
import inspect
import shlex

import pytest
from experiment_runs import write_runs

from psdnorm.cli.cmd_lodo import _axes, _grid, lodo
from psdnorm.experiments.grid import Axes, grid_of
from psdnorm.experiments.presets import paper_presets
from psdnorm.report import provenance as provenance_module
from psdnorm.report.provenance import lodo_commands, provenance
from psdnorm.report.results import read_results
from psdnorm.runtime import read_json, write_json
from psdnorm.training import Protocol

PROTOCOL = Protocol().to_json()


def options_of(command):
    words = shlex.split(command, comments=True)
    assert words[:3] == ["psdnorm", "lodo", "STORE"]
    return dict(zip(words[3::2], words[4::2], strict=True))


def runs_of(command):
    """Return the runs that a printed command asks for."""
    given = options_of(command)
    names = ("--models", "--norms", "--filter-size", "--norm-depth", "--balanced")
    axes = _axes(*(given.get(name) for name in names))
    hold_outs = tuple(given["--hold-out"].split(","))
    return _grid(given.get("--preset"), axes, hold_outs, range(int(given["--seeds"])))


BLOCKS = {
    "one product": [Axes(hold_outs=("ABC", "CHAT"))],
    "two sizes": [Axes(hold_outs=("ABC",), balanced=(None, 40))],
    "filters of one norm": [
        Axes(norms=("psd",), filter_sizes=(1, 3, 5), hold_outs=("ABC",)),
        Axes(norms=("batch", "layer"), hold_outs=("ABC",)),
    ],
    "filters and depths": [
        Axes(norms=("psd",), filter_sizes=(1, 3), hold_outs=("ABC",)),
        Axes(norms=("psd",), norm_depths=(1, 2), hold_outs=("ABC",)),
    ],
    "models with norms of their own": [
        Axes(norms=("batch", "tma"), hold_outs=("ABC",)),
        Axes(models=("cnn-transformer",), norms=("psd",), balanced=(40,), hold_outs=("ABC",)),
    ],
    "filter sizes that are chosen": [
        Axes(norms=("tma", "psd"), hold_outs=("ABC",)),
        Axes(norms=("psd", "psd-white"), filter_sizes=("auto",), hold_outs=("ABC",)),
    ],
    "AdaBN": [Axes(norms=("adabn3", "psd"), hold_outs=("ABC", "CHAT"))],
    "more seeds in one cohort": [
        Axes(norms=("batch",), hold_outs=("ABC",), seeds=(0, 1, 2)),
        Axes(norms=("batch",), hold_outs=("CHAT",), seeds=(0,)),
    ],
}


@pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)
def test_the_commands_together_make_the_grid(blocks):
    wanted = grid_of(blocks)
    commands = lodo_commands(wanted, PROTOCOL, "runs")
    made = {run for command in commands for run in runs_of(command)}
    assert made == {*wanted}


@pytest.mark.parametrize("name", ["table1", "low-data", "paper"])
def test_a_preset_is_named(name):
    hold_outs = ("ABC", "CHAT")
    wanted = paper_presets()[name].runs(hold_outs)
    (command,) = lodo_commands(wanted, PROTOCOL, "runs")
    assert f"--preset {name} " in command
    assert {*runs_of(command)} == {*wanted}


def test_seeds_that_do_not_begin_at_0_are_remarked():
    (command,) = lodo_commands(grid_of([Axes(hold_outs=("ABC",), seeds=(2,))]), PROTOCOL, "runs")
    assert command.endswith("  # only seeds 2 of these")


def test_a_protocol_of_ones_own_is_in_the_command_and_what_has_no_option_is_remarked():
    protocol = Protocol(max_epochs=8, lr=0.005, model_arguments={"depth": 4}).to_json()
    (command,) = lodo_commands(grid_of([Axes(hold_outs=("ABC",))]), protocol, "my runs")
    assert "--max-epochs 8 --model-arguments '{\"depth\": 4}' --out 'my runs'" in command
    assert command.endswith("  # with lr 0.005, which only Python can set")


def test_what_lodo_has_an_option_for_is_never_called_pythons_alone():
    own = {field.name for field in dataclasses.fields(Protocol)}
    options = own & set(inspect.signature(lodo).parameters)
    assert set(provenance_module._PROTOCOL_OPTIONS) == options


def test_what_runs_kept_is_in_the_command():
    runs = grid_of([Axes(norms=("batch", "psd"), hold_outs=("ABC",))])
    # BatchNorm keeps its weights in any case
    for keep, option in (("scores", None), ("predictions", "predictions")):
        kept = {run.name: "weights" if run.norm == "batch" else keep for run in runs}
        (command,) = lodo_commands(runs, PROTOCOL, "runs", kept=kept)
        assert options_of(command).get("--keep") == option
        assert {*runs_of(command)} == {*runs}


def test_runs_that_kept_different_things_have_commands_of_their_own():
    runs = grid_of([Axes(norms=("batch", "psd", "layer"), hold_outs=("ABC",))])
    kept = {run.name: "weights" if run.norm == "psd" else "scores" for run in runs}
    commands = lodo_commands(runs, PROTOCOL, "runs", kept=kept)
    found = {options_of(each).get("--keep"): {*runs_of(each)} for each in commands}
    assert found["weights"] >= {run for run in runs if run.norm == "psd"}
    assert found[None] >= {run for run in runs if run.norm == "layer"}
    assert set().union(*found.values()) == {*runs}


def test_a_cohort_with_a_comma_in_its_name_is_never_split():
    hold_outs = ("Lab, A", "XYZ")
    runs = grid_of([Axes(norms=("psd",), hold_outs=hold_outs)])
    (command,) = lodo_commands(runs, PROTOCOL, "runs", cohorts=hold_outs)
    assert "--hold-out" not in options_of(command)  # all of the store are the default
    (command,) = lodo_commands(runs, PROTOCOL, "runs", cohorts=(*hold_outs, "ABC"))
    assert shlex.split(command, comments=True) == []
    assert command.endswith(
        "# --hold-out cannot name 'Lab, A' because of the comma: only Python can"
    )


def test_versions_and_held_out_data_are_read_off_the_runs(tmp_path):
    write_runs(tmp_path, [Axes(norms=("batch",), hold_outs=("ABC", "CHAT"), seeds=(0,))])
    found = provenance(read_results(tmp_path), "runs")
    assert found.versions == ["psdnorm 0, torch 0, python 0 (2 runs)"]
    assert [cohort for cohort, *_ in found.tested] == ["ABC", "CHAT"]
    words = "22 nights of ABC, CHAT and MASS, prepared with the recipe paper (000000000000)"
    assert found.store == words
    assert not any("--keep" in command for command in found.commands)


def test_what_was_kept_is_read_off_the_runs(tmp_path):
    axes = Axes(norms=("psd",), hold_outs=("ABC",), seeds=(0,))
    write_runs(tmp_path, [axes], epochs=30, keep="predictions")
    (command,) = provenance(read_results(tmp_path), "runs").commands
    assert options_of(command)["--keep"] == "predictions"


def test_runs_that_another_study_trained_are_marked(tmp_path):
    runs = write_runs(tmp_path / "runs", [Axes(hold_outs=("ABC", "CHAT"), seeds=(0,))])
    for run in runs[:3]:
        path = tmp_path / "runs" / "cells" / run.name / "config.json"
        write_json(path, read_json(path) | {"borrowed_from": "main"})
    versions = provenance(read_results(tmp_path / "runs"), "runs").versions
    assert sorted(each.partition(", run in")[2] for each in versions) == [
        "",
        " the study main (3 runs)",
    ]
    assert sum("(7 runs)" in each for each in versions) == 1
