"""A night added to a store directly equals the one prepared from its files."""

import sys

import numpy as np
import pytest
from stores import tree

from psdnorm.cohorts import COHORTS
from psdnorm.errors import StoreError
from psdnorm.lab.simulate import plan
from psdnorm.lab.simulate.cohort_files import add_nights, bytes_missing_in, write_nights
from psdnorm.lab.simulate.plan import Settings, plan_nights
from psdnorm.prepare.prepare import PREPARED, Preparation
from psdnorm.prepare.recipe import RECIPES
from psdnorm.store import Store

SETTINGS = Settings(seed=2, hours=0.1)
NIGHTS = plan_nights(list(COHORTS), 2, 2, SETTINGS)
FEW = plan_nights(["CFS", "PHYS"], 2, 1, Settings(hours=0.05))
# where a night came from, and what follows from that
OF_SOURCE = ["source", "checksum", "fingerprint", "digest", "bytes"]


def filled(folder, nights=FEW, recipe="robust", **options):
    list(add_nights(folder, nights, RECIPES[recipe], **options))
    return Store.open(folder)


@pytest.fixture(scope="module")
def downloads(tmp_path_factory):
    folder = tmp_path_factory.mktemp("downloads")
    list(write_nights(folder, NIGHTS))
    return folder


@pytest.mark.parametrize("recipe", ["robust", "paper"])
def test_it_is_the_same_as_preparing_the_files(downloads, tmp_path, recipe):
    for cohort in COHORTS:
        source = downloads / cohort
        outcomes = Preparation(cohort, source, tmp_path / "prepared", RECIPES[recipe]).run()
        assert {outcome.status for outcome in outcomes} == {PREPARED}
    prepared = Store.open(tmp_path / "prepared")
    straight = filled(tmp_path / "straight", NIGHTS, recipe)
    # names, people, visits, stages, channels, flags and that it is simulated
    assert straight.index.drop(columns=OF_SOURCE).equals(prepared.index.drop(columns=OF_SOURCE))
    assert straight.index["simulated"].all()
    assert len(straight.index) == len(NIGHTS)
    for recording in straight.index["recording"]:
        ours, theirs = (
            np.asarray(store.signals(recording), np.float32) for store in (straight, prepared)
        )
        error = np.sqrt(np.mean((ours - theirs) ** 2, axis=(0, 2)))
        assert np.all(error < 1e-3 * ours.std(axis=(0, 2))), recording


def test_it_needs_nothing_that_reads_or_writes_edf(tmp_path, monkeypatch):
    for library in ("edfio", "mne", "xlrd", "joblib", "distributed"):
        monkeypatch.setitem(sys.modules, library, None)
    assert len(filled(tmp_path).index) == len(FEW)


@pytest.mark.slow
def test_processes_at_once_give_the_same_store(tmp_path):
    one, two = filled(tmp_path / "one"), filled(tmp_path / "two", FEW[::-1], jobs=2)
    assert tree(one.path / "nights") == tree(two.path / "nights")


def test_a_night_that_is_there_is_not_made_again(tmp_path, monkeypatch):
    before = tree(filled(tmp_path).path / "nights")

    def never(*arguments, **settings):
        raise AssertionError

    monkeypatch.setattr(plan, "simulate_night", never)
    assert tree(filled(tmp_path).path / "nights") == before


def test_a_run_that_was_ended_goes_on_and_its_index_has_what_was_made(tmp_path, monkeypatch):
    undisturbed = tree(filled(tmp_path / "undisturbed").path / "nights")
    with monkeypatch.context() as patch:
        patch.setattr(plan, "simulate_night", _interrupted_after(2))
        with pytest.raises(KeyboardInterrupt):
            filled(tmp_path / "ended")
    assert len(Store.open(tmp_path / "ended").index) == 2
    assert tree(filled(tmp_path / "ended").path / "nights") == undisturbed


def _interrupted_after(n_nights):
    simulate, made = plan.simulate_night, []

    def interrupted(*arguments, **settings):
        if len(made) == n_nights:
            raise KeyboardInterrupt
        made.append(arguments)
        return simulate(*arguments, **settings)

    return interrupted


def test_nights_of_other_settings_raise_before_one_is_added(tmp_path):
    before = tree(filled(tmp_path).path)
    for settings in ({"seed": 1}, {"shift": 0.5}, {"hours": 0.1}):
        others = plan_nights(["ABC", "CFS"], 3, 1, Settings(**{"hours": 0.05, **settings}))
        with pytest.raises(StoreError, match="has nights of CFS from 'psdnorm simulate, seed 0"):
            # of subjects that are there, and of the one that is not
            filled(tmp_path, others)
        with pytest.raises(StoreError, match="has nights of CFS from 'psdnorm simulate, seed 0"):
            filled(tmp_path, others[-1:])
    assert tree(tmp_path) == before


def test_a_night_that_another_version_made_raises(tmp_path, monkeypatch):
    filled(tmp_path)
    monkeypatch.setattr("psdnorm.__version__", "0.0.0")
    with pytest.raises(StoreError, match=r"has 'CFS-800001' from .* of psdnorm 0.0.0: expected"):
        filled(tmp_path)


def test_each_cohort_of_a_store_may_have_settings_of_its_own(tmp_path):
    filled(tmp_path)
    store = filled(tmp_path, plan_nights(["ABC"], 1, 1, Settings(hours=0.05, shift=2)))
    assert set(store.index["cohort"]) == {"ABC", "CFS", "PHYS"}


def test_another_recipe_raises(tmp_path):
    filled(tmp_path)
    with pytest.raises(StoreError, match="never mixes recipes"):
        filled(tmp_path, recipe="paper")


def test_what_is_missing_is_counted_in_bytes(tmp_path):
    recipe = RECIPES["robust"]
    # 6 epochs of 2 channels, 3000 samples, 2 bytes
    assert bytes_missing_in(tmp_path, FEW, recipe) == len(FEW) * 6 * 2 * 3000 * 2
    filled(tmp_path, FEW[1:])
    assert bytes_missing_in(tmp_path, FEW, recipe) == 6 * 2 * 3000 * 2
