"""The model in the box: what it is, what it says of itself, and what it can do."""

import lzma
import os
from pathlib import Path

import numpy as np
import pytest

import psdnorm
from psdnorm.drift import spread_of
from psdnorm.evaluation import balanced_accuracy, cohen_kappa, confusion_matrix
from psdnorm.io import read_stages
from psdnorm.lab.simulate import simulate_night
from psdnorm.staging import load_model, stage

FOLDER = Path(psdnorm.__file__).parent / "staging" / "shipped"


def raw_of(night, signal=None):
    """A simulated night as MNE holds one."""
    mne = pytest.importorskip("mne")
    info = mne.create_info(["C3-M2", "C4-M1"], night.sfreq, "eeg")
    uv = night.signal if signal is None else signal
    return mne.io.RawArray(1e-6 * np.asarray(uv, dtype=np.float64), info, verbose="error")


@pytest.fixture(scope="module")
def night():
    return simulate_night("SHHS", 4, seed=77, hours=1.5)


class TestWhatItIs:
    def test_it_is_usleep_with_psdnorm_in_less_than_12_mb(self):
        model = load_model()
        assert model.description["architecture"] == "USleep"
        assert model.network.config["norm"] == "psd"
        assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 12e6

    def test_it_learned_from_simulated_nights_and_says_so(self):
        facts = load_model().network.card["training_data"]
        assert facts["simulated"] is True
        assert all(cohort.startswith("wide") for cohort in facts["cohorts"])
        assert "no patient's recording" in facts["what"]

    def test_it_knows_its_training_nights(self):
        assert spread_of(load_model().network).n_nights >= 100

    def test_its_card_and_its_results_carry_the_notice(self):
        assert load_model().notice == "For research and demonstration, not for diagnosis."
        assert load_model().notice in (FOLDER / "README.md").read_text(encoding="utf-8")

    def test_its_card_logs_every_look_at_the_real_night(self):
        card = (FOLDER / "README.md").read_text(encoding="utf-8")
        looks = card[card.index("Every evaluation on that night") :]
        rows = [line.split("|") for line in looks.splitlines() if line.startswith("| 20")]
        assert [row[3].strip() for row in rows] == ["0.634", "0.641", "0.641", "0.624", "0.726"]


@pytest.mark.slow
class TestWhatItCanDo:
    def test_a_simulated_night_of_a_cohort_is_staged_and_in_range(self, night):
        result = stage(raw_of(night))
        scored = confusion_matrix(night.true_stages, result.hypnogram)
        assert balanced_accuracy(scored) > 0.8
        assert result.shift.verdict == "in range"

    @pytest.mark.parametrize("kind", ["gain 50", "flat", "spectrum inverted"])
    def test_what_is_no_night_is_not_to_be_trusted(self, night, kind, monkeypatch):
        monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
        from benchmarks.shift import SPOILT

        rng = np.random.default_rng(0)
        spoil = SPOILT.get(kind, lambda x, sfreq, rng: 0 * x)
        result = stage(raw_of(night, spoil(night.signal, night.sfreq, rng)))
        assert result.shift.verdict == "do not trust"
        assert result.shift.reasons

    @pytest.mark.realdata
    def test_the_real_night_is_staged_as_its_card_says(self, tmp_path):
        if "PSDNORM_REALDATA" not in os.environ:
            pytest.skip("PSDNORM_REALDATA is not set")
        folder = Path(os.environ["PSDNORM_REALDATA"]) / "sleep-edf"
        path = tmp_path / "SC4001E0-PSG.edf"
        path.write_bytes(lzma.decompress((folder / "SC4001E0-PSG.edf.xz").read_bytes()))
        result = stage(path)
        duration_s = 30 * len(result.hypnogram)
        expert = read_stages(folder / "SC4001EC-Hypnogram.edf", duration_s)
        asleep = np.flatnonzero(expert > 0)
        night = slice(asleep[0] - 60, asleep[-1] + 61)
        assert night.stop - night.start == 841
        scored = confusion_matrix(expert[night], result.hypnogram[night])
        assert balanced_accuracy(scored) >= 0.70
        assert cohen_kappa(scored) >= 0.65
