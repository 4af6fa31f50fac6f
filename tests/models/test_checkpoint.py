"""A saved model comes back as it was, and whatever is no saved model is refused in one sentence."""

import hashlib
import itertools
import json
import os
import pickle

import numpy as np
import pytest
import safetensors.torch
import torch
from missing_packages import hide

import psdnorm
from psdnorm import convert_norm
from psdnorm.errors import ArgumentError, CheckpointError, MissingExtraError
from psdnorm.models import CNNTransformer, USleep, from_pretrained
from psdnorm.models.checkpoint import Pretrained


def trained(architecture=CNNTransformer, **options):
    torch.manual_seed(0)
    if architecture is USleep:
        model = USleep(**{"n_times": 60, "sfreq": 20, "depth": 3, "norm": "psd"} | options)
    else:
        sizes = {"n_times": 60, "channels": (8, 16), "strides": (3, 5), "n_heads": 2}
        model = CNNTransformer(**sizes | {"norm": "psd"} | options)
    model(torch.randn(4, 3, 2, 60))  # the barycenters move
    return model


@pytest.fixture
def saved(tmp_path):
    trained().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def assert_same_state(model, expected):
    torch.testing.assert_close(model.state_dict(), expected, rtol=0, atol=0)


def rewrite(folder, **changes):
    card = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(card))


def rewrite_arguments(folder, **changes):
    arguments = json.loads((folder / "config.json").read_text())["arguments"]
    rewrite(folder, arguments=arguments | changes)


def replace_weights(folder, content):
    """Put other weights in place, and vouch for them in config.json."""
    (folder / "model.safetensors").write_bytes(content)
    checksum = hashlib.sha256(content).hexdigest()
    rewrite(folder, weights={"bytes": len(content), "sha256": checksum})


