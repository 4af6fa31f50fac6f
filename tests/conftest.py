"""What holds for all tests: where they are skipped, and what is not looked through again.

Whatever is loaded when the tests are found stays to the end. Garbage is collected as ever, but not
among some 650,000 objects of modules and tests, which took a tenth of the whole time.
"""

import gc

import pytest
import torch


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


def pytest_unconfigure():
    gc.unfreeze()  # libraries complain of what is left when the interpreter ends


@pytest.fixture(scope="module")
def one_thread():
    """Results are equal to the bit where processes have as many threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
