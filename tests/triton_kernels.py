"""Where Triton kernels are tested: on a CUDA device, elsewhere under Triton's interpreter.

The interpreter must be chosen before triton is imported: a file's tests run in a process of their
own, which one test of the file starts.
"""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

HAS_CUDA = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if HAS_CUDA and not INTERPRETED else "cpu"
LAUNCHER = "test_everything_here_passes_under_tritons_interpreter"
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 1e-2}
gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE != "cuda", reason="needs a CUDA device"),
    # torch on torch: what its compiler says of itself is not under test
    pytest.mark.filterwarnings("ignore"),
]
without_kernels = pytest.mark.skipif(
    HAS_CUDA or INTERPRETED, reason="the kernels run in this process"
)


def assert_passes_interpreted(file):
    command = [sys.executable, "-m", "pytest", file, "-q", "-x", "-p", "no:cacheprovider"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    root = Path(__file__).parents[1]
    child = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True)
    assert child.returncode == 0, child.stdout[-4000:] + child.stderr[-2000:]


@pytest.fixture(autouse=True)
def kernels_can_run(request):
    if request.node.name != LAUNCHER and not (HAS_CUDA or INTERPRETED):
        pytest.skip("runs in the interpreter's own process")


@contextmanager
def empty_memory_is_nan():
    """Let an output that a kernel does not write show."""
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def draw(*shape, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).to(DEVICE)
