"""What is not as expected is named in one sentence, and the other nights are found."""

import pytest

from psdnorm.cohorts import file_layout as layout
from psdnorm.cohorts import find_nights, read_night
from psdnorm.errors import ArgumentError, RecordingError

EDFS = "polysomnography/edfs"
XMLS = "polysomnography/annotations-events-nsrr"


@pytest.fixture
def good(typed):
    """Two nights of ABC that nothing is wrong with."""
    return {
        f"{kind}/baseline/abc-baseline-{number}{ending}": content
        for number in (900001, 900002)
        for kind, ending, content in (
            (EDFS, ".edf", typed.signal(C3=5, C4=5, M1=1, M2=1)),
            (XMLS, "-nsrr.xml", typed.nsrr),
        )
    }


def named(found, *subjects):
    """The only problem, as a sentence; those subjects are found."""
    nights, problems, _ = found
    assert [night.subject for night in nights] == list(subjects)
    (problem,) = problems
    assert "\n" not in str(problem)
    assert str(problem).startswith(str(problem.file))
    return str(problem)


def test_nights_come_by_subject_and_visit(download, good, typed):
    more = f"{EDFS}/month09/abc-month09-900001.edf", f"{XMLS}/month09/abc-month09-900001-nsrr.xml"
    root = download(good | {more[0]: typed.signal(C3=1), more[1]: typed.nsrr})
    nights, problems, notes = find_nights("ABC", root)
    assert [(night.subject, night.visit) for night in nights] == [
        ("900001", "baseline"),
        ("900001", "month09"),
        ("900002", "baseline"),
    ]
    assert problems == notes == []


def test_a_night_without_scoring_is_named_and_unscored(download, good):
    del good[f"{XMLS}/baseline/abc-baseline-900001-nsrr.xml"]
    found = find_nights("ABC", download(good))
    assert "abc-baseline-900001.edf has no scoring, expected poly" in named(
        found, "900001", "900002"
    )
    assert found.nights[0].scoring is None
    assert read_night(found.nights[0]).stages.tolist() == [-1, -1, -1]


@pytest.mark.parametrize(
    "name",
    [
        "baseline/abc-baseline-.edf",
        "baseline/copy of abc-baseline-900003.edf",
        "baseline/notes.edf",
    ],
)
def test_a_name_that_says_nothing_is_named(download, good, typed, name):
    found = find_nights("ABC", download(good | {f"{EDFS}/{name}": typed.signal(C3=1)}))
    assert "does not say whose it is, expected poly" in named(found, "900001", "900002")


def test_a_visit_in_another_visits_folder_is_named(download, good, typed):
    wrong = {f"{EDFS}/month09/abc-month18-900001.edf": typed.signal(C3=1)}
    found = find_nights("ABC", download(good | wrong))
    assert "month09/abc-month18-900001.edf does not say whose it is" in named(
        found, "900001", "900002"
    )


def test_a_duplicate_is_named_and_the_first_is_kept(download, good, typed):
    double = {f"{EDFS}/baseline/abc-baseline-900001.EDF": typed.signal(C3=1)}
    found = find_nights("ABC", download(good | double))
    sentence = named(found, "900001", "900002")
    assert "is of subject 900001, visit baseline, like " in sentence
    assert sentence.endswith(", and is left out")


def test_mros_in_capitals_is_the_same_man(download, typed):
    root = download(
        {
            f"{EDFS}/visit1/mros-visit1-AA5665.edf": typed.signal(C3=1),
            f"{EDFS}/visit2/mros-visit2-aa5665.edf": typed.signal(C3=1),
        }
    )
    assert {night.subject for night in find_nights("MROS", root).nights} == {"aa5665"}


def test_two_scorers_of_one_night_are_named(download, typed):
    root = download(
        {
            "sleep-cassette/SC4001E0-PSG.edf": typed.signal(C3=1),
            "sleep-cassette/SC4001EC-Hypnogram.edf": typed.hypnogram(),
            "sleep-cassette/SC4001EH-Hypnogram.edf": typed.hypnogram(),
        }
    )
    found = find_nights("PHYS", root)
    assert "EC-Hypnogram.edf is used, though SC4001EH-Hypnogram.edf scores the same" in named(
        found, "00"
    )
    assert found.nights[0].scoring.name == "SC4001EC-Hypnogram.edf"


