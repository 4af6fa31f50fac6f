"""What the tests of reports share."""

import os

import pytest


@pytest.fixture(scope="module", autouse=True)
def _nobody_cuts_the_power():
    """A report is some hundred files, and to wait until a disc has each takes its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield
