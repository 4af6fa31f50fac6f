"""What a store refuses, and how it says so."""

import contextlib
import errno
import importlib
import os
import subprocess
import sys

import numpy as np
import pytest
from missing_packages import hide
from properties import given, settings, st
from stores import LAYOUT, RECIPE, filled, night, tree

from psdnorm.errors import MissingExtraError, PsdnormError, StoreError
from psdnorm.store import Layout, Night, Store
from psdnorm.store.folder import night_path


@pytest.fixture
def store(tmp_path):
    return filled(tmp_path / "store", [night("abc-1"), night("abc-2", 40)])


@pytest.fixture
def path(store):
    return night_path(store.path, "abc-1")


def test_a_truncated_night_is_named(store, path):
    content = path.read_bytes()
    for n_bytes in (0, 5, 100, 4000, len(content) - 1):
        path.write_bytes(content[:n_bytes])
        with pytest.raises(StoreError, match=f"^{path} is (truncated|not a night)"):
            _ = Store.open(store.path).index
        assert len(Store.open(store.path).verify()) == 1


def test_a_flipped_bit_is_found_by_verify(store, path):
    assert store.verify() == []
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(content)
    assert store.verify() == [f"{path} is corrupted: its content has another checksum"]


@given(st.data())
@settings(max_examples=200)
def test_a_spoilt_head_gives_only_our_own_errors(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp() / "spoilt"
    if not folder.exists():
        filled(folder, [night("abc-1", 4)])
    path = night_path(folder, "abc-1")
    whole = (folder / "whole").read_bytes() if (folder / "whole").exists() else path.read_bytes()
    (folder / "whole").write_bytes(whole)
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, 900))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    # the suite turns anything else that comes out into a failure
    with contextlib.suppress(PsdnormError):
        store = Store.open(folder)
        _ = store.index
        store.read("abc-1", 0, 4)


def test_a_missing_night_is_named(store, path):
    path.unlink()
    with pytest.raises(StoreError, match=f"^{path} is missing, which index.parquet lists"):
        _ = Store.open(store.path).index
    with pytest.raises(StoreError, match=f"^{path} is missing"):
        Store.open(store.path).read("abc-1", 0, 1)
    Store.open(store.path).remove("abc-1")
    assert len(Store.open(store.path).index) == 1


def test_a_night_under_another_name_is_named(store, path):
    path.rename(path.with_name("abc-3.safetensors"))
    with pytest.raises(StoreError, match=r"abc-3.safetensors was renamed: it is 'abc-1'$"):
        _ = Store.open(store.path).index


def test_a_spoilt_index_says_that_it_can_be_deleted(store):
    (store.path / "index.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(StoreError, match=r"index.parquet cannot be read as Parquet: .*delete it"):
        _ = Store.open(store.path).index


def test_a_folder_that_is_no_store_is_named(tmp_path):
    with pytest.raises(StoreError, match=f"^{tmp_path} is not a store: it has no recipe.json$"):
        Store.open(tmp_path)
    with pytest.raises(StoreError, match=r"none is not a folder, expected a store$"):
        Store.open(tmp_path / "none")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("robust", "paper", "was changed: its recipe does not have the hash"),
        ('"format_version": 1', '"format_version": 2', "has format_version 2, expected 1"),
        ("sfreq", "rate", "as layout, expected n_channels, n_times, sfreq, dtype"),
        ("{", "", "is not JSON"),
    ],
)
def test_a_spoilt_recipe_is_named(store, old, new, expected):
    path = store.path / "recipe.json"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(StoreError, match=f"^{path} .*{expected}"):
        Store.open(store.path)


