"""``psdnorm stage`` says whether to trust a night first, and by its exit code what went wrong."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from cohort_folder import samples
from small_stagers import flat, recording, small_model, undrawn

from psdnorm.cli import main


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("models") / "mine")


@pytest.fixture
def stage(monkeypatch, capsys, tmp_path, model):
    """Run the command in a folder of its own; returns exit code, output and errors."""
    undrawn(monkeypatch)
    monkeypatch.chdir(tmp_path)

    def run(*arguments, model=model):
        chosen = ("--model", str(model)) if model else ()
        monkeypatch.setattr(sys, "argv", ["psdnorm", "stage", *map(str, arguments), *chosen])
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        return stop.value.code, said.out, said.err

    return run


def counts(out):
    """The table's nights by status and verdict."""
    return {words.strip(): int(number) for words, number in re.findall(r"│ (.+?) +│ +(\d+) │", out)}


def test_one_night_is_told_verdict_first_and_where_its_files_are(stage, tmp_path):
    recording(tmp_path / "S1.edf", n_epochs=8)
    code, out, err = stage("S1.edf")
    assert (code, err) == (0, "")
    assert out.startswith("S1.edf: unusual\n  The model does not know its training nights")
    assert "lights: sleep period ± 30 min\n" in out
    assert "│ total sleep time" in out
    assert "channels: C3-M2 and C4-M1\n" in out
    assert "written to staged: S1.json, S1.tsv, S1-hypnogram.edf, S1.txt, S1.html, S1.png\n" in out
    assert "diagnosis" not in out
    assert len(os.listdir("staged")) == 6


def test_one_night_is_staged_once_and_the_second_command_says_so(stage, tmp_path):
    def times():
        return {path.name: path.stat().st_mtime_ns for path in (tmp_path / "staged").iterdir()}

    recording(tmp_path / "S1.edf", n_epochs=8)
    first, written = stage("S1.edf")[1], times()
    second = stage("S1.edf")[1]
    assert times() == written
    assert len(written) == 6
    files = "S1.json, S1.tsv, S1-hypnogram.edf, S1.txt, S1.html, S1.png\n"
    assert first.endswith(f"written to staged: {files}")
    assert second == first.replace("written to staged:", "already staged, staged has")


def test_one_night_is_staged_again_where_it_is_asked_for_in_another_way(stage, tmp_path):
    recording(tmp_path / "S1.edf", n_epochs=8)
    for name, stages in (("a.txt", "WWNNNNNN"), ("b.txt", "WWWWNNNN")):
        lines = ["W" if letter == "W" else "N2" for letter in stages]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    ways = [(), ("--channels", "C3-M2"), ("--scoring", "a.txt"), ("--scoring", "b.txt")]
    for way in ways:
        assert "written to staged" in stage("S1.edf", *way)[1]
    again = stage("S1.edf", *ways[-1])[1]
    assert "already staged, staged has S1.json" in again
    assert "agreement with the scoring over 8 epochs" in again


def test_the_model_in_the_box_repeats_its_notice(stage, tmp_path, monkeypatch):
    from psdnorm.staging import models

    small_model(tmp_path / "shipped")
    monkeypatch.setattr(models.resources, "files", lambda package: tmp_path)
    for name in ("S1", "S2"):
        recording(tmp_path / f"{name}.edf")
    notice = "For research and demonstration, not for diagnosis.\n"
    assert stage("S1.edf", model=None)[1].endswith(notice)
    assert stage("S1.edf", "S2.edf", model=None)[1].endswith(notice)
    assert json.loads((tmp_path / "staged" / "S2.json").read_text())["notice"] == notice.strip()


def test_a_flat_night_is_not_to_be_trusted_and_that_is_no_error(stage, tmp_path):
    recording(tmp_path / "S1.edf", labels=("C3-M2",), **{"C3-M2": flat()})
    code, out, _ = stage("S1.edf")
    assert code == 0
    assert out.startswith("S1.edf: do not trust\n  No channel could be staged.\n  C3-M2 is flat in")


