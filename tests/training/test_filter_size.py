"""filter_size="auto": chosen from those who train, written down, and kept to."""

import json
from dataclasses import replace

import numpy as np
import pytest
from small_runs import LAYOUT, PROTOCOL, learnable, nights, outcome, small_store

from psdnorm.errors import ArgumentError
from psdnorm.experiments.execute import run_grid
from psdnorm.experiments.grid import Axes, ExperimentFolder, PlannedRun, grid_of
from psdnorm.models import from_pretrained
from psdnorm.store import Night, Store
from psdnorm.training import Run, train_run
from psdnorm.training import filter_size as rule
from psdnorm.training.filter_size import (
    FilterSizeChoice,
    choice_for,
    choose_filter_size,
    drawn_nights,
    left_out_accuracy,
    sample_nights,
)
from psdnorm.training.train import split_of

AUTO = Run("usleep", "psd", "auto", hold_out="abc")
ONE_EPOCH = replace(PROTOCOL, max_epochs=1)


def coloured(recording, tilt, contrast=0.25):
    """A night whose stages are five colours of noise, behind an amplifier with a colour, too."""
    rng = np.random.default_rng([*recording.encode()])
    stages = np.repeat(np.concatenate([rng.permutation(5) for _ in range(2)]), 10)
    shape = (100, LAYOUT.n_channels, LAYOUT.n_times)
    spectra = np.fft.rfft(rng.standard_normal(shape))
    hz = np.fft.rfftfreq(LAYOUT.n_times, 1 / LAYOUT.sfreq)
    slope = contrast * (stages - 2)[:, None, None] + tilt  # of the logarithm
    signals = np.fft.irfft(spectra * np.exp(slope * (hz / hz[-1] - 0.5)), n=LAYOUT.n_times)
    cohort, _, subject = recording.partition("-")
    return Night(recording, cohort, subject, signals, stages, source=recording, simulated=True)


def coloured_store(path, tilts):
    made = [coloured(f"{c}-{i}", tilt) for c, tilt in tilts.items() for i in range(3)]
    return small_store(path, made)


class Guarded(Store):
    """A store that refuses to read some of its nights."""

    forbidden: frozenset[str] = frozenset()

    def _map(self, recording):
        assert recording not in self.forbidden, f"{recording} was read"
        return super()._map(recording)


def test_where_cohorts_differ_in_colour_a_filter_is_chosen_that_can_undo_it(tmp_path):
    tilts = {"lmn": -2.0, "opq": -0.7, "rst": 0.7, "uvw": 2.0}
    store = coloured_store(tmp_path, tilts)
    choice = choose_filter_size(store, store.index, length=50)
    assert choice.filter_size > 5
    assert choice.mean(choice.filter_size) > choice.mean(1) + 0.1


def test_where_cohorts_are_alike_the_usual_size_stays(tmp_path):
    store = coloured_store(tmp_path, dict.fromkeys(("lmn", "opq", "rst", "uvw"), 0.0))
    choice = choose_filter_size(store, store.index, length=50)
    assert choice.filter_size == 5
    assert choice.mean(5) > 0.4  # by chance it would be 0.2: there was something to find


def test_the_best_size_is_taken_where_it_beats_the_usual_one_in_every_cohort():
    usual = {"a": 0.5, "b": 0.6, "c": 0.7}
    better = {name: score + 0.02 for name, score in usual.items()}
    best = {name: score + 0.03 for name, score in usual.items()}
    assert FilterSizeChoice({1: better, 5: usual, 9: best}).filter_size == 9
    assert (
        FilterSizeChoice({1: best, 5: usual, 9: best}).filter_size == 1
    )  # of equal ones the smallest
    assert FilterSizeChoice({1: usual, 5: best, 9: better}).filter_size == 5


@pytest.mark.parametrize(("gains", "taken"), [((0.01, 0.05), 5), ((0.029, 0.05), 9)])
def test_a_gain_within_two_standard_errors_leaves_the_usual_size(gains, taken):
    # of two gains g and h, two standard errors are |g - h|
    own = dict(zip("ab", np.array([0.5, 0.7]) + gains, strict=True))
    assert FilterSizeChoice({5: {"a": 0.5, "b": 0.7}, 9: own}).filter_size == taken


def test_the_table_says_what_each_size_gains_and_how_sure_that_is():
    found = FilterSizeChoice({1: {"a": 0.7, "b": 0.5}, 5: {"a": 0.5, "b": 0.4}}).to_json()
    assert found["filter_size"] == 1
    first, second = found["table"]
    assert first["balanced_accuracy"] == pytest.approx(0.6)
    assert first["gain"] == pytest.approx(0.15)
    assert first["standard_error"] == pytest.approx(0.05)  # of 0.2 and 0.1
    assert (second["gain"], second["standard_error"]) == (0.0, 0.0)
    assert first["cohorts"] == {"a": 0.7, "b": 0.5}
    assert json.loads(json.dumps(found)) == found


