"""The command line's own promises, whatever the command."""

import subprocess
import sys

import pytest
import typer

from psdnorm.cli import app, main
from psdnorm.cli.app import command
from psdnorm.errors import RecordingError

LONG = "night [1].edf is truncated: " + "x" * 200


@pytest.fixture
def commands(monkeypatch):
    monkeypatch.setattr(app, "registered_commands", list(app.registered_commands))


def _code(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["psdnorm", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [(RecordingError(LONG), 2, LONG), (KeyboardInterrupt(), 130, "interrupted")],
)
@pytest.mark.usefixtures("commands")
def test_an_error_is_one_sentence_and_an_exit_code(monkeypatch, capsys, error, code, said):
    @command
    def fail(what: str) -> None:
        assert what == "this"
        raise error

    assert _code(monkeypatch, "fail", "this") == code
    assert capsys.readouterr().err == f"psdnorm: {said}\n"


@pytest.mark.usefixtures("commands")
def test_a_command_chooses_its_own_exit_code(monkeypatch):
    @command
    def half() -> None:
        raise typer.Exit(1)

    assert _code(monkeypatch, "half") == 1


def test_a_wrong_option_is_named_without_a_traceback(monkeypatch, capsys):
    assert _code(monkeypatch, "--no-such-option") == 2
    error = capsys.readouterr().err
    assert "--no-such-option" in error
    assert "Traceback" not in error


def test_it_runs_as_a_module():
    run = subprocess.run(
        [sys.executable, "-m", "psdnorm", "--help"], capture_output=True, text=True, check=True
    )
    assert "Usage: psdnorm" in run.stdout
