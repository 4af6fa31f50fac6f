"""Anybody's files: a manifest, a pattern, a folder, BIDS."""

import os
import re

import numpy as np
import pytest

from psdnorm.cohorts import channels_used, find_nights, read_night
from psdnorm.cohorts.own_folder import parse_channels
from psdnorm.errors import ArgumentError, RecordingError

LEVELS = {"C3": 50, "C4": 70, "M1": 10, "M2": 20}
TEXT = "W\nN3\nR\n"


@pytest.fixture
def files(typed):
    return {
        "a/n1.edf": typed.signal(**LEVELS),
        "a/n1.txt": TEXT,
        "b/n1.edf": typed.signal(**LEVELS),
        "b/n1-nsrr.xml": typed.nsrr,
    }


def found(source, cohort="folder", **options):
    """Nights as (subject, visit, scoring), and sentences; every night is read as typed."""
    nights, problems, _ = find_nights(cohort, source, **options)
    for night in nights:
        recording = read_night(night)
        np.testing.assert_allclose(recording.signal, np.full((2, 180), [[3.0], [6.0]]), rtol=1e-5)
        assert recording.stages.tolist() == ([-1] * 3 if night.scoring is None else [0, 3, 4])
    return [(n.subject, n.visit, n.scoring and n.scoring.name) for n in nights], [
        str(problem) for problem in problems
    ]


def test_a_pattern_says_where_subject_and_visit_are(download, files):
    root = download(files)
    nights, problems = found(f"{root}/{{subject}}/n{{visit}}.edf")
    assert nights == [("a", "1", "n1.txt"), ("b", "1", "n1-nsrr.xml")]
    assert problems == []


def test_a_pattern_without_places_takes_the_files_name(download, files):
    nights, problems = found(f"{download(files)}/a/*.edf")
    assert nights == [("n1", "", "n1.txt")]
    assert problems == []


def test_a_place_named_twice_must_agree(download, files, typed):
    root = download({"s1/s1.edf": typed.signal(**LEVELS), "s2/s3.edf": typed.signal(**LEVELS)})
    nights, problems = found(f"{root}/{{subject}}/{{subject}}.edf")
    assert [night[0] for night in nights] == ["s1"]
    assert "s2/s3.edf does not say whose it is, expected" in problems[1]


def test_a_relative_pattern_is_found(download, files, monkeypatch):
    monkeypatch.chdir(download(files))
    assert found("./{subject}/*.edf")[0] == [("a", "", "n1.txt"), ("b", "", "n1-nsrr.xml")]


def test_a_folder_is_searched_and_duplicates_are_named(download, files):
    nights, problems = found(download(files))
    assert nights == [("n1", "", "n1.txt")]
    assert len(problems) == 1
    assert "b/n1.edf is of subject n1 like " in problems[0]


@pytest.mark.parametrize(
    ("signal", "scoring"),
    [
        ("x-PSG.edf", "x-Hypnogram.edf"),
        ("x PSG.edf", "x Base.edf"),
        ("x_eeg.edf", "x_events.tsv"),
        ("x.EDF", "x.TXT"),
    ],
)
def test_a_scoring_beside_is_found_and_is_no_night(download, typed, signal, scoring):
    events = "onset\tduration\tstage\n0\t30\tW\n30\t30\tN3\n60\t30\tREM\n"
    contents = {".edf": typed.hypnogram(), ".tsv": events, ".txt": TEXT}
    text = contents[os.path.splitext(scoring)[1].lower()]
    root = download({signal: typed.signal(**LEVELS), scoring: text})
    assert found(root) == ([("x", "", scoring)], [])


def test_a_signal_without_scoring_is_named(download, files):
    del files["a/n1.txt"]
    nights, problems = found(f"{download(files)}/{{subject}}/*.edf")
    assert nights == [("a", "", None), ("b", "", "n1-nsrr.xml")]
    assert problems[0].endswith(
        "a/n1.edf has no scoring beside it, expected one of its name; an EDF+ that holds its own "
        "stages needs a manifest"
    )


