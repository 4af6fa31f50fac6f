"""Every cohort is found and read as it is downloaded; the trees are typed by hand."""

import lzma
import os
from pathlib import Path

import numpy as np
import pytest

from psdnorm.cohorts import COHORTS, channels_used, find_nights, read_night
from psdnorm.errors import RecordingError

EDFS = "polysomnography/edfs"
XMLS = "polysomnography/annotations-events-nsrr"
EARS = {"C3": 50, "C4": 70, "A1": 10, "A2": 20, "ECG": 9}
MASTOIDS = {"C3": 50, "C4": 70, "M1": 10, "M2": 20, "ECG": 9}
DERIVED = {"C3-M2": 30, "C4-M1": 60, "O1-M2": 5}
CENTRAL = (("C3-A2", "C4-A1"), (3.0, 6.0))

# cohort, signal, scoring, labels, then subject, visit and which candidates are used
NSRR_NIGHTS = [
    (
        *("ABC", f"{EDFS}/baseline/abc-baseline-900001.edf"),
        *(f"{XMLS}/baseline/abc-baseline-900001-nsrr.xml", MASTOIDS),
        *("900001", "baseline", ("C3-M2", "C4-M1")),
    ),
    (
        *("ABC", f"{EDFS}/month09/abc-month09-900001.edf"),
        *(f"{XMLS}/month09/abc-month09-900001-nsrr.xml", MASTOIDS),
        *("900001", "month09", ("C3-M2", "C4-M1")),
    ),
    (
        *("ABC", f"{EDFS}/month18/abc-month18-900001.edf"),
        *(f"{XMLS}/month18/abc-month18-900001-nsrr.xml", MASTOIDS),
        *("900001", "month18", ("C3-M2", "C4-M1")),
    ),
    (
        *("CCSHS", f"{EDFS}/ccshs-trec-1800005.edf", f"{XMLS}/ccshs-trec-1800005-nsrr.xml"),
        *(EARS, "1800005", "", ("C3-A2", "C4-A1")),
    ),
    (
        *("CFS", f"{EDFS}/cfs-visit5-802593.edf", f"{XMLS}/cfs-visit5-802593-nsrr.xml"),
        *(MASTOIDS, "802593", "", ("C3-M2", "C4-M1")),
    ),
    (
        *("CFS", f"{EDFS}/cfs-visit5-800002.edf", f"{XMLS}/cfs-visit5-800002-nsrr.xml"),
        *(EARS, "800002", "", ("C3-A2", "C4-A1")),
    ),
    (
        *("HPAP", f"{EDFS}/lab/full/homepap-lab-full-1600039.edf"),
        *(f"{XMLS}/lab/full/homepap-lab-full-1600039-nsrr.xml", MASTOIDS),
        *("1600039", "full", ("C3-M2", "C4-M1")),
    ),
    (
        *("HPAP", f"{EDFS}/lab/split/homepap-lab-split-1600001.edf"),
        *(f"{XMLS}/lab/split/homepap-lab-split-1600001-nsrr.xml", DERIVED),
        *("1600001", "split", ("C3-M2", "C4-M1")),
    ),
    (
        *("MROS", f"{EDFS}/visit1/mros-visit1-aa5665.edf"),
        *(f"{XMLS}/visit1/mros-visit1-aa5665-nsrr.xml", EARS),
        *("aa5665", "visit1", ("C3-A2", "C4-A1")),
    ),
    (
        *("MROS", f"{EDFS}/visit2/mros-visit2-aa5665.edf"),
        *(f"{XMLS}/visit2/mros-visit2-aa5665-nsrr.xml", MASTOIDS),
        *("aa5665", "visit2", ("C3-M2", "C4-M1")),
    ),
    (
        *("CHAT", f"{EDFS}/baseline/chat-baseline-300001.edf"),
        *(f"{XMLS}/baseline/chat-baseline-300001-nsrr.xml", MASTOIDS),
        *("300001", "baseline", ("C3-M2", "C4-M1")),
    ),
    (
        *("CHAT", f"{EDFS}/followup/chat-followup-300001.edf"),
        *(f"{XMLS}/followup/chat-followup-300001-nsrr.xml", MASTOIDS),
        *("300001", "followup", ("C3-M2", "C4-M1")),
    ),
    (
        *("CHAT", f"{EDFS}/nonrandomized/chat-nonrandomized-300004.edf"),
        *(f"{XMLS}/nonrandomized/chat-nonrandomized-300004-nsrr.xml", MASTOIDS),
        *("300004", "nonrandomized", ("C3-M2", "C4-M1")),
    ),
    (
        *("CHAT", f"{EDFS}/nonrandomized/chat-baseline-nonrandomized-300004.edf"),
        *(f"{XMLS}/nonrandomized/chat-baseline-nonrandomized-300004-nsrr.xml", MASTOIDS),
        *("300004", "nonrandomized", ("C3-M2", "C4-M1")),
    ),
    (
        *("SOF", f"{EDFS}/sof-visit-8-07853.edf", f"{XMLS}/sof-visit-8-07853-nsrr.xml"),
        *(EARS, "07853", "visit-8", ("C3-A2", "C4-A1")),
    ),
    *(
        (
            *(
                "SHHS",
                f"{EDFS}/{visit}/{visit}-205238.edf",
                f"{XMLS}/{visit}/{visit}-205238-nsrr.xml",
            ),
            *({"EEG": 60, second: 30, "ECG": 9}, "205238", visit, (used, "EEG")),
        )
        for visit, second, used in (
            ("shhs1", "EEG(sec)", "EEG(sec)"),
            ("shhs1", "EEG(SEC)", "EEG(sec)"),
            ("shhs2", "EEG2", "EEG2"),
            ("shhs2", "EEG__2", "EEG2"),
            ("shhs1", "EEG__sec", "EEG sec"),
        )
    ),
]


