"""The real recording goes through ``prepare``: epochs and stages as scored, spectra as in sleep."""

import lzma
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.signal

from psdnorm.prepare.prepare import Preparation
from psdnorm.prepare.recipe import RECIPES
from psdnorm.store import Store

pytestmark = [
    pytest.mark.realdata,
    pytest.mark.slow,
    pytest.mark.skipif("PSDNORM_REALDATA" not in os.environ, reason="needs PSDNORM_REALDATA"),
]
NAMES = {"1": "N1", "2": "N2", "3": "N3", "4": "N3", "R": "REM", "W": "W"}


@pytest.fixture(scope="module")
def hypnogram():
    return Path(os.environ["PSDNORM_REALDATA"]) / "sleep-edf" / "SC4001EC-Hypnogram.edf"


@pytest.fixture(scope="module")
def store(hypnogram, tmp_path_factory):
    source = tmp_path_factory.mktemp("download")
    (source / "sleep-cassette").mkdir()
    shutil.copy(hypnogram, source / "sleep-cassette")
    packed = hypnogram.with_name("SC4001E0-PSG.edf.xz")
    with lzma.open(packed) as file, (source / "sleep-cassette" / packed.stem).open("wb") as target:
        shutil.copyfileobj(file, target)
    folder = tmp_path_factory.mktemp("store")
    (outcome,) = Preparation("PHYS", source, folder, RECIPES["paper"]).run()
    assert outcome.status == "prepared", outcome.reason
    return Store.open(folder)


def scored(hypnogram):
    """Each epoch's name as MNE reads it, from the recording's start to the last scored one."""
    mne = pytest.importorskip("mne")
    epochs = []
    for note in mne.read_annotations(hypnogram):
        name = note["description"].removeprefix("Sleep stage ")
        if name in NAMES:
            assert note["onset"] == 30 * len(epochs)
            epochs += [NAMES[name]] * round(note["duration"] / 30)
    return epochs


def test_channels_epochs_and_stages_are_those_of_the_hypnogram(store, hypnogram):
    names = scored(hypnogram)
    asleep = [index for index, name in enumerate(names) if name != "W"]
    names = names[asleep[0] - 60 : asleep[-1] + 61]  # half an hour of wake on either side
    row = store.index.iloc[0]
    assert row["recording"] == "PHYS-00-1"
    assert row["channels"] == "Fpz-Cz;Pz-Oz"
    assert row["epochs"] == len(names)
    found = {name: row[name] for name in (*sorted(set(NAMES.values())), "unscored")}
    assert found == {name: names.count(name) for name in found}
    numbers = [("W", "N1", "N2", "N3", "REM").index(name) for name in names]
    assert np.frombuffer(row["stages"], np.int8).tolist() == numbers
    assert not row["simulated"]


def test_the_spectrum_is_that_of_sleep_below_30_hz(store):
    stages = np.frombuffer(store.index.iloc[0]["stages"], np.int8)
    signals, _ = store.read("PHYS-00-1", 0, len(stages))
    assert np.abs(signals).max() <= 500
    freqs, psd = scipy.signal.welch(signals, fs=100, nperseg=400)  # (E, C, F), µV² per Hz
    psd = np.median(psd, axis=0)
    above = psd[:, freqs > 40].max(axis=1)
    assert (10 * np.log10(psd[:, np.argmin(np.abs(freqs - 10))] / above) > 30).all()
    deviations = signals.std(axis=2)
    assert (np.median(deviations[stages == 2], axis=0) > 5).all()
    assert (np.median(deviations, axis=0) < 60).all()


def test_deep_sleep_has_the_most_slow_waves(store):
    stages = np.frombuffer(store.index.iloc[0]["stages"], np.int8)
    signals, _ = store.read("PHYS-00-1", 0, len(stages))
    freqs, psd = scipy.signal.welch(signals[:, 0], fs=100, nperseg=400)
    band = (freqs >= 0.5) & (freqs < 4)
    delta = psd[:, band].sum(axis=1) * 0.25  # µV²
    by_stage = [np.median(delta[stages == stage]) for stage in range(5)]
    assert np.argmax(by_stage) == 3
    assert 300 < by_stage[3] < 5000
