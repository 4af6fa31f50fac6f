"""Commands run in this process, where a test can look into them."""

import sys

import pytest

from psdnorm.cli import main


@pytest.fixture
def run_command(monkeypatch, capsys):
    """Run ``psdnorm`` with arguments; returns exit code, output and errors."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["psdnorm", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        return stop.value.code, said.out, said.err

    return run
