"""Simulated nights have the layout of the downloads, and every adapter reads them."""

import errno
import os
import re
import shutil
import sys
from collections import namedtuple
from datetime import time

import numpy as np
import pytest
from stores import tree

from psdnorm.cohorts import COHORTS, channels_used, find_nights, read_night
from psdnorm.errors import ArgumentError, MissingExtraError, StoreError
from psdnorm.io import read_channels, read_header, read_stages
from psdnorm.lab.simulate.cohort_files import (
    Trace,
    bytes_missing,
    scoring_paths,
    signal_path,
    write_edf,
    write_nights,
)
from psdnorm.lab.simulate.plan import Settings, fewer_visits, plan_nights

SETTINGS = Settings(seed=5, hours=0.1)
NIGHTS = plan_nights(list(COHORTS), 5, 2, SETTINGS)
FEW = plan_nights(["SHHS", "MASS"], 2, 1, SETTINGS)


@pytest.fixture(scope="module")
def downloads(tmp_path_factory):
    """All cohorts, five subjects and two nights each where there are two."""
    folder = tmp_path_factory.mktemp("downloads")
    assert list(write_nights(folder, NIGHTS)) == NIGHTS
    return folder


def written(folder, nights=FEW, **options):
    list(write_nights(folder, nights, **options))
    return tree(folder)


def of(cohort):
    return {(n.subject, n.visit): n for n in NIGHTS if n.cohort == cohort}


@pytest.mark.parametrize("cohort", COHORTS)
def test_an_adapter_reads_exactly_the_nights_that_were_simulated(downloads, cohort):
    found = find_nights(cohort, downloads / cohort)
    assert (found.problems, found.notes) == ([], [])
    planned = of(cohort)
    assert {(night.subject, night.visit) for night in found.nights} == set(planned)
    for night in found.nights:
        plan = planned[night.subject, night.visit]
        assert (night.age, night.sex, night.family) == plan.person()
        made, read = plan.simulate(), read_night(night)
        assert read.stages.tolist() == made.stages.tolist()
        assert (read.sfreq, read.start) == (made.sfreq, plan.start)
        # to a step of the converter, and so to a thousandth of the signal
        error = np.sqrt(np.mean((read.signal - made.signal) ** 2, axis=1))
        assert np.all(error < 1e-3 * made.signal.std(axis=1))
        assert np.abs(read.signal - made.signal).max() < 0.1


def test_people_are_known_in_all_cohorts_but_mass(downloads):
    for cohort in COHORTS:
        nights = find_nights(cohort, downloads / cohort).nights
        known = {(night.age is not None, night.sex is not None) for night in nights}
        assert known == {(cohort != "MASS",) * 2}, cohort


def test_some_families_of_cfs_are_of_two(downloads):
    families = [night.family for night in find_nights("CFS", downloads / "CFS").nights]
    assert [families.count(each) for each in dict.fromkeys(families)] == [2, 1, 2]


@pytest.mark.parametrize(
    ("cohort", "expected"),
    [
        ("SHHS", {"EEG(sec)", "EEG(SEC)", "EEG2", "EEG 2", "EEG sec"}),
        ("HPAP", {"C3", "C3-M2", "EEG C3"}),
        ("MASS", {"EEG Fp1-LER", "EEG Fp1-CLE"}),
        ("PHYS", {"EEG Fpz-Cz"}),
    ],
)
def test_a_cohort_spells_its_channels_in_several_ways(downloads, cohort, expected):
    nights = find_nights(cohort, downloads / cohort).nights
    assert {read_header(night.signal).labels[0] for night in nights} == expected


@pytest.mark.parametrize("cohort", ["CFS", "MROS"])
def test_references_are_ears_for_some_and_mastoids_for_others(downloads, cohort):
    nights = find_nights(cohort, downloads / cohort).nights
    assert {channels_used(night)["C3-A2"] for night in nights} == {"C3-A2", "C3-M2"}


@pytest.mark.parametrize("cohort", COHORTS)
def test_each_scoring_of_a_night_says_the_same(downloads, cohort):
    forms = set()
    for night in of(cohort).values():
        expected = night.simulate().stages.tolist()
        for path, form in scoring_paths(night).items():
            read = read_stages(downloads / cohort / path, 360, night.start)
            assert read.tolist() == expected
            forms.add(form)
    assert forms == ({"edf"} if cohort in ("PHYS", "phys-st", "MASS") else {"nsrr", "profusion"})


def test_one_subject_in_four_has_only_the_scoring_of_profusion(downloads):
    names = [night.scoring.name for night in find_nights("CCSHS", downloads / "CCSHS").nights]
    assert [name.endswith("-profusion.xml") for name in names] == [False, False, True, False, False]


