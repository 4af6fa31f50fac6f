"""``psdnorm study`` runs a file in pieces, packs what is finished, and names what is left."""

import contextlib
import dataclasses
import json
import re
import shutil
from functools import partial

import pytest
from studies import drawn_study, trained_study, written_study

from psdnorm.cli import _experiment_output, cmd_study
from psdnorm.errors import ArgumentError
from psdnorm.lab.study import read_study
from psdnorm.lab.study.result_cache import pack, packed_path
from psdnorm.report import build_report
from psdnorm.runtime import TimeLimitReached


@pytest.fixture
def study(monkeypatch, run_command):
    monkeypatch.setattr(cmd_study, "cores", lambda: 1)
    return partial(run_command, "study")


@contextlib.contextmanager
def minutes_that_end_as_ctrl_c(minutes):
    try:
        yield
    except KeyboardInterrupt:
        raise TimeLimitReached from None


@pytest.mark.slow
def test_in_pieces_it_says_what_is_left_and_then_that_all_is_done(study, tmp_path, monkeypatch):
    path = trained_study(tmp_path / "files")
    arguments = (path, "--work", tmp_path / "work", "--device", "cpu", "--minutes", 9)

    def interrupt(shown, name, words):
        if "psd" in name:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_experiment_output.Progress, "show", interrupt)
        patch.setattr(cmd_study, "time_limit", minutes_that_end_as_ctrl_c)
        code, out, err = study(*arguments)
    assert code == 1
    assert "time limit of 9 minutes reached; run the same command again to resume" in err
    assert "tiny: 2 of 4 runs done" in out
    assert re.search(r"left \(2\):\n  usleep_psd_f5_d3_ABC_\w+\n  usleep_psd_f5_d3_MASS_\w+\n", out)
    packed = tmp_path / "files" / "results" / "tiny.tar.xz"
    assert f"{packed} has {packed.stat().st_size:,} bytes of results" in err

    code, out, err = study(*arguments)
    assert code == 0, err
    assert "simulating" not in err  # the nights are there
    assert "tiny: 4 of 4 runs done" in out
    assert "of simulated nights, recipe paper" in out
    cost = json.loads((tmp_path / "work" / "tiny" / "cost.json").read_text())
    assert [piece["cells"] for piece in cost["pieces"]] == [2, 2]
    assert cost["sequences"] > 0
    described = read_study(path)
    text = path.read_text().replace('"hours": 0.2', '"hours": 0.3')
    path.write_text(text)
    code, _, err = study(*arguments)
    assert code == 2
    assert f"tiny has runs of nights whose hours is 0.2, expected 0.3 as in {path}" in err
    path.write_text(text.replace('"hours": 0.3', '"hours": 0.2'))
    assert read_study(path) == described

    code, out, err = study(path, "--work", tmp_path / "other")
    assert code == 0, err
    assert f"4 finished runs were unpacked from {packed}" in err
    assert [each.name for each in (tmp_path / "other").iterdir()] == ["tiny"]  # and no nights
    verdict, results = build_report(tmp_path / "other" / "tiny", tmp_path / "report", figures=False)
    assert len(results.runs) == 4
    assert not results.missing
    assert verdict.headline


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on_and_packs_what_is_finished(study, tmp_path, monkeypatch):
    def interrupt(shown, name, words):
        if "psd" in name:
            raise KeyboardInterrupt

    monkeypatch.setattr(_experiment_output.Progress, "show", interrupt)
    path = trained_study(tmp_path / "files")
    code, _, err = study(path, "--work", tmp_path / "work", "--device", "cpu")
    assert code == 130
    assert "psdnorm: interrupted; run the same command again to resume" in err
    assert (tmp_path / "files" / "results" / "tiny.tar.xz").exists()


def test_results_are_restored_without_nights(study, tmp_path):
    described, runs = drawn_study(tmp_path, tmp_path / "work")
    pack(described, runs)
    code, out, err = study(described.path, "--work", tmp_path / "new", "--restore")
    assert code == 0, err
    assert f"4 finished runs were unpacked from {packed_path(described)}" in err
    assert f"psdnorm report {tmp_path / 'new' / 'tiny'} shows their results" in out
    assert "The nights are simulated" in out


def test_with_an_empty_folder_of_results_a_study_starts_over(study, tmp_path, monkeypatch):
    described, runs = drawn_study(tmp_path, tmp_path / "work")
    packed = pack(described, runs)
    before, own = packed.read_bytes(), tmp_path / "own"
    ran = []
    monkeypatch.setattr(cmd_study, "_run", lambda asked, *_: ran.append(packed_path(asked)))
    code, out, err = study(described.path, "--work", tmp_path / "new", "--results", own)
    assert code == 1, err
    assert "unpacked" not in err
    assert "tiny: 0 of 4 runs done" in out
    assert ran == [own / "tiny.tar.xz"]

    pack(dataclasses.replace(described, results=own), runs)
    code, _, err = study(described.path, "--work", tmp_path / "new", "--results", own, "--restore")
    assert code == 0, err
    assert f"4 finished runs were unpacked from {own / 'tiny.tar.xz'}" in err
    assert packed.read_bytes() == before  # what came with the file stays


