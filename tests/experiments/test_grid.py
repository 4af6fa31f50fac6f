"""A grid: which runs, in which order, and what becomes of them."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from small_runs import PROTOCOL, learnable, nights, outcome, small_store
from stores import tree

from psdnorm.errors import ArgumentError, StoreError
from psdnorm.experiments.execute import cohorts_to_hold_out, means, run_grid
from psdnorm.experiments.grid import Axes, ExperimentFolder, grid_of, units_of
from psdnorm.runtime import files as locking
from psdnorm.runtime.files import held
from psdnorm.store.folder import night_path
from psdnorm.training import Run

SHORT = replace(PROTOCOL, max_epochs=1)
SMALL = Axes(norms=("batch", "psd"), hold_outs=("abc", "mno"), seeds=(0,))
ONE_BATCH = replace(SMALL, norms=("batch",), hold_outs=("abc",))  # a run beside those in question


def executed(store, runs, folder, protocol=SHORT, **options):
    return {o.run.name: o for o in run_grid(store, runs, protocol, folder, **options)}


def statuses(outcomes):
    return {name: outcome.status for name, outcome in outcomes.items()}


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_runs_that_are_the_same_are_one():
    axes = Axes(
        norms=("batch", "instance", "psd"),
        filter_sizes=(5, 17),
        norm_depths=(1, 3),
        hold_outs=("abc", "mno"),
        seeds=(0, 1),
    )
    runs = grid_of([axes, axes])
    count = {norm: sum(run.norm == norm for run in runs) for norm in axes.norms}
    assert count == {"batch": 4, "instance": 8, "psd": 16}
    assert len({run.name for run in runs}) == len(runs)


def test_adabn_implies_the_run_that_it_adapts_and_is_one_unit_with_it():
    axes = replace(SMALL, norms=("adabnall", "adabn12", "adabn3", "psd"))
    units = units_of(grid_of([axes]))
    adapted = next(unit for unit in units if unit[0].norm == "batch")
    assert [run.norm for run in adapted] == ["batch", "adabn3", "adabn12", "adabnall"]
    assert all(run.base == adapted[0] for run in adapted[1:])
    assert sorted(len(unit) for unit in units) == [1, 1, 4, 4]


def test_a_grid_knows_the_nights_that_it_was_made_from(tmp_path):
    store = small_store(tmp_path / "store", nights(("abc", "mno"), 1))
    runs = ExperimentFolder(tmp_path / "runs")
    runs.extend(store, SHORT, [])
    assert runs.settings()["nights"] == 2
    assert runs.other_nights(store) is None
    more = small_store(tmp_path / "more", nights(("abc", "mno"), 2))
    assert runs.other_nights(more) == "a store of 2 nights, found 4"
    others = small_store(tmp_path / "others", nights(("abc", "xyz"), 1))
    assert runs.other_nights(others) == "other nights than the store has now"


def test_runs_that_share_a_network_are_next_to_each_other():
    axes = Axes(
        models=("usleep", "cnn-transformer"),
        norms=("psd", "tma", "layer", "batch", "adabn3"),
        filter_sizes=(5, 17),
        hold_outs=("abc", "mno"),
    )
    shapes = []
    for run in grid_of([axes]):
        norm = "batch" if run.norm in ("tma", "adabn3") else run.norm
        shape = run.model, norm, run.filter_size if norm == "psd" else None
        if shapes[-1:] != [shape]:
            shapes.append(shape)
    assert len(shapes) == len(set(shapes)) == 2 * (1 + 1 + 2)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"norms": ("psd", "foo")}, "norm is 'foo', expected one of batch, .*, adabn12, adabnall"),
        ({"models": ("unet",)}, "model is 'unet', expected one of usleep, cnn-transformer"),
        ({"seeds": ()}, "seeds is empty, expected at least one"),
        ({"balanced": (0,)}, "balanced must be a whole number from 1 on"),
    ],
)
def test_axes_that_do_not_fit_are_refused(wrong, said):
    with pytest.raises(ArgumentError, match=said):
        grid_of([replace(SMALL, **wrong)])


def test_each_run_has_a_folder_and_a_second_call_touches_nothing(store, tmp_path):
    norms = ("batch", "psd", "tma", "psd-white", "adabn1")
    runs = grid_of([replace(SMALL, norms=norms, hold_outs=("abc",))])
    first = executed(store, runs, tmp_path)
    assert set(statuses(first).values()) == {"done"}
    for run in runs:
        found = set(outcome(tmp_path / "cells" / run.name))
        assert {"config.json", "scores.parquet"} <= found
        assert ("history.csv" in found) == (run.norm != "adabn1")
        assert not {"lock", "failed.json", "resume.pt"} & found
        assert ("weights/model.safetensors" in found) == (run.norm == "batch")
    before = tree(tmp_path), times(tmp_path)
    again = executed(store, runs, tmp_path)
    assert set(statuses(again).values()) == {"already there"}
    assert [o.balanced_accuracy for o in again.values()] == [
        first[name].balanced_accuracy for name in again
    ]
    assert (tree(tmp_path), times(tmp_path)) == before


def test_more_norms_extend_a_grid(store, tmp_path):
    executed(store, grid_of([SMALL]), tmp_path)
    more = grid_of([replace(SMALL, norms=("instance", "adabn1"), hold_outs=("abc",))])
    assert statuses(executed(store, more, tmp_path)) == {
        "usleep_batch_abc_all_seed0": "already there",
        "usleep_adabn1_abc_all_seed0": "done",
        "usleep_instance_d3_abc_all_seed0": "done",
    }
    entries = ExperimentFolder(tmp_path).entries()
    assert {entry.run for entry in entries} == {*grid_of([SMALL]), *more}
    adapted = next(e for e in entries if e.run.is_adapted)
    trained = next(e for e in entries if e.run == adapted.run.base)
    # windows of 9 with stride 5 in nights of 38, 41 and 44 epochs; two cohorts train, 2 of 3 each
    assert adapted.sequences == 7 + 8 + 8
    assert 4 * 7 <= trained.sequences <= 4 * 8


def test_settings_other_than_those_of_the_folder_are_refused_once(store, tmp_path):
    runs = grid_of([replace(SMALL, norms=("psd",)), ONE_BATCH])
    executed(store, runs, tmp_path / "runs")
    before = tree(tmp_path / "runs")
    said = "runs was started with lr 0.001, found 0.01: use another folder"
    with pytest.raises(ArgumentError, match=said):
        executed(store, runs, tmp_path / "runs", replace(SHORT, lr=0.01))
    more = small_store(tmp_path / "more", [*nights(), learnable("xyz-9")])
    with pytest.raises(ArgumentError, match="was started with a store of 9 nights, found 10"):
        executed(more, runs, tmp_path / "runs")
    changed = [replace(n, signals=2 * n.signals) for n in nights()]
    with pytest.raises(ArgumentError, match="with other nights than the store has now"):
        executed(small_store(tmp_path / "changed", changed), runs, tmp_path / "runs")
    with pytest.raises(ArgumentError, match="keep is 'predictions', but 2 finished runs in "):
        executed(store, runs, tmp_path / "runs", keep="predictions")
    assert tree(tmp_path / "runs") == before


def test_a_cohort_that_is_not_there_is_refused_before_anything_is_written(store, tmp_path):
    with pytest.raises(ArgumentError, match="hold_out is 'CHAT', expected one of abc, mno, xyz"):
        executed(store, [Run(hold_out="CHAT")], tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
    alone = small_store(tmp_path / "store", nights(["abc"]))
    with pytest.raises(ArgumentError, match="has 1 cohort, expected at least two"):
        cohorts_to_hold_out(alone)
    assert cohorts_to_hold_out(store) == ("abc", "mno", "xyz")


def test_a_run_that_fails_says_why_and_completes_after_the_repair(tmp_path):
    store = small_store(tmp_path / "store")
    runs = grid_of([replace(SMALL, balanced=(2,), norms=("batch", "adabn1"))])
    # whom neither trains: in these runs the night is tested on alone
    unused = _not_trained(store, runs)
    path = night_path(store.path, unused)
    os.rename(path, tmp_path / "away")
    outcomes = executed(store, runs, tmp_path / "runs")
    assert statuses(outcomes) == {
        "usleep_batch_abc_at2_seed0": "failed",
        "usleep_adabn1_abc_at2_seed0": "failed",
        "usleep_batch_mno_at2_seed0": "done",
        "usleep_adabn1_mno_at2_seed0": "done",
    }
    reason = outcomes["usleep_batch_abc_at2_seed0"].reason
    assert reason == f"usleep_batch_abc_at2_seed0: {path} is missing"
    folder = tmp_path / "runs" / "cells" / "usleep_batch_abc_at2_seed0"
    written = json.loads((folder / "failed.json").read_text())
    assert written["reason"] == reason
    assert written["time"].endswith("+00:00")
    assert "which is not trained yet" in outcomes["usleep_adabn1_abc_at2_seed0"].reason
    os.rename(tmp_path / "away", path)
    again = executed(store, runs, tmp_path / "runs")
    assert statuses(again)["usleep_batch_abc_at2_seed0"] == "done"
    assert statuses(again)["usleep_adabn1_abc_at2_seed0"] == "done"
    assert not (folder / "failed.json").exists()
    executed(small_store(tmp_path / "sound"), runs, tmp_path / "undisturbed")
    for run in runs:
        names = (tmp_path / root / "cells" / run.name for root in ("runs", "undisturbed"))
        assert len({json.dumps(sorted(map(repr, outcome(n).items()))) for n in names}) == 1


def _not_trained(store, runs):
    from psdnorm.training.train import split_of

    used = set()
    for run in runs:
        split = split_of(store, run, SHORT)
        used |= {*split.train["recording"], *split.validation["recording"]}
    return next(r for r in store.index["recording"] if r.startswith("abc") and r not in used)


def test_a_fault_of_ours_is_told_as_one_and_stops_nobody(store, tmp_path, monkeypatch):
    from psdnorm.experiments import execute as work

    def train_run(store, run, *args, **kwargs):
        raise KeyError(run.seed) if run.seed else MemoryError

    monkeypatch.setattr(work, "train_run", train_run)
    runs = grid_of([replace(SMALL, norms=("psd",), hold_outs=("abc",), seeds=(0, 1))])
    reasons = [o.reason for o in executed(store, runs, tmp_path).values()]
    assert reasons == [
        "usleep_psd_f5_d3_abc_all_seed0: there was not enough memory on this machine",
        "usleep_psd_f5_d3_abc_all_seed1: internal error, a bug in psdnorm: KeyError 1",
    ]


def test_a_run_that_another_process_has_is_left_to_it(store, tmp_path):
    runs = grid_of([replace(SMALL, norms=("batch", "adabn1"), hold_outs=("abc",))])
    with held(tmp_path / "cells" / runs[0].name) as free:
        assert free
        found = statuses(executed(store, runs, tmp_path))
    assert found == dict.fromkeys([run.name for run in runs], "elsewhere")
    assert set(statuses(executed(store, runs, tmp_path)).values()) == {"done"}


def test_what_a_dead_process_left_blocks_nobody(store, tmp_path):
    (run,) = grid_of([replace(SMALL, norms=("psd",), hold_outs=("abc",))])
    folder = tmp_path / "cells" / run.name
    script = (
        "import os, pathlib, runpy, sys\n"
        "held = runpy.run_path(sys.argv[1])['held']\n"  # alone: its room takes seconds to load
        "lock = held(pathlib.Path(sys.argv[2]))\n"
        "os._exit(0 if lock.__enter__() else 1)\n"
    )
    subprocess.run([sys.executable, "-c", script, locking.__file__, str(folder)], check=True)
    assert (folder / "lock").exists()
    assert statuses(executed(store, [run], tmp_path)) == {run.name: "done"}
    assert not (folder / "lock").exists()


def test_an_interrupted_grid_goes_on_where_it_stopped(store, tmp_path):
    runs = grid_of([replace(SMALL, hold_outs=("abc",))])
    protocol = replace(PROTOCOL, max_epochs=2)
    executed(store, runs, tmp_path / "undisturbed", protocol)

    def interrupt(name, words):
        if "psd" in name and "epoch 2" in words:
            raise KeyboardInterrupt

    found = run_grid(store, runs, protocol, tmp_path / "runs", on_progress=interrupt)
    assert next(found).status == "done"
    with pytest.raises(KeyboardInterrupt):
        next(found)
    assert (tmp_path / "runs" / "cells" / runs[1].name / "resume.pt").exists()
    again = executed(store, runs, tmp_path / "runs", protocol)
    assert [o.status for o in again.values()] == ["already there", "done"]
    for run in runs:
        names = (tmp_path / root / "cells" / run.name for root in ("runs", "undisturbed"))
        one, two = map(outcome, names)
        assert one == two


def test_a_watcher_hears_epochs_and_losses(store, tmp_path):
    heard = []
    runs = [Run("usleep", "batch", hold_out="abc")]
    protocol = replace(PROTOCOL, max_epochs=2)
    executed(store, runs, tmp_path, protocol, on_progress=lambda name, words: heard.append(words))
    assert heard[:2] == ["begins", "epoch 1, batch 0 of 8"]
    assert any(words.startswith("epoch 1, batch 8 of 8, loss 1.") for words in heard)
    second = next(words for words in heard if words.startswith("epoch 2"))
    assert second.startswith("epoch 2, batch 0 of 8; epoch 1: loss 1.")
    assert "balanced accuracy 0." in second


def test_means_are_of_cohorts_that_are_all_there(store, tmp_path):
    from psdnorm.evaluation import read_scores, subject_metrics

    runs = grid_of([replace(SMALL, norms=("psd",), seeds=(0, 1)), ONE_BATCH])
    executed(store, runs, tmp_path)
    experiment = ExperimentFolder(tmp_path)
    found = means(experiment, runs)["usleep psd f5 d3 @all"]["Mean(Dataset)"]
    values = []
    for seed in (0, 1):
        by_cohort = [
            subject_metrics(read_scores(experiment.folder(c) / "scores.parquet"))[
                "balanced_accuracy"
            ]
            for c in runs
            if c.norm == "psd" and c.seed == seed
        ]
        values.append(sum(v.mean() for v in by_cohort) / 2)
    mean, std = sum(values) / 2, abs(values[0] - values[1]) / 2**0.5
    assert found == pytest.approx((mean, std))
    asked = [*runs, Run("usleep", "psd", hold_out="xyz")]
    lacking = means(experiment, asked)["usleep psd f5 d3 @all"]["Mean(Dataset)"]
    assert lacking[0] != lacking[0]
    assert means(ExperimentFolder(tmp_path / "empty"), runs) == {}


def test_a_folder_that_cannot_be_written_is_named(store, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file/lock cannot be written"):
        executed(store, grid_of([SMALL]), tmp_path / "file")