def test_nobody_who_is_held_out_or_validates_is_read(tmp_path):
    small_store(tmp_path)
    store = Guarded.open(tmp_path)
    split = split_of(store, AUTO, PROTOCOL)
    store.forbidden = frozenset((*split.validation["recording"], *split.test["recording"]))
    assert choose_filter_size(store, split.train, length=9).filter_size in rule.CANDIDATES
    with pytest.raises(AssertionError, match="abc-0 was read"):  # the guard is awake
        store.read("abc-0", 0, 1)


def test_nothing_of_the_held_out_cohort_changes_the_choice(tmp_path):
    made = nights()
    clean = small_store(tmp_path / "clean", made)
    before = choose_filter_size(clean, split_of(clean, AUTO, PROTOCOL).train, length=9)
    for night in made:
        if night.recording.startswith("abc"):
            night.signals[:] = 100.0 * np.random.default_rng(0).standard_normal(night.signals.shape)
    other = small_store(tmp_path / "other", made)
    after = choose_filter_size(other, split_of(other, AUTO, PROTOCOL).train, length=9)
    assert before == after


def test_at_most_five_subjects_of_a_cohort_are_read_one_night_each(tmp_path):
    made = [learnable(f"mno-{i}", 9, visit=v, source=f"{i}{v}") for i in range(8) for v in "12"]
    for i, night in enumerate(made):
        made[i] = replace(night, recording=f"{night.recording}-{night.visit}")
    store = small_store(tmp_path, [*made, learnable("xyz-0", 9)])
    drawn = drawn_nights(store.index)
    assert drawn.groupby("cohort").size().to_dict() == {"mno": 5, "xyz": 1}
    assert drawn["subject"][drawn["cohort"] == "mno"].is_unique
    assert set(drawn["visit"][drawn["cohort"] == "mno"]) == {"1"}
    assert {"0", "7"} < {*drawn["subject"]}  # from the first to the last


def test_a_run_chooses_from_those_who_train_in_sequences_as_long_as_its_own(store, tmp_path):
    result = train_run(store, AUTO, ONE_EPOCH, tmp_path)
    train = split_of(store, AUTO, ONE_EPOCH).train
    assert len(train) < len(store.index[store.index["cohort"] != "abc"])  # others validate
    expected = choose_filter_size(store, train, length=ONE_EPOCH.length)
    assert result.filter_size_choice == expected.to_json()


def test_a_white_target_is_chosen_for_as_such(tmp_path):
    store = coloured_store(tmp_path, {"lmn": -1.0, "opq": 0.0, "rst": 1.0})
    sample = sample_nights(store, store.index, [9], length=50)
    white, usual = (left_out_accuracy(sample, 9, "opq", t) for t in ("white", "barycenter"))
    assert white != usual
    for norm, expected in (("psd", usual), ("psd-white", white)):
        table = choice_for(store, store.index, norm, 50)["table"]
        assert {row["filter_size"]: row["cohorts"]["opq"] for row in table}[9] == expected


def test_what_was_chosen_for_other_nights_or_sequences_is_not_taken(store, monkeypatch):
    monkeypatch.setattr(rule, "_known", {})
    fewer = store.index[store.index["subject"] != "0"]
    for index, length in ((store.index, 9), (fewer, 9), (store.index, 5)):
        expected = choose_filter_size(store, index, length=length)
        assert choice_for(store, index, "psd", length) == expected.to_json()


def test_nights_in_which_nothing_is_to_be_seen_leave_the_usual_size(tmp_path):
    made = nights()
    for night in made:
        night.signals[:] = 0.0
    store = small_store(tmp_path, made)
    choice = choose_filter_size(store, store.index, length=9)
    assert choice.filter_size == 5
    assert np.isfinite([choice.mean(size) for size in rule.CANDIDATES]).all()


def test_one_epoch_of_each_stage_is_enough_to_learn_from(tmp_path):
    made = nights(("mno", "xyz"), 1)
    for night in made:
        night.stages[:] = -1
        night.stages[:5] = range(5)
    store = small_store(tmp_path, made)
    choice = choose_filter_size(store, store.index, length=9)
    assert 0 <= choice.mean(choice.filter_size) <= 1


def test_a_single_cohort_to_learn_from_is_refused_before_anything_is_written(tmp_path):
    store = small_store(tmp_path / "store", nights(("abc", "mno")))
    said = "filter_size is 'auto', found mno to learn from in .*, expected at least two scored"
    with pytest.raises(ArgumentError, match=said):
        train_run(store, AUTO, PROTOCOL, tmp_path / "run")
    with pytest.raises(ArgumentError, match=said):
        run_grid(store, [AUTO, replace(AUTO, filter_size=5)], PROTOCOL, tmp_path / "runs")
    assert {path.name for path in tmp_path.iterdir()} == {"store"}


