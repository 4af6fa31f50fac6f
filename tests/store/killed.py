"""Run by test_crash.py in a process of its own, which forks: threads of other tests would mind.

``killed``: fill a store again and again, each time killed some lines further, then resumed.
``together``: fill one from several processes at once.
"""

import os
import sys
from pathlib import Path

from stores import LAYOUT, RECIPE, filled, night, tree

import psdnorm.store
from psdnorm.store import Store

SOURCE = str(Path(psdnorm.store.__file__).parent)
NIGHTS = [night(f"abc-{i}", 3 + i) for i in range(3)]


def child(work):
    """Run ``work`` in a fork and return its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = work() or 0
        finally:
            os._exit(code)
    return pid


def finished(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def fill_until(folder, line):
    """Fill a store and die before the given line of the store's code; 0 if it was not reached."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        if event == "line":
            count += 1
            if count == line:
                os._exit(9)
        return trace

    sys.settrace(trace)
    filled(folder, NIGHTS)


def killed(folder, step):
    filled(folder / "undisturbed", NIGHTS)
    expected = tree(folder / "undisturbed")
    line, deaths = 1, 0
    while True:
        path = folder / str(line)
        code = finished(child(lambda path=path, line=line: fill_until(path, line)))
        assert code in (0, 9), code
        if path.exists() and code == 9:
            for name in tree(path):
                hidden = name.rpartition("/")[2].startswith(".")
                assert hidden or name in expected, name
        assert finished(child(lambda path=path: filled(path, NIGHTS) and None)) == 0
        assert tree(path) == expected, line
        if code == 0:
            print(f"died {deaths} times in {line} lines")
            return
        line, deaths = line + step, deaths + 1


def together(folder):
    nights = [night(f"abc-{i}", 5) for i in range(12)]
    filled(folder / "alone", nights)

    def work(first):
        store = Store.create(folder / "together", RECIPE, LAYOUT)
        for i in range(8):  # every night comes from two processes
            store.add(nights[(first * 4 + i) % 12])
        store.finish()

    workers = [child(lambda first=first: work(first)) for first in range(3)]
    assert [finished(pid) for pid in workers] == [0, 0, 0]
    Store.open(folder / "together").finish()
    assert tree(folder / "together") == tree(folder / "alone")


if __name__ == "__main__":
    if sys.argv[1] == "killed":
        killed(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        together(Path(sys.argv[2]))