@pytest.mark.parametrize("place", ["sub", "", "Subject", "a,b"])
def test_a_place_that_does_not_exist_is_refused_with_those_that_do(download, files, place):
    pattern = f"{download(files)}/{{{place}}}/n{{visit}}.edf"
    expected = rf"has the place {{{place}}}, expected {{subject}} and {{visit}} alone$"
    with pytest.raises(RecordingError, match=expected):
        find_nights("folder", pattern)


MANIFEST = """subject,visit,signal,scoring,channels,age,sex,family
S1,first,a/n1.edf,a/n1.txt,C3-A2=C3-A2|C3-M2; C4-A1=C4-M1,34.5,female,F1
S2,,b/n1.edf,b/n1-nsrr.xml,,,,
"""


@pytest.mark.parametrize(("name", "separator"), [("m.csv", ","), ("m.TSV", "\t")])
def test_a_manifest_says_everything(download, files, name, separator):
    root = download(files | {name: "\ufeff" + MANIFEST.replace(",", separator)})
    assert found(root / name) == (
        [("S1", "first", "n1.txt"), ("S2", "", "n1-nsrr.xml")],
        [],
    )
    first, second = find_nights("folder", root / name).nights
    assert (first.age, first.sex, first.family) == (34.5, "F", "F1")
    assert (second.age, second.sex, second.family) == (None, None, None)
    assert channels_used(first) == {"C3-A2": "C3-M2", "C4-A1": "C4-M1"}
    assert first.cohort == "folder"


def test_a_manifest_may_name_cohorts(download, files):
    text = "cohort,subject,signal,scoring\nmine,1,a/n1.edf,a/n1.txt\nyours,1,b/n1.edf,a/n1.txt\n"
    nights, problems, _ = find_nights("folder", download(files | {"m.csv": text}) / "m.csv")
    assert [night.cohort for night in nights] == ["mine", "yours"]
    assert problems == []


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("S9,,gone.edf,a/n1.txt,,,,", "has in row 4 the signal gone.edf, which does not exist"),
        (",,a/n1.edf,a/n1.txt,,,,", "has in row 4 no subject or no signal"),
        ("S9,,,a/n1.txt,,,,", "has in row 4 no subject or no signal"),
        ("S9,,a/n1.edf,a/n1.txt,C3,C4,1,2,3", "has in row 4 9 cells, expected 8"),
        ("S9,,a/n1.edf,a/n1.txt,C3=;C4,,,", "row 4 'C3=;C4' as channels: channels must"),
        ("s1,FIRST,b/n1.edf,a/n1.txt,,,,", "n1.edf is of subject S1, visit FIRST, like"),
    ],
)
def test_a_bad_row_is_named_and_the_others_are_kept(download, files, row, sentence):
    root = download(files | {"m.csv": MANIFEST + row + "\n"})
    nights, problems = found(root / "m.csv")
    assert [night[0] for night in nights] == ["S1", "S2"]
    assert len(problems) == 1
    assert sentence in problems[0]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("S9,,a/n1.edf,gone.txt,,,,", "has in row 4 the scoring gone.txt, which does not exist"),
        ("S9,,a/n1.edf,n/a,,,,", "a/n1.edf has no scoring in row 4 of "),
        ("S9,,a/n1.edf,a/n1.txt,,forty,,", "has in row 4 'forty' as age, expected years"),
        ("S9,,a/n1.edf,a/n1.txt,,,2,", "has in row 4 '2' as sex, expected F or M"),
    ],
)
def test_what_a_row_lacks_is_named_and_the_night_is_kept(download, files, row, sentence):
    root = download(files | {"m.csv": MANIFEST + row + "\n"})
    nights, problems = found(root / "m.csv")
    assert [night[0] for night in nights] == ["S1", "S2", "S9"]
    assert len(problems) == 1
    assert sentence in problems[0]


