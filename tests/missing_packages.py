"""Packages that are not installed, told to a process that has them."""

import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def hide(monkeypatch, package, *rooms):
    """Let a package be absent, and the rooms that loaded it be loaded anew when asked for."""
    loaded = [name for name in sys.modules if name.partition(".")[0] == package]
    for name in {package, *loaded}:
        monkeypatch.setitem(sys.modules, name, None)
    for room in rooms:
        monkeypatch.delitem(sys.modules, room, raising=False)


def modules_beyond(*packages):
    """Name what could be imported here and not where only these are, psdnorm and what they need."""
    kept = {"psdnorm"} | _with_what_they_need(packages)
    return sorted(
        module
        for module, owners in packages_distributions().items()
        if kept.isdisjoint(map(canonicalize_name, owners))
    )


def _with_what_they_need(packages):
    found, open_ends = set(), [Requirement(package) for package in packages]
    while open_ends:
        asked = open_ends.pop()
        wanted = {(canonicalize_name(asked.name), extra) for extra in ("", *asked.extras)}
        for name, extra in wanted - found:
            found.add((name, extra))
            try:
                needs = [Requirement(line) for line in requires(name) or []]
            except PackageNotFoundError:  # for another system
                continue
            open_ends += [n for n in needs if not n.marker or n.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}
