"""A checkpoint whose words were changed is another network, even where the tensors still fit."""

import json

import pytest

from psdnorm.errors import ArgumentError, CheckpointError
from psdnorm.models import USleep, from_pretrained

SMALL = {"n_times": 50, "sfreq": 100, "depth": 3, "norm": "psd"}


def save_and_rewrite(folder, change):
    USleep(**SMALL).save_pretrained(folder)
    card = json.loads((folder / "config.json").read_text())
    card["arguments"] |= change
    (folder / "config.json").write_text(json.dumps(card))


@pytest.mark.parametrize(
    "change",
    [
        {"filter_size": 4},
        {"norm": "psd-white"},
        {"n_times": 51},
        {"norm_arguments": {"eps": 1e-3}},
        {"norm_arguments": {"detrend": "segment"}},
        {"input_scale": 0.05},
        {"input_scale": 1.0},
    ],
)
def test_an_argument_that_was_changed_is_noticed(change, tmp_path):
    save_and_rewrite(tmp_path, change)
    with pytest.raises(CheckpointError, match=r"was saved with other arguments than config\.json"):
        from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"norm_arguments": {"eps": {}}}, "a list or a dict of at most 4096 of them"),
        ({"norm_arguments": {"eps": 2**21}}, "has 2097152 as the argument 'norm_arguments'"),
        ({"norm_arguments": dict.fromkeys(map(str, range(4097)))}, "a dict of at most 4096"),
        ({"norm_arguments": {"device": "cuda"}}, "norm_arguments has 'device', expected one of"),
        ({"norm_arguments": [1]}, "norm_arguments must be a mapping"),
        ({"filter_schedule": "doubled"}, "filter_schedule must be one of halved, same"),
        ({"filter_schedule": "same"}, "running_sqrt_psd has shape"),
        ({"input_scale": 0}, "input_scale must be a number from 1e-09 to .* found 0"),
        ({"input_scale": "0.05"}, "input_scale must be a number from 1e-09 to .* found '0.05'"),
        ({"input_scale": 2**21}, "has 2097152 as the argument 'input_scale'"),
    ],
)
def test_words_that_do_not_fit_are_refused(change, said, tmp_path):
    save_and_rewrite(tmp_path, change)
    with pytest.raises(CheckpointError, match=said) as caught:
        from_pretrained(tmp_path)
    assert "config.json" in str(caught.value)


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
