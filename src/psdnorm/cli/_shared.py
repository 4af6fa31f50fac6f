"""What commands share: the app, exit codes, error messages, arguments."""

import functools
import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from typer.models import OptionInfo

from psdnorm.errors import ArgumentError, PsdnormError, StoreError
from psdnorm.runtime import errors, say

if TYPE_CHECKING:
    from psdnorm.store import Store

SOME_FAILED, IMPOSSIBLE, INTERRUPTED = 1, 2, 130
_VERBS = ("is ", "must ", "has ", "do ", "name ")  # of sentences about an argument
_Command = TypeVar("_Command", bound=Callable[..., None])

# commands that resume where they stopped; lodo and train say so themselves
_RESUMABLE = ("demo", "dissect", "prepare", "stage", "study")

# options of several commands
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Number of processes.  [default: one per core]")
]
Figures = Annotated[bool, typer.Option(help="Draw figures.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only show the runs and an estimate of their time.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Fast = Annotated[
    bool, typer.Option(help="bfloat16, compiled, with CUDA graphs, if the GPU supports it.")
]
MaxEpochs = Annotated[int, typer.Option(help="Maximum number of epochs.")]
Patience = Annotated[
    int, typer.Option(help="Stop after this many epochs without a lower validation loss.")
]
BatchSize = Annotated[int, typer.Option(help="Sequences in a batch.")]
SequencesPerNight = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Sequences of a night in a batch.  [default: 4 with statistics by domain, else any]",
    ),
]

output = Console()
app = typer.Typer(
    name="psdnorm",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def _psdnorm() -> None:
    """Sleep staging that survives new subjects, devices and clinics.

    To stage your own nights: stage. For an experiment: prepare, lodo, report. To see it work: demo.
    """


def command(function: _Command) -> _Command:
    """Add a command; its errors become one sentence and an exit code."""
    options = _options(function)

    @functools.wraps(function)
    def guarded(*args: object, **kwargs: object) -> None:
        code = IMPOSSIBLE
        try:
            return function(*args, **kwargs)
        except KeyboardInterrupt:
            sentence, code = "interrupted", INTERRUPTED
            if function.__name__ in _RESUMABLE:
                sentence += "; run the same command again to resume"
        except ArgumentError as error:
            sentence = _as_typed(str(error), options)
        except PsdnormError as error:
            sentence = str(error)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package in ("", "psdnorm"):  # that would be a bug of ours
                raise
            sentence = f'{package} is not installed: pip install "psdnorm[all]"'
        say(errors, f"psdnorm: {one_line(sentence)}")
        raise typer.Exit(code)

    # given explicitly, so that the list of commands does not truncate it
    summary = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
    app.command(short_help=summary)(guarded)
    return function


def _options(function: Callable[..., None]) -> dict[str, str]:
    options = {}
    for name, parameter in inspect.signature(function).parameters.items():
        for note in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(note, OptionInfo):
                # typer keeps the first name in place of the default
                declared = map(str, (note.default, *(note.param_decls or ())))
                named = [each for each in declared if each.startswith("--")]
                options[name] = named[0] if named else f"--{name.replace('_', '-')}"
    return options


def _as_typed(sentence: str, options: Mapping[str, str]) -> str:
    """Name the option instead if a sentence begins with a function's argument.

    That may be one of several that the option lists: ``norm`` of ``--norms``.
    """
    argument, _, rest = sentence.partition(" ")
    option = options.get(argument) or options.get(f"{argument}s")
    return f"{option} {rest}" if option and rest.startswith(_VERBS) else sentence


def one_line(sentence: str) -> str:
    """Return a sentence as one line: file names may contain line breaks, which are escaped."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in sentence
    )


def new_table(names: Sequence[str], numbers: Sequence[str], **options: Any) -> Table:
    """Return a table without rows: columns of words, then of numbers."""
    table = Table(**options)
    for name in names:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def say_list(title: str, sentences: Iterable[str]) -> None:
    """Print sentences below a title with their number, or nothing if there are none."""
    lines = [f"  {one_line(sentence)}" for sentence in sentences]
    for line in [f"{title} ({len(lines)}):", *lines] if lines else []:
        say(output, line)


def cores() -> int:
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def open_nights(path: Path) -> "Store":
    """Open a store and its index; if a night is broken, say what can be done."""
    from psdnorm.store import Store

    store = Store.open(path)
    try:
        _ = store.index
    except StoreError as error:
        raise StoreError(
            f"{error}; run psdnorm prepare again to rewrite it, or delete the file and "
            f"{path / 'index.parquet'}, which is rebuilt"
        ) from error
    return store


def recipe_name(store: "Store") -> str:
    """Return what tables call the recipe of a store: its name, else the start of its digest."""
    return str(store.recipe.get("name") or store.hash[:12])


def words(option: str, text: str) -> tuple[str, ...]:
    """Split ``a,b`` into words."""
    found = tuple(word.strip() for word in text.split(","))
    if not all(found):
        raise ArgumentError(f"{option} is {text!r}, expected words between commas")
    return found


def numbers(option: str, text: str, least: int = 1) -> tuple[int, ...]:
    """Split ``1,2`` into whole numbers."""
    found = words(option, text)
    if not all(word.isdecimal() and int(word) >= least for word in found):
        raise ArgumentError(
            f"{option} is {text!r}, expected whole numbers from {least} on between commas"
        )
    return tuple(map(int, found))


def sizes(option: str, text: str) -> tuple[int | None, ...]:
    """Split ``40,all`` into numbers of subjects, None for all."""
    return tuple(
        None if word == "all" else numbers(option, word)[0] for word in words(option, text)
    )


def filter_sizes(option: str, text: str) -> tuple[int | str, ...]:
    """Split ``5,auto`` into filter sizes."""
    return _filter_sizes(
        option, text, words(option, text), "whole numbers from 1 on between commas"
    )


def one_filter_size(option: str, text: str) -> int | str:
    """Read ``5`` or ``auto``."""
    return _filter_sizes(option, text, (text,), "a whole number from 1 on")[0]


def _filter_sizes(
    option: str, text: str, found: tuple[str, ...], expected: str
) -> tuple[int | str, ...]:
    if not all(word == "auto" or (word.isdecimal() and int(word) >= 1) for word in found):
        raise ArgumentError(f"{option} is {text!r}, expected {expected}, or auto")
    return tuple(word if word == "auto" else int(word) for word in found)


def json_object(option: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ArgumentError(f"{option} is {text!r:.50}, expected JSON: {error}") from None
    if not isinstance(found, dict):
        raise ArgumentError(f"{option} is {text!r:.50}, expected a JSON object")
    return found
