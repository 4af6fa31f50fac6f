"""What goes into a store comes out of it, once, and from one recipe."""

import pickle

import numpy as np
import pytest
from properties import given, settings, st
from stores import LAYOUT, RECIPE, filled, night, tree

from psdnorm.errors import ArgumentError, StoreError
from psdnorm.store import Layout, Store, recipe_hash
from psdnorm.store.folder import night_path


@pytest.fixture
def store(tmp_path):
    return filled(tmp_path / "store", [night("abc-1"), night("abc-2", 40), night("xyz-1", 3)])


@given(first=st.integers(0, 49), n=st.integers(1, 50))
@settings(max_examples=30)
def test_any_epochs_are_read_as_they_were_added(tmp_path_factory, first, n):
    folder = tmp_path_factory.getbasetemp() / "read"
    added = night("abc-1", 50)
    store = Store.open(folder) if folder.exists() else filled(folder, [added])
    n = min(n, 50 - first)
    signals, stages = store.read("abc-1", first, n)
    assert signals.dtype == np.float32
    assert np.array_equal(signals, added.signals[first : first + n])
    assert np.array_equal(stages, added.stages[first : first + n])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_either_type_on_disk_is_read_to_its_rounding(tmp_path, dtype):
    layout = Layout(2, 30, 1.0, dtype)
    added = night("abc-1")
    added.signals[:] = 50 * np.random.default_rng(3).standard_normal(added.signals.shape)
    store = filled(tmp_path, [added], layout)
    read, _ = store.read("abc-1", 0, 50)
    tolerance = 2**-11 if dtype == "float16" else 0
    assert np.allclose(read, added.signals, rtol=tolerance, atol=0)
    assert store.signals("abc-1").dtype == dtype


def test_a_sequence_is_one_contiguous_piece_of_the_file(store):
    signals = store.signals("abc-1")
    assert signals[7:42].flags.c_contiguous
    path = night_path(store.path, "abc-1")
    start = path.stat().st_size - signals.nbytes
    assert start % 4096 == 0
    piece = path.read_bytes()[start + 7 * signals[0].nbytes :][: 35 * signals[0].nbytes]
    assert np.array_equal(np.frombuffer(piece, np.float16).reshape(35, 2, 30), signals[7:42])


def test_the_index_counts_the_stages_and_keeps_what_is_known(tmp_path):
    stages = [0, 0, 1, 2, 2, 2, 3, 4, -1, -1]
    known = {
        "visit": "baseline", "family": "f7", "channels": ("C3-A2", "C4-A1"), "flags": ("flat C4",),
        "simulated": True, "checksum": "ab12", "fingerprint": "cd34", "age": 61, "sex": "F",
    }  # fmt: skip
    store = filled(tmp_path, [night("abc-1", 10, stages=np.array(stages), **known)])
    row = store.index.iloc[0].to_dict()
    expected = {"W": 2, "N1": 1, "N2": 3, "N3": 1, "REM": 1, "unscored": 2, "epochs": 10}
    assert {name: row[name] for name in expected} == expected
    expected = known | {"channels": "C3-A2;C4-A1", "flags": "flat C4", "source": "abc-1.edf"}
    assert {name: row[name] for name in expected} == expected
    assert np.frombuffer(row["stages"], np.int8).tolist() == stages


def test_the_index_has_these_columns_and_no_other(store):
    assert list(store.index.columns) == [
        "recording", "cohort", "subject", "visit", "family", "channels", "epochs", "W", "N1", "N2",
        "N3", "REM", "unscored", "flags", "source", "checksum", "fingerprint", "sex", "age",
        "simulated", "bytes", "digest", "stages",
    ]  # fmt: skip


