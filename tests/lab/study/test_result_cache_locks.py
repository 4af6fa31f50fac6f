"""Packed results can be unpacked while other processes work in the folder."""

import threading

import pytest
from stores import tree
from studies import drawn_study

from psdnorm.lab.study.result_cache import (
    Archive,
    grid_lock,
    pack,
    restore,
    take,
    unusable,
    usable,
)
from psdnorm.lab.study.study import runs_of
from psdnorm.runtime.files import held

NORMS = ["batch", "adabn3"]


@pytest.fixture
def packed(tmp_path):
    """A study of two networks that are adapted, its packed results, and an empty folder."""
    study, runs = drawn_study(tmp_path, tmp_path / "work", NORMS)
    return study, Archive(pack(study, runs)), runs_of(study, tmp_path / "new")


@pytest.mark.parametrize("place", range(4))
def test_a_network_in_work_is_left_grid_lock_all_of_its_cells(packed, place):
    study, archive, runs = packed
    begun = study.cells[place]
    with held(runs.folder(begun)):
        found = usable(study, archive, runs, {})
        assert [cell.norm for cell in found] == NORMS
        assert begun.hold_out not in {cell.hold_out for cell in found}
        assert restore(study, runs) == 2
        assert unusable(study, runs) == []  # whoever works on them will finish them


@pytest.mark.parametrize("place", [0, 1])
def test_what_another_process_begins_after_the_look_is_left_to_it(packed, place):
    study, archive, runs = packed
    cells = usable(study, archive, runs, {})
    assert len(cells) == 4
    begun = cells[place]
    with held(runs.folder(begun)):
        (runs.folder(begun) / "resume.pt").write_text("its")
        before = tree(runs.folder(begun))
        taken = take(study, archive, runs, cells)
        assert [cell.hold_out for cell in taken] == ["MASS", "MASS"]
        assert tree(runs.folder(begun)) == before
    assert not any(runs.is_done(cell) for cell in cells if cell not in taken)


def test_what_another_process_finishes_after_the_look_stays(packed):
    study, archive, runs = packed
    cells = usable(study, archive, runs, {})
    folder = runs.folder(cells[0])
    folder.mkdir(parents=True)
    (folder / "done.json").write_text("its")
    assert cells[0] not in take(study, archive, runs, cells)
    assert tree(folder) == {"done.json": b"its"}


def test_no_lock_is_left_where_cells_were_taken(packed):
    study, archive, runs = packed
    take(study, archive, runs, usable(study, archive, runs, {}))
    assert not list(runs.path.rglob("lock"))


def test_a_grid_is_changed_by_one_at_a_time(packed):
    _, _, runs = packed
    order = []

    def change():
        with grid_lock(runs):
            order.append("second")

    with grid_lock(runs):
        other = threading.Thread(target=change)
        other.start()
        other.join(0.2)
        order.append("first")
    other.join(60)
    assert order == ["first", "second"]
    assert not list(runs.path.iterdir())