def test_files_that_nobody_may_look_at_are_named_with_their_rows(download, files, let_nobody_enter):
    rows = "S8,,b/n1.edf,a/n1.txt,,,,\nS9,,a/n1.edf,b/n1-nsrr.xml,,,,\n"
    root = download(files | {"m.csv": MANIFEST.replace("S2,,b/n1.edf,b/n1-nsrr.xml,,,,\n", rows)})
    let_nobody_enter(root / "b")
    nights, problems = found(root / "m.csv")
    assert nights == [("S1", "first", "n1.txt"), ("S9", "", None)]
    assert problems == [
        f"{root}/m.csv has in row 3 the signal b/n1.edf, which cannot be read: Permission denied",
        f"{root}/m.csv has in row 4 the scoring b/n1-nsrr.xml, which cannot be read: Permission "
        "denied",
    ]


@pytest.mark.parametrize("cell", ["n1.edf", ""])
def test_an_edf_that_holds_its_own_stages_needs_no_other_scoring(download, typed, cell):
    stages = [f"Sleep stage {stage}" for stage in ("W", "4", "R")]
    manifest = f"subject,signal,scoring\nS1,n1.edf,{cell}\n"
    root = download({"n1.edf": typed.annotated(stages, **LEVELS), "m.csv": manifest})
    assert found(root / "m.csv") == ([("S1", "", "n1.edf")], [])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Lights off", ""),
        ("Sleep stage ?", ""),
        ("2", ", and none of its own: .*n1.edf has '2' from 0 s for 30 s, which may be a stage or"),
    ],
)
def test_an_edf_without_stages_of_its_own_is_unscored_and_named(download, typed, text, why):
    manifest = "subject,signal,scoring\nS1,n1.edf,\n"
    root = download({"n1.edf": typed.annotated(text, **LEVELS), "m.csv": manifest})
    nights, (problem,) = found(root / "m.csv")
    assert nights == [("S1", "", None)]
    assert re.search(rf"n1.edf has no scoring in row 2 of {root}/m.csv{why or '$'}", problem)


def test_one_sleeper_has_one_spelling(download, files):
    text = "subject,visit,signal,scoring\nS1,1,a/n1.edf,a/n1.txt\ns1,2,b/n1.edf,a/n1.txt\n"
    nights, problems = found(download(files | {"m.csv": text}) / "m.csv")
    assert [night[:2] for night in nights] == [("S1", "1"), ("S1", "2")]
    assert problems == []


def test_columns_that_are_not_used_are_noted(download, files):
    text = "subject,signal,scorign\nS1,a/n1.edf,a/n1.txt\n"
    notes = find_nights("folder", download(files | {"m.csv": text}) / "m.csv").notes
    assert notes[0].endswith("m.csv has the columns scorign, which are not used")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,file\n1,a\n", "m.csv has the columns id, file, expected subject and signal"),
        ("", "m.csv is empty, expected the columns subject and signal"),
        ("subject,signal\n", "m.csv matches no recording$"),
        ("subject,signal\n1,x.edf\n", "m.csv matches no recording: .* the signal x.edf"),
    ],
)
def test_a_manifest_that_is_none_is_refused(download, text, message):
    with pytest.raises(RecordingError, match=message):
        find_nights("folder", download({"m.csv": text}) / "m.csv")


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(RecordingError, match=r"m.csv cannot be read: .*No such file"):
        find_nights("folder", tmp_path / "m.csv")
    with pytest.raises(RecordingError, match=r"\*.edf matches no recording"):
        find_nights("folder", tmp_path / "*.edf")


def test_channels_of_a_manifest_are_names_with_candidates():
    assert parse_channels("C3-M2; C4-M1") == {"C3-M2": ("C3-M2",), "C4-M1": ("C4-M1",)}
    assert parse_channels("C3-A2 = C3-M2 | EEG C3;") == {"C3-A2": ("C3-M2", "EEG C3")}
    with pytest.raises(
        ArgumentError, match=r"^channels must name at least one in each part, found ';'$"
    ):
        parse_channels(";")


