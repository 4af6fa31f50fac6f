"""What must be true after the three commands of :mod:`benchmarks.many`."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.many_nights import FAILURES, FLAT, Folder
from benchmarks.many_process import Run
from psdnorm.staging.batch import FAILED, SUMMARY_TABLE
from psdnorm.staging.night_files import FILES, SUMMARY
from psdnorm.staging.trust import NOT_TRUSTED

INTERRUPTED, SOME_FAILED = 130, 1
_GOES_ON = "psdnorm: interrupted; give the same command again to resume\n"


def what_is_wrong(nights: Folder, runs: list[Run], out: Path) -> list[str]:
    """Return one sentence for each check that does not hold.

    Parameters
    ----------
    nights : Folder
        What was staged.
    runs : list of Run
        The command that was interrupted, the one that went on, and the one with nothing to do.
    out : Path
        Where they wrote.
    """
    first, *others = runs
    wrong = [*_of_the_interrupt(nights, first), *_of_resuming(runs)]
    for number, run in zip(("second", "third"), others, strict=True):
        wrong += [f"{number} command: {what}" for what in _of_a_whole_run(nights, run)]
    return [*wrong, *_of_outputs(nights, out)]


def _of_the_interrupt(nights: Folder, run: Run) -> Iterator[str]:
    if run.code != INTERRUPTED:
        yield f"the interrupted command ended with {run.code}, expected {INTERRUPTED}"
    if not run.complained.endswith(_GOES_ON):
        yield f"the interrupted command ended its errors with {run.complained[-200:]!r}"
    if not 0 < run.n_staged < len(nights.files):
        yield f"{run.n_staged} nights were staged when the command was interrupted"
    reached = [row["name"] for row in run.rows]
    if len(set(reached)) < len(reached) or not set(run.finished) <= set(reached):
        yield "the summary of the interrupted command does not have what it finished once each"


def _of_resuming(runs: list[Run]) -> Iterator[str]:
    for before, after in itertools.pairwise(runs):
        again = [name for name, when in before.finished.items() if after.finished.get(name) != when]
        if again:
            yield f"{len(again)} finished nights were staged again, {again[0]} among them"
        there = _counts(after.said).get("already there")
        if there != len(before.finished):
            yield f"{there} nights were said to be there already, expected {len(before.finished)}"
    if runs[-1].n_staged:
        yield f"the third command staged {runs[-1].n_staged} nights, expected none"


def _of_a_whole_run(nights: Folder, run: Run) -> Iterator[str]:
    """Yield what is wrong with a command that was not interrupted."""
    if run.code != SOME_FAILED:
        yield f"it ended with {run.code}, expected {SOME_FAILED}"
    n = len(nights.files)
    if f"{n}/{n}" not in run.complained:
        yield f"its progress did not come to {n}/{n}"
    if sorted(row["name"] for row in run.rows) != sorted(nights.files):
        yield "its summary does not have each recording once"
    bad = {name for name, kind in nights.kinds.items() if kind in FAILURES}
    if {row["name"] for row in run.rows if row["status"] == FAILED} != bad:
        yield "not those nights failed in its summary that must"
    if _counts(run.said).get(FAILED) != len(bad):
        yield f"it counted {_counts(run.said).get(FAILED)} failures, expected {len(bad)}"
    for row in run.rows:
        name = row["name"]
        kind = nights.kinds.get(name, "")
        words = FAILURES.get(kind)
        if words and words not in row["reason"]:
            yield f"the summary says of {name} ({kind}): {row['reason']}"
        named = [line for line in run.said.splitlines() if f"  {nights.files[name]} " in line]
        if words and not any(words in line for line in named):
            yield f"it did not name {name} ({kind}) and its fault"
        if kind == FLAT and row["verdict"] != NOT_TRUSTED:
            yield f"{name} is flat and its verdict {row['verdict']!r}"


def _of_outputs(nights: Folder, out: Path) -> Iterator[str]:
    staged = [name for name, kind in nights.kinds.items() if kind not in FAILURES]
    expected = {f"{name}{ending}" for name in staged for ending in (SUMMARY, *FILES)}
    left = {path.name for path in out.iterdir() if path.stat().st_size}
    for words, names in (
        ("missing or empty", (expected | {SUMMARY_TABLE}) - left),
        ("left over", left - expected - {SUMMARY_TABLE}),
    ):
        if names:
            yield f"{len(names)} files are {words}, {min(names)} among them"
    tables: dict[str, set[bytes]] = {}
    for name in staged:
        kind = nights.kinds[name]
        table, text = (out / f"{name}{ending}" for ending in (".tsv", ".txt"))
        if not (table.exists() and text.exists()):  # as was said
            continue
        if len(text.read_text().split()) != nights.epochs[kind]:
            yield f"{text.name} does not have the {nights.epochs[kind]} epochs of {kind}"
        tables.setdefault(kind, set()).add(table.read_bytes())
    differ = [kind for kind, found in tables.items() if len(found) > 1]
    if differ:
        yield f"copies of the same recording came out differently: {', '.join(differ)}"


def _counts(said: str) -> dict[str, int]:
    """Return the table that a command prints: nights by what became of them."""
    rows = re.findall(r"│ (.+?) +│ +(\d+) │", said)
    return {words.strip(): int(number) for words, number in rows}