def test_a_scoring_is_compared_and_confident_disagreements_are_listed(stage, tmp_path):
    recording(tmp_path / "S1.edf", n_epochs=8)
    (tmp_path / "human.txt").write_text("W\nN1\nN2\nN3\nR\nW\nW\nW\n")
    code, out, _ = stage("S1.edf", "--scoring", "human.txt")
    assert code == 0
    assert "agreement with the scoring over 8 epochs: accuracy 0." in out
    found = json.loads((tmp_path / "staged" / "S1.json").read_text())["agreement"]
    assert found["n_compared"] == 8
    listed = re.findall(r"epoch (\d+) at \d+ s: scored \w+, staged \w+ \(([01]\.\d\d)\)", out)
    assert len(listed) == min(5, len(found["disagreements"]))
    confidences = [float(confidence) for _, confidence in listed]
    assert confidences == sorted(confidences, reverse=True)


def test_options_reach_the_night(stage, tmp_path):
    recording(tmp_path / "S1.edf", n_epochs=8)
    code, out, _ = stage(
        *("S1.edf", "--channels", "C3-C4", "--lights-off", "22:10:35", "-o", "here"),
        *("--lights-on", "180", "--unit", "uV", "--device", "cpu"),
    )
    assert code == 0
    summary = json.loads((tmp_path / "here" / "S1.json").read_text())
    assert summary["channels"] == [["C3-C4", "C3-C4"]]
    assert summary["statistics"]["lights"] == "given"
    assert (summary["statistics"]["lights_off_s"], summary["statistics"]["lights_on_s"]) == (
        30,
        180,
    )
    assert "C3-C4 is used twice" in out


def test_many_nights_are_counted_failures_named_and_the_rest_resumed(stage, tmp_path):
    for number in range(3):
        recording(tmp_path / "in" / f"S{number}.edf", seed=number)
    (tmp_path / "in" / "bad.edf").write_text("no edf")
    code, out, err = stage("in")
    assert code == 1
    assert counts(out) == {"staged": 3, "failed": 1, "verdict: unusual": 3}
    assert "failed (1):\n  in/bad.edf is not an EDF" in out
    assert "written to staged: summary.tsv, and six files for each night\n" in out
    assert "stage" in err  # the bar
    (tmp_path / "in" / "bad.edf").unlink()
    code, out, _ = stage("in")
    assert code == 0
    assert counts(out) == {"already there": 3, "verdict: unusual": 3}


def test_an_interrupted_run_says_how_to_go_on(stage, tmp_path, monkeypatch):
    from psdnorm.staging import batch as many

    def interrupt(path, *arguments, original=many.stage, **options):
        if path.name == "S2.edf":
            raise KeyboardInterrupt
        return original(path, *arguments, **options)

    for number in (1, 2, 3):
        recording(tmp_path / "in" / f"S{number}.edf", seed=number)
    with monkeypatch.context() as patch:
        patch.setattr(many, "stage", interrupt)
        code, out, err = stage("in")
    assert code == 130
    assert counts(out) == {"staged": 1, "not reached": 2, "verdict: unusual": 1}
    assert err.endswith("psdnorm: interrupted; run the same command again to resume\n")
    code, out, _ = stage("in")
    assert code == 0
    assert counts(out) == {"already there": 1, "staged": 2, "verdict: unusual": 3}


@pytest.mark.slow
def test_ctrl_c_leaves_a_row_for_every_night_that_its_processes_have_staged(tmp_path, model):
    for number in range(8):
        recording(tmp_path / "in" / f"S{number}.edf", seed=number)
    arguments = ("stage", "in", "--jobs", "2", "-o", "out", "--model", str(model))
    run = subprocess.Popen(
        [sys.executable, "-m", "psdnorm", *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a process group of its own, as a terminal gives
    )
    while not any(finished(tmp_path / "out")) and run.poll() is None:
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):  # the exit code tells
        os.killpg(run.pid, signal.SIGINT)
    out, err = run.communicate(timeout=600)
    assert run.returncode == 130, err
    staged = set(finished(tmp_path / "out"))
    rows = (tmp_path / "out" / "summary.tsv").read_text().splitlines()[1:]
    assert {row.split("\t")[0] for row in rows} == staged
    assert {row.split("\t")[2] for row in rows} == {"staged"}
    n_staged = len(staged)
    assert counts(out) == {
        "staged": n_staged,
        "not reached": 8 - n_staged,
        "verdict: unusual": n_staged,
    }


