"""Age, sex and family come from the cohorts' tables, where there are any."""

import sys
from types import SimpleNamespace

import pytest

from psdnorm.cohorts import find_nights

EDFS = "polysomnography/edfs"


def known(cohort, root):
    return {
        (night.subject, night.visit): (night.age, night.sex, night.family)
        for night in find_nights(cohort, root).nights
    }


# cohort, signal, table, its text, and what is known then
TABLES = [
    (
        *("ABC", "baseline/abc-baseline-900001", "abc-baseline-dataset-0.4.0.csv"),
        *("nsrrid,visitnumber,gender,age\n900001,0,2,48\n", (48.0, "F", None)),
    ),
    (
        *("CCSHS", "ccshs-trec-1800005", "ccshs-trec-dataset-0.8.0.csv"),
        *("nsrrid,age,male\n1800005,17.6,1\n", (17.6, "M", None)),
    ),
    (
        *("CFS", "cfs-visit5-802593", "cfs-visit5-dataset-0.7.0.csv"),
        *("nsrrid,familyi,age,male\n802593,1012,43.1,00\n", (43.1, "F", "1012")),
    ),
    (
        *("CFS", "cfs-visit5-802593", "cfs-visit5-dataset-0.4.0.csv"),
        *("nsrrid,age,SEX\n802593,43.1,1\n", (43.1, "M", None)),
    ),
    (
        *("HPAP", "lab/full/homepap-lab-full-1600039", "homepap-baseline-dataset-0.2.0.csv"),
        *("nsrrid,age,gender\n1600039,51,F\n", (51.0, "F", None)),
    ),
    (
        *("MROS", "visit1/mros-visit1-aa5665", "mros-visit1-dataset-0.6.0.csv"),
        *("nsrrid,visit,vsage1,gender\nAA5665,1,79,2\n", (79.0, "M", None)),
    ),
    (
        *("SHHS", "shhs1/shhs1-205238", "shhs1-dataset-0.21.0.csv"),
        *("nsrrid,age_s1,gender\n205238,61,2\n", (61.0, "F", None)),
    ),
    (
        *("CHAT", "baseline/chat-baseline-300001", "chat-baseline-dataset-0.12.0.csv"),
        *("nsrrid,ageyear_at_meas,male\n300001,6.9,0\n", (6.9, "F", None)),
    ),
    (
        *("CHAT", "nonrandomized/chat-nonrandomized-300004", "chat-nonrandomized-dataset-0.12.csv"),
        *("nsrrid,age_nr,ref9\n300004,8,1\n", (8.0, "M", None)),
    ),
    (
        *("SOF", "sof-visit-8-07853", "sof-visit-8-dataset-0.8.0.csv"),
        *("sofid,V8AGE,gender\n7853,83,1\n", (83.0, "F", None)),
    ),
    (
        *("SOF", "sof-visit-8-07853", "sof-visit-8-harmonized-dataset-0.8.0.csv"),
        *("sofid,nsrr_age,nsrr_sex\n7853.0,83,female\n", (83.0, "F", None)),
    ),
]


@pytest.mark.parametrize(("cohort", "signal", "table", "text", "expected"), TABLES)
def test_a_table_of_the_nsrr_says_age_sex_and_family(
    download, typed, cohort, signal, table, text, expected
):
    root = download({f"{EDFS}/{signal}.edf": typed.signal(C3=1), f"datasets/{table}": text})
    assert list(known(cohort, root).values()) == [expected]


def shhs(download, typed, tables):
    visits = {f"{EDFS}/shhs{n}/shhs{n}-205238.edf": typed.signal(C3=1) for n in (1, 2)}
    return known("SHHS", download(visits | {f"datasets/{n}": t for n, t in tables.items()}))


def test_each_visit_has_its_own_age_and_both_the_sex(download, typed):
    tables = {
        "shhs1-dataset-0.21.0.csv": "nsrrid,age_s1,gender\n205238,61,2\n",
        "shhs2-dataset-0.21.0.csv": "nsrrid,age_s2\n205238,66\n",
    }
    assert shhs(download, typed, tables) == {
        ("205238", "shhs1"): (61.0, "F", None),
        ("205238", "shhs2"): (66.0, "F", None),
    }


def test_a_table_that_gives_two_ages_for_a_subject_gives_none(download, typed):
    harmonized = "nsrrid,visitnumber,nsrr_age,nsrr_sex\n205238,1,61,female\n205238,2,66,female\n"
    people = shhs(download, typed, {"shhs-harmonized-dataset-0.21.0.csv": harmonized})
    assert set(people.values()) == {(None, "F", None)}


def test_what_is_no_age_and_no_sex_is_left_out(download, typed):
    tables = {
        "shhs1-dataset.csv": "nsrrid,age_s1,gender\n205238,-9,.\n",
        "shhs2-dataset.csv": "nsrrid,age_s2,gender\n205238,n/a,not reported\n",
        "shhs1-eeg-bands.csv": "nsrrid,delta\n205238,3\n",
        "shhs-empty.csv": "",
        "shhs-other.csv": "a,b\n1,2\n",
    }
    assert set(shhs(download, typed, tables).values()) == {(None, None, None)}