def test_the_folders_above_a_source_stay_out_of_the_store(tmp_path):
    sources = ["/home/jane doe/a.edf", "C:\\jane doe\\b.edf"]
    nights = [night(f"abc-{i}", 5, source=source) for i, source in enumerate(sources)]
    store = filled(tmp_path, nights)
    assert store.index["source"].tolist() == ["a.edf", "b.edf"]
    assert not any(b"jane" in content for content in tree(tmp_path).values())


def test_what_is_unknown_is_null(store):
    assert store.index[["family", "sex", "age"]].isna().all(axis=None)


def test_the_index_is_the_same_without_its_file(store):
    known = store.index
    (store.path / "index.parquet").unlink()
    assert Store.open(store.path).index.equals(known)


def test_a_night_added_after_the_index_was_written_is_in_the_next_one(store):
    Store.open(store.path).add(night("abc-3", 7))
    assert Store.open(store.path).index["recording"].tolist() == [
        "abc-1", "abc-2", "abc-3", "xyz-1",
    ]  # fmt: skip


def test_adding_again_writes_nothing(store):
    before = {path: path.stat().st_mtime_ns for path in store.path.rglob("*")}
    assert not store.add(night("abc-1"))
    assert {path: path.stat().st_mtime_ns for path in store.path.rglob("*")} == before


def test_a_night_prepared_anew_takes_the_place_of_the_old(store):
    assert store.add(night("abc-1", seed=5))
    for each in (store, Store.open(store.path)):
        assert np.array_equal(each.read("abc-1", 0, 50)[0], night("abc-1", seed=5).signals)
        assert len(each.index) == 3
        stages = each.index.set_index("recording").loc["abc-1", "stages"]
        assert np.array_equal(np.frombuffer(stages, np.int8), night("abc-1", seed=5).stages)


def test_the_order_of_adding_leaves_no_trace(tmp_path):
    nights = [night(f"abc-{i}", 5) for i in range(4)]
    filled(tmp_path / "a", nights)
    filled(tmp_path / "b", nights[::-1])
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


def test_a_night_of_another_source_takes_the_place_of_the_old_on_demand(store):
    corrected = night("abc-1", seed=5, source="corrected.edf")
    assert store.add(corrected, replace=True)
    store.finish()
    row = Store.open(store.path).index.set_index("recording").loc["abc-1"]
    assert row["source"] == "corrected.edf"
    assert np.array_equal(store.read("abc-1", 0, 50)[0], corrected.signals)


def test_known_is_the_row_of_a_sound_night_and_none_otherwise(store):
    known = store.known("abc-1")
    row = store.index.set_index("recording", drop=False).loc["abc-1"]
    assert all(row[name] == known[name] for name in ("recording", "subject", "W", "digest"))
    assert store.known("abc-10") is None
    path = night_path(store.path, "abc-1")
    path.write_bytes(path.read_bytes()[:-1])
    assert store.known("abc-1") is None


def test_a_removed_night_is_gone(store):
    store.remove("abc-2")
    assert store.index["recording"].tolist() == ["abc-1", "xyz-1"]
    assert Store.open(store.path).index["recording"].tolist() == ["abc-1", "xyz-1"]


def test_a_store_travels_to_workers_as_its_path(store):
    store.read("abc-1", 0, 2)
    assert len(pickle.dumps(store)) < 1000
    assert pickle.loads(pickle.dumps(store)).index.equals(store.index)


@given(name=st.text(min_size=1, max_size=12).filter(lambda text: text.isprintable()))
@settings(max_examples=40)
def test_any_printable_name_can_be_a_recording(tmp_path_factory, name):
    folder = tmp_path_factory.mktemp("names")
    store = filled(folder, [night("abc-1", 2), night(name, 2, cohort="c", subject="s")])
    assert set(store.index["recording"]) == {"abc-1", name}
    assert len(store.read(name, 0, 2)[0]) == 2


