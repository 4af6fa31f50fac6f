"""A recipe says all that decides what becomes of a sample."""

import dataclasses
import json

import pytest

from psdnorm.errors import ArgumentError, StoreError
from psdnorm.prepare import recipe as module
from psdnorm.prepare.recipe import RECIPES, Recipe, load_recipe
from psdnorm.store import Layout, Store, recipe_hash


def test_there_are_three_recipes_as_the_design_has_them():
    assert list(RECIPES) == ["paper", "as-released", "robust"]
    found = {name: (r.scaling, r.clip, r.trim) for name, r in RECIPES.items()}
    assert found == {
        "paper": ("none", 500.0, ("PHYS", "phys-st")),
        "as-released": ("epoch", None, "all"),
        "robust": ("recording", 20.0, "none"),
    }
    for name, recipe in RECIPES.items():
        assert recipe.name == name
        assert (recipe.lowpass_hz, recipe.sfreq, recipe.trim_margin_s) == (30, 100, 1800)
        assert recipe.layout() == Layout(2, 3000, 100.0, "float16")


@pytest.mark.parametrize("name", RECIPES)
def test_a_store_gives_its_recipe_back(tmp_path, name):
    recipe = RECIPES[name]
    Store.create(tmp_path, recipe.to_dict(), recipe.layout())
    assert Recipe.from_dict(Store.open(tmp_path).recipe) == recipe


def test_a_store_of_one_recipe_refuses_the_others(tmp_path):
    Store.create(tmp_path, RECIPES["paper"].to_dict())
    with pytest.raises(StoreError, match=r"differs in 'clip': a store never mixes recipes$"):
        Store.create(tmp_path, RECIPES["robust"].to_dict())


@pytest.mark.parametrize(
    "change",
    [
        {"scaling": "none"},
        {"clip": 10.0},
        {"trim": "all"},
        {"trim_margin_s": 900.0},
        {"lowpass_hz": 25.0},
        {"sfreq": 128.0},
        {"n_channels": 1},
        {"dtype": "float32"},
    ],
)
def test_whatever_changes_a_sample_changes_the_hash(change):
    recipe = RECIPES["robust"]
    changed = dataclasses.replace(recipe, **change)
    assert recipe_hash(changed.to_dict()) != recipe_hash(recipe.to_dict())


def test_every_field_and_the_algorithms_version_are_in_the_hash(monkeypatch):
    recipe = RECIPES["robust"]
    fields = {field.name for field in dataclasses.fields(Recipe)}
    assert set(recipe.to_dict()) == fields | {"version"}
    before = recipe.to_dict()
    monkeypatch.setattr(module, "ALGORITHM_VERSION", 2)
    assert recipe_hash(recipe.to_dict()) != recipe_hash(before)
    with pytest.raises(ArgumentError, match=r"^the recipe's version is 1, expected 2"):
        Recipe.from_dict(before)


def test_a_number_has_one_hash_however_it_is_written():
    assert Recipe("r", clip=20, sfreq=100).to_dict() == Recipe("r", clip=20.0).to_dict()
    assert '"clip": 20.0' in json.dumps(Recipe("r", clip=20).to_dict())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "name is '', expected a short text"),
        ({"name": 3}, "name is 3, expected a short text"),
        ({"scaling": "zscore"}, "scaling is 'zscore', expected one of none, epoch, recording"),
        ({"clip": 0}, "clip is 0, expected a number or none"),
        ({"clip": True}, "clip is True, expected a number or none"),
        ({"trim": "PHYS"}, "trim is 'PHYS', expected none, all or a list of cohorts"),
        ({"trim": [1]}, r"trim is \(1,\), expected none, all or a list"),
        ({"trim_margin_s": -1}, "trim_margin_s is -1, expected seconds from 0 on"),
        ({"lowpass_hz": 41}, "lowpass_hz is 41, expected at most 40 for 100 Hz"),
        ({"lowpass_hz": 4, "sfreq": 10}, "lowpass_hz is 4, expected at most 3 for 10 Hz"),
        ({"sfreq": float("nan")}, "sfreq is nan, expected a positive number of Hz"),
        ({"sfreq": 100.01}, "sfreq is 100.01, expected a whole number of samples in 30 s"),
        ({"n_channels": 0}, "n_channels is 0, expected a positive whole number"),
        ({"dtype": "float64"}, "dtype is 'float64', expected one of float16, float32"),
    ],
)
def test_a_field_outside_its_range_is_named(change, message):
    with pytest.raises(ArgumentError, match=f"^the recipe's {message}"):
        Recipe(**{"name": "mine"} | change)


def test_a_field_that_no_recipe_has_is_named():
    with pytest.raises(ArgumentError, match=r"^the recipe has highpass_hz, expected only name, "):
        Recipe.from_dict({"name": "mine", "highpass_hz": 0.3})
    with pytest.raises(ArgumentError, match=r"^the recipe has no name$"):
        Recipe.from_dict({"clip": 1.0})


def test_cohorts_are_trimmed_as_named_in_any_case():
    paper = RECIPES["paper"]
    assert [paper.trims(cohort) for cohort in ("PHYS", "phys", "Phys-ST", "MASS", "")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert RECIPES["as-released"].trims("anybody")
    assert not RECIPES["robust"].trims("PHYS")


def test_a_file_may_change_some_of_a_recipe(tmp_path):
    path = tmp_path / "quiet.toml"
    path.write_text('base = "paper"\nclip = "none"\ndtype = "float32"\ntrim = ["folder"]\n')
    expected = Recipe("quiet", clip=None, trim=("folder",), dtype="float32")
    assert load_recipe(path) == expected
    path = tmp_path / "quiet.json"
    path.write_text(json.dumps(expected.to_dict()))
    assert load_recipe(path) == expected


def test_a_recipe_is_found_by_its_name():
    assert load_recipe("as-released") is RECIPES["as-released"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("robusst", None, "^recipe is '.*robusst', expected paper, as-released, robust or a file"),
        ("r.toml", None, "r.toml cannot be read: No such file or directory$"),
        ("r.toml", "clip = ", "r.toml is not a recipe: "),
        ("r.json", "{", "r.json is not a recipe: "),
        ("r.json", "[]", "r.json holds list, expected a recipe's fields$"),
        ("r.json", '{"base": "papper"}', "r.json has 'papper' as base, expected one of paper, "),
        ("r.toml", "clip = -1", "r.toml: the recipe's clip is -1, expected a number or none$"),
    ],
)
def test_a_file_without_a_recipe_is_named(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ArgumentError, match=message):
        load_recipe(tmp_path / name)
