"""Without a CUDA device, the tests of Triton kernels run under Triton's interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from triton_kernels import HAS_CUDA, INTERPRETED

TESTS = Path(__file__).parent
FILES = [TESTS / name for name in ("test_dispatch.py", "test_groups.py", "test_banded.py")]


@pytest.mark.skipif(HAS_CUDA or INTERPRETED, reason="the kernels run in their own tests")
def test_the_kernels_pass_their_tests_under_tritons_interpreter():
    command = [sys.executable, "-m", "pytest", *FILES, "-q", "-x", "-p", "no:cacheprovider"]
    child = subprocess.run(
        command,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=TESTS.parents[1],
        capture_output=True,
        text=True,
    )
    assert child.returncode == 0, child.stdout[-4000:] + child.stderr[-2000:]
    assert " passed" in child.stdout