def test_names_are_those_of_the_downloads():
    first = {n.cohort: signal_path(n).name for n in reversed(NIGHTS) if not n.index and not n.night}
    assert first == {
        "ABC": "abc-baseline-900001.edf",
        "CCSHS": "ccshs-trec-1800001.edf",
        "CFS": "cfs-visit5-800001.edf",
        "HPAP": "homepap-lab-full-1600001.edf",
        "MROS": "mros-visit1-aa0001.edf",
        "SHHS": "shhs1-200001.edf",
        "CHAT": "chat-baseline-300001.edf",
        "SOF": "sof-visit-8-00001.edf",
        "PHYS": "SC4001E0-PSG.edf",
        "phys-st": "ST7001J0-PSG.edf",
        "MASS": "01-03-0001 PSG.edf",
    }


def test_a_hypnogram_of_sleep_edf_has_its_scorers_letter_and_its_signals_recorders():
    for night in of("PHYS").values():
        (hypnogram,) = scoring_paths(night)
        assert re.fullmatch(r"SC4\d\d[12][EFG][A-Z]-Hypnogram.edf", hypnogram.name)
        assert hypnogram.name[:7] == signal_path(night).name[:7]


def test_files_hold_other_channels_at_other_rates_and_the_cohorts_unit(downloads):
    header = read_header(downloads / "HPAP" / signal_path(of("HPAP")["1600001", "full"]))
    units = {channel.label: (channel.sfreq, channel.unit) for channel in header.channels}
    assert units["C3"] == units["M2"] == (200, "mV")
    assert units["ECG"] == (256, "mV")
    assert units["E1"] == (128, "uV")


@pytest.mark.parametrize("unit", ["uV", "mV", "V"])
def test_no_sample_is_clipped_in_any_unit(tmp_path, unit):
    values = np.linspace(-5000, 5000, 300, dtype=np.float32)
    values[0] = 0.05
    write_edf(tmp_path / "a.edf", [Trace("C3", values, 10, unit)], NIGHTS[0].start)
    assert read_header(tmp_path / "a.edf").channels[0].unit == unit
    read = read_channels(tmp_path / "a.edf", ["C3"]).signal[0]
    np.testing.assert_allclose(read, values, atol=8000 / 32767 / 2 * 1.01)


def test_every_signal_says_that_it_is_simulated_and_names_nobody(downloads):
    signals = [downloads / night.cohort / signal_path(night) for night in NIGHTS]
    for path in signals:
        assert read_header(path).simulated
        head = path.read_bytes()[:256]
        assert head[8:88].split() == [b"X"] * 4
        assert head[88:168].rstrip() == b"Startdate 01-JAN-1985 X X psdnorm simulated"


def test_every_folder_says_that_it_is_simulated(downloads):
    for cohort in COHORTS:
        said = (downloads / cohort / "simulated.json").read_text()
        assert "simulated by psdnorm: nobody slept these nights" in said
        assert '"seed": 5' in said


def test_nights_begin_in_the_evening_each_at_its_own_time():
    starts = {night.start.time() for night in NIGHTS}
    assert min(starts) >= time(20, 30)
    assert max(starts) <= time(23, 30)
    assert len(starts) > 0.9 * len(NIGHTS)


def test_the_same_seed_gives_the_same_bytes_in_any_order(tmp_path):
    first = written(tmp_path / "first")
    assert written(tmp_path / "second", FEW[::-1]) == first
    other = plan_nights(["SHHS", "MASS"], 2, 1, Settings(seed=6, hours=0.1))
    changed = written(tmp_path / "third", other)
    assert changed.keys() == first.keys()
    signals = [name for name in first if name.endswith((" PSG.edf", "1.edf", "2.edf"))]
    assert len(signals) == len(FEW)
    assert all(changed[name] != first[name] for name in signals)


@pytest.mark.slow
def test_processes_at_once_give_the_same_bytes(tmp_path):
    assert written(tmp_path / "two", jobs=2) == written(tmp_path / "one")


def test_zero_processes_raise(tmp_path):
    with pytest.raises(ArgumentError, match="jobs is 0, expected at least 1"):
        written(tmp_path, jobs=0)