def check(found, typed, names, levels_uv, used):
    """One night, whose channels, levels and stages are these."""
    (night,), problems, _ = found
    assert problems == []
    assert tuple(channels_used(night).values()) == used
    recording = read_night(night)
    assert recording.channels == names
    assert recording.stages.tolist() == typed.stages
    np.testing.assert_allclose(recording.signal, np.outer(levels_uv, np.ones(180)), rtol=1e-5)
    assert "Harry" not in repr(night) + repr(recording)
    return night


@pytest.mark.parametrize(
    ("cohort", "signal", "scoring", "labels", "subject", "visit", "used"), NSRR_NIGHTS
)
def test_a_cohort_of_the_nsrr_is_read_as_downloaded(
    download, typed, cohort, signal, scoring, labels, subject, visit, used
):
    root = download({signal: typed.signal(**labels), scoring: typed.nsrr})
    night = check(find_nights(cohort, root), typed, *CENTRAL, used)
    assert (night.cohort, night.subject, night.visit) == (cohort, subject, visit)
    assert (night.signal, night.scoring) == (root / signal, root / scoring)


SLEEP_EDF = {"EEG__Fpz-Cz": 30, "EEG__Pz-Oz": 60, "EOG__horizontal": 9}


@pytest.mark.parametrize(
    ("cohort", "folder", "signal", "scoring", "subject", "visit"),
    [
        ("PHYS", "sleep-cassette/", "SC4001E0", "SC4001EC", "00", "1"),
        ("PHYS", "sleep-cassette/", "SC4022E0", "SC4022EJ", "02", "2"),
        ("PHYS", "sleep-cassette/", "SC4362F0", "SC4362FC", "36", "2"),
        ("PHYS", "", "SC4011E0", "SC4011EH", "01", "1"),
        ("phys-st", "sleep-telemetry/", "ST7011J0", "ST7011JP", "01", "1"),
        ("phys-st", "", "ST7242J0", "ST7242JA", "24", "2"),
    ],
)
def test_sleep_edf_is_read_whoever_scored_it(
    download, typed, cohort, folder, signal, scoring, subject, visit
):
    scoring = f"{folder}{scoring}-Hypnogram.edf"
    root = download(
        {f"{folder}{signal}-PSG.edf": typed.signal(**SLEEP_EDF), scoring: typed.hypnogram()}
    )
    used = ("EEG Fpz-Cz", "EEG Pz-Oz")
    night = check(find_nights(cohort, root), typed, ("Fpz-Cz", "Pz-Oz"), (3.0, 6.0), used)
    assert (night.subject, night.visit) == (subject, visit)
    assert night.scoring == root / scoring


@pytest.mark.parametrize("folder", ["", "SS3/"])
def test_mass_has_no_fpz_and_derives_it(download, typed, folder):
    labels = {"Fp1": 80, "Fp2": 60, "Cz": 40, "Pz": 90, "Oz": 30, "C3": 7}
    montage = {f"EEG__{electrode}-LER": level for electrode, level in labels.items()}
    root = download(
        {
            f"{folder}01-03-0001 PSG.edf": typed.signal(**montage),
            f"{folder}01-03-0001 Base.edf": typed.hypnogram(),
        }
    )
    used = ("(EEG Fp1-LER + EEG Fp2-LER)/2 - EEG Cz-LER", "EEG Pz-LER - EEG Oz-LER")
    night = check(find_nights("MASS", root), typed, ("Fpz-Cz", "Pz-Oz"), (3.0, 6.0), used)
    assert (night.subject, night.visit) == ("01-03-0001", "")


def test_every_cohort_of_the_table_is_tested_here():
    tested = {night[0] for night in NSRR_NIGHTS} | {"PHYS", "phys-st", "MASS"}
    assert tested == set(COHORTS)


