"""The comparison of stagers scores the right epochs, and tells who is missing, failed or slow."""

import csv
import lzma
import os
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import torch

from psdnorm.io.scoring import write_stages
from psdnorm.lab.simulate import Trace, write_edf

ROOT = Path(__file__).parents[2]
START = datetime(2001, 1, 1, 20)
# nobody sleeps in the first 2 epochs and in the last; all stages follow, most of the time N2
TRUE = np.array([0, 0, 1, 2, 2, 3, 4, 2, 0], np.int8)


@pytest.fixture
def peers(from_benchmarks):
    return from_benchmarks("peers")


@pytest.fixture
def small_night(peers, tmp_path, monkeypatch):
    """A night of 9 epochs in the place of the real one; returns its folder."""
    folder = tmp_path / "sleep-edf"
    folder.mkdir()
    rng = np.random.default_rng(0)
    labels = (*peers.peer_process.EEG, peers.peer_process.EOG)
    traces = [Trace(label, 20 * rng.standard_normal(27000), 100) for label in labels]
    write_edf(tmp_path / "night.edf", traces, START)
    (folder / peers.SIGNAL).write_bytes(lzma.compress((tmp_path / "night.edf").read_bytes()))
    write_stages(folder / peers.SCORING, TRUE, "edf", START)
    monkeypatch.setattr(peers, "MARGIN", 1)
    monkeypatch.setattr(peers, "N_EPOCHS", 8)
    monkeypatch.setenv("PSDNORM_REALDATA", str(tmp_path))
    return folder


def found(stages, second_s=1.0):
    words = {"release": "1.0", "learned_from": "nights", "saw": "Fpz-Cz"}
    return words | {"first_s": 2.0, "second_s": second_s, "stages": list(stages)}


def test_epochs_are_those_of_the_night_and_half_an_hour_around_it(peers):
    stages = np.zeros(2000, np.int8)
    stages[100] = 1  # a nap
    stages[1000:1700] = 2
    assert peers.compared_epochs(stages) == slice(940, 1760)
    assert peers.compared_epochs(stages[:1710]) == slice(940, 1710)


def test_scores_are_those_of_the_stages_given(peers):
    staged = np.where(TRUE == 3, 2, TRUE)
    row = peers.row_of("yasa", found(staged), TRUE)
    assert row.scores.balanced_accuracy == pytest.approx(0.8)
    assert row.scores.accuracy == pytest.approx(8 / 9)
    cells = peers.cells_of(row)
    assert (cells["first_s"], cells["second_s"]) == ("2.00", "1.00")
    assert cells["balanced_accuracy"] == "0.8000"
    assert cells["confusion"].startswith("[[3, 0, 0, 0, 0], [0, 1, ")
    lines = peers.lines_of(row)
    assert "balanced accuracy 0.800" in lines[0]
    assert lines[-2].split() == ["N3", "0", "0", "1", "0", "0"]


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        (TRUE[:-1], "gssc staged 8 epochs, expected 9"),
        (np.where(TRUE == 4, -1, TRUE), "gssc left 1 epochs unscored"),
    ],
)
def test_one_who_leaves_epochs_out_is_not_scored(peers, stages, why):
    with pytest.raises(RuntimeError, match=why):
        peers.row_of("gssc", found(stages), TRUE)


def test_a_bar_that_is_missed_is_told(peers):
    right, wrong = found(TRUE, second_s=3.0), found(0 * TRUE, second_s=5.0)
    gssc = peers.row_of("gssc", found(TRUE, second_s=4.0), TRUE)
    assert peers.misses([peers.row_of("psdnorm", right, TRUE), gssc]) == []
    bad = peers.row_of("psdnorm", wrong, TRUE)
    assert peers.misses([bad, gssc]) == [
        "balanced accuracy of at least 0.60",
        "no longer than GSSC",
    ]
    assert peers.misses([bad]) == ["balanced accuracy of at least 0.60"]


def test_only_gssc_may_load_pickles(peers, monkeypatch):
    monkeypatch.delenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", raising=False)
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    may = {peer: peers.environment(peer, 2) for peer in ("psdnorm", *peers.MODULES)}
    assert [p for p in may if "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD" in may[p]] == ["gssc"]
    assert all(each["OMP_NUM_THREADS"] == "2" for each in may.values())
    assert may["yasa"]["PYTHONPATH"] == f"{ROOT}{os.pathsep}elsewhere"


