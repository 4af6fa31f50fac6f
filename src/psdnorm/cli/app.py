"""All commands under one name, and what becomes of their errors."""

import functools
from collections.abc import Callable
from typing import TypeVar

import typer

from psdnorm.cli.console import errors, one_line, say
from psdnorm.errors import PsdnormError

SOME_FAILED, IMPOSSIBLE, INTERRUPTED = 1, 2, 130
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

    @functools.wraps(function)
    def guarded(*args: object, **kwargs: object) -> None:
        try:
            function(*args, **kwargs)
        except KeyboardInterrupt:
            say(errors, "psdnorm: interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except PsdnormError as error:
            say(errors, f"psdnorm: {one_line(str(error))}")
            raise typer.Exit(IMPOSSIBLE) from None
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package in ("", "psdnorm"):  # that would be our own fault
                raise
            say(errors, f'psdnorm: {package} is not installed: pip install "psdnorm[all]"')
            raise typer.Exit(IMPOSSIBLE) from None

    app.command()(guarded)
    return function
