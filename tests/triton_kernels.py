"""Where Triton kernels are tested: on a CUDA device, elsewhere under Triton's interpreter.

The interpreter must be chosen before triton is imported: in a process of its own, which
tests/ops/test_interpreted.py starts.
"""

import os
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

HAS_CUDA = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if HAS_CUDA and not INTERPRETED else "cpu"
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 1e-2}
gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE != "cuda", reason="needs a CUDA device"),
    # torch on torch: what its compiler says of itself is not under test
    pytest.mark.filterwarnings("ignore"),
]


def search_the_language_once_a_launch():
    """Spare the interpreter's calls of device functions what the launch has done for them.

    At each it looks through all of triton.language for what is still to be replaced, which takes a
    third of its time.
    """
    from triton.runtime import interpreter

    search, launch, done = interpreter._patch_lang, interpreter.GridExecutor.__call__, set()

    def search_once(function):
        if id(function.__globals__) in done:
            return interpreter._LangPatchScope()
        done.add(id(function.__globals__))
        return search(function)

    def launch_anew(executor, *arguments, **options):
        done.clear()  # what the launch before it replaced was put back
        return launch(executor, *arguments, **options)

    interpreter._patch_lang, interpreter.GridExecutor.__call__ = search_once, launch_anew


def look_for_no_overflow():
    """Spare the interpreter a check of every sum whose result it drops unless it debugs.

    It takes two fifths of its time.
    """
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    assert not builder.options.debug
    builder.options = replace(builder.options, sanitize_overflow=False)


if INTERPRETED:
    search_the_language_once_a_launch()
    look_for_no_overflow()


@pytest.fixture(autouse=True)
def kernels_can_run():
    if not (HAS_CUDA or INTERPRETED):
        pytest.skip("runs in the interpreter's own process")


@contextmanager
def waiting_for_the_host_is_an_error():
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


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