def test_a_folder_that_cannot_be_written_to_is_named(store, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("psdnorm.runtime.files.open", refuse, raising=False)
    nights = store.path / "nights"
    with pytest.raises(StoreError, match=f"^{nights} cannot be written to: Permission denied$"):
        store.make_room()


def test_two_sources_of_one_name_are_refused(store):
    with pytest.raises(StoreError, match=r"'abc-1' is in .* from 'abc-1.edf', found 'copy.edf'"):
        store.add(night("abc-1", source="copy.edf"))
    assert np.array_equal(store.read("abc-1", 0, 50)[0], night("abc-1").signals)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"signals": np.zeros((5, 3, 30))}, r"shape \(5, 3, 30\), expected \('E', 2, 30\)"),
        ({"signals": np.zeros((0, 2, 30)), "stages": np.zeros(0, int)}, "shape"),
        ({"signals": np.full((5, 2, 30), np.nan)}, "not finite in float16"),
        ({"signals": np.full((5, 2, 30), 1e5)}, "not finite in float16"),
        ({"signals": np.zeros((5, 2, 30), complex)}, "expected real numbers"),
        ({"stages": np.zeros(4, int)}, "stages for 5 epochs"),
        ({"stages": np.full(5, 5)}, r"stages \[5\], expected integers from -1 to 4"),
        ({"stages": np.zeros(5)}, "expected integers"),
        ({"age": -1}, "-1 as age"),
        ({"age": float("nan")}, "nan as age"),
        ({"sex": "female"}, "'female' as sex, expected 'F', 'M' or None"),
        ({"family": ""}, "'' as family"),
        ({"visit": "a\nb"}, "as visit"),
        ({"flags": ("a;b",)}, "as flags, expected texts without ';'"),
        ({"subject": ""}, "'' as subject"),
        ({"recording": "a" * 300}, "too long a name"),
        ({"recording": "\ud800"}, "as recording"),
    ],
)
def test_a_night_that_does_not_fit_is_refused_in_one_sentence(store, known, expected):
    rng = np.random.default_rng(0)
    usual = {
        "recording": "abc-9", "cohort": "abc", "subject": "9",
        "signals": rng.standard_normal((5, 2, 30)), "stages": np.zeros(5, int),
    }  # fmt: skip
    before = tree(store.path)
    with pytest.raises(StoreError, match=expected) as error:
        store.add(Night(**(usual | known)))
    assert "\n" not in str(error.value)
    assert tree(store.path) == before


@pytest.mark.parametrize(("scale", "offset"), [(1e-5, 0), (1, 3000)])
def test_volts_and_large_offsets_are_refused_in_half_precision(tmp_path, scale, offset):
    volts = night("abc-1", 20)
    volts.signals[:] = scale * np.random.default_rng(0).standard_normal((20, 2, 30)) + offset
    with pytest.raises(StoreError, match=r"'abc-1' loses .* to rounding as float16 in channel 0"):
        Store.create(tmp_path / "half", RECIPE, LAYOUT).add(volts)
    assert Store.create(tmp_path / "single", RECIPE, Layout(2, 30, 1.0, "float32")).add(volts)


def test_a_flat_channel_is_not_refused(tmp_path):
    flat = night("abc-1", 20)
    flat.signals[:, 1] = 123.456
    assert Store.create(tmp_path, RECIPE, LAYOUT).add(flat)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_or_no_permission_leaves_nothing_half_written(store, monkeypatch, call, code):
    before = tree(store.path)

    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fail)
    path = night_path(store.path, "abc-3")
    with pytest.raises(StoreError, match=f"^{path} cannot be written: {os.strerror(code)}$"):
        store.add(night("abc-3"))
    assert tree(store.path) == before


@pytest.mark.parametrize(
    "layout",
    [{"n_channels": 0}, {"n_times": 2.5}, {"sfreq": -1}, {"dtype": "int8"}, {"sfreq": None}],
)
def test_a_layout_that_cannot_be_is_refused(layout):
    with pytest.raises(StoreError, match=f"{next(iter(layout))}.*expected"):
        Layout(**layout)


def test_a_recipe_that_json_cannot_hold_is_refused(tmp_path):
    with pytest.raises(StoreError, match=r"^recipe must be a dict that JSON can hold"):
        Store.create(tmp_path / "s", {"clip": float("nan")})


@pytest.mark.parametrize("name", ["pandas", "pyarrow"])
def test_without_pandas_or_pyarrow_it_says_what_to_install(name, monkeypatch):
    hide(monkeypatch, name, "psdnorm.store", "psdnorm.store.folder", "psdnorm.store.folder")
    with pytest.raises(MissingExtraError) as caught:
        importlib.import_module("psdnorm.store")
    expected = 'a store needs pandas and pyarrow: pip install "psdnorm[data]"'
    assert str(caught.value) == expected


def test_reading_needs_nothing_beyond_torch_numpy_pandas_and_pyarrow():
    script = (
        "import sys; sys.modules |= dict.fromkeys(['mne', 'scipy', 'sklearn', 'safetensors']); "
        "import psdnorm.batches, psdnorm.store"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
