"""A store survives being killed, and being written by many."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from stores import filled, night, tree

from psdnorm.runtime.files import written

SCRIPT = Path(__file__).with_name("killed.py")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the script forks")


def run(*arguments):
    environment = os.environ | {"PYTHONPATH": str(SCRIPT.parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_killed_at_any_line_and_started_again_it_is_as_if_undisturbed(tmp_path):
    assert int(run("killed", tmp_path, 1).split()[1]) > 500


def test_many_processes_fill_a_store_as_one_would(tmp_path):
    run("together", tmp_path)


def test_what_another_process_is_writing_is_no_leftover(tmp_path):
    store = filled(tmp_path, [night("abc-1", 3)])
    before = tree(tmp_path)
    target = store.path / "nights" / "abc-2.safetensors"
    with written(target) as file:
        store.finish()
        assert Path(file.name).exists()
        file.write(b"whole")
    assert tree(tmp_path) == before | {"nights/abc-2.safetensors": b"whole"}


def test_what_a_killed_process_left_goes_with_the_next_index(tmp_path):
    store = filled(tmp_path, [night("abc-1", 3)])
    before = tree(tmp_path)
    for folder in (store.path, store.path / "nights"):
        (folder / ".1234.partial").write_bytes(b"half")
    assert len(store.index) == 1
    store.finish()
    assert tree(tmp_path) == before
