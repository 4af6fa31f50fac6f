"""Hypothesis where it is installed; elsewhere its tests are skipped and the rest of a file is not.

A machine with a GPU may have only torch, triton, numpy and pytest.
"""

import pytest

try:
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st

    # a busy machine may take any time over an example
    settings.register_profile(
        "psdnorm", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("psdnorm")
except ModuleNotFoundError:

    class _NothingToDraw:
        """Stands for any strategy, and for whatever is made of one."""

        def __getattr__(self, name):
            if name.startswith("__"):  # what Python asks of every object
                raise AttributeError(name)
            return self

        def __call__(self, *arguments, **options):
            return self

    st = _NothingToDraw()

    def given(*strategies, **named):
        return pytest.mark.skip(reason="needs hypothesis")

    def settings(**options):
        return lambda test: test


__all__ = ["given", "settings", "st"]
