"""A study that was stopped and resumed ends like an uninterrupted one."""

import itertools
import json
import random
from contextlib import closing
from types import SimpleNamespace

import pytest
from small_runs import outcome
from studies import drawn_study, trained_study, written_study

from psdnorm.errors import ArgumentError
from psdnorm.experiments.estimate import read_cost
from psdnorm.experiments.execute import FAILURE, FINISHED, THERE, RunOutcome
from psdnorm.experiments.grid import Axes, grid_of, units_of
from psdnorm.lab.study import read_study
from psdnorm.lab.study import study as module
from psdnorm.lab.study.result_cache import pack, restore
from psdnorm.lab.study.study import Meter, experiment_of, made_store, run_study, shares_of

NORMS = ("batch", "psd")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return read_study(trained_study(tmp_path_factory.mktemp("study")))


@pytest.fixture(scope="module")
def nights(study, tmp_path_factory):
    return made_store(tmp_path_factory.mktemp("nights"), study.nights, 1, lambda made, n: made)


def executed(study, nights, work, **options):
    """Run a study in this process; return what came of its runs, and its folder."""
    experiment = experiment_of(study, work)
    meter = Meter(experiment, "cpu", 1, study.protocol.batch_size, None)
    with closing(run_study(study, nights, experiment, meter, device="cpu", **options)) as outcomes:
        return list(outcomes), experiment


@pytest.fixture(scope="module")
def at_once(study, nights, tmp_path_factory):
    """The study as it is when nothing disturbs it."""
    outcomes, experiment = executed(study, nights, tmp_path_factory.mktemp("at_once"))
    assert [each.status for each in outcomes] == ["done"] * 4
    return experiment


def results(study, experiment):
    return {run.name: outcome(experiment.folder(run)) for run in study.runs}


@pytest.mark.slow
def test_in_two_pieces_it_ends_as_at_once_bit_for_bit(study, nights, at_once, tmp_path):
    def interrupt(name, words):
        if "psd" in name and "epoch 2, batch 1" in words:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        executed(study, nights, tmp_path, on_progress=interrupt)
    experiment = experiment_of(study, tmp_path)
    left = [run for run in study.runs if not experiment.is_done(run)]
    assert [run.norm for run in left] == ["psd", "psd"]
    assert (experiment.folder(left[0]) / "resume.pt").exists()
    outcomes, _ = executed(study, nights, tmp_path)
    assert [each.run for each in outcomes] == left  # no finished run is repeated
    assert results(study, experiment) == results(study, at_once)
    assert [piece["cells"] for piece in read_cost(experiment.path)["pieces"]] == [2, 2]


@pytest.mark.slow
def test_where_only_results_survive_finished_runs_are_not_repeated(
    study, nights, at_once, tmp_path
):
    def interrupt(name, words):
        if "psd" in name:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        executed(study, nights, tmp_path / "lost", on_progress=interrupt)
    pack(study, experiment_of(study, tmp_path / "lost"))
    experiment = experiment_of(study, tmp_path / "new")
    assert restore(study, experiment) == 2
    outcomes, _ = executed(study, nights, tmp_path / "new")
    assert [each.run.norm for each in outcomes] == ["psd", "psd"]
    scores = [
        {name: files["scores.parquet"] for name, files in results(study, each).items()}
        for each in (experiment, at_once)
    ]
    assert scores[0] == scores[1]


@pytest.mark.slow
def test_processes_that_share_a_device_come_to_the_same(study, nights, at_once, tmp_path):
    outcomes, experiment = executed(study, nights, tmp_path, workers=2)
    assert sorted(each.status for each in outcomes) == ["done"] * 4
    assert results(study, experiment) == results(study, at_once)


@pytest.mark.slow
def test_other_nights_than_the_folder_was_begun_with_raise(study, nights, at_once, tmp_path):
    changed = trained_study(tmp_path)
    changed.write_text(changed.read_text().replace('"hours": 0.2', '"hours": 0.25'))
    other = read_study(changed)
    others = made_store(tmp_path, other.nights, 1, lambda made, n: made)
    with pytest.raises(ArgumentError, match=r"tiny has runs of other nights than .* take other"):
        executed(other, others, at_once.path.parent)


def test_a_share_has_few_networks_and_about_its_part_of_the_time(tmp_path):
    path = written_study(
        tmp_path,
        grid=[{"norms": ["batch", "layer", "instance", "tma", "psd", "adabn3"], "seeds": 6}],
    )
    study = read_study(path)
    seconds = {run: 0.1 if run.norm == "adabn3" else 1.0 for run in study.runs}
    units = units_of(study.runs)
    shares = shares_of(units, seconds, 8)
    assert sorted(map(str, study.runs)) == sorted(str(run) for share in shares for run in share)
    total = sum(seconds.values())
    for share in shares:
        assert abs(sum(map(seconds.get, share)) - total / 8) < 1.2
        assert len({run.norm.replace("tma", "batch") for run in share} - {"adabn3"}) <= 2
    owner = {run: number for number, share in enumerate(shares) for run in share}
    assert all(len({owner[run] for run in unit}) == 1 for unit in units)
    assert len(shares_of(units[:2], seconds, 8)) == 2


