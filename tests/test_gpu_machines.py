"""The tests of a GPU are found on machines that have one and little else."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from missing_packages import modules_beyond

ROOT = Path(__file__).parents[1]
# the layer and the models need no more on a GPU than their kernels do
ABOVE_THE_WALL = ("tests/ops", "tests/layer/test_cuda.py", "tests/models/test_acceleration.py")
# what nobody needs who trains on nights that were prepared elsewhere
FOR_TRAINING = (
    *("torch", "triton", "numpy", "pytest", "scipy", "scikit-learn", "pandas"),
    *("pyarrow", "h5py", "matplotlib", "safetensors", "typer", "rich", "joblib", "PyYAML"),
    *("tensorboard", "onnxruntime"),
)
COLLECT = """
import json, sys
for name in json.loads(sys.argv[1]):
    sys.modules[name] = None
import pytest
options = ["--collect-only", "-q", "-m", "gpu", "-p", "no:cacheprovider"]
sys.exit(pytest.main([*options, *sys.argv[2:]]))
"""


def gpu_tests(paths, absent=()):
    """Names of the tests of a GPU that a process finds in which modules are absent."""
    # plugins announce themselves even where their modules are told to be absent
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-c", COLLECT, json.dumps(absent), *paths]
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    return [line for line in run.stdout.splitlines() if "::" in line]


@pytest.mark.parametrize("path", ABOVE_THE_WALL)
def test_what_is_listed_above_the_wall_exists(path):
    assert (ROOT / path).exists()


def assert_nothing_is_lost_without(absent, paths, known):
    assert {name for name in known if find_spec(name)} <= set(absent)
    assert gpu_tests(paths, absent) == gpu_tests(paths)


@pytest.mark.slow
def test_above_the_wall_torch_triton_numpy_and_pytest_are_enough():
    pytest.importorskip("triton")
    absent = modules_beyond("torch", "triton", "numpy", "pytest")
    assert_nothing_is_lost_without(absent, ABOVE_THE_WALL, ["scipy", "pandas", "ot", "hypothesis"])


@pytest.mark.slow
def test_everywhere_what_training_needs_is_enough():
    pytest.importorskip("triton")
    absent = modules_beyond(*FOR_TRAINING)
    assert_nothing_is_lost_without(absent, ["tests"], ["mne", "edfio", "distributed", "ot"])