def refusal(folder, loader=from_pretrained):
    with pytest.raises(CheckpointError) as caught:
        loader(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("norm", ["batch", "layer", "instance", "psd", "psd-white"])
@pytest.mark.parametrize("architecture", [USleep, CNNTransformer])
def test_a_model_comes_back_as_it_was_saved(architecture, norm, tmp_path):
    model = trained(architecture, norm=norm)
    model.save_pretrained(tmp_path)
    for load in (from_pretrained, architecture.from_pretrained):
        loaded = load(tmp_path)
        assert type(loaded) is architecture
        assert not loaded.training
        assert loaded.config == model.config
        assert_same_state(loaded, model.state_dict())
    x = torch.randn(2, 4, 2, 60)
    torch.testing.assert_close(loaded(x), model.eval()(x), rtol=0, atol=0)


def test_training_goes_on_from_a_loaded_model(saved):
    model = from_pretrained(saved).train()
    model(torch.randn(2, 3, 2, 60)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert model.blocks[2].num_batches_tracked.unique().tolist() == [2]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_precision_is_kept(dtype, tmp_path):
    model = trained().to(dtype)
    model.save_pretrained(tmp_path)
    loaded = from_pretrained(tmp_path)
    assert loaded.head.weight.dtype == dtype
    assert_same_state(loaded, model.state_dict())


def test_tensors_in_shared_or_strided_memory_are_saved(tmp_path):
    model = trained(n_outputs=16)
    model.head.bias = model.transformer.norm.bias
    model.head.weight.data = model.head.weight.data.transpose(0, 1)
    model.save_pretrained(tmp_path)
    assert_same_state(from_pretrained(tmp_path), model.state_dict())


@pytest.mark.parametrize("part", ["whole", "in place", "transformer"])
def test_a_compiled_model_is_saved_as_the_plain_one(part, tmp_path):
    model = trained()
    expected = model.state_dict()
    if part == "whole":
        model = torch.compile(model, backend="eager")
    elif part == "in place":
        model.compile(backend="eager")
    else:
        model.transformer = torch.compile(model.transformer, backend="eager")
    model.save_pretrained(tmp_path)
    assert_same_state(from_pretrained(tmp_path), expected)


def test_loading_leaves_the_random_numbers_alone(saved):
    before = torch.random.get_rng_state()
    from_pretrained(saved)
    assert torch.equal(torch.random.get_rng_state(), before)


# ─── what the folder says ───


def test_the_card_says_what_a_user_must_know(tmp_path):
    recipe = {"name": "robust", "sfreq": np.float32(100), "clip": np.array([-20, 20])}
    trained().save_pretrained(
        tmp_path, recipe=recipe, training_data="simulated nights, Zürich", licence="CC-BY-4.0"
    )
    card = from_pretrained(tmp_path).card
    assert card == json.loads((tmp_path / "config.json").read_text())
    assert card["format_version"] == 1
    assert card["architecture"] == "CNNTransformer"
    assert card["arguments"]["norm"] == "psd"
    assert card["stages"] == ["W", "N1", "N2", "N3", "REM"]
    assert card["recipe"] == {"name": "robust", "sfreq": 100, "clip": [-20, 20]}
    assert (card["training_data"], card["licence"]) == ("simulated nights, Zürich", "CC-BY-4.0")
    assert card["versions"] == {"psdnorm": psdnorm.__version__, "torch": torch.__version__}
    assert "Zürich" in (tmp_path / "config.json").read_text()


def test_a_model_that_was_loaded_and_saved_again_keeps_its_card(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    trained().save_pretrained(first, recipe={"name": "paper"}, licence="CC0", training_data="MASS")
    from_pretrained(first).save_pretrained(second, training_data="Sleep-EDF")
    card = from_pretrained(second).card
    assert (card["recipe"], card["licence"]) == ({"name": "paper"}, "CC0")
    assert card["training_data"] == "Sleep-EDF"


def test_other_outputs_have_other_names(tmp_path):
    model = trained(n_outputs=2)
    model.save_pretrained(tmp_path)
    assert from_pretrained(tmp_path).card["stages"] is None
    model.save_pretrained(tmp_path, stages=("wake", "sleep"))
    assert from_pretrained(tmp_path).card["stages"] == ["wake", "sleep"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("stages", ["W", "sleep"]),
        ("stages", [0, 1, 2, 3, 4]),
        ("recipe", "robust"),
        ("recipe", {"clip": float("nan")}),
        ("recipe", {"filter": object()}),
        ("training_data", 7),
        ("licence", b"CC0"),
        ("licence", "\ud800"),
    ],
)
def test_a_wrong_word_about_the_model_is_refused_by_name(option, value, tmp_path):
    with pytest.raises(ArgumentError, match=option):
        trained().save_pretrained(tmp_path / "model", **{option: value})
    assert not (tmp_path / "model").exists()


# ─── what cannot be saved ───


@pytest.mark.parametrize("architecture", [USleep, CNNTransformer])
def test_a_callable_norm_is_refused(architecture, tmp_path):
    with pytest.raises(CheckpointError, match="norm is a callable"):
        trained(architecture, norm=torch.nn.BatchNorm1d).save_pretrained(tmp_path)


def test_a_model_that_was_changed_after_it_was_built_is_refused(tmp_path):
    model = trained(norm="batch")
    convert_norm(model, names=["blocks.2"])
    with pytest.raises(CheckpointError, match="not the CNNTransformer that its config builds"):
        model.save_pretrained(tmp_path)


def test_a_model_that_diverged_is_refused(tmp_path):
    model = trained()
    with torch.no_grad():
        model.head.bias[0] = torch.nan
    with pytest.raises(CheckpointError, match=r"head\.bias that is not finite"):
        model.save_pretrained(tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="file cannot be written"):
        trained().save_pretrained(tmp_path / "file")


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_save_leaves_the_old_checkpoint_whole(step, call, error, saved, monkeypatch):
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    original, calls = getattr(os, step), itertools.count(1)

    def interrupted(*args):
        if next(calls) == call:
            raise error
        return original(*args)

    monkeypatch.setattr(os, step, interrupted)
    with pytest.raises((CheckpointError, KeyboardInterrupt)):
        trained(norm="batch").save_pretrained(saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    from_pretrained(saved)


def test_a_new_checkpoint_replaces_the_old_one_and_leaves_nothing_behind(saved):
    trained(USleep).save_pretrained(str(saved))
    assert {path.name for path in saved.iterdir()} == {"config.json", "model.safetensors"}
    assert isinstance(from_pretrained(str(saved)), USleep)


# ─── what cannot be loaded ───


def test_a_missing_folder_or_file_is_named(saved):
    assert "elsewhere is not a folder" in refusal(saved / "elsewhere")
    assert "is not a folder" in refusal(saved / "config.json")
    (saved / "model.safetensors").rename(saved / "moved")
    assert "model.safetensors does not exist" in refusal(saved)
    (saved / "config.json").unlink()
    assert "config.json does not exist" in refusal(saved)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", 100_000 * b"[", b"NaN", pickle.dumps({})], ids=range(6)
)
def test_a_card_that_is_not_json_is_refused(content, saved):
    (saved / "config.json").write_bytes(content)
    assert "config.json is not JSON" in refusal(saved)


@pytest.mark.parametrize("content", ["[]", "null", "{}", '{"format_version": true}'])
def test_json_that_describes_no_model_is_refused(content, saved):
    (saved / "config.json").write_text(content)
    assert "config.json does not describe a model" in refusal(saved)


def test_a_newer_format_is_refused(saved):
    (saved / "config.json").write_text('{"format_version": 2, "everything": "else"}')
    assert "format_version 2, newer than 1" in refusal(saved)


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("architecture", ["USleep"]),
        ("arguments", [1, 2]),
        ("stages", "W N1 N2 N3 REM"),
        ("stages", ["W", "N1"]),
        ("stages", [0, 1, 2, 3, 4]),
        ("recipe", "robust"),
        ("licence", {}),
        ("versions", None),
        ("weights", "model.safetensors"),
    ],
)
def test_an_entry_of_another_type_is_named(entry, value, saved):
    rewrite(saved, **{entry: value})
    message = refusal(saved)
    assert "config.json" in message
    assert entry in message


def test_a_missing_entry_is_named(saved):
    (saved / "config.json").write_text('{"format_version": 1, "arguments": {}}')
    assert "has no 'architecture'" in refusal(saved)


def test_another_architecture_is_refused(saved):
    assert "describes a CNNTransformer, expected a USleep" in refusal(saved, USleep.from_pretrained)
    rewrite(saved, architecture="USleep", arguments={"n_times": 60, "depth": 2})
    assert "model.safetensors does not fit the USleep" in refusal(saved)
    for name in ("ResNet", "Pretrained", "os.system"):
        rewrite(saved, architecture=name)
        assert f"describes a '{name}', expected one of CNNTransformer" in refusal(saved)


@pytest.mark.parametrize("changes", [{"norm": "batch"}, {"channels": [8, 32]}, {"n_layers": 1}])
def test_weights_of_another_shape_or_name_are_refused(changes, saved):
    rewrite_arguments(saved, **changes)
    assert "model.safetensors does not fit the CNNTransformer of config.json" in refusal(saved)


@pytest.mark.parametrize("kept", [0, 7, 100, -1])
def test_truncated_weights_are_refused(kept, saved):
    content = (saved / "model.safetensors").read_bytes()[:kept]
    (saved / "model.safetensors").write_bytes(content)
    assert f"has {len(content)} bytes, expected" in refusal(saved)
    replace_weights(saved, content)
    assert "is not a complete safetensors file" in refusal(saved)


def test_a_flipped_bit_is_noticed(saved):
    content = bytearray((saved / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (saved / "model.safetensors").write_bytes(content)
    assert "SHA-256" in refusal(saved)


def test_a_pickle_is_never_loaded(saved, tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    torch.save({"head.bias": Trap()}, saved / "model.safetensors")
    replace_weights(saved, (saved / "model.safetensors").read_bytes())
    assert "is not a complete safetensors file" in refusal(saved)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (torch.Tensor.long, "head.bias holds torch.int64"),
        (torch.Tensor.byte, "head.bias holds U8"),
        (torch.Tensor.log, "head.bias that is not finite"),
    ],
)
def test_weights_that_are_no_finite_floats_are_refused(change, expected, saved):
    tensors = safetensors.torch.load_file(saved / "model.safetensors")
    tensors["head.bias"] = change(-tensors["head.bias"].abs())
    with safetensors.safe_open(saved / "model.safetensors", framework="pt") as file:
        written = file.metadata()
    replace_weights(saved, safetensors.torch.save(tensors, metadata=written))
    assert expected in refusal(saved)


@pytest.mark.parametrize(
    "arguments",
    [
        {"n_chans": 2**20},
        {"n_epochs": 2**20},
        {"filter_size": 2**20},
        {"sfreq": 2**20},
        {"n_layers": 2**20},
        {"n_times": 10**30},
        {"channels": 4096 * [8], "strides": 4096 * [1]},
        {"channels": 10**6 * [8], "strides": 10**6 * [1]},
        {"channels": [[8], {}], "strides": [3, 5]},
        {"channels": None},
        {"norm": "__import__('os')"},
        {"norm": 1},
        {"device": "cuda"},
    ],
    ids=lambda arguments: next(iter(arguments)),
)
def test_a_hostile_card_is_refused_before_it_costs_time_or_memory(arguments, saved):
    rewrite_arguments(saved, **arguments)
    refusal(saved)


@pytest.mark.parametrize("arguments", [{"depth": 2**20, "n_time_filters": 1}, {"depth": 2000}])
def test_a_hostile_depth_is_refused_too(arguments, tmp_path):
    trained(USleep).save_pretrained(tmp_path)
    rewrite_arguments(tmp_path, **arguments)
    assert "do not build a USleep" in refusal(tmp_path)


def test_an_architecture_of_ones_own_is_saved_and_loaded(tmp_path):
    class Own(Pretrained):
        def __init__(self, n_outputs=5):
            super().__init__()
            self.config = {"n_outputs": n_outputs}
            self.linear = torch.nn.Linear(3, n_outputs)

    Own().save_pretrained(tmp_path)
    assert isinstance(from_pretrained(tmp_path), Own)


def test_without_safetensors_it_says_what_to_install(saved, monkeypatch):
    hide(monkeypatch, "safetensors")
    with pytest.raises(MissingExtraError) as caught:
        from_pretrained(saved)
    assert str(caught.value).endswith('need safetensors: pip install "psdnorm[models]"')