def finished(out):
    """Names of the nights whose outputs are complete."""
    for path in out.glob("*.json"):
        if json.loads(path.read_text())["finished"]:
            yield path.stem


def test_scorings_beside_signals_are_left_out_and_counted(stage, tmp_path):
    from psdnorm.staging import write_edf_annotations

    for number in (1, 2):
        recording(tmp_path / "in" / f"S{number}.edf", seed=number)
    write_edf_annotations(tmp_path / "in" / "S1-Hypnogram.edf", [0, 1, 2, 3])
    code, out, _ = stage("in")
    assert code == 0
    assert "left out as scorings: 1 EDF file\n" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere.edf",), "psdnorm: nowhere.edf matches no recording, expected a file, a pattern"),
        (("deaf.edf",), "psdnorm: deaf.edf has no EEG channel with a known name, found E"),
        (("letter.xyz",), "psdnorm: letter.xyz is not a recording of a known type: found"),
        (("S1.edf", "--unit", "T"), "psdnorm: --unit is 'T', expected one of V, mV, uV, nV"),
        (("S1.edf", "--lights-off", "x"), "psdnorm: --lights-off is 'x', expected seconds or a"),
        (("S1.edf", "--model", "."), "config.json does not exist"),
        (("S1.edf", "deaf.edf", "--scoring", "x"), "psdnorm: --scoring is 'x' for 2 recordings"),
        (("S1.edf", "--scoring", "x.txt"), "psdnorm: x.txt cannot be read: No such file"),
        (("S1.edf", "-o", "S1.edf"), "psdnorm: S1.edf is not a folder, expected one"),
        (("S1.edf", "--device", "tpu"), "psdnorm: --device is 'tpu', expected"),
        (("S1.edf", "--channels", "Pz"), "psdnorm: S1.edf has no channel 'Pz', found C3, C4, M1"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_exit_code_2(stage, tmp_path, arguments, said):
    recording(tmp_path / "S1.edf")
    recording(tmp_path / "deaf.edf", labels=("ECG", "EMG"))
    (tmp_path / "letter.xyz").write_text("Dear Sirs\n")
    model = None if "--model" in arguments else small_model(tmp_path / "own")
    code, out, err = stage(*arguments, model=model)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "staged").exists()


def test_neither_input_nor_human_scoring_beside_it_is_written_over(stage, tmp_path):
    signal = recording(tmp_path / "S1.edf").read_bytes()
    (tmp_path / "S1.txt").write_text("W\nN1\nN2\nN3\n")
    code, _, err = stage("S1.edf", "-o", ".")
    assert code == 2
    assert "S1.txt exists and was not written by psdnorm stage" in err
    (tmp_path / "S1.txt").unlink()
    assert stage("S1.edf", "-o", ".")[0] == 0
    assert (tmp_path / "S1.edf").read_bytes() == signal


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_nights(tmp_path, model):
    for number in range(16):
        noisy = samples(240, seed=number)
        recording(tmp_path / "in" / f"S{number:02}.edf", labels=("C3-M2",), **{"C3-M2": noisy})
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from psdnorm.staging import StagingJob, Options, find_recordings, night_page\n"
        "for write in ('write_page', 'write_png'):\n"
        "    setattr(night_page, write, lambda path, *others: path.write_text(''))\n"
        "options = Options(model=sys.argv[1])\n"
        "nights = StagingJob(find_recordings(['in']).names, Path('out'), options)\n"
        "for outcome in nights.run():\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(model)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    peaks = np.array(run.stdout.split(), float)
    assert len(peaks) == 16
    assert peaks[-1] - peaks[5] < 20_000  # kB, where one signal has 3,000