def test_another_recipe_is_refused_and_the_difference_named(store):
    other = RECIPE | {"clip": 10.0}
    expected = (
        f"^{store.path} holds nights of the recipe {recipe_hash(RECIPE)[:12]}, found the recipe "
        f"{recipe_hash(other)[:12]}, which differs in 'clip': a store never mixes recipes$"
    )
    with pytest.raises(StoreError, match=expected):
        Store.create(store.path, other, LAYOUT)
    with pytest.raises(StoreError, match=expected):
        Store.open(store.path, other)


def test_the_same_recipe_in_another_order_is_the_same(store):
    again = dict(reversed(RECIPE.items()))
    assert Store.create(store.path, again, LAYOUT).hash == store.hash


def test_a_planned_store_takes_the_recipe_of_its_first_night(tmp_path):
    path = tmp_path / "store"
    planned = [Store.plan(path, RECIPE | {"clip": clip}, LAYOUT) for clip in (10.0, 20.0)]
    assert not path.exists()
    planned[0].make_room()
    planned[0].finish()
    assert tree(path) == {}
    assert not planned[1].made
    assert planned[1].known("abc-1") is None
    assert planned[1].add(night("abc-1"))
    assert planned[0].made
    with pytest.raises(StoreError, match=r"differs in 'clip': a store never mixes recipes$"):
        planned[0].add(night("abc-2"))
    with pytest.raises(StoreError, match=r"differs in 'clip': a store never mixes recipes$"):
        Store.plan(path, RECIPE | {"clip": 10.0}, LAYOUT)
    planned[1].finish()
    assert Store.open(path, RECIPE).index["recording"].tolist() == ["abc-1"]


def test_of_a_planned_store_that_gets_no_night_nothing_is_left(tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    for path in (there, tmp_path / "absent"):
        store = Store.plan(path, RECIPE, LAYOUT)
        store.make_room()
        store.make_room()
        store.finish()
    assert list(tmp_path.rglob("*")) == [there]


def test_a_planned_store_leaves_what_is_not_its_own(tmp_path):
    store = Store.plan(tmp_path / "store", RECIPE, LAYOUT)
    store.make_room()
    (tmp_path / "store" / "notes.txt").write_text("mine")
    store.finish()
    assert tree(tmp_path) == {"store/notes.txt": b"mine"}


def test_a_planned_store_travels_to_workers(tmp_path):
    planned = pickle.loads(pickle.dumps(Store.plan(tmp_path / "store", RECIPE, LAYOUT)))
    planned.add(night("abc-1"))
    assert Store.open(tmp_path / "store", RECIPE).layout == LAYOUT


def test_another_layout_is_refused(store):
    with pytest.raises(StoreError, match=r"n_times=30.*, found .*n_times=3000"):
        Store.create(store.path, RECIPE)


def test_a_night_copied_from_a_store_of_another_recipe_is_named(store, tmp_path):
    other = Store.create(tmp_path / "other", {"name": "paper"}, LAYOUT)
    other.add(night("abc-7", 5))
    path = night_path(store.path, "abc-7")
    path.write_bytes(night_path(other.path, "abc-7").read_bytes())
    with pytest.raises(StoreError, match=f"^{path} was prepared with the recipe {other.hash[:12]}"):
        _ = Store.open(store.path).index


def test_epochs_beyond_the_night_are_refused(store):
    for first, n in ((-1, 3), (0, 51), (40, 11), (3, 0)):
        with pytest.raises(ArgumentError, match=r"of 'abc-1' .* expected some of its 50$"):
            store.read("abc-1", first, n)


def test_a_recording_that_is_not_there_is_named(store):
    with pytest.raises(StoreError, match=f"^{store.path} has no recording 'abc-99'$"):
        store.read("abc-99", 0, 1)


def test_a_night_can_be_opened_with_safetensors(store):
    from safetensors import safe_open

    with safe_open(night_path(store.path, "abc-2"), "numpy") as file:
        assert file.get_tensor("signals").shape == (40, 2, 30)
        assert np.array_equal(file.get_tensor("stages"), night("abc-2", 40).stages)