@pytest.mark.parametrize("seed", range(40))
def test_however_long_units_take_shares_have_each_once_and_lie_side_by_side(seed):
    draw = random.Random(seed)
    norms = draw.sample(["batch", "layer", "tma", "psd", "adabn3", "adabnall"], draw.randint(1, 6))
    cohorts = tuple("ABCD"[: draw.randint(1, 4)])
    axes = Axes(norms=tuple(norms), filter_sizes=(5, 17), hold_outs=cohorts, seeds=(0, 1, 2))
    runs = grid_of([axes])
    units, workers = units_of(runs), draw.randint(1, 30)
    seconds = {run: draw.choice([0.0, 0.01, 1.0, 20.0]) for run in runs}
    shares = shares_of(units, seconds, workers)
    assert 1 <= len(shares) <= workers
    assert sorted(run.name for share in shares for run in share) == sorted(c.name for c in runs)
    lengths = {unit: sum(map(seconds.get, unit)) for unit in units}
    fair, networks = sum(lengths.values()) / workers, set()
    for share in shares:
        assert sum(map(seconds.get, share)) <= fair + max(lengths.values()) + 1e-9
        assert [*share] == [run for run in runs if run in share]  # first ones first
        own = {module._network(unit[0]) for unit in units if unit[0] in share}
        assert own == {module._network(unit[0]) for unit in units if unit[-1] in share}
        assert len(own & networks) <= 1  # all but one are here alone, or begin here
        networks |= own


def test_as_many_workers_as_units_get_one_each():
    runs = grid_of([Axes(norms=("batch", "psd"), hold_outs=("A", "B"), seeds=(0, 1))])
    seconds = {run: 20.0 if run.norm == "batch" else 1.0 for run in runs}
    units = units_of(runs)
    for more in (0, 1, 30):
        assert shares_of(units, seconds, len(units) + more) == units
    whole = shares_of(units[:3], dict.fromkeys(runs, 1.0), 2)
    assert sorted(map(len, whole)) == [1, 2]


def test_units_that_take_no_time_go_with_the_last():
    runs = grid_of([Axes(norms=("batch", "psd"), hold_outs=("A",), seeds=(0, 1))])
    seconds = {run: float(run.norm == "batch") for run in runs}
    shares = shares_of(units_of(runs), seconds, 2)
    assert [[run.norm for run in share] for share in shares] == [
        ["batch"],
        ["batch", "psd", "psd"],
    ]


@pytest.mark.parametrize("workers", [2, 3, 4, 7])
def test_stopped_at_any_time_only_the_last_seeds_of_a_norm_are_missing(tmp_path, workers):
    path = written_study(tmp_path, grid=[{"norms": ["batch", "tma", "layer", "psd"], "seeds": 6}])
    study = read_study(path)
    shares = shares_of(units_of(study.runs), dict.fromkeys(study.runs, 1.0), workers)
    first = {norm: [] for norm in ("batch", "tma", "layer", "psd")}
    for share in shares:
        # of a norm that is cut, the first seeds are in the share that has them at its beginning
        norms = [norm for norm, _ in itertools.groupby(run.norm for run in share)]
        for norm in norms:
            seeds = [run.seed for run in share if run.norm == norm]
            assert seeds == sorted(seeds)
            first[norm].append((min(seeds), norms.index(norm)))
    for places in first.values():
        assert [place for _, place in sorted(places)] == sorted(place for _, place in places)


@pytest.fixture
def pretended(tmp_path, monkeypatch):
    """Run a study that only seems to train, by what is given; return what it counted, too."""
    study, experiment = drawn_study(tmp_path, tmp_path / "work", [*NORMS, "adabn3"])
    for path in experiment.path.glob("cells/*/done.json"):
        path.rename(path.with_name("finished.json"))
    monkeypatch.setattr(module, "check_grid", lambda *_, **__: None)
    monkeypatch.setattr(module, "Amounts", lambda *_: SimpleNamespace(entry=lambda run: None))
    monkeypatch.setattr(module, "seconds_of", lambda study, _: dict.fromkeys(study.runs, 1.0))
    for method in ("check", "extend", "other_nights"):
        monkeypatch.setattr(type(experiment), method, lambda *_: None)
    counted = []
    meter = SimpleNamespace(count=counted.append)

    def pretend(run_units, workers=1):
        monkeypatch.setattr(module, "run_units", run_units)
        return run_study(study, None, experiment, meter, device="cpu", workers=workers)

    return study, experiment, counted, pretend