@pytest.mark.parametrize("cohort", COHORTS.values(), ids=COHORTS)
def test_an_entry_is_complete(cohort):
    assert len(cohort.channels) == 2
    assert cohort.line_hz == (50 if cohort.name.lower().startswith("phys") else 60)
    for path in (*cohort.signals, *cohort.scorings):
        assert "{subject}" in path
        assert ("{visit}" in path) == bool(cohort.visits)


@pytest.mark.parametrize("name", ["abc", "Abc", " ABC "])
def test_names_are_compared_without_case_and_blanks(download, typed, name):
    root = download(
        {
            "Polysomnography/EDFs/Baseline/ABC-Baseline-900001.EDF": typed.signal(**MASTOIDS),
            f"{XMLS.title()}/baseline/abc-baseline-900001-NSRR.xml": typed.nsrr,
        }
    )
    night = check(find_nights(name, root), typed, *CENTRAL, ("C3-M2", "C4-M1"))
    assert (night.cohort, night.subject, night.visit) == ("ABC", "900001", "baseline")


def test_labels_are_compared_without_case_and_blanks(download, typed):
    labels = {"c3": 50, "C4__": 70, "m__1": 10, "M2": 20}
    signal, scoring = NSRR_NIGHTS[0][1:3]
    root = download({signal: typed.signal(**labels), scoring: typed.nsrr})
    check(find_nights("ABC", root), typed, *CENTRAL, ("C3-M2", "C4-M1"))


def test_profusion_stands_in_where_the_nsrrs_own_scoring_is_missing(download, typed):
    root = download(
        {
            f"{EDFS}/ccshs-trec-1800005.edf": typed.signal(**EARS),
            "polysomnography/annotations-events-profusion/ccshs-trec-1800005-profusion.xml": (
                typed.profusion
            ),
        }
    )
    night = check(find_nights("CCSHS", root), typed, *CENTRAL, ("C3-A2", "C4-A1"))
    assert night.scoring.name == "ccshs-trec-1800005-profusion.xml"


def test_wrong_channels_are_named_with_those_found(download, typed):
    root = download({f"{EDFS}/ccshs-trec-1800005.edf": typed.signal(C3=1, A2=2, ECG=3)})
    (night,), _, _ = find_nights("CCSHS", root)
    for read in (read_night, channels_used):
        with pytest.raises(RecordingError) as caught:
            read(night)
        assert str(caught.value) == (
            f"{night.signal} has none of 'C4-A1', 'C4-M1', 'EEG C4-A1', 'EEG C4-M1', found C3, A2, "
            "ECG"
        )


def test_a_channel_that_is_there_twice_is_named_beside_those_that_are_not(download, typed):
    root = download({f"{EDFS}/shhs1/shhs1-205238.edf": typed.signal(EEG=1, __EEG2=2, EEG2__=3)})
    (night,), _, _ = find_nights("SHHS", root)
    expected = (
        r"has none of 'EEG\(sec\)', 'EEG sec' and has 2 channels named 'EEG2', expected one, "
    )
    with pytest.raises(RecordingError, match=expected + "found EEG, EEG2, EEG2$"):
        channels_used(night)


def test_other_channels_can_be_asked_for(download, typed):
    root = download({f"{EDFS}/ccshs-trec-1800005.edf": typed.signal(**EARS)})
    (night,), _, _ = find_nights("CCSHS", root, channels={"ears": "A2-A1"})
    np.testing.assert_allclose(read_night(night).signal, 1.0, rtol=1e-5)


REAL = os.environ.get("PSDNORM_REALDATA")


@pytest.mark.realdata
@pytest.mark.skipif(not REAL, reason="PSDNORM_REALDATA names no folder of real recordings")
def test_the_real_night_is_found_as_phys_subject_00_night_1(tmp_path):
    source, folder = Path(REAL) / "sleep-edf", tmp_path / "sleep-cassette"
    folder.mkdir()
    packed = (source / "SC4001E0-PSG.edf.xz").read_bytes()
    (folder / "SC4001E0-PSG.edf").write_bytes(lzma.decompress(packed))
    name = "SC4001EC-Hypnogram.edf"
    (folder / name).write_bytes((source / name).read_bytes())
    (night,), problems, _ = find_nights("PHYS", tmp_path)
    assert problems == []
    assert (night.cohort, night.subject, night.visit) == ("PHYS", "00", "1")
    assert channels_used(night) == {"Fpz-Cz": "EEG Fpz-Cz", "Pz-Oz": "EEG Pz-Oz"}
    recording = read_night(night)
    assert recording.channels == ("Fpz-Cz", "Pz-Oz")
    counts = [int(np.sum(recording.stages == stage)) for stage in range(5)]
    assert counts == [1997, 58, 250, 220, 125]
