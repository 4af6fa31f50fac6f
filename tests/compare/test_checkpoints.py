"""Two checkpoints are compared on nights that neither has learned from, the same for both."""

import json
import shutil

import numpy as np
import pytest
import torch
from small_runs import LAYOUT, balanced_accuracies, learnable, nights, small_store

from psdnorm.compare import compare, compare_checkpoints, write_comparison
from psdnorm.errors import ArgumentError, CheckpointError, StoreError
from psdnorm.models import USleep, from_pretrained
from psdnorm.store import Store
from psdnorm.store.folder import night_path
from psdnorm.training.aligned_nights import AlignedStore, training_barycenter
from psdnorm.training.predict import predict_night

MARGIN = 7  # epochs at both ends of a night that are not central
SMALL = {"n_times": LAYOUT.n_times, "sfreq": LAYOUT.sfreq, "depth": 3, "n_time_filters": 4}
LEARNED = {"cohorts": ["mno"], "nights": 3, "simulated": True}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Three cohorts; one of those of abc came twice."""
    second = learnable("abc-00", 41, gain=5.0, subject="1", visit="2")
    return small_store(tmp_path_factory.mktemp("nights") / "store", [*nights(), second])


def saved(folder, store, seed=0, recipe=None, training_data=LEARNED, **arguments):
    """A checkpoint of random weights, whose statistics are such that all stages come out."""
    torch.manual_seed(seed)
    model = USleep(**SMALL, **arguments)
    x = 3 * torch.randn(4, 35, model.config["n_chans"], LAYOUT.n_times)
    with torch.no_grad():
        for _ in range(30):
            model(x)
        logits = model.eval()(x)
        list(model.final_layer.parameters())[-1].sub_(logits.mean(dim=(0, 2)))
    recipe = store.recipe if recipe is None else recipe
    model.save_pretrained(folder, recipe=recipe, training_data=training_data)
    return folder


@pytest.fixture(scope="module")
def two(store, tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    return saved(root / "a", store, norm="batch"), saved(root / "b", store, 1, norm="psd")


@pytest.fixture(scope="module")
def found(two, store):
    return compare_checkpoints(*two, store)


def by_hand(folder, nights, index):
    """Balanced accuracy of each subject in percent, of epochs not near the ends of a night."""
    model, predicted = from_pretrained(folder), []
    for night in index.itertuples():
        p, _ = predict_night(model, nights.signals(night.recording))
        true = np.frombuffer(night.stages, np.int8)
        predicted.append(((night.cohort, night.subject), true, p.argmax(axis=1)))
    return balanced_accuracies(predicted, MARGIN)


def test_each_subject_has_the_score_of_its_own_central_epochs(found, two, store):
    (arm,) = found.arms
    index = store.index[store.index["cohort"].isin(["abc", "xyz"])]
    for side, folder in zip("AB", two, strict=True):
        expected = by_hand(folder, store, index)
        assert dict(arm.subjects[side]) == pytest.approx(expected)
    assert not np.allclose(arm.subjects["A"], arm.subjects["B"])


def test_it_is_called_what_it_is(found):
    (arm,) = found.arms
    assert arm.name == "PSDNorm in U-Sleep (B) against BatchNorm in U-Sleep (A)"
    assert arm.arm == "usleep psd f5 d3 (B) against usleep batch (A)"
    assert found.simulated
    assert any(limit.startswith("One seed: ") for limit in found.limits)


def test_cohorts_of_a_training_are_left_out_and_it_is_said(found):
    assert {*found.arms[0].subjects.index.get_level_values("cohort")} == {"abc", "xyz"}
    assert "Not compared, as A and B learned from them: mno." in found.others
    assert "A learned from 3 simulated nights of mno." in found.others
    assert found.nights == []


def test_networks_that_learned_from_other_nights_are_doubted(store, two, tmp_path):
    other = saved(tmp_path / "b", store, training_data=LEARNED | {"cohorts": ["xyz"]})
    found = compare_checkpoints(two[0], other, store)
    assert {*found.arms[0].subjects.index.get_level_values("cohort")} == {"abc"}
    assert found.nights == ["A and B learned from different nights: gains may come from these."]
    assert "Not compared, as A learned from them: mno." in found.others
    assert "Not compared, as B learned from them: xyz." in found.others


def test_a_checkpoint_against_itself_is_said_to_be_one(store, two, found):
    itself = compare_checkpoints(two[0], two[0], store, ["abc"])
    assert itself.nights == ["A and B are the same folder: nothing can differ."]
    assert found.nights == []


def test_a_network_that_does_not_say_what_it_learned_from_is_named(store, two, tmp_path):
    silent = saved(tmp_path / "b", store, training_data="a thousand nights")
    found = compare_checkpoints(two[0], silent, store)
    assert "B does not say which cohorts it learned from: it may be these." in found.others


def test_chosen_cohorts_alone_count(two, store):
    (arm,) = compare_checkpoints(*two, store, ["xyz"]).arms
    assert [row[0] for row in arm.rows()] == ["xyz"]


def test_real_nights_are_not_those_of_a_training_on_simulated_ones_of_their_name(tmp_path):
    real = [learnable(f"mno-{n}", simulated=False) for n in range(2)]
    store = small_store(tmp_path / "store", real)
    a, b = (saved(tmp_path / name, store, seed) for seed, name in enumerate("ab"))
    found = compare_checkpoints(a, b, store, ["mno"])
    assert len(found.arms[0].subjects) == 2
    assert "A learned from simulated nights called mno." in found.others
    assert not found.simulated


def test_the_network_of_tma_sees_nights_aligned_to_its_barycenter(store, two, tmp_path):
    train = store.index[store.index["cohort"] == "mno"]["recording"]
    barycenter = training_barycenter(store, train, 3, torch.device("cpu"))
    run = {"norm": "tma", "filter_size": 3}
    training = LEARNED | {"cell": run, "sqrt_barycenter": barycenter.tolist()}
    tma = saved(tmp_path / "tma", store, norm="batch", training_data=training)
    (arm,) = compare_checkpoints(two[0], tma, store, ["abc"]).arms
    index = store.index[store.index["cohort"] == "abc"]
    aligned = AlignedStore(store, barycenter, 3, torch.device("cpu"))
    assert dict(arm.subjects["B"]) == pytest.approx(by_hand(tma, aligned, index))
    assert arm.subjects["A"].to_dict() != arm.subjects["B"].to_dict()
    assert arm.name.startswith("TMA (f = 3) in U-Sleep (B)")


def test_a_tma_network_without_its_barycenter_is_rejected(store, two, tmp_path):
    lost = saved(tmp_path / "tma", store, training_data=LEARNED | {"cell": {"norm": "tma"}})
    with pytest.raises(CheckpointError, match=r"\(TMA\) but does not say onto what"):
        compare_checkpoints(two[0], lost, store)


def test_a_night_that_cannot_be_read_counts_for_neither_and_is_named(two, store, tmp_path):
    shutil.copytree(store.path, tmp_path / "store")
    broken = Store.open(tmp_path / "store")
    assert len(broken.index)
    path = night_path(broken.path, "abc-1")
    path.write_bytes(path.read_bytes()[:-100])
    found = compare_checkpoints(*two, broken, ["abc"])
    (sentence,) = found.failed
    assert sentence.startswith("abc-1 is left out: ")
    assert str(path.relative_to(tmp_path)) in sentence
    assert str(tmp_path) not in sentence  # a path from the root may name a user
    assert sentence in found.remarks
    assert len(found.arms[0].subjects) == 3  # the other visit of the same subject counts


def test_a_store_without_a_night_that_can_be_read_is_rejected(two, tmp_path):
    store = small_store(tmp_path / "store", [learnable("abc-0"), learnable("mno-0")])
    assert len(store.index)
    night_path(store.path, "abc-0").write_bytes(b"nothing")
    with pytest.raises(StoreError, match="no night that could be evaluated: abc-0 is left out"):
        compare_checkpoints(*two, store)


def refused(a, b, store, *cohorts):
    with pytest.raises(ArgumentError) as error:
        compare_checkpoints(a, b, store, cohorts)
    return str(error.value)


def test_a_cohort_of_a_training_is_rejected_if_it_is_asked_for(two, store):
    assert refused(*two, store, "abc", "mno") == (
        f"--cohort names mno, from which A ({two[0]}) learned: expected cohorts that neither has "
        "seen"
    )


def test_a_cohort_that_is_not_there_is_rejected(two, store):
    assert refused(*two, store, "ABC") == "--cohort is 'ABC', expected one of abc, mno, xyz"


def test_a_store_of_training_nights_alone_is_rejected(two, tmp_path):
    store = small_store(tmp_path / "store", [learnable("mno-0")])
    assert refused(*two, store).startswith(
        f"{store.path} has mno, from all of which A or B learned"
    )


def test_a_network_of_another_recipe_is_rejected(two, store, tmp_path):
    other = saved(tmp_path / "b", store, recipe={**store.recipe, "clip": 5.0})
    words = refused(two[0], other, store)
    assert words.startswith(f"{other} expects nights of the recipe robust (")
    assert words.endswith(f"in {store.path}, which differs in clip")


def test_a_network_of_another_input_is_rejected(two, store, tmp_path):
    other = saved(tmp_path / "b", store, n_chans=3)
    assert refused(two[0], other, store) == (
        f"{other} takes 3 channels of 60 samples at 20 Hz, found 2 of 60 at 20 Hz in {store.path}"
    )


def test_a_folder_without_a_checkpoint_is_rejected(two, store, tmp_path):
    (tmp_path / "grid.json").write_text("{}")
    assert f"{tmp_path} is a folder of runs, expected a checkpoint" in refused(
        two[0], tmp_path, store
    )
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text("{}")
    assert f"{run} has no model.safetensors" in refused(two[0], run, store)


def test_without_nights_a_checkpoint_asks_for_them(two):
    with pytest.raises(ArgumentError) as error:
        compare(*two)
    assert str(error.value) == (
        f"{two[0]} is a checkpoint, which has no scores: give the prepared nights to evaluate both "
        "on (--store STORE)"
    )


def test_the_page_says_what_was_compared_on_what(found, tmp_path):
    write_comparison(found, tmp_path / "out", "psdnorm compare a b --store store")
    page = (tmp_path / "out" / "index.html").read_text()
    for words in ("<h1>b against a</h1>", "learned from them: mno.", "psdnorm compare a b --store"):
        assert words in page
    record = json.loads((tmp_path / "out" / "report.json").read_text())
    assert record["a"]["protocol"] == {"length": 35, "stride": 21}
    assert "run" not in record["a"]["versions"][0]
    assert len(record["files"]) == 2 + 2 + 2 * 3
