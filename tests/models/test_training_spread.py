"""What a model knows of its training nights travels with it, and older models know nothing."""

import json

import pytest

from psdnorm.errors import ArgumentError, CheckpointError
from psdnorm.models import USleep, from_pretrained

SMALL = {"n_times": 60, "sfreq": 20, "depth": 3}
SPREAD = {"format": 1, "nights": 3, "ranges": {"input": {"typical": 0.5}}}


def saved(folder, **known):
    USleep(**SMALL).save_pretrained(folder, **known)
    return folder


def rewrite(folder, change):
    path = folder / "config.json"
    card = json.loads(path.read_text())
    change(card)
    path.write_text(json.dumps(card))


def test_the_spread_is_kept_through_load_and_save(tmp_path):
    model = from_pretrained(saved(tmp_path / "first", training_spread=SPREAD))
    model.save_pretrained(tmp_path / "second")
    assert from_pretrained(tmp_path / "second").card["training_spread"] == SPREAD


def test_a_model_without_a_spread_says_so(tmp_path):
    assert from_pretrained(saved(tmp_path)).card["training_spread"] is None


def test_a_file_from_before_there_were_spreads_is_read(tmp_path):
    rewrite(saved(tmp_path), lambda card: card.pop("training_spread"))
    assert from_pretrained(tmp_path).card["training_spread"] is None


def test_a_spread_that_is_no_dict_is_refused_when_written_and_when_read(tmp_path):
    with pytest.raises(ArgumentError, match="training_spread must be a dict or None"):
        saved(tmp_path, training_spread=[1, 2])
    rewrite(saved(tmp_path), lambda card: card.update(training_spread="wide"))
    with pytest.raises(CheckpointError, match="'wide' as 'training_spread', expected a dict"):
        from_pretrained(tmp_path)


def test_a_spread_that_is_too_long_to_be_read_is_not_written(tmp_path):
    with pytest.raises(CheckpointError, match="expected at most"):
        saved(tmp_path, training_spread={"x": "x" * 2**24})
    assert not (tmp_path / "config.json").exists()