def test_a_file_that_is_whole_is_not_written_again(tmp_path):
    written(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    before = {path: path.stat().st_ino for path in files}
    written(tmp_path)
    assert {path: path.stat().st_ino for path in files} == before


def test_what_a_killed_run_left_half_or_not_at_all_is_made_good(tmp_path):
    whole = written(tmp_path)
    signal, other = (tmp_path / night.cohort / signal_path(night) for night in FEW[::2])
    scoring = tmp_path / "SHHS" / next(iter(scoring_paths(FEW[1])))
    os.truncate(signal, 5000)
    other.unlink()
    os.truncate(scoring, 200)
    for folder in (signal.parent, tmp_path / "SHHS"):
        (folder / ".1234.partial").write_bytes(b"half")
    assert written(tmp_path) == whole


def test_subjects_and_visits_can_be_added_and_none_is_lost(tmp_path):
    more = plan_nights(["SHHS"], 3, 2, SETTINGS)
    at_once = written(tmp_path / "at once", more)
    written(tmp_path / "by and by", plan_nights(["SHHS"], 1, 2, SETTINGS))
    written(tmp_path / "by and by", more)
    assert written(tmp_path / "by and by", FEW[:1]) == at_once


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (Settings(seed=1, hours=0.1), "seed 5, found 1"),
        (Settings(seed=5, hours=0.2), "hours 0.1, found 0.2"),
        (Settings(seed=5, hours=0.1, shift=2.0), "shift 1.0, found 2.0"),
    ],
)
def test_other_settings_raise_before_anything_is_written(tmp_path, other, name):
    before = written(tmp_path)
    with pytest.raises(ArgumentError, match=f"SHHS has nights of {name}"):
        written(tmp_path, plan_nights(["ABC", "SHHS"], 1, 1, other))
    assert tree(tmp_path) == before
    assert not (tmp_path / "ABC").exists()


def test_a_folder_with_files_that_were_not_simulated_is_left_alone(tmp_path):
    (tmp_path / "MASS").mkdir()
    (tmp_path / "MASS" / "01-03-0001 PSG.edf").write_bytes(b"a real night")
    with pytest.raises(ArgumentError, match=r"'01-03-0001 PSG.edf' and no simulated.json"):
        written(tmp_path)
    assert tree(tmp_path) == {"MASS/01-03-0001 PSG.edf": b"a real night"}


@pytest.mark.parametrize("text", ["", "[]", '{"seed": 5}'])
def test_a_mark_that_was_changed_is_named(tmp_path, text):
    written(tmp_path)
    (tmp_path / "MASS" / "simulated.json").write_text(text)
    with pytest.raises(ArgumentError, match=r"simulated\.json"):
        written(tmp_path)


def test_what_is_missing_is_counted_in_bytes(tmp_path):
    needed = bytes_missing(tmp_path, FEW)
    written(tmp_path)
    assert needed == sum(path.stat().st_size for path in tmp_path.rglob("*[0-9PSG].edf"))
    assert bytes_missing(tmp_path, FEW) == 0


def test_a_disk_that_is_too_small_is_named_before_anything_is_written(tmp_path, monkeypatch):
    usage = namedtuple("usage", "free")(1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ArgumentError, match=r"room for 1000 bytes, expected \d{7} for"):
        written(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_disk_that_fills_up_is_one_sentence_and_leaves_nothing_half(tmp_path, monkeypatch):
    whole = written(tmp_path / "undisturbed")

    def full(handle):
        if os.fstat(handle).st_size > 100_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match=r"\.edf cannot be written: No space left on device"):
            written(tmp_path / "full")
    left = tree(tmp_path / "full")
    assert not any(name.endswith((".edf", ".partial")) for name in left)
    assert {name: whole[name] for name in left} == left
    assert written(tmp_path / "full") == whole


def test_without_edfio_it_is_said_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "edfio", None)
    with pytest.raises(MissingExtraError, match=r"psdnorm\[recordings\]"):
        written(tmp_path)


def test_a_cohort_with_fewer_visits_than_asked_for_says_so():
    assert fewer_visits(plan_nights(["CCSHS", "SHHS", "CHAT"], 4, 3, SETTINGS), 3) == [
        "CCSHS has 1 night per subject, not 3",
        "SHHS has 2 nights per subject, not 3",
        "CHAT has 1 or 2 nights per subject, not 3",
    ]
    assert fewer_visits(plan_nights(["ABC"], 4, 3, SETTINGS), 3) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["PHYS"], 101, 1, SETTINGS), "at most 100 for PHYS"),
        ((["PHYS"], 0, 1, SETTINGS), "subjects is 0"),
        ((["PHYS"], 1, 0, SETTINGS), "nights is 0"),
        ((["XYZ"], 1, 1, SETTINGS), "'XYZ' has no profile"),
        ((["PHYS"], 1, 1, Settings(hours=0)), "hours is 0"),
        ((["PHYS"], 1, 1, Settings(shift=-1)), "shift is -1"),
        ((["PHYS"], 1, 1, Settings(seed=-1)), "seed is -1"),
    ],
)
def test_what_cannot_be_simulated_raises_before_it_is_tried(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        plan_nights(*arguments)


def test_women_of_a_cohort_of_men_are_written_where_the_shift_leaves_some(tmp_path):
    nights = plan_nights(["MROS"], 8, 1, Settings(hours=0.02, shift=0.0))
    written(tmp_path, nights)
    sexes = [night.sex for night in find_nights("MROS", tmp_path / "MROS").nights]
    assert sexes == [night.person().sex for night in nights]
    assert set(sexes) == {"F", "M"}
