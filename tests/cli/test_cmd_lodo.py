"""``psdnorm lodo`` runs a grid, says what came of it, and can always be given again."""

import json
import os
import re
from functools import partial

import pytest
from small_runs import small_store
from stores import tree

from psdnorm.store import Store
from psdnorm.store.folder import night_path

SMALL = ("--batch-size", 4, "--model-arguments", '{"depth": 3, "n_time_filters": 4}')
LISTS = ("norms", "models", "balanced", "filter-size", "norm-depth", "hold-out")
SHORT = (*SMALL, "--max-epochs", 1, "--seeds", 1)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return small_store(tmp_path_factory.mktemp("store")).path


@pytest.fixture
def lodo(run_command):
    return partial(run_command, "lodo")


def rows(out):
    """The table's columns by what they are about."""
    lines = (line.split("│")[1:-1] for line in out.splitlines() if "│" in line)
    return {first.strip(): [cell.strip() for cell in rest] for first, *rest in lines}


def test_a_grid_is_run_told_and_not_run_again(lodo, store, tmp_path):
    arguments = (store, *SHORT, "--norms", "batch,psd,adabn1", "--out", tmp_path / "runs")
    code, out, err = lodo(*arguments)
    assert code == 0, err
    found = rows(out)
    assert found.keys() == {
        "usleep batch @all",
        "usleep adabn1 @all",
        "usleep psd f5 d3 @all",
    }
    for runs, *means in found.values():
        assert runs == "3 of 3"
        assert all(0 <= float(mean) <= 100 for mean in means)  # one seed has no ±
    assert "balanced accuracy, %, of simulated nights, recipe robust" in " ".join(out.split())
    assert "The nights are simulated: this says nothing about patients." in out
    assert len(re.findall(r"^usleep_\w+: balanced accuracy 0\.\d+, \d+ s$", err, re.M)) == 9
    assert "9/9" in err
    assert re.search(r"\b0 s left", err)
    assert "-0 s" not in err
    before = tree(tmp_path)
    code, again, err = lodo(*arguments)
    assert (code, again) == (0, out)
    assert "balanced accuracy" not in err
    assert tree(tmp_path) == before


def test_options_choose_the_runs(lodo, store, tmp_path):
    code, _, err = lodo(
        *(store, *SHORT, "--norms", "psd,psd-white", "--filter-size", "3,5", "--norm-depth", 2),
        *("--hold-out", "xyz", "--balanced", "2,all", "--keep", "predictions"),
        *("--out", tmp_path),
    )
    assert code == 0, err
    names = {path.name for path in (tmp_path / "cells").iterdir()}
    assert names == {
        f"usleep_{norm}_f{f}_d2_xyz_{size}_seed0"
        for norm in ("psd", "psd-white")
        for f in (3, 5)
        for size in ("at2", "all")
    }
    assert all((tmp_path / "cells" / name / "predictions.parquet").exists() for name in names)


def test_a_dry_run_counts_and_estimates_and_writes_nothing(lodo, store, tmp_path):
    arguments = (store, *SHORT, "--norms", "batch,adabn1,adabnall", "--out", tmp_path / "runs")
    code, out, err = lodo(*arguments, "--dry-run")
    assert code == 0, err
    assert [row[:2] for row in rows(out).values()] == [["3", "0"]] * 3
    assert "runs by cohort held out: abc 3, mno 3, xyz 3\nruns by seed: 0: 9\n" in out
    assert "9 runs, 0 done; the rest takes about" in out
    assert "estimated from a step on this processor, and 1 epoch until early stopping" in out
    assert not (tmp_path / "runs").exists()
    lodo(*arguments, "--hold-out", "abc")
    before = tree(tmp_path)
    _, out, _ = lodo(*arguments, "--dry-run", "--jobs", 2)
    assert [row[:2] for row in rows(out).values()] == [["3", "1"]] * 3
    assert re.search(r"9 runs, 3 done; .* with 2 workers, estimated from 3 finished runs", out)
    assert tree(tmp_path) == before


