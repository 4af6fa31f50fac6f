"""Run by test_resume.py in a process of its own, which forks: threads of other tests would mind.

``killed``: train a run again and again, each time killed some lines further, then resumed.
``placing``: the same, killed before each file is put in place, and before the resume file goes.
``often``: train one run that is killed many times on its way.
``after``: train a run alone, and after another one in the same process.
"""

import itertools
import os
import random
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch.utils.tensorboard  # noqa: F401 (before the forks, which would each load it)
from small_runs import DROPPING, WITH_DROPOUT, outcome, small_store

import psdnorm
from psdnorm.runtime.files import PARTIAL
from psdnorm.store import Store
from psdnorm.training import train_run
from psdnorm.training.run_folder import FILE

ROOMS = tuple(str(Path(psdnorm.__file__).parent / room) for room in ("training", "store/atomic"))
OPTIONS = {"device": "cpu", "keep": "weights", "save_every_steps": 3}


def trained(store, folder, run=DROPPING):
    train_run(Store.open(store), run, WITH_DROPOUT, folder, **OPTIONS)


def child(work):
    """Run ``work`` in a fork and return how it ended: 0, or -9 if it was killed."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at(line, work):
    """Do the work until the given line of the rooms under test, and be killed there."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if not frame.f_code.co_filename.startswith(ROOMS):
            return None
        if event == "line":
            count += 1
            if count == line:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    work()
    sys.settrace(None)


def killed(folder, step):
    assert child(lambda: trained(store(), folder / "undisturbed")) == 0
    expected = outcome(folder / "undisturbed")
    line, deaths = 1, 0
    while True:
        path = folder / str(line)
        code = child(lambda path=path, line=line: killed_at(line, lambda: trained(store(), path)))
        assert code in (0, -signal.SIGKILL), code
        assert (path / "done.json").exists() or code != 0
        assert child(lambda path=path: trained(store(), path)) == 0
        assert outcome(path) == expected, line
        if code == 0:
            print(f"died {deaths} times in {line} lines")
            return
        line, deaths = line + step, deaths + 1


def killed_placing(number, died, work):
    """Do the work until a file is to be put in place, or the resume file to go; be killed there."""
    put, remove, count = os.replace, Path.unlink, 0

    def die(what):
        died.write_text(what)
        os.kill(os.getpid(), signal.SIGKILL)

    def replacing(source, target):
        nonlocal count
        count += str(source).endswith(PARTIAL)
        if count == number:
            die(Path(target).name)
        put(source, target)

    def unlinking(path, missing_ok=False):
        nonlocal count
        count += path.name == FILE
        if count == number:
            die("unlink")
        remove(path, missing_ok)

    os.replace, Path.unlink = replacing, unlinking
    work()


def resumed_after(number, path, died, expected):
    """Train a run, killed at a file, then resume it; tell at which file, if there was one."""
    code = child(lambda: killed_placing(number, died, lambda: trained(store(), path)))
    if code == 0:
        return None
    assert code == -signal.SIGKILL, code
    what = died.read_text()
    assert (path / "done.json").exists() == (what == "unlink")
    assert child(lambda: trained(store(), path)) == 0
    assert outcome(path) == expected, what
    return what


def placing(folder):
    assert child(lambda: trained(store(), folder / "undisturbed")) == 0
    expected = outcome(folder / "undisturbed")
    for number in itertools.count(1):
        what = resumed_after(number, folder / str(number), folder / f"{number}.txt", expected)
        if what is None:
            return
        print(what)


def often(folder):
    assert child(lambda: trained(store(), folder / "undisturbed")) == 0
    rng, path, deaths = random.Random(0), folder / "often", 0
    for _ in range(8):
        line = rng.randint(1, 1200)
        code = child(lambda line=line: killed_at(line, lambda: trained(store(), path)))
        assert code in (0, -signal.SIGKILL), code
        deaths += code != 0
    assert child(lambda: trained(store(), path)) == 0
    assert outcome(path) == outcome(folder / "undisturbed")
    print(f"died {deaths} times")


def after(folder):
    assert child(lambda: trained(store(), folder / "alone")) == 0

    def two():
        trained(store(), folder / "other", replace(DROPPING, seed=1, hold_out="mno"))
        trained(store(), folder / "after")

    assert child(two) == 0
    assert outcome(folder / "after") == outcome(folder / "alone")


def store():
    return Path(sys.argv[2]) / "store"


if __name__ == "__main__":
    small_store(store())
    modes = {"killed": killed, "placing": placing, "often": often, "after": after}
    modes[sys.argv[1]](Path(sys.argv[2]), *map(int, sys.argv[3:]))
