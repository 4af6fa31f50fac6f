"""What holds for all tests: where they are skipped, and what is not looked through again.

Whatever is loaded when the tests are found stays to the end. Garbage is collected as ever, but not
among some 650,000 objects of modules and tests, which took a tenth of the whole time.
"""

import fcntl
import gc
import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import properties  # noqa: F401 - loads the profile of Hypothesis
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


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard():
    """A shell lets what it starts in the background, and all its children, ignore Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def nothing_waits_for_the_disk():
    """No test pulls the plug: what the system has written, it has, and a disk may take its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """Make a folder by its name and a function that fills it, once for all workers."""
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent  # which they share

    def made(name, fill):
        folder, part = place / name, place / f"{name}.part"
        with (place / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir()
                fill(part)
                part.rename(folder)
        return folder

    return made


@pytest.fixture(scope="module")
def one_thread():
    """Results are equal to the bit where processes have as many threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def headers_parsed(monkeypatch):
    """How often the header of each EDF is parsed, by the file's name."""
    from psdnorm.io import edf

    parsed = Counter()

    def counting(path, original=edf.parse_header):
        parsed[Path(path).name] += 1
        return original(path)

    monkeypatch.setattr(edf, "parse_header", counting)
    return parsed