def test_telemetry_is_no_cassette(download, typed):
    names = ("SC4001E0-PSG", "SC4001EC-Hypnogram", "ST7011J0-PSG", "ST7011JP-Hypnogram")
    root = download(
        {f"{n}.edf": typed.hypnogram() if "H" in n else typed.signal(C3=1) for n in names}
    )
    for cohort, subject in (("PHYS", "00"), ("phys-st", "01")):
        nights, problems, _ = find_nights(cohort, root)
        assert [night.subject for night in nights] == [subject]
        assert problems == []


def test_scorings_without_recordings_are_noted(download, good):
    del good[f"{EDFS}/baseline/abc-baseline-900001.edf"]
    nights, problems, notes = find_nights("ABC", download(good))
    assert [night.subject for night in nights] == ["900002"]
    assert problems == []
    assert notes[0].endswith("has 1 scoring without a recording")


def test_hidden_files_are_passed_over(download, good):
    hidden = {f"{EDFS}/baseline/._abc-baseline-900001.edf": b"macOS"}
    assert find_nights("ABC", download(good | hidden)).problems == []


def test_a_folder_that_is_closed_is_named(download, good, typed, monkeypatch):
    more = {f"{EDFS}/month09/abc-month09-900001.edf": typed.signal(C3=1)}
    root = download(good | more)
    real = layout.Path.iterdir

    def iterdir(path):  # tests may run as root, whom nothing is closed to
        if path.name == "month09":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(layout.Path, "iterdir", iterdir)
    sentence = named(find_nights("ABC", root), "900001", "900002")
    assert sentence.endswith("month09 cannot be read: Permission denied")


def test_an_unknown_cohort_is_named_with_those_known(tmp_path):
    known = "ABC, CCSHS, CFS, HPAP, MROS, SHHS, CHAT, SOF, PHYS, phys-st, MASS, folder, bids"
    with pytest.raises(ArgumentError, match=f"^cohort is 'MESA', expected one of {known}$"):
        find_nights("MESA", tmp_path)


@pytest.mark.parametrize("cohort", ["ABC", "bids"])
def test_a_source_that_is_not_there_is_named(tmp_path, cohort):
    with pytest.raises(RecordingError, match="nowhere is not a folder, expected"):
        find_nights(cohort, tmp_path / "nowhere")


def test_a_source_without_a_night_is_named_with_what_was_expected(tmp_path, download, typed):
    with pytest.raises(RecordingError, match=r"has no night of SHHS, expected .*edfs/\{visit\}/\{"):
        find_nights("SHHS", tmp_path)
    root = download({f"{EDFS}/shhs1/abc.edf": typed.signal(C3=1)})
    with pytest.raises(RecordingError, match=r"no night of SHHS, .*: .*abc.edf does not say"):
        find_nights("SHHS", root)


@pytest.mark.parametrize("closed", [f"{EDFS}/month09", XMLS])
def test_a_folder_that_shows_its_names_alone_is_named(
    download, good, typed, let_nobody_enter, closed
):
    root = download(good | {f"{EDFS}/month09/abc-month09-900001.edf": typed.signal(C3=1)})
    let_nobody_enter(root / closed)
    nights, problems, _ = find_nights("ABC", root)
    assert {night.subject for night in nights} == {"900001", "900002"}
    sentences = [str(problem) for problem in problems if "has no scoring" not in problem.what]
    assert sentences == [f"{root}/{closed} cannot be entered: Permission denied"]


def test_tables_that_nobody_may_look_at_are_noted(download, good, let_nobody_enter):
    root = download(good | {"datasets/abc.csv": "nsrrid,nsrr_age\n900001,40\n"})
    let_nobody_enter(root / "datasets")
    found = find_nights("ABC", root)
    assert found.problems == []
    assert found.notes == [
        f"{root}/datasets cannot be entered: Permission denied, so ages and sexes in it are left "
        "out"
    ]


@pytest.mark.parametrize("cohort", ["ABC", "bids"])
def test_a_source_that_nobody_may_look_at_is_named(tmp_path, let_nobody_enter, cohort):
    (tmp_path / "closed" / "source").mkdir(parents=True)
    let_nobody_enter(tmp_path / "closed")
    with pytest.raises(RecordingError, match=r"closed/source cannot be read: Permission denied$"):
        find_nights(cohort, tmp_path / "closed" / "source")
