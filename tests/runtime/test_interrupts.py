"""SIGTERM and time limits are handled like Ctrl-C."""

import signal
import threading

import pytest

from psdnorm.errors import ArgumentError
from psdnorm.runtime import TimeLimitReached, sigterm_as_ctrl_c, time_limit


def test_sigterm_is_handled_like_ctrl_c_and_a_second_one_does_not_disturb_the_cleanup():
    ended = []

    def work():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            ended.append("gently")

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), sigterm_as_ctrl_c():
        work()
    assert ended == ["gently"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_block_ends_at_its_time_limit():
    with pytest.raises(TimeLimitReached), time_limit(1e-4):
        threading.Event().wait(60)


def test_the_time_limit_holds_if_a_shell_made_the_process_ignore_ctrl_c():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(TimeLimitReached), time_limit(1e-4):
            threading.Event().wait(60)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_before_the_time_limit_is_ctrl_c():
    with pytest.raises(KeyboardInterrupt) as stopped, time_limit(60):
        raise KeyboardInterrupt
    assert type(stopped.value) is KeyboardInterrupt
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf")])
def test_invalid_time_limits_raise(minutes):
    with (
        pytest.raises(ArgumentError, match=r"minutes is .*, expected a number above 0"),
        time_limit(minutes),
    ):
        pass
