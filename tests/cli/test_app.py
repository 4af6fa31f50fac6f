"""The command line's own promises, whatever the command."""

import importlib
import subprocess
import sys
from typing import Annotated

import pytest
import typer
from cohort_folder import cohort_folder

from psdnorm.cli import app, main
from psdnorm.cli._shared import command
from psdnorm.errors import ArgumentError, RecordingError

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


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ("hold_out is 'X', expected Y", "--hold-out is 'X', expected Y"),
        ("hold_out must be a text", "--hold-out must be a text"),
        ("norm is 'X', expected Y", "--norms is 'X', expected Y"),
        ("as_json has 1", "--json has 1"),
        ("where is 'X', expected Y", "where is 'X', expected Y"),  # no option
        ("norm psd has no filter", "norm psd has no filter"),  # not about the option
        ("lr is 0, expected more", "lr is 0, expected more"),
    ],
)
@pytest.mark.usefixtures("commands")
def test_a_sentence_names_the_option_as_it_was_typed(monkeypatch, capsys, sentence, said):
    @command
    def fail(
        where: Annotated[str, typer.Argument()],
        hold_out: Annotated[str, typer.Option()] = "",
        norms: Annotated[str, typer.Option()] = "",
        as_json: Annotated[bool, typer.Option("--json")] = False,
    ) -> None:
        raise ArgumentError(sentence)

    assert _code(monkeypatch, "fail", "here") == 2
    assert capsys.readouterr().err == f"psdnorm: {said}\n"


@pytest.mark.usefixtures("commands")
def test_a_sentence_about_a_file_is_left_as_it_is(monkeypatch, capsys):
    @command
    def fail(night: Annotated[str, typer.Option()] = "") -> None:
        raise RecordingError("night is truncated")

    assert _code(monkeypatch, "fail") == 2
    assert capsys.readouterr().err == "psdnorm: night is truncated\n"


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
    source = cohort_folder(tmp_path / "source", "S01")
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


CTRL_C_WHILE_IT_LOADS = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)
wanted, sys.argv = sys.argv[1], ["psdnorm", "lodo", "nowhere"]
sys.meta_path.insert(0, Finder())
from psdnorm.__main__ import main
main()
"""


@pytest.mark.parametrize(
    "module", ["psdnorm.cli", "typer", "psdnorm.cli._shared", "torch", "pandas"]
)
def test_ctrl_c_while_it_loads_is_one_sentence(module):
    command = [sys.executable, "-c", CTRL_C_WHILE_IT_LOADS, module]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (130, "psdnorm: interrupted\n")


def test_torch_is_not_loaded_before_a_command_needs_it():
    script = "import sys, psdnorm.cli; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.stdout == "False\n"


def test_it_runs_as_a_module():
    run = subprocess.run(
        [sys.executable, "-m", "psdnorm", "--help"], capture_output=True, text=True, check=True
    )
    assert "Usage: psdnorm" in run.stdout