def test_runs_missing_in_restored_results_are_listed_with_exit_code_1(study, tmp_path):
    unfinished = ["usleep_psd_f5_d3_MASS_all_seed0"]
    described, runs = drawn_study(tmp_path, tmp_path / "work", unfinished=unfinished)
    pack(described, runs)
    code, out, _ = study(described.path, "--work", tmp_path / "new", "--restore")
    assert code == 1
    assert out.endswith(f"left (1):\n  {unfinished[0]}\n")


def test_a_dry_run_counts_and_estimates_and_writes_nothing(study, tmp_path, monkeypatch):
    many = {"protocol": {"max_epochs": 5000}, "expected_epochs": 5000}
    path = written_study(tmp_path / "files", **many)
    monkeypatch.setenv("COLUMNS", "120")
    code, out, err = study(path, "--work", tmp_path / "work", "--dry-run")
    assert code == 0, err
    assert "9 nights of 8 h, recipe paper: ABC 4, MASS 5" in out
    found = re.search(r"4 runs, 0 done; the rest takes about ([\d.]+) of \1 minutes of one", out)
    # nights of 46 sequences in batches of 64: 3 or 4 train, one validates, 5 or 4 are tested
    training, prediction = 5122 * 0.93, 16881 * 0.93
    by_hand = sum(
        2 * 64 * (5000 * (3 / training + 1 / prediction) + tested / prediction) for tested in (4, 3)
    )
    assert float(found[1]) == pytest.approx(by_hand / 60, abs=0.051)
    assert "5,000 epochs until early stopping" in out
    assert not (tmp_path / "work").exists()


def test_packed_runs_that_cannot_be_used_are_counted_and_left(study, tmp_path):
    described, runs = drawn_study(tmp_path, tmp_path / "work")
    packed = pack(described, runs)
    path = written_study(tmp_path, grid=[{"norms": ["adabn3", "psd"], "seeds": 1}])
    for _ in range(2):  # the second time nothing has changed
        code, out, err = study(path, "--work", tmp_path / "new", "--restore")
        assert code == 1
        assert f"2 finished runs in {packed} cannot be used: a run and its AdaBN runs must" in err
        assert "tiny: 2 of 6 runs done" in out


@pytest.fixture
def lender(tmp_path):
    """The packed results of a study of BatchNorm, which one of BatchNorm and PSDNorm borrows."""
    lending, runs = drawn_study(tmp_path / "files", tmp_path / "lent", ["batch"], name="main")
    return pack(lending, runs)


def test_a_dry_run_counts_what_would_be_unpacked_and_taken_as_done(study, tmp_path, lender):
    first = "usleep_psd_f5_d3_ABC_all_seed0"
    unfinished = [first, "usleep_batch_ABC_all_seed0", "usleep_batch_MASS_all_seed0"]
    own = drawn_study(lender.parents[1], tmp_path / "own", unfinished=unfinished, borrow=["main"])
    packed = pack(*own)
    code, out, err = study(own[0].path, "--work", tmp_path / "work", "--dry-run")
    assert code == 0, err
    assert f"done, but not unpacked yet: 1 run in {packed}\n" in out
    assert f"done, but not unpacked yet: 2 runs in {lender}\n" in out
    assert re.search(r"4 runs, 3 done; the rest takes about ([\d.]+) of [\d.]+ minutes", out)
    assert [line.split("│")[2:4] for line in out.splitlines() if "usleep" in line] == [
        ["    2 ", "    2 "],  # of BatchNorm
        ["    2 ", "    1 "],
    ]
    assert not (tmp_path / "work").exists()


def test_what_another_study_has_finished_is_restored_with_the_rest(study, tmp_path, lender):
    path = written_study(lender.parents[1], borrow=["main"])
    code, out, err = study(path, "--work", tmp_path / "work", "--restore")
    assert code == 1
    assert err == f"2 finished runs were taken from {lender}\n"
    assert "tiny: 2 of 4 runs done" in out
    assert re.search(r"left \(2\):\n  usleep_psd_f5_d3_ABC_\w+\n  usleep_psd_f5_d3_MASS_\w+\n", out)
    assert [each.name for each in lender.parent.iterdir()] == [lender.name]  # nothing is packed


def test_a_study_that_others_have_finished_is_packed_without_nights(study, tmp_path, lender):
    grid = [{"norms": ["batch"], "hold_outs": ["MASS"], "seeds": 1}]
    path = written_study(lender.parents[1], grid=grid, borrow=["main"])
    code, _, err = study(path, "--work", tmp_path / "work")
    assert code == 0, err
    assert f"1 finished run was taken from {lender}\n" in err
    packed = lender.with_name("tiny.tar.xz")
    assert f"{packed} has {packed.stat().st_size:,} bytes of results" in err
    assert [each.name for each in (tmp_path / "work").iterdir()] == ["tiny"]
    code, _, err = study(path, "--work", tmp_path / "work")
    assert (code, err) == (0, "")  # and not again


