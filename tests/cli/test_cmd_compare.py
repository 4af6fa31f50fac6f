"""``psdnorm compare`` prints B's gain over A, and writes it as a page if it is asked to."""

import json
import shutil
from functools import partial

import numpy as np
import pytest
import torch
from experiment_runs import write_runs
from small_runs import LAYOUT, learnable, small_store

from psdnorm.experiments.grid import Axes
from psdnorm.models import USleep
from psdnorm.store.folder import night_path

AXES = Axes(norms=("psd",), hold_outs=("ABC", "CHAT"), seeds=(0,))


@pytest.fixture
def compare(run_command):
    return partial(run_command, "compare")


@pytest.fixture
def folders(tmp_path):
    for name in "ab":
        merit = {"psd": 0.2 * (name == "b")}
        write_runs(tmp_path / name, [AXES], epochs=30, merit=merit)
    return tmp_path / "a", tmp_path / "b"


def test_it_prints_a_table_by_cohort_and_what_it_says(compare, folders):
    code, said, _ = compare(*folders)
    assert code == 0
    title = "PSDNorm in U-Sleep, all subjects: balanced accuracy, SIMULATED nights, recipe paper"
    assert title in " ".join(said.split())
    first_words = [line.split()[0] for line in said.splitlines() if line.strip()]
    for name in ("ABC", "CHAT", "Mean(Dataset)", "Mean(Subject)"):
        assert name in first_words
    assert "B is ahead of A in this data (one seed and 2 cohorts: " in said
    assert "One seed: one training cannot show how much of this is luck" in said
    assert max(map(len, said.split("B is ahead")[0].splitlines())) <= 80


def test_other_nights_are_said_on_standard_error_before_all_else(compare, folders):
    for path in folders[1].glob("cells/*/config.json"):
        path.write_text(path.read_text().replace('"' + "0" * 64, '"' + "1" * 64))
        config = json.loads(path.read_text()) | {"recipe_sha256": "0" * 64}
        path.write_text(json.dumps(config))
    code, _, err = compare(*folders)
    assert code == 0
    assert err.startswith("A and B were tested on different nights of ABC and CHAT: subjects of")


def test_a_finished_run_that_cannot_be_read_is_named_and_exit_code_1(compare, folders):
    (run,) = folders[1].glob("cells/*CHAT*")
    (run / "scores.parquet").write_bytes(b"PAR1")
    code, said, err = compare(*folders)
    assert code == 1
    assert "ABC" in said  # one bad run does not stop the others
    assert f"failed: B: {run.name}: b/cells/{run.name}/scores.parquet cannot be read" in err
    assert "gave no result" not in err
    (run / "done.json").unlink()
    code, _, err = compare(*folders)
    assert code == 0
    assert "1 run of B gave no result." in err


def test_it_writes_a_page_if_it_is_asked_to(compare, folders, tmp_path):
    out = tmp_path / "out"
    code, said, _ = compare(*folders, "-o", out)
    assert code == 0
    assert said.endswith(f"Look at {out / 'index.html'}\n")
    page = (out / "index.html").read_text()
    assert "psdnorm compare a b --out out" in page
    assert str(tmp_path) not in page


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """A store, and two untrained networks that fit it."""
    root = tmp_path_factory.mktemp("checkpoints")
    store = small_store(root / "store", [learnable("abc-0"), learnable("abc-1")])
    for seed, name in enumerate("ab"):
        torch.manual_seed(seed)
        model = USleep(n_times=LAYOUT.n_times, sfreq=LAYOUT.sfreq, depth=3, n_time_filters=4)
        known = {"cohorts": ["xyz"], "nights": 1, "simulated": True}
        model.save_pretrained(root / name, recipe=store.recipe, training_data=known)
    return root


def test_two_checkpoints_are_evaluated_on_the_nights_of_a_store(compare, checkpoints, tmp_path):
    a, b, store = (checkpoints / name for name in ("a", "b", "store"))
    out = tmp_path / "out"
    code, said, err = compare(a, b, "--store", store, "--cohort", "abc", "-o", out, "--no-figures")
    assert code == 0, err
    assert "BatchNorm in U-Sleep: balanced accuracy, SIMULATED nights" in " ".join(said.split())
    assert "evaluating" in err
    command = "psdnorm compare a b --out out --store store --cohort abc --no-figures"
    assert command in (out / "index.html").read_text()


def test_a_night_that_fails_is_named_and_exit_code_1(compare, checkpoints, tmp_path):
    shutil.copytree(checkpoints / "store", tmp_path / "store")
    path = night_path(tmp_path / "store", "abc-1")
    content = bytearray(path.read_bytes())
    content[-2:] = np.array([np.nan], np.float16).tobytes()  # its last sample
    path.write_bytes(content)
    code, said, err = compare(checkpoints / "a", checkpoints / "b", "--store", tmp_path / "store")
    assert code == 1
    assert "BatchNorm in U-Sleep" in said
    assert "failed: abc-1 is left out: the predictions of A are not finite; " in err
    assert f"{path.relative_to(tmp_path)} has samples that are not finite, from epoch 39" in err


def test_without_a_store_checkpoints_cohorts_and_devices_are_rejected(compare, checkpoints):
    a, b = checkpoints / "a", checkpoints / "b"
    code, said, err = compare(a, b)
    assert (code, said) == (2, "")
    assert err == (
        f"psdnorm: {a} is a checkpoint, which has no scores: give the prepared nights to evaluate "
        "both on (--store STORE)\n"
    )
    code, _, err = compare(a, b, "--cohort", "abc")
    assert code == 2
    assert "--cohort is abc without --store" in err
    code, _, err = compare(a, b, "--device", "cpu")
    assert code == 2
    assert "--device is cpu without --store" in err


def test_what_cannot_be_compared_is_one_sentence_and_exit_code_2(compare, folders, tmp_path):
    run = folders[0] / "cells" / "usleep_psd_f5_d3_ABC_all_seed0"
    code, said, err = compare(folders[0], run)
    assert (code, said) == (2, "")
    assert err == (
        f"psdnorm: {folders[0]} is a folder of runs and {run} a single run, expected two of a "
        "kind\n"
    )
