"""A package that is not installed, told to a process that has loaded it."""

import sys


def hide(monkeypatch, package, *rooms):
    """Let a package be absent, and the rooms that loaded it be loaded anew when asked for."""
    loaded = [name for name in sys.modules if name.partition(".")[0] == package]
    for name in {package, *loaded}:
        monkeypatch.setitem(sys.modules, name, None)
    for room in rooms:
        monkeypatch.delitem(sys.modules, room, raising=False)