def test_with_nothing_to_restore_the_sentence_names_those_that_could_lend(study, tmp_path, lender):
    path = written_study(lender.parents[1], borrow=["main"])
    lender.unlink()
    code, _, err = study(path, "--work", tmp_path / "work", "--restore")
    assert code == 2
    assert err.endswith(
        "tiny.tar.xz does not exist, nor do results of main, expected packed results\n"
    )


@pytest.mark.slow
def test_only_what_others_have_not_finished_is_run_and_counted(study, tmp_path):
    arguments = ("--work", tmp_path / "work", "--device", "cpu")
    code, _, err = study(trained_study(tmp_path, ["batch"], name="main"), *arguments)
    assert code == 0, err
    path = trained_study(tmp_path, borrow=["main"])
    code, out, err = study(path, *arguments)
    assert code == 0, err
    assert f"2 finished runs were taken from {tmp_path / 'results' / 'main.tar.xz'}" in err
    assert "tiny: 4 of 4 runs done" in out
    cost = json.loads((tmp_path / "work" / "tiny" / "cost.json").read_text())
    assert [piece["cells"] for piece in cost["pieces"]] == [2]
    shutil.rmtree(tmp_path / "work" / "main")
    (tmp_path / "results" / "main.tar.xz").unlink()
    code, out, err = study(path, "--work", tmp_path / "new", "--restore")
    assert code == 0, err  # one file has them all


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--restore",), "results/tiny.tar.xz does not exist, expected packed results"),
        (("--device", "tpu"), "--device is 'tpu', expected 'auto', 'cpu' or 'cuda'"),
        (("--results", __file__), f"--results {__file__} is a file, expected a folder"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_exit_code_2(study, tmp_path, arguments, sentence):
    path = written_study(tmp_path / "files")
    code, _, err = study(path, "--work", tmp_path / "work", *arguments)
    assert code == 2
    assert err.startswith("psdnorm: ")
    assert err.endswith(f"{sentence}\n")
    assert err.count("\n") == 1
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("how", [(), ("--dry-run",)], ids=["run", "dry run"])
def test_a_filter_that_no_feature_map_holds_raises_before_a_night_is_made(study, tmp_path, how):
    grid = [{"norms": ["psd"], "filter_sizes": [105_001]}]
    path = written_study(tmp_path / "files", grid=grid)
    code, out, err = study(path, "--work", tmp_path / "work", *how)
    assert (code, out) == (2, "")
    assert err == (
        f"psdnorm: {path}: grid[0]: filter_size is 105001, which makes PSDNorm's f = 105,001 in "
        "block 0 of usleep, expected at most the 105,000 samples that a sequence (length 35) has "
        "there\n"
    )
    assert not (tmp_path / "work").exists()


def test_to_restore_results_no_network_is_looked_at(study, tmp_path):
    grid = [{"norms": ["psd"], "filter_sizes": [105_001]}]
    path = written_study(tmp_path / "files", grid=grid)
    _, _, err = study(path, "--work", tmp_path / "work", "--restore")
    assert err.endswith("results/tiny.tar.xz does not exist, expected packed results\n")


@pytest.mark.parametrize("minutes", ["-1", "0", "nan", "inf"])
@pytest.mark.parametrize("how", [(), ("--restore",), ("--dry-run",)], ids=["run", "restore", "dry"])
def test_an_invalid_time_limit_raises_at_once_though_nothing_is_left_to_run(
    study, tmp_path, minutes, how
):
    described, runs = drawn_study(tmp_path, tmp_path / "lost")
    pack(described, runs)
    described.path.write_text("no study")  # which is not looked at before
    code, out, err = study(described.path, "--work", tmp_path / "work", "--minutes", minutes, *how)
    assert (code, out) == (2, "")
    assert err.startswith(
        f"psdnorm: --minutes is {float(minutes)}, expected a number above 0 and at "
    )
    assert err.count("\n") == 1
    assert not (tmp_path / "work").exists()


def test_an_error_leaves_packed_results_and_cost_as_they_were(study, tmp_path, monkeypatch):
    described, runs = drawn_study(tmp_path, tmp_path / "lost", ("batch",))
    shutil.rmtree(runs.folder(described.runs[-1]))
    packed = pack(described, runs)
    before = packed.read_bytes()

    def fail(*_):
        raise ArgumentError("the nights are others, expected the same")

    monkeypatch.setattr("psdnorm.lab.study.made_store", fail)
    code, _, err = study(described.path, "--work", tmp_path / "work")
    assert code == 2
    assert err.endswith("psdnorm: the nights are others, expected the same\n")
    assert packed.read_bytes() == before
    assert not (tmp_path / "work" / described.name / "cost.json").exists()


def test_a_wrong_key_raises_with_file_and_key(study, tmp_path):
    path = written_study(tmp_path, stroe={})
    code, _, err = study(path)
    assert code == 2
    assert err.startswith(f"psdnorm: {path}: the file has the key 'stroe', expected one of name,")
