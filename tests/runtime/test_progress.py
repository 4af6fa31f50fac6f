"""Long work is told of: by a bar in a terminal, by lines in a log."""

import io

import pytest
from rich.console import Console

from psdnorm.runtime import progress


@pytest.fixture
def told(monkeypatch):
    """Track four items of 30 s each; returns what was printed."""

    def run(*, terminal):
        printed = io.StringIO()
        shown = Console(file=printed, force_terminal=terminal, width=80)
        clock = iter(range(0, 1000, 30))
        monkeypatch.setattr(progress, "errors", shown)
        monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
        assert list(progress.track("abcd", 4, "staging")) == list("abcd")
        return printed.getvalue()

    return run


def test_a_log_has_a_line_a_minute_with_what_is_left_and_the_whole_at_its_end(told):
    printed = told(terminal=False)
    assert printed.count("staging: ") == 1
    assert "staging: 2 of 4, about 0:01:00 left\n" in printed
    assert "4/4" in printed.splitlines()[-1]


def test_a_terminal_has_the_bar_alone(told):
    assert "about" not in told(terminal=True)
