"""All commands under one name, and what becomes of their errors."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TypeVar

import typer
from typer.models import OptionInfo

from psdnorm.cli.console import errors, one_line, say
from psdnorm.errors import ArgumentError, PsdnormError

SOME_FAILED, IMPOSSIBLE, INTERRUPTED = 1, 2, 130
_VERBS = ("is ", "must ", "has ", "do ", "name ")  # of sentences about an argument
_Command = TypeVar("_Command", bound=Callable[..., None])

app = typer.Typer(
    name="psdnorm",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def _psdnorm() -> None:
    """Sleep staging that survives new subjects, devices and clinics."""


def command(function: _Command) -> _Command:
    """Add a command; its errors become one sentence and an exit code."""
    options = _options(function)

    @functools.wraps(function)
    def guarded(*args: object, **kwargs: object) -> None:
        try:
            function(*args, **kwargs)
        except KeyboardInterrupt:
            say(errors, "psdnorm: interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except PsdnormError as error:
            sentence = str(error)
            if isinstance(error, ArgumentError):
                sentence = _as_typed(sentence, options)
            say(errors, f"psdnorm: {one_line(sentence)}")
            raise typer.Exit(IMPOSSIBLE) from None
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package in ("", "psdnorm"):  # that would be our own fault
                raise
            say(errors, f'psdnorm: {package} is not installed: pip install "psdnorm[all]"')
            raise typer.Exit(IMPOSSIBLE) from None

    app.command()(guarded)
    return function


def _options(function: Callable[..., None]) -> dict[str, str]:
    """Return the options of a command by the names of their arguments."""
    options = {}
    for name, parameter in inspect.signature(function).parameters.items():
        for note in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(note, OptionInfo):
                # typer keeps the first name where a default would be
                declared = (note.default, *(note.param_decls or ()))
                named = [str(each) for each in declared if str(each).startswith("--")]
                options[name] = named[0] if named else f"--{name.replace('_', '-')}"
    return options


def _as_typed(sentence: str, options: Mapping[str, str]) -> str:
    """Name an option where a sentence begins with the argument of a function below.

    That may be one of several that the option lists: ``norm`` of ``--norms``.
    """
    argument, _, rest = sentence.partition(" ")
    option = options.get(argument) or options.get(f"{argument}s")
    return f"{option} {rest}" if option and rest.startswith(_VERBS) else sentence