def test_runs_of_a_share_whose_process_died_are_tried_one_by_one(pretended):
    study, _, counted, pretend = pretended
    given = []

    def died(units, **options):
        given.append(list(units))
        for run in (run for unit in units for run in unit):
            alone = len(given) > 1
            is_bad = run.norm == "psd" and run.hold_out == "ABC"
            if alone and not is_bad:
                yield RunOutcome(run, FINISHED)
            else:
                yield RunOutcome(run, FAILURE, f"{run.name}: its process died twice, perhaps")

    found = {o.run: o.status for o in pretend(died)}
    assert [len(units) for units in given] == [1, 4]
    assert sorted(found.values()) == ["done"] * 5 + ["failed"]
    assert {each.run for each in counted} == {*study.runs}
    assert len(counted) == 6


def test_a_unit_that_was_alone_in_its_process_when_that_died_is_not_tried_again(pretended):
    study, _, counted, pretend = pretended
    given = []

    def died(units, **options):
        given.append(list(units))
        for run in (run for unit in units for run in unit):
            yield RunOutcome(run, FAILURE, f"{run.name}: its process died twice, perhaps")

    assert [o.run for o in pretend(died, workers=4)] == [each.run for each in counted]
    assert [len(units) for units in given] == [4, 0]
    assert len(counted) == len(study.runs)


def test_a_run_that_was_finished_before_is_not_counted_with_the_rest_of_its_unit(pretended):
    study, experiment, counted, pretend = pretended
    before = experiment.folder(study.runs[0])
    (before / "finished.json").rename(before / "done.json")

    def done(units, **options):
        for run in (run for unit in units for run in unit):
            yield RunOutcome(run, THERE if experiment.is_done(run) else FINISHED)

    assert [o.run for o in pretend(done)] == list(study.runs[1:])
    assert [each.run for each in counted] == list(study.runs[1:])


def test_a_run_that_is_finished_while_all_is_stopped_is_counted_once(pretended):
    study, experiment, counted, pretend = pretended

    def stopped(units, **options):
        for number, run in enumerate(study.runs[:3]):
            folder = experiment.folder(run)
            (folder / "finished.json").rename(folder / "done.json")
            if number == 0:
                yield RunOutcome(run, FINISHED)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(pretend(stopped))
    assert [each.run for each in counted] == list(study.runs[:3])
    assert {each.status for each in counted} == {FINISHED}


def test_workers_have_ended_when_what_they_finished_at_the_end_is_counted(pretended):
    study, experiment, counted, pretend = pretended

    def ends_late(units, **options):
        try:
            yield RunOutcome(study.runs[0], FAILURE, "its loss was not finite")
        finally:
            folder = experiment.folder(study.runs[1])
            (folder / "finished.json").rename(folder / "done.json")

    outcomes = pretend(ends_late)
    next(outcomes)
    outcomes.close()
    assert [each.run for each in counted] == list(study.runs[:2])


def test_a_piece_counts_the_runs_that_it_finished_and_what_these_learned_from(tmp_path):
    study, experiment = drawn_study(tmp_path, tmp_path / "work", ("batch", "adabn3", "psd"))
    meter = Meter(experiment, "cpu", 2, 64, "abc")
    meter.simulated()
    for run in study.runs:
        meter.count(RunOutcome(run, FAILURE if run.norm == "psd" else FINISHED))
    (found,) = read_cost(experiment.path)["pieces"]
    assert found["cells"] == 4
    assert found["sequences"] == 2 * 60 * 64  # AdaBN learns from none
    assert (found["device"], found["workers"], found["commit"]) == ("cpu", 2, "abc")
    assert found["torch"]
    assert json.loads((experiment.path / "cost.json").read_text())["cells"] == 4


def test_cost_travels_with_the_scores_and_goes_on_from_there(tmp_path):
    study, experiment = drawn_study(tmp_path, tmp_path / "work")
    Meter(experiment, "cpu", 1, 64, None).write()
    pack(study, experiment)
    elsewhere = experiment_of(study, tmp_path / "elsewhere")
    restore(study, elsewhere)
    (before,) = read_cost(elsewhere.path)["pieces"]
    meter = Meter(elsewhere, "cpu", 1, 64, None)
    meter.write()
    meter.write()
    pieces = read_cost(elsewhere.path)["pieces"]
    assert len({each["began"] for each in (before, *pieces)}) == len(pieces)
    assert before in pieces
    restore(study, elsewhere)
    assert read_cost(elsewhere.path)["pieces"] == pieces


def test_of_a_piece_that_was_packed_while_it_ran_the_folder_has_the_latest_word(tmp_path):
    study, experiment = drawn_study(tmp_path, tmp_path / "work")
    meter = Meter(experiment, "cpu", 1, 64, None)
    meter.write()
    pack(study, experiment)
    meter.count(RunOutcome(study.runs[0], FINISHED))
    restore(study, experiment)
    assert read_cost(experiment.path)["cells"] == 1