@pytest.mark.parametrize(
    ("card", "words"),
    [
        ({"training_data": {"nights": 400, "simulated": True}}, "400 simulated nights"),
        ({"training_data": {"nights": 3, "simulated": False}}, "3 real nights"),
        ({"training_data": {"nights": 3}}, "3 nights"),
        ({"training_data": "some"}, "it does not say what"),
        (None, "it does not say what"),
    ],
)
def test_what_a_model_learned_from_is_what_its_checkpoint_says(peers, card, words):
    assert peers.peer_process.training_of(card) == words


def test_a_crop_is_of_the_epochs_asked_for(peers, small_night, tmp_path):
    path = peers.unpack(small_night, tmp_path)
    whole, crop = (peers.peer_process.read_crop(path, *ends) for ends in ((0, 8), (3, 5)))
    assert crop.times[-1] == 60.0
    assert crop.get_channel_types() == ["eeg", "eeg", "eog"]
    np.testing.assert_array_equal(crop.get_data(), whole.get_data()[:, 9000:15001])


def test_the_others_are_compared_if_one_is_missing_and_one_fails(
    peers, small_night, tmp_path, monkeypatch, capsys
):
    def measure(peer, recording, epochs, model, threads):
        assert (epochs, threads) == (slice(1, 9), 2)
        assert model == ("folder" if peer == "psdnorm" else None)
        if peer == "gssc":
            raise RuntimeError("gssc failed with exit code 1: so it goes")
        return found(TRUE[epochs])

    monkeypatch.setattr(peers, "measure", measure)
    monkeypatch.setitem(peers.MODULES, "yasa", "no_such_module")
    monkeypatch.setitem(peers.MODULES, "gssc", "numpy")
    table = tmp_path / "peers.csv"
    assert peers.main(["--model", "folder", "--csv", str(table)]) == 1
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["peer"] for row in rows] == ["psdnorm", "band-power"]
    assert [row["kappa"] for row in rows] == ["1.0000", "1.0000"]
    printed = capsys.readouterr()
    assert "yasa is left out: no_such_module is not installed" in printed.out
    assert "gssc failed with exit code 1: so it goes" in printed.err


def test_another_night_than_the_one_agreed_upon_is_refused(peers, small_night, monkeypatch):
    monkeypatch.setattr(peers, "N_EPOCHS", 841)
    with pytest.raises(RuntimeError, match="has 8 epochs to compare, expected 841"):
        peers.compare(["psdnorm"], small_night, None, 2)


def test_without_the_real_data_the_error_says_so(peers, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PSDNORM_REALDATA", str(tmp_path))
    with pytest.raises(SystemExit):
        peers.main([])
    assert "PSDNORM_REALDATA must name the folder of the real data" in capsys.readouterr().err


def test_the_baseline_tells_stages_that_differ_in_power(peers):
    from types import SimpleNamespace

    baseline = peers.peer_process.band_powers
    stages = np.tile(np.arange(5), 8)
    noise = np.random.default_rng(1).standard_normal((2, 40, 3000))
    signal = (noise * 3.0 ** stages[:, None]).reshape(2, -1)
    powers = baseline.features(signal, 100.0)
    assert powers.shape == (40, 10)
    model = baseline.classifier([SimpleNamespace(stages=stages[:20])], [powers[:20]])
    np.testing.assert_array_equal(model.predict(powers[20:]), stages[20:])


@pytest.mark.slow
def test_a_model_stages_in_a_process_of_its_own(peers, small_night, tmp_path):
    from small_stagers import small_model

    from psdnorm.staging import stage

    model = small_model(tmp_path / "model")
    path = peers.unpack(small_night, tmp_path)
    left = peers.measure("psdnorm", path, slice(1, 9), str(model), torch.get_num_threads())
    assert left["stages"] == stage(path, model).hypnogram[1:].tolist()
    assert left["first_s"] > 0 < left["second_s"]
    with pytest.raises(RuntimeError, match=r"psdnorm failed with exit code 1: .*nowhere"):
        peers.measure("psdnorm", path, slice(1, 9), str(tmp_path / "nowhere"), 1)
