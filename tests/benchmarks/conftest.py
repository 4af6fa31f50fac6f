import importlib
import sys
from pathlib import Path

import pytest


@pytest.fixture
def from_benchmarks(monkeypatch):
    """Import a benchmark by its name; all of them are forgotten after the test."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    yield lambda name: importlib.import_module(f"benchmarks.{name}")
    for name in [name for name in sys.modules if name.startswith("benchmarks")]:
        del sys.modules[name]