def test_models_may_have_arguments_of_their_own(lodo, store, tmp_path):
    own = {
        "usleep": {"depth": 3, "n_time_filters": 4},
        "cnn-transformer": {"channels": [4, 8, 8], "strides": [3, 2, 2], "n_heads": 2},
    }
    code, out, err = lodo(
        *(store, *SHORT, "--models", "usleep,cnn-transformer", "--norms", "instance"),
        *("--hold-out", "abc", "--out", tmp_path, "--keep", "weights"),
        *("--model-arguments", json.dumps(own)),
    )
    assert code == 0, err
    assert [row[0] for row in rows(out).values()] == ["1 of 1"] * 2
    for model, arguments in own.items():
        (config,) = tmp_path.glob(f"cells/{model}_*/weights/config.json")
        built = json.loads(config.read_text())["arguments"]
        assert {name: built[name] for name in arguments} == arguments


def test_a_preset_is_narrowed_by_options(lodo, store, tmp_path):
    code, out, err = lodo(
        *(store, *SHORT, "--preset", "whitening", "--norms", "psd,psd-white", "--hold-out", "abc"),
        *("--out", tmp_path),
    )
    assert code == 0, err
    assert rows(out).keys() == {
        "usleep psd f5 d3 @400",
        "usleep psd-white f5 d3 @400",
    }


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_preset_on_other_data_than_the_papers_says_so(lodo, store, tmp_path, dry):
    narrow = ("--preset", "whitening", "--norms", "psd", "--hold-out", "abc", "--out", tmp_path)
    code, _, err = lodo(store, *SHORT, *narrow, *dry)
    assert code == 0
    first, second = err.splitlines()[:2]
    ten = "ABC, CCSHS, CFS, CHAT, HPAP, MASS, MROS, PHYS, SHHS, SOF"
    assert first == f"preset whitening is for the paper's ten cohorts; missing in {store}: {ten}"
    assert second == f"preset whitening is for the recipe paper; {store} has robust"


def test_a_dry_run_names_the_recipe_and_counts_one_run_as_one(lodo, store, tmp_path):
    arguments = (store, *SHORT, "--norms", "psd", "--hold-out", "abc", "--out", tmp_path / "runs")
    _, out, _ = lodo(*arguments, "--dry-run")
    assert "(recipe robust) →" in " ".join(out.split())
    assert "\n1 run, 0 done; " in out


def test_a_night_that_is_broken_is_named_with_what_to_do(lodo, tmp_path):
    path = small_store(tmp_path / "store").path
    broken = night_path(path, "mno-1")
    os.truncate(broken, 500)
    code, out, err = lodo(path, *SHORT, "--out", tmp_path / "runs")
    assert (code, out) == (2, "")
    assert str(broken) in err
    assert "; run psdnorm prepare again to rewrite it, or delete the file and " in err
    assert err.count("\n") == 1
    broken.unlink()
    (path / "index.parquet").unlink()
    assert lodo(path, *SHORT, "--norms", "psd", "--out", tmp_path / "runs", "--dry-run")[0] == 0


def test_what_failed_is_listed_with_exit_code_1_and_done_after_the_repair(
    lodo, store, tmp_path, monkeypatch
):
    arguments = (store, *SHORT, "--norms", "psd", "--hold-out", "abc,mno", "--out", tmp_path)
    from psdnorm.experiments import execute as work

    def fail(store, run, *others, train=work.train_run, **options):
        if run.hold_out == "abc":
            os.truncate(night_path(store.path, "abc-1"), 5)
        return train(store, run, *others, **options)

    sound = night_path(store, "abc-1").read_bytes()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(work, "train_run", fail)
            code, out, err = lodo(*arguments)
    finally:
        night_path(store, "abc-1").write_bytes(sound)
    assert code == 1
    assert "failed; the same command tries them again (2):\n" in out
    assert re.search(r"^  usleep_psd_f5_d3_abc_all_seed0: .*abc-1\S* is ", out, re.M)
    assert err.count("failed: usleep_psd") == 2
    assert rows(out)["usleep psd f5 d3 @all"] == ["0 of 2", "–", "–"]
    code, out, _ = lodo(*arguments)
    assert code == 0
    assert rows(out)["usleep psd f5 d3 @all"][0] == "2 of 2"


def test_what_another_process_runs_is_listed_with_exit_code_1(lodo, store, tmp_path):
    from psdnorm.runtime.files import held

    name = "usleep_psd_f5_d3_abc_all_seed0"
    arguments = (store, *SHORT, "--norms", "psd", "--hold-out", "abc", "--out", tmp_path)
    with held(tmp_path / "cells" / name):
        code, out, _ = lodo(*arguments)
    assert code == 1
    assert f"being run by another process (1):\n  {name}\n" in out


