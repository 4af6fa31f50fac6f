"""On a Dask cluster the same store comes out, with a scheduler and workers as they are in life."""

import signal

import pytest
from cluster import cluster as dask_cluster
from cohort_folder import cohort_folder
from stores import tree

from psdnorm.errors import ArgumentError
from psdnorm.prepare.prepare import Preparation
from psdnorm.prepare.recipe import RECIPES
from psdnorm.runtime.parallel import run_all


@pytest.fixture
def cluster(tmp_path):
    """Address of a scheduler, and its two workers."""
    pytest.importorskip("distributed")
    with dask_cluster(tmp_path) as found:
        yield found


def preparation(source, store):
    return Preparation("folder", source, store, RECIPES["robust"])


def test_workers_make_the_store_that_one_process_makes(cluster, tmp_path):
    address, _ = cluster
    source = cohort_folder(tmp_path / "source", "S01", "S02", "S03", **{"S04.edf": "no edf"})
    here = {o.recording: o for o in preparation(source, tmp_path / "here").run()}
    there = {o.recording: o for o in preparation(source, tmp_path / "there").run(dask=address)}
    assert there == here
    assert tree(tmp_path / "there") == tree(tmp_path / "here")


def test_what_a_killed_worker_held_is_prepared_by_the_other(cluster, tmp_path):
    address, workers = cluster
    source = cohort_folder(tmp_path / "source", *(f"S{i:02}" for i in range(30)))
    list(preparation(source, tmp_path / "undisturbed").run())
    outcomes = []
    for outcome in preparation(source, tmp_path / "store").run(dask=address):
        if not outcomes:
            workers[0].send_signal(signal.SIGKILL)
        outcomes.append(outcome)
    assert len({outcome.recording for outcome in outcomes}) == len(outcomes) == 30
    assert "failed" not in {outcome.status for outcome in outcomes}
    assert tree(tmp_path / "store") == tree(tmp_path / "undisturbed")


def test_what_dask_cannot_do_is_lost_and_said(cluster):
    address, _ = cluster
    found = set(
        run_all(int, ["1", "x", "3"], dask=address, lost=lambda item, why: f"{item}: {why}")
    )
    assert found == {1, 3, "x: Dask lost it: invalid literal for int() with base 10: 'x'"}


def test_a_scheduler_without_workers_is_named(cluster, tmp_path, monkeypatch):
    address, workers = cluster
    for worker in workers:
        worker.kill()
        worker.wait()
    monkeypatch.setattr("psdnorm.runtime.parallel._WORKERS_S", 1)
    source = cohort_folder(tmp_path / "source", "S01")
    with pytest.raises(ArgumentError, match=rf"^the Dask scheduler at {address} has no worker$"):
        list(preparation(source, tmp_path / "store").run(dask=address))
