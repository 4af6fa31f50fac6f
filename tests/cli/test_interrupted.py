"""Ctrl-C while processes still start: one sentence, exit code 130, and nobody is left."""

import subprocess
import sys

import pytest
from cohort_folder import cohort_folder
from small_runs import small_store

# as Ctrl-C does, each process that begins lets all hear it: itself, and the one that started it
SCRIPT = """
import os, signal, sys
if __name__ == "__main__":
    from psdnorm.cli import main
    main()
else:
    print("begins", file=sys.stderr, flush=True)
    os.kill(os.getppid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
"""
NETWORK = ("--batch-size", "4", "--model-arguments", '{"depth": 3, "n_time_filters": 4}')
COMMANDS = {
    "prepare": ("folder", "source", "out", "--jobs", "2"),
    "lodo": ("store", "--norms", "psd", *NETWORK, "--jobs", "2", "--out", "out"),
    "train": ("store", "--hold-out", "abc", *NETWORK, "--device", "cpu", "--devices", "2"),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_processes_that_are_still_starting_leave_ctrl_c_to_their_parent(tmp_path, command):
    cohort_folder(tmp_path / "source", "S01", "S02")
    small_store(tmp_path / "store")
    (tmp_path / "script.py").write_text(SCRIPT)
    run = subprocess.run(  # ends when all who hold its pipes have
        [sys.executable, "script.py", command, *COMMANDS[command]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 130, run.stderr
    assert "begins\n" in run.stderr
    assert run.stderr.count("psdnorm: interrupted") == 1
    assert "Traceback" not in run.stderr
