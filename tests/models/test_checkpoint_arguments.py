"""A checkpoint whose words were changed is another network, even where the tensors still fit."""

import json

import pytest

from psdnorm.errors import ArgumentError, CheckpointError
from psdnorm.models import USleep, from_pretrained

SMALL = {"n_times": 50, "sfreq": 100, "depth": 3, "norm": "psd"}


@pytest.mark.parametrize("change", [{"filter_size": 4}, {"norm": "psd-white"}, {"n_times": 51}])
def test_an_argument_that_was_changed_is_noticed(change, tmp_path):
    USleep(**SMALL).save_pretrained(tmp_path)
    card = json.loads((tmp_path / "config.json").read_text())
    card["arguments"] |= change
    (tmp_path / "config.json").write_text(json.dumps(card))
    with pytest.raises(CheckpointError, match=r"was saved with other arguments than config\.json"):
        from_pretrained(tmp_path)


def test_what_could_not_be_loaded_again_is_not_saved(tmp_path):
    with pytest.raises(CheckpointError, match="the model has 1048577 as the argument 'n_times'"):
        USleep(**SMALL | {"n_times": 2**20 + 1}).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="expected at most 16777216"):
        USleep(**SMALL).save_pretrained(tmp_path, training_data="x" * 2**24)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stages", [5, "WNRAB"])
def test_stages_are_a_sequence_of_names(stages, tmp_path):
    with pytest.raises(ArgumentError, match="stages must be a sequence of names"):
        USleep(**SMALL).save_pretrained(tmp_path, stages=stages)