def test_a_cohort_in_which_nothing_is_scored_is_none_to_leave_out(tmp_path):
    made = nights()
    for night in made:
        if night.recording.startswith("xyz"):
            night.stages[:] = -1
    store = small_store(tmp_path, made)
    with pytest.raises(ArgumentError, match="found mno to learn from"):
        choose_filter_size(store, split_of(store, AUTO, PROTOCOL).train, length=9)


def test_the_network_is_that_of_the_size_that_was_chosen_to_the_bit(store, tmp_path):
    auto = train_run(store, AUTO, ONE_EPOCH, tmp_path / "auto", keep="weights")
    size = auto.filter_size_choice["filter_size"]
    train_run(store, replace(AUTO, filter_size=size), ONE_EPOCH, tmp_path / "own", keep="weights")
    both = outcome(tmp_path / "auto"), outcome(tmp_path / "own")
    for name in ("weights/model.safetensors", "scores.parquet", "history.csv"):
        assert both[0][name] == both[1][name]


def test_what_was_chosen_and_why_is_in_every_file_of_the_run(store, tmp_path):
    result = train_run(store, AUTO, ONE_EPOCH, tmp_path, keep="weights")
    choice = result.filter_size_choice
    assert [row["filter_size"] for row in choice["table"]] == list(rule.CANDIDATES)
    assert set(choice["table"][0]["cohorts"]) == {"mno", "xyz"}
    config, done = (json.loads((tmp_path / f"{n}.json").read_bytes()) for n in ("config", "done"))
    model = from_pretrained(tmp_path / "weights")
    assert config["filter_size_choice"] == done["filter_size_choice"] == choice
    assert model.card["training_data"]["filter_size_choice"] == choice
    assert model.config["filter_size"] == choice["filter_size"]
    assert config["cell"]["filter_size"] == "auto"
    assert AUTO.name == "usleep_psd_fauto_d3_abc_all_seed0"


def test_a_run_that_was_begun_keeps_its_choice(store, tmp_path, monkeypatch):
    class Stopped(Exception):
        pass

    class Stopping:
        def begin_epoch(self, *_):
            pass

        def step(self, *_):
            raise Stopped

        def end_epoch(self, *_):
            pass

    with pytest.raises(Stopped):
        train_run(store, AUTO, ONE_EPOCH, tmp_path, watcher=Stopping())
    begun = json.loads((tmp_path / "config.json").read_bytes())["filter_size_choice"]
    monkeypatch.setattr(rule, "_known", {})
    monkeypatch.setattr(rule, "choose_filter_size", lambda *a, **k: pytest.fail("chosen again"))
    assert train_run(store, AUTO, ONE_EPOCH, tmp_path).filter_size_choice == begun


def test_runs_that_learn_from_the_same_nights_share_a_choice(store, tmp_path, monkeypatch):
    chosen = []

    def counted(*args, **kwargs):
        chosen.append(kwargs["target"])
        return choose_filter_size(*args, **kwargs)

    monkeypatch.setattr(rule, "_known", {})
    monkeypatch.setattr(rule, "choose_filter_size", counted)
    axes = Axes(
        norms=("psd", "psd-white"),
        filter_sizes=("auto",),
        norm_depths=(1, 2),
        hold_outs=("abc",),
        seeds=(0,),
    )
    outcomes = [*run_grid(store, grid_of([axes]), ONE_EPOCH, tmp_path)]
    assert [outcome.status for outcome in outcomes] == ["done"] * 4
    assert sorted(chosen) == ["barycenter", "white"]


def test_a_grid_remembers_auto_beside_fixed_sizes(store, tmp_path):
    sizes = ("auto", 17, 3)
    axes = Axes(norms=("batch", "psd"), filter_sizes=sizes, hold_outs=("abc",), seeds=(0,))
    runs = grid_of([axes])
    assert [run.filter_size for run in runs] == [None, 3, 17, "auto"]
    experiment = ExperimentFolder(tmp_path)
    experiment.extend(store, ONE_EPOCH, [PlannedRun(run, 1) for run in runs])
    assert [entry.run for entry in experiment.entries()] == runs


def test_only_psdnorm_has_its_size_chosen():
    with pytest.raises(ArgumentError, match="filter_size is 'auto' with norm 'tma', expected a w"):
        Run(norm="tma", filter_size="auto")
    with pytest.raises(ArgumentError, match=r"filter_size is .best., expected .* or auto$"):
        Run(filter_size="best")
    assert Run(norm="batch", filter_size="auto") == Run(norm="batch")
    assert Run.from_json(AUTO.to_json()) == AUTO