@pytest.mark.parametrize("text", ["C3; C3", "C3 = C3-M2; C4; c 3"])
def test_a_channel_that_is_named_twice_is_refused(text):
    with pytest.raises(ArgumentError, match=r"^channels name '[Cc] ?3' twice, expected each once$"):
        parse_channels(text)


@pytest.mark.parametrize(
    "text", ["C3-", "C3-M2; C4*", "C3--M2", "(C3", "C3)", "C3-C3", "C3/0", "A = C3 | 2*", "+"]
)
def test_what_is_no_expression_is_refused_before_any_file(text):
    with pytest.raises(ArgumentError, match="is neither a channel nor an expression of"):
        parse_channels(text)


@pytest.mark.parametrize(
    "text",
    [
        *("C3/A2", "EEG(sec)", "-C3", "0.5*(Fp1 + Fp2) - Cz", "(Fp1+Fp2)/2-Cz", "C3/2", "2*C3-M1"),
        *("EEG Fp1-LER - EEG Cz-LER", "EEG C3/A2 (ref) - M1", "C3*.5"),
    ],
)
def test_whatever_may_be_a_channel_or_an_expression_is_taken(text):
    assert parse_channels(text) == {text: (text,)}


EVENTS = "onset\tduration\ttrial_type\n0\t30\tW\n30\t30\tN3\n60\t30\tREM\n70\t5\tarousal\n"


def test_bids_is_found_with_its_participants(download, typed):
    root = download(
        {
            "sub-01/ses-a/eeg/sub-01_ses-a_task-sleep_eeg.edf": typed.signal(**LEVELS),
            "sub-01/ses-a/eeg/sub-01_ses-a_task-sleep_events.tsv": EVENTS,
            "sub-01/ses-b/eeg/sub-01_ses-b_task-sleep_run-2_eeg.edf": typed.signal(**LEVELS),
            "sub-01/ses-b/eeg/sub-01_ses-b_task-sleep_run-2_events.tsv": EVENTS,
            "sub-02/eeg/sub-02_task-sleep_eeg.edf": typed.signal(**LEVELS),
            "derivatives/sub-02/eeg/sub-02_task-sleep_eeg.edf": b"",
            "participants.tsv": "participant_id\tage\tsex\tfamily\n"
            "sub-01\t34\tF\tx\nsub-02\tn/a\tn/a\tn/a\n",
        }
    )
    nights, problems = found(root, "bids")
    assert [night[:2] for night in nights] == [("01", "a"), ("01", "b_run-2"), ("02", "")]
    assert len(problems) == 1
    assert "sub-02_task-sleep_eeg.edf has no scoring beside it, expected …_events" in problems[0]
    people = [(n.age, n.sex, n.family) for n in find_nights("BIDS", root).nights]
    assert people == [(34.0, "F", "x")] * 2 + [(None, None, None)]


@pytest.mark.parametrize("closed", ["sub-2", "sub-2/ses-a", "sub-2/ses-a/eeg"])
def test_a_folder_of_bids_that_shows_its_names_alone_is_named(
    download, typed, let_nobody_enter, closed
):
    names = ["sub-1/eeg/sub-1_task-sleep", "sub-2/ses-a/eeg/sub-2_ses-a_task-sleep"]
    signals = {f"{name}_eeg.edf": typed.signal(**LEVELS) for name in names}
    root = download(signals | {f"{name}_events.tsv": EVENTS for name in names})
    let_nobody_enter(root / closed)
    nights, problems = found(root, "bids")
    assert [night[0] for night in nights] == ["1"]
    assert problems == [f"{root}/{closed} cannot be entered: Permission denied"]


def test_participants_that_nobody_may_read_are_noted(download, typed, monkeypatch):
    files = {"sub-1/eeg/sub-1_eeg.edf": typed.signal(**LEVELS), "participants.tsv": ""}
    root = download(files)

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("psdnorm.cohorts.own_folder.read_rows", refuse)
    (note,) = find_nights("bids", root).notes
    assert note == f"{root}/participants.tsv cannot be read: Permission denied"