def test_an_interrupted_run_says_how_to_go_on(lodo, store, tmp_path, monkeypatch):
    from psdnorm.experiments import execute as work

    def interrupt(store, run, *others, train=work.train_run, **options):
        if run.hold_out == "mno":
            raise KeyboardInterrupt
        return train(store, run, *others, **options)

    arguments = (store, *SHORT, "--norms", "psd", "--hold-out", "abc,mno", "--out", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(work, "train_run", interrupt)
        code, out, err = lodo(*arguments)
    assert (code, out) == (130, "")
    assert err.endswith("psdnorm: interrupted; run the same command again to resume\n")
    done = tmp_path / "cells" / "usleep_psd_f5_d3_abc_all_seed0" / "done.json"
    first = json.loads(done.read_text())
    code, _, _ = lodo(*arguments)
    assert code == 0
    assert json.loads(done.read_text()) == first


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--norms", "foo"), "psdnorm: --norms is 'foo', expected one of batch, "),
        (("--norms", "psd,,batch"), "--norms is 'psd,,batch', expected words between commas"),
        (("--filter-size", "0"), "--filter-size is '0', expected whole numbers from 1 on"),
        (("--balanced", "many"), "--balanced is 'many', expected whole numbers from 1 on"),
        (("--hold-out", "CHAT"), "psdnorm: --hold-out is 'CHAT', expected one of abc, mno, xyz"),
        (("--preset", "table9"), "preset is 'table9', expected one of table1, "),
        (("--preset", "timing"), "preset timing is not a grid: run python -m benchmarks.step"),
        (
            ("--jobs", "2", "--dask", "tcp://a"),
            "--jobs and --dask were given, expected one of them at most",
        ),
        (("--gpus", "some"), "--gpus is 'some', expected whole numbers from 1 on"),
        (("--keep", "all"), "keep is 'all', expected one of scores, predictions, weights"),
        (("--model-arguments", "[]"), "--model-arguments is '[]', expected a JSON object"),
        (("--model-arguments", "{"), "--model-arguments is '{', expected JSON: "),
        (
            ("--model-arguments", '{"dept": 2}'),
            "psdnorm: --model-arguments do not build a usleep: ",
        ),
        (("--norm-depth", "13"), "--norm-depth is 13, expected at most the 12 blocks of usleep"),
        (
            ("--norm-depth", "3", "--model-arguments", '{"depth": 2}'),
            "psdnorm: --norm-depth is 3, expected at most the 2 blocks of usleep\n",
        ),
        (  # the nights of the store have epochs of 60 samples
            ("--norms", "batch,psd", "--filter-size", "5,2101"),
            "psdnorm: --filter-size is 2101, which makes PSDNorm's f = 2,101 in block 0 of usleep, "
            "expected at most the 2,100 samples that a sequence (length 35) has there\n",
        ),
        (
            ("--model-arguments", '{"usleep": {"depth": 3}, "cnn": {}}'),
            "psdnorm: --model-arguments has 'cnn' beside the name of a model, expected one of "
            "usleep, cnn-transformer, or no model's name\n",
        ),
        (("--device", "foo"), "device is 'foo', expected 'auto', 'cpu' or 'cuda'"),
        (("--device", "foo", "--jobs", "2"), "device is 'foo', expected 'auto', 'cpu' or 'cuda'"),
        (
            ("--balanced", "1"),
            "has no subjects left for validation when abc is held out with balanced 1, expected",
        ),
        *((("--" + option, ""), f"--{option} is '', expected ") for option in LISTS),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_what_cannot_be_done_is_one_sentence_and_exit_code_2(
    lodo, store, tmp_path, arguments, said, dry
):
    code, out, err = lodo(store, "--out", tmp_path / "runs", *arguments, *dry)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_another_protocol_is_refused_once_and_for_all(lodo, store, tmp_path):
    arguments = (store, *SHORT, "--norms", "psd", "--hold-out", "abc", "--out", tmp_path)
    assert lodo(*arguments)[0] == 0
    for dry in ((), ("--dry-run",)):
        code, out, err = lodo(*arguments, "--max-epochs", 2, *dry)
        assert (code, out) == (2, "")
        said = f"psdnorm: {tmp_path} was started with max_epochs 1, found 2: use another folder\n"
        assert err == said


def test_the_protocol_is_what_the_options_say(lodo, store, tmp_path):
    arguments = (store, *SHORT, "--norms", "psd", "--hold-out", "abc", "--out", tmp_path)
    assert lodo(*arguments, "--patience", 7)[0] == 0
    protocol = json.loads((tmp_path / "grid.json").read_text())["protocol"]
    assert (protocol["patience"], protocol["max_epochs"]) == (7, 1)
    code, _, err = lodo(*arguments, "--patience", 0)
    assert code == 2
    assert "--patience" in err


@pytest.mark.slow
def test_processes_are_one_option_away(lodo, store, tmp_path):
    arguments = (store, *SHORT, "--norms", "batch,adabn1", "--hold-out", "abc,mno")
    code, out, err = lodo(*arguments, "--jobs", 2, "--out", tmp_path / "two")
    assert code == 0, err
    assert lodo(*arguments, "--out", tmp_path / "one", "--device", "cpu")[1] == out


def test_real_nights_are_not_called_simulated(lodo, tmp_path):
    from dataclasses import replace

    from small_runs import nights

    made = [replace(night, simulated=False) for night in nights()]
    path = small_store(tmp_path / "store", made).path
    assert not Store.open(path).index["simulated"].any()
    _, out, _ = lodo(path, *SHORT, "--norms", "psd", "--hold-out", "abc", "--out", tmp_path / "r")
    assert "simulated" not in out


def test_filter_sizes_that_are_chosen_stand_beside_fixed_ones_and_are_told(lodo, store, tmp_path):
    sizes = ("--norms", "psd", "--filter-size", "3,auto", "--hold-out", "abc")
    arguments = (store, *SHORT, *sizes, "--out", tmp_path)
    code, out, err = lodo(*arguments, "--dry-run")
    assert code == 0, err
    assert {"usleep psd f3 d3 @all", "usleep psd fauto d3 @all"} <= rows(out).keys()
    code, out, err = lodo(*arguments)
    assert code == 0, err
    name = "usleep_psd_fauto_d3_abc_all_seed0"
    done = json.loads((tmp_path / "cells" / name / "done.json").read_text())
    assert f"{name}: filter size {done['filter_size_choice']['filter_size']}" in out.splitlines()


@pytest.mark.parametrize(("sizes", "left"), [("auto", [5]), ("3,auto,7", [3, 7])])
def test_where_nobody_named_tma_it_keeps_a_fixed_filter_size_beside_auto(
    lodo, store, tmp_path, sizes, left
):
    arguments = ("--filter-size", sizes, "--hold-out", "abc", "--out", tmp_path, "--dry-run")
    code, out, err = lodo(store, *SHORT, *arguments)
    assert code == 0, err
    taken = ", ".join(map(str, left))
    assert err == f"--filter-size auto is for PSDNorm alone: tma has filter size {taken}\n"
    alike = [f"usleep {norm} @all" for norm in ("batch", "layer d3", "instance d3")]
    fixed = [] if sizes == "auto" else left
    assert rows(out).keys() - {"", "all"} == {
        *alike,
        *(f"usleep tma f{size} @all" for size in left),
        *(f"usleep psd f{size} d3 @all" for size in (*fixed, "auto")),
    }


def test_tma_that_was_named_is_refused_beside_auto(lodo, store, tmp_path):
    arguments = ("--norms", "tma,psd", "--filter-size", "auto", "--out", tmp_path / "runs")
    code, _, err = lodo(store, *SHORT, *arguments)
    assert code == 2
    assert "--filter-size is 'auto' with norm 'tma', expected a whole number from 1 on" in err


def test_a_scheduler_that_does_not_answer_is_told_of_before_anything_is_written(
    lodo, store, tmp_path
):
    pytest.importorskip("distributed")
    arguments = (store, *SHORT, "--norms", "psd", "--hold-out", "abc", "--out", tmp_path / "runs")
    dead = ("--dask", "tcp://127.0.0.1:1")
    code, out, err = lodo(*arguments, *dead)
    assert (code, out) == (2, "")
    assert err.startswith("psdnorm: no Dask scheduler answers at 'tcp://127.0.0.1:1', expected one")
    assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()
    assert lodo(*arguments)[0] == 0
    assert lodo(*arguments, *dead)[0] == 0  # nothing is left that needs one
