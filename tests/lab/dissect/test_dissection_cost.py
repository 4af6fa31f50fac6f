"""The cost of a dissection: what its networks predicted, and in what time."""

import pytest

from psdnorm.experiments.estimate import read_cost
from psdnorm.lab.dissect import dissection
from psdnorm.lab.dissect.dissection import Predicted, metered
from psdnorm.lab.dissect.shifts import UNSHIFTED
from psdnorm.training import Run

CELL = Run("usleep", "psd")


def test_a_piece_counts_predictions_and_their_sequences_but_no_failures(tmp_path):
    with metered(tmp_path, "cpu", 3) as meter:
        meter.simulated()
        for step in (
            Predicted(CELL, UNSHIFTED, sequences=20),
            Predicted(CELL, UNSHIFTED, "it failed"),
            Predicted(CELL, UNSHIFTED, sequences=22),
        ):
            meter.count(step)
    found = read_cost(tmp_path)
    (piece,) = found["pieces"]
    assert (found["predictions"], found["sequences"]) == (2, 42)
    assert (piece["predictions"], piece["sequences"]) == (2, 42)
    assert (piece["jobs"], piece["device"]) == (3, "cpu")
    assert found["sequences_per_second"] == 42 / piece["seconds"]


def test_it_is_written_after_every_prediction_and_however_it_ends(tmp_path):
    found = []

    def interrupted():
        with metered(tmp_path, "cpu", 1) as meter:
            meter.simulated()
            meter.count(Predicted(CELL, UNSHIFTED, sequences=20))
            found.extend(read_cost(tmp_path)["pieces"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    (before,), (after,) = found, read_cost(tmp_path)["pieces"]
    assert before["sequences"] == after["sequences"] == 20
    assert before["seconds"] < after["seconds"]


def test_the_commit_is_that_of_the_code(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        dissection, "commit_of", lambda path, **how: asked.append((path.parts, how)) or "abc"
    )
    with metered(tmp_path, "cpu", 1):
        pass
    ((parts, how),) = asked
    assert parts[-2:] == ("psdnorm", "__init__.py")
    assert how == {"only_tracked": True}
    assert read_cost(tmp_path)["pieces"][0]["commit"] == "abc"