def test_two_tasks_of_a_session_are_two_nights(download, typed):
    names = [f"sub-1/eeg/sub-1_task-{task}" for task in ("nap", "night")]
    signals = {f"{name}_eeg.edf": typed.signal(**LEVELS) for name in names}
    root = download(signals | {f"{name}_events.tsv": EVENTS for name in names})
    assert [night[1] for night in found(root, "bids")[0]] == ["task-nap", "task-night"]


def test_a_file_of_another_task_renames_no_night(download, typed):
    names = ["sub-1/eeg/sub-1_task-Sleep_run-1", "sub-2/eeg/sub-2_task-nap", "sub-3/eeg/sub-3"]
    more = "sub-1/ses-2/eeg/sub-1_ses-2_task-rest"
    root = download({f"{name}_eeg.edf": typed.signal(**LEVELS) for name in names})
    before = [night[:2] for night in found(root, "bids")[0]]
    assert before == [("1", "run-1"), ("2", "task-nap"), ("3", "")]
    download({f"{more}_eeg.edf": typed.signal(**LEVELS)})
    assert [night[:2] for night in found(root, "bids")[0]] == [("1", "2_task-rest"), *before]


@pytest.mark.parametrize(
    "text", ["", "id\tage\nsub-1\t3\n", "participant_id\tspecies\nsub-1\thomo sapiens\n"]
)
def test_participants_without_the_columns_are_noted(download, typed, text):
    files = {"sub-1/eeg/sub-1_eeg.edf": typed.signal(**LEVELS), "participants.tsv": text}
    (note,) = find_nights("bids", download(files)).notes
    assert note.endswith("expected participant_id and one of age, sex and family")


def test_a_source_can_have_a_name_of_its_own(download, files, typed):
    text = "cohort,subject,signal,scoring\nmine,1,a/n1.edf,a/n1.txt\n,2,b/n1.edf,a/n1.txt\n"
    bids = {"sub-1/eeg/sub-1_eeg.edf": typed.signal(**LEVELS)}
    root = download(files | bids | {"m.csv": text})

    def cohorts(kind, source, name):
        return [night.cohort for night in find_nights(kind, source, name=name).nights]

    assert cohorts("folder", root / "a", None) == ["folder"]
    assert cohorts("folder", root / "a", " sleep lab ") == ["sleep lab"]
    assert cohorts("folder", f"{root}/a/{{subject}}.edf", "lab") == ["lab"]
    assert cohorts("folder", root / "m.csv", "yours") == ["mine", "yours"]
    assert cohorts("bids", root, "ds1") == ["ds1"]
    assert cohorts("bids", root, None) == cohorts("bids", root, "bids") == ["bids"]


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("folder", "shhs", "name is 'shhs', which is a cohort's own, expected another than ABC"),
        ("folder", "BIDS", "name is 'BIDS', which is a cohort's own"),
        ("bids", "  ", "name is '', expected a text of printable letters"),
        ("bids", "a\nb", "expected a text of printable letters"),
        ("SHHS", "mine", "name is 'mine' for SHHS, expected none: only folder and bids take one"),
    ],
)
def test_a_name_that_would_mix_sources_is_refused(tmp_path, kind, name, message):
    with pytest.raises(ArgumentError, match=message):
        find_nights(kind, tmp_path, name=name)


def test_bids_that_is_none_is_refused(tmp_path, download, typed):
    with pytest.raises(RecordingError, match="has no night, expected sub-01/eeg/sub-01_task"):
        find_nights("bids", tmp_path)
    root = download(
        {f"sub-1/eeg/{name}_eeg.edf": typed.signal(**LEVELS) for name in ("night", "sub-1")}
    )
    nights, problems = found(root, "bids")
    assert [night[0] for night in nights] == ["1"]
    assert "night_eeg.edf does not say whose it is" in problems[0]