def test_a_table_that_cannot_be_read_is_noted(download, typed):
    root = download(
        {
            f"{EDFS}/ccshs-trec-1800005.edf": typed.signal(C3=1),
            "datasets/ccshs.csv": "nsrrid," + 140_000 * "x",
        }
    )
    nights, _, notes = find_nights("CCSHS", root)
    assert len(nights) == 1
    assert "ccshs.csv was not read: field larger" in notes[0]


def cfs(download, typed, text):
    files = {f"{EDFS}/cfs-visit5-80000{n}.edf": typed.signal(C3=1) for n in (1, 2, 3)}
    return find_nights("CFS", download(files | ({"datasets/cfs.csv": text} if text else {}))).notes


LONE = "the family of {} of 3 subjects of CFS is unknown: relatives may be on both sides of a split"


def test_subjects_of_cfs_without_a_family_are_noted(download, typed):
    assert cfs(download, typed, None) == [LONE.format(3)]
    text = "nsrrid,familyi\n800001,7\n800002,.\n"
    assert cfs(download, typed, text) == [LONE.format(2)]
    assert cfs(download, typed, text.replace(".", "7") + "800003,8\n") == []


@pytest.mark.parametrize("text", ["id,age\n1800005,17\n", "nsrrid,delta\n1800005,3\n", ""])
def test_tables_without_the_columns_are_noted_once(download, typed, text):
    files = {f"{EDFS}/ccshs-trec-1800005.edf": typed.signal(C3=1), "datasets/a.csv": text}
    root = download(files | {"datasets/b.csv": "x,y\n1,2\n"})
    assert find_nights("CCSHS", root).notes == [
        f"{root}/datasets has no table of nsrrid with age, sex or family (nsrr_age, age, nsrr_sex, "
        "male), so they are left out, found a.csv, b.csv"
    ]
    download({"datasets/c.csv": "nsrrid,age\n1800005,17\n"})
    assert find_nights("CCSHS", root).notes == []


def test_a_cohort_without_tables_needs_no_note(download, typed):
    root = download({f"{EDFS}/ccshs-trec-1800005.edf": typed.signal(C3=1)})
    assert find_nights("CCSHS", root).notes == []


SC = [["subject", "night", "age", "sex (F=1)", "LightsOff"], [0.0, 1.0, 33.0, 1.0, 0.02]]
ST = [
    ["Subject - age - sex", "", "", "Placebo night", "", "Temazepam night", ""],
    ["Nr", "Age", "M1/F2", "night nr", "lights off", "night nr", "lights off"],
    [1.0, 60.0, 1.0, 1.0, 0.96, 2.0, 0.99],
]


def sleep_edf(download, typed):
    return download(
        {
            "sleep-cassette/SC4001E0-PSG.edf": typed.signal(C3=1),
            "sleep-telemetry/ST7011J0-PSG.edf": typed.signal(C3=1),
            "SC-subjects.xls": b"\xd0\xcf\x11\xe0",
            "ST-subjects.xls": b"\xd0\xcf\x11\xe0",
        }
    )


def workbook(path):
    rows = SC if "SC-" in path else ST
    sheet = SimpleNamespace(nrows=len(rows), row_values=rows.__getitem__)
    return SimpleNamespace(sheet_by_index=lambda _: sheet)


def test_sleep_edfs_workbooks_are_read_where_xlrd_is(download, typed, monkeypatch):
    monkeypatch.setitem(sys.modules, "xlrd", SimpleNamespace(open_workbook=workbook))
    root = sleep_edf(download, typed)
    # the two code the sexes the other way round
    assert known("PHYS", root) == {("00", "1"): (33.0, "F", None)}
    assert known("phys-st", root) == {("01", "1"): (60.0, "M", None)}
    assert known("PHYS", root / "sleep-cassette") == {("00", "1"): (33.0, "F", None)}


def test_without_xlrd_the_workbooks_are_left_out_and_noted(download, typed, monkeypatch):
    monkeypatch.setitem(sys.modules, "xlrd", None)
    nights, _, notes = find_nights("PHYS", sleep_edf(download, typed))
    assert (nights[0].age, nights[0].sex) == (None, None)
    assert notes[0].endswith("was not read, so its ages and sexes are left out: it needs xlrd")


def test_a_damaged_workbook_is_noted(download, typed, monkeypatch):
    def fail(path):
        raise AssertionError("not a\nworkbook")

    monkeypatch.setitem(sys.modules, "xlrd", SimpleNamespace(open_workbook=fail))
    notes = find_nights("PHYS", sleep_edf(download, typed)).notes
    assert notes[0].endswith("SC-subjects.xls was not read: not a workbook")


def test_a_workbook_saved_as_csv_needs_no_xlrd(download, typed):
    text = "subject;night;age;sex (F=1);LightsOff\n0;1;33;1;00:38\n0;2;33;1;21:57\n"
    root = download(
        {"sleep-cassette/SC4001E0-PSG.edf": typed.signal(C3=1), "SC-subjects.csv": text}
    )
    assert known("PHYS", root) == {("00", "1"): (33.0, "F", None)}
