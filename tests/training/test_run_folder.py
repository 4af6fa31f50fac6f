"""A run says how long its predictions took, and of how much; runs from before are read as ever."""

import json
from dataclasses import replace

import pandas as pd
import pytest
from small_runs import PROTOCOL, RUN, small_store

from psdnorm.batches import window_starts
from psdnorm.training import Run, train_run
from psdnorm.training.run_folder import Timed, predicted_sequences
from psdnorm.training.train import run_adapted

SHORT = replace(PROTOCOL, max_epochs=1)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return small_store(tmp_path_factory.mktemp("records") / "store")


def test_only_the_seconds_in_which_predictions_are_made_count(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("psdnorm.training.run_folder.time.monotonic", lambda: now[0])

    def predictions():
        for night in range(3):
            now[0] += 2.0
            yield night, None, None
        now[0] += 0.5  # the end is found

    timed = Timed(predictions())
    for _ in timed:
        now[0] += 100.0  # what is done with them
    assert timed.seconds == 6.5


def test_sequences_are_the_windows_of_the_nights():
    index = pd.DataFrame({"epochs": [40, 9, 5]})
    windows = [len(window_starts(n, PROTOCOL.length, PROTOCOL.stride)) for n in (40, 9, 5)]
    assert predicted_sequences(index, PROTOCOL) == sum(windows)
    assert windows[1:] == [1, 1]


def test_a_run_records_them_and_its_result_has_them(store, tmp_path):
    result = train_run(store, RUN, SHORT, tmp_path)
    done = json.loads((tmp_path / "done.json").read_text())
    held_out = store.index[store.index["cohort"] == "abc"]
    assert done["nights"] == result.nights == len(held_out)
    expected = predicted_sequences(held_out, SHORT)
    assert done["sequences"] == result.sequences == expected > len(held_out)
    assert 0 < done["prediction_seconds"] < done["seconds"]
    assert result.prediction_seconds == done["prediction_seconds"]


def test_a_run_that_did_not_record_them_is_read(store, tmp_path):
    train_run(store, RUN, SHORT, tmp_path)
    path = tmp_path / "done.json"
    done = json.loads(path.read_text())
    for name in ("prediction_seconds", "nights", "sequences"):
        del done[name]
    path.write_text(json.dumps(done))
    result = train_run(store, RUN, SHORT, tmp_path)
    assert (result.prediction_seconds, result.nights, result.sequences) == (None, None, None)
    assert result.balanced_accuracy == done["balanced_accuracy"]


def test_adabn_records_its_own_not_those_of_the_network_that_it_adapts(store, tmp_path):
    run = Run("usleep", "adabn2", hold_out="abc")
    base = Run("usleep", "batch", hold_out="abc")
    train_run(store, base, SHORT, tmp_path / "base", keep="weights")
    path = tmp_path / "base" / "done.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"prediction_seconds": 1e6}))
    run_adapted(store, run, SHORT, tmp_path / "adapted", tmp_path / "base")
    done = json.loads((tmp_path / "adapted" / "done.json").read_text())
    assert 0 < done["prediction_seconds"] < done["seconds"] < 1e6
    assert done["nights"] == 3
