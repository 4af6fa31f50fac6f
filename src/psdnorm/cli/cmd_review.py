"""``psdnorm review``: a person corrects the least confident epochs."""

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box

from psdnorm.cli._shared import command, new_table, output
from psdnorm.errors import ArgumentError, StoreError
from psdnorm.runtime import errors, plural, say

if TYPE_CHECKING:
    from psdnorm.staging import Change, ReopenedNight, SleepStatistics

_DEFAULT_N = 50
_MOST_CHANGES = 20
_ENDINGS = (".tsv", "-hypnogram.edf", ".txt")  # as psdnorm stage names them


@command
def review(
    night: Annotated[
        Path,
        typer.Argument(metavar="NIGHT", help="NAME.tsv of psdnorm stage, with or without .tsv."),
    ],
    n: Annotated[
        int | None, typer.Option("--n", help="Number of epochs to review.  [default: 50]")
    ] = None,
    corrected: Annotated[
        Path | None, typer.Option(help="The corrected scoring, to read back.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="File to write; with --corrected, the name of its files without their endings.  "
            "[default: NAME-review.edf or NAME-corrected, beside NIGHT]",
        ),
    ] = None,
) -> None:
    """Write the least confident epochs for EDFbrowser, or read the corrections back.

    In EDFbrowser, open the recording, import the file (Tools, Import annotations, EDF+), replace
    each question that you can answer with a stage, and export the annotations (Tools, Export
    annotations, EDF+). Then pass the exported file with --corrected.
    """
    from psdnorm.staging import reopen

    if corrected is not None and n is not None:
        raise ArgumentError(
            f"n is {n} beside --corrected, expected one of the two: epochs are either written for "
            "review or read back"
        )
    found = reopen(night)
    if not found.has_summary:
        unknown = "start and lights of the recording are unknown"
        say(errors, f"{found.name}.json is not beside the table: {unknown}")
    if corrected is None:
        _write_questions(found, _DEFAULT_N if n is None else n, out)
    else:
        _read_answers(found, corrected, out)
    if found.notice:
        say(output, found.notice)


def _write_questions(found: "ReopenedNight", n: int, out: Path | None) -> None:
    from psdnorm.staging import write_review

    path = found.folder / f"{found.name}-review.edf" if out is None else out
    if path.suffix.lower() != ".edf":
        raise ArgumentError(f"out is {str(path)!r}, expected a file that ends in .edf")
    _check_free([path])
    night = (found.stages, found.probabilities, n, found.start)
    epochs = write_review(path, *night, notice=found.notice)
    say(output, f"written to {path}: {len(epochs)} of {len(found.stages)} epochs, as questions")
    again = f"psdnorm review {found.folder / found.name} --corrected FILE"
    say(output, f"when they are answered, read them back by: {again}")


def _read_answers(found: "ReopenedNight", corrected: Path, out: Path | None) -> None:
    from psdnorm.staging import read_corrected, write_edf_annotations, write_text, write_tsv

    base = found.folder / f"{found.name}-corrected" if out is None else _without_ending(out)
    table, annotations, text = paths = [base.with_name(f"{base.name}{e}") for e in _ENDINGS]
    _check_free(paths)
    correction = read_corrected(corrected, found.stages, found.start)
    covered = f"{corrected} covers {correction.n_covered} of {len(found.stages)}"
    say(output, f"changed: {plural(len(correction.changes), 'epoch')}; {covered}")
    if correction.changes:
        _print_changes(correction.changes)
    _print_statistics(found.statistics(found.stages), found.statistics(correction.stages))
    write_tsv(table, correction.stages, found.probabilities)
    write_edf_annotations(annotations, correction.stages, found.start, notice=found.notice)
    write_text(text, correction.stages)
    say(output, f"written to {base.parent}: {', '.join(path.name for path in paths)}")


def _without_ending(out: Path) -> Path:
    """Return the name without an ending: users may give the name of one of the files."""
    name = next((out.name.removesuffix(e) for e in _ENDINGS if out.name.endswith(e)), out.name)
    return out.with_name(name.removesuffix(".edf") or out.name)


def _check_free(paths: list[Path]) -> None:
    taken = next((path for path in paths if os.path.lexists(path)), None)
    if taken is not None:
        held = "may hold somebody's scoring"
        raise StoreError(f"{taken} exists and {held}: expected another name (-o)")


def _print_changes(changes: "list[Change]") -> None:
    table = new_table(["from", "to"], ["epochs"], box=box.SIMPLE_HEAD)
    kinds = Counter((change.before, change.after) for change in changes)
    for (before, after), count in kinds.most_common():
        table.add_row(before, after, str(count))
    output.print(table)
    for each in changes[:_MOST_CHANGES]:
        say(output, f"  epoch {each.epoch} at {each.onset_s} s: {each.before} → {each.after}")
    if len(changes) > _MOST_CHANGES:
        say(output, f"  … and {len(changes) - _MOST_CHANGES} more")


def _print_statistics(before: "SleepStatistics", after: "SleepStatistics") -> None:
    from psdnorm.staging import short_rows

    table = new_table([""], ["before", "after"], box=box.SIMPLE_HEAD)
    rows = [short_rows(each.to_dict(), shares=False) for each in (before, after)]
    for (words, was), (_, became) in zip(*rows, strict=True):
        table.add_row(words, was, became)
    output.print(table)
    lights = dict.fromkeys((before.lights, after.lights))
    say(output, f"lights: {' before, '.join(lights)}{' after' * (len(lights) > 1)}")
