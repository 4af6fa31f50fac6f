"""A folder of a dissection keeps the settings with which it was begun."""

import json

import pytest

import psdnorm
from psdnorm.errors import ArgumentError
from psdnorm.lab.dissect.dissection import begun_with, claim_dissection

NIGHTS = {"subjects": 3, "hours": 1.0, "seed": 0, "recipe": {"name": "paper"}}


@pytest.fixture
def begun(tmp_path):
    claim_dissection(tmp_path / "out", NIGHTS, ["gain"], to_predict=True)
    return tmp_path / "out"


def changed(folder, **others):
    path = folder / "dissection.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **others}))


def test_a_folder_says_what_it_was_begun_with_and_a_new_one_nothing(begun, tmp_path):
    found = begun_with(begun)
    assert {name: found[name] for name in NIGHTS} == NIGHTS
    assert found["kinds"] == ["gain"]
    assert begun_with(tmp_path / "new") == {}


def test_kinds_are_added_and_none_is_forgotten(begun):
    claim_dissection(begun, NIGHTS, ["age", "response"], to_predict=True)
    claim_dissection(begun, NIGHTS, ["age"], to_predict=True)
    assert begun_with(begun)["kinds"] == ["gain", "response", "age"]


def test_a_folder_to_which_nothing_is_added_is_not_written_to(begun):
    before = (begun / "dissection.json").stat()
    claim_dissection(begun, NIGHTS, ["gain"], to_predict=False)
    after = (begun / "dissection.json").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_folder_that_says_no_kinds_stays_one_of_all(begun):
    path = begun / "dissection.json"
    document = json.loads(path.read_text())
    del document["kinds"]
    path.write_text(json.dumps(document))
    claim_dissection(begun, NIGHTS, ["age"], to_predict=True)
    assert len(begun_with(begun)["kinds"]) == 8


@pytest.mark.parametrize(("name", "value"), [("subjects", 2), ("hours", 0.5), ("seed", 1)])
def test_other_nights_raise_even_where_nothing_is_predicted(begun, name, value):
    with pytest.raises(ArgumentError, match=f"was begun with {name}"):
        claim_dissection(begun, {**NIGHTS, name: value}, ["gain"], to_predict=False)


def test_scores_of_another_version_may_be_reported_but_not_added_to(begun):
    changed(begun, psdnorm="0.0.1")
    claim_dissection(begun, NIGHTS, ["gain"], to_predict=False)
    assert begun_with(begun)["psdnorm"] == "0.0.1"
    with pytest.raises(ArgumentError, match=f"psdnorm '0.0.1', not '{psdnorm.__version__}'"):
        claim_dissection(begun, NIGHTS, ["gain"], to_predict=True)


def test_a_folder_of_something_else_raises_and_an_empty_one_is_taken(tmp_path):
    claim_dissection(tmp_path, NIGHTS, ["gain"], to_predict=True)
    (tmp_path / "dissection.json").rename(tmp_path / "mine.json")
    with pytest.raises(ArgumentError, match="holds something other than a dissection"):
        claim_dissection(tmp_path, NIGHTS, ["gain"], to_predict=True)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"format": 9}, "is not of a dissection"),
        ({"subjects": "3"}, "'3' as subjects, expected int"),
        ({"subjects": 2.5}, "2.5 as subjects, expected int"),
        ({"seed": True}, "True as seed, expected int"),
        ({"hours": None}, "None as hours, expected float"),
        ({"kinds": ["hum"]}, r"\['hum'\] as kinds"),
        ({"kinds": [["gain"]]}, "as kinds"),
        ({"kinds": "gain"}, "'gain' as kinds"),
    ],
)
def test_an_invalid_settings_file_raises_with_its_name(begun, others, words):
    changed(begun, **others)
    with pytest.raises(ArgumentError, match=f"dissection.json .*{words}"):
        begun_with(begun)
