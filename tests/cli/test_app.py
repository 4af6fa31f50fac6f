"""The command line's own promises, whatever the command."""

import importlib
import subprocess
import sys

import pytest
import typer
from clinic import clinic

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
def test_a_line_end_in_an_error_ends_no_line(monkeypatch, capsys):
    @command
    def fail() -> None:
        raise RecordingError("a\nb\udcff.edf is empty")

    assert _code(monkeypatch, "fail") == 2
    assert capsys.readouterr().err == "psdnorm: a\\nb\\udcff.edf is empty\n"


@pytest.mark.usefixtures("commands")
def test_a_package_that_is_not_there_is_named_and_our_own_is_a_fault(monkeypatch, capsys):
    @command
    def fail(name: str) -> None:
        importlib.import_module(name)

    monkeypatch.setitem(sys.modules, "scipy.signal", None)
    assert _code(monkeypatch, "fail", "scipy.signal") == 2
    said = capsys.readouterr().err
    assert said == 'psdnorm: scipy is not installed: pip install "psdnorm[all]"\n'
    monkeypatch.setattr(sys, "argv", ["psdnorm", "fail", "psdnorm.nothing"])
    with pytest.raises(ModuleNotFoundError, match=r"psdnorm\.nothing"):
        main()


@pytest.mark.parametrize(
    ("absent", "said"),
    [
        ("typer", 'psdnorm: the command line needs pip install "psdnorm[cli]"\n'),
        ("rich", 'psdnorm: the command line needs pip install "psdnorm[cli]"\n'),
        ("pandas", 'psdnorm: a store needs pandas and pyarrow: pip install "psdnorm[data]"\n'),
        ("scipy", 'psdnorm: preparing needs SciPy: pip install "psdnorm[recordings]"\n'),
    ],
)
def test_without_a_package_there_is_one_sentence(tmp_path, absent, said):
    source = clinic(tmp_path / "source", "S01")
    script = (
        f"import sys; sys.modules[{absent!r}] = None; from psdnorm.cli import main; "
        f"sys.argv = ['psdnorm', 'prepare', 'folder', {str(source)!r}, 's', '--jobs', '1']; main()"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path
    )
    assert (run.returncode, run.stdout, run.stderr) == (2, "", said)
    assert not (tmp_path / "s").exists()


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
