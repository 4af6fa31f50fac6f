"""Scores are packed into one file, and unpacked without nights and weights."""

import json
import lzma
import shutil
import tarfile
import threading

import pytest
from stores import tree
from studies import drawn_study, written_study

from psdnorm.errors import ArgumentError, StoreError
from psdnorm.lab.study import read_study
from psdnorm.lab.study.result_cache import (
    Archive,
    grid_lock,
    pack,
    packed_path,
    restore,
    take,
    unusable,
    usable,
)
from psdnorm.lab.study.study import check_folder, experiment_of, note_nights
from psdnorm.report import build_report
from psdnorm.report.results import read_results
from psdnorm.runtime import write_json
from psdnorm.runtime.files import held

ADABN = ("batch", "adabn3", "psd")


def test_what_is_restored_is_what_was_packed(tmp_path):
    study, experiment = drawn_study(tmp_path, tmp_path / "work")
    (experiment.path / "cells" / "usleep_batch_ABC_all_seed0" / "weights").mkdir()
    (experiment.path / "cells" / "usleep_batch_ABC_all_seed0" / "weights" / "big").touch()
    assert pack(study, experiment) == tmp_path / "results" / "tiny.tar.xz"
    elsewhere = experiment_of(study, tmp_path / "elsewhere")
    assert restore(study, elsewhere) == 4
    before = {
        name: content for name, content in tree(experiment.path).items() if "weights" not in name
    }
    assert tree(elsewhere.path) == before
    assert restore(study, elsewhere) == 0  # what is there stays


def test_the_same_runs_are_packed_into_the_same_bytes(tmp_path):
    study, experiment = drawn_study(tmp_path, tmp_path / "work")
    first = pack(study, experiment).read_bytes()
    assert pack(study, experiment).read_bytes() == first


def test_a_report_is_built_from_what_was_packed(tmp_path):
    study, experiment = drawn_study(tmp_path, tmp_path / "work")
    pack(study, experiment)
    elsewhere = experiment_of(study, tmp_path / "elsewhere")
    restore(study, elsewhere)
    verdict, results = build_report(elsewhere.path, tmp_path / "report", figures=False)
    assert results.simulated
    assert verdict.headline
    expected = read_results(experiment.path).subjects
    assert results.subjects.equals(expected)


def test_a_batch_norm_run_is_packed_only_with_all_of_its_adabn_runs(tmp_path):
    unfinished = ["usleep_adabn3_MASS_all_seed0"]
    study, experiment = drawn_study(tmp_path, tmp_path / "work", ADABN, unfinished)
    pack(study, experiment)
    with tarfile.open(packed_path(study)) as archive:
        runs = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert runs == {
        *("usleep_batch_ABC_all_seed0", "usleep_adabn3_ABC_all_seed0"),
        *(f"usleep_psd_f5_d3_{cohort}_all_seed0" for cohort in ("ABC", "MASS")),
    }


def test_a_restored_run_says_that_it_kept_scores_alone(tmp_path):
    study, experiment = drawn_study(tmp_path, tmp_path / "work")
    path = experiment.path / "cells" / "usleep_batch_ABC_all_seed0" / "done.json"
    write_json(path, json.loads(path.read_text()) | {"keep": "weights"})
    pack(study, experiment)
    elsewhere = experiment_of(study, tmp_path / "elsewhere")
    restore(study, elsewhere)
    (found,) = elsewhere.path.glob("cells/usleep_batch_ABC_*/done.json")
    assert json.loads(found.read_text())["keep"] == "scores"


def test_nothing_is_packed_before_a_run_is_finished_nor_restored_before_it_is_packed(tmp_path):
    study = read_study(written_study(tmp_path))
    experiment = experiment_of(study, tmp_path / "work")
    assert pack(study, experiment) is None
    assert restore(study, experiment) == 0
    assert not experiment.path.exists()


def test_a_file_that_cannot_be_packed_is_named(tmp_path):
    study, experiment = drawn_study(tmp_path, tmp_path / "work")
    scores = experiment.path / "cells" / "usleep_batch_ABC_all_seed0" / "scores.parquet"
    scores.unlink()
    scores.mkdir()
    with pytest.raises(StoreError, match=rf"^{scores} cannot be packed: Is a directory$"):
        pack(study, experiment)


def test_results_of_another_protocol_raise(tmp_path):
    study, experiment = drawn_study(tmp_path, tmp_path / "work")
    pack(study, experiment)
    changed = read_study(written_study(tmp_path, protocol={"patience": 7}))
    with pytest.raises(ArgumentError, match=r"tiny\.tar\.xz was made with a different protocol"):
        restore(changed, experiment_of(changed, tmp_path / "elsewhere"))
    assert not (tmp_path / "elsewhere").exists()


def test_results_of_other_nights_than_the_folder_has_raise(tmp_path):
    study, experiment = drawn_study(tmp_path, tmp_path / "work")
    pack(study, experiment)
    grid = experiment.path / "grid.json"
    write_json(grid, json.loads(grid.read_text()) | {"data": "1" * 64})
    with pytest.raises(ArgumentError, match="differ in their data, expected results of the same"):
        restore(study, experiment)


def test_a_damaged_file_raises_and_nothing_is_unpacked(tmp_path):
    study, experiment = drawn_study(tmp_path, tmp_path / "work")
    path = pack(study, experiment)
    whole = path.read_bytes()
    elsewhere = experiment_of(study, tmp_path / "elsewhere")
    for damaged in (whole[:-200], b"no archive", lzma.compress(b"no archive")):
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match=r"tiny\.tar\.xz (cannot be read as packed|has no)"):
            restore(study, elsewhere)
    assert not elsewhere.path.exists()


def test_what_the_system_cannot_read_raises_one_sentence(tmp_path):
    study = read_study(written_study(tmp_path))
    packed_path(study).mkdir(parents=True)
    with pytest.raises(StoreError, match=r"tiny\.tar\.xz cannot be read as packed results: .*Is a"):
        restore(study, experiment_of(study, tmp_path / "elsewhere"))


def test_results_of_another_version_of_psdnorm_raise(tmp_path):
    study, experiment = drawn_study(tmp_path, tmp_path / "work")
    grid = experiment.path / "grid.json"
    write_json(grid, json.loads(grid.read_text()) | {"format": 0})
    pack(study, experiment)
    with pytest.raises(StoreError, match=r"tiny\.tar\.xz has the grid\.json of another version"):
        restore(study, experiment_of(study, tmp_path / "elsewhere"))
    assert not (tmp_path / "elsewhere").exists()


def test_no_file_is_written_outside_of_the_folder(tmp_path):
    study, experiment = drawn_study(tmp_path, tmp_path / "work")
    path = pack(study, experiment)
    with tarfile.open(path) as archive:
        contents = [(m, archive.extractfile(m).read()) for m in archive]
    with tarfile.open(path, "w:xz") as archive:
        for member, content in contents:
            (tmp_path / "content").write_bytes(content)
            archive.add(tmp_path / "content", member.name)
        archive.add(tmp_path / "content", "../outside")
        archive.add(tmp_path / "content", "cells/../../outside/done.json")
    assert restore(study, experiment_of(study, tmp_path / "a" / "b")) == 4
    assert not list(tmp_path.rglob("outside"))


def test_a_batch_norm_run_is_unpacked_only_with_the_adabn_runs_that_are_asked_for_now(tmp_path):
    study, experiment = drawn_study(tmp_path, tmp_path / "work", ["batch", "psd"])
    pack(study, experiment)
    grid = [{"norms": [*ADABN], "seeds": 1}]
    asked = read_study(written_study(tmp_path, grid=grid))
    elsewhere = experiment_of(asked, tmp_path / "elsewhere")
    assert restore(asked, elsewhere) == 2
    assert {run.norm for run in asked.runs if elsewhere.is_done(run)} == {"psd"}
    assert {run.norm for run in unusable(asked, elsewhere)} == {"batch"}
    assert unusable(study, elsewhere) == unusable(asked, elsewhere)
    assert restore(study, elsewhere) == 2  # without AdaBN they are of use
    assert unusable(study, elsewhere) == []


def test_no_adabn_run_is_unpacked_beside_a_batch_norm_run_that_was_trained_here(tmp_path):
    study, experiment = drawn_study(tmp_path, tmp_path / "work", ADABN)
    pack(study, experiment)
    for cohort in ("ABC", "MASS"):
        shutil.rmtree(experiment.path / "cells" / f"usleep_adabn3_{cohort}_all_seed0")
    with open(
        experiment.path / "cells" / "usleep_batch_MASS_all_seed0" / "scores.parquet", "ab"
    ) as file:
        file.write(b"of another training")
    assert restore(study, experiment) == 1
    assert [run.name for run in unusable(study, experiment)] == ["usleep_adabn3_MASS_all_seed0"]


def test_nothing_is_unusable_before_anything_is_packed(tmp_path):
    study, experiment = drawn_study(
        tmp_path, tmp_path / "work", unfinished=["usleep_batch_ABC_all_seed0"]
    )
    assert unusable(study, experiment) == []


CHANGES = {
    "subjects": {"subjects": {"ABC": 4, "MASS": 6}},
    "shift": {"shift": 0.5},
    "hours": {"hours": 6},
    "seed": {"seed": 1},
    "recipe": {"recipe": "robust"},
}


@pytest.mark.parametrize("name", CHANGES)
def test_results_and_folders_of_nights_that_the_file_no_longer_describes_raise(tmp_path, name):
    study, experiment = drawn_study(tmp_path, tmp_path / "work")
    note_nights(experiment, study.nights.to_json())
    check_folder(study, experiment)
    path = pack(study, experiment)
    elsewhere = experiment_of(study, tmp_path / "elsewhere")
    restore(study, elsewhere)
    check_folder(study, elsewhere)
    store = {"subjects": {"ABC": 4, "MASS": 5}, "recipe": "paper"} | CHANGES[name]
    changed = read_study(written_study(tmp_path, store=store))
    sentence = f"has runs of nights whose {name} is .*, expected .* as in {changed.path}"
    with pytest.raises(ArgumentError, match=f"{path} {sentence}"):
        restore(changed, experiment_of(changed, tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    for folder in (experiment, elsewhere):
        with pytest.raises(ArgumentError, match=f"{folder.path} {sentence}"):
            check_folder(changed, folder)


def test_what_a_folder_says_of_its_nights_stays(tmp_path):
    study, experiment = drawn_study(tmp_path, tmp_path / "work")
    note_nights(experiment, None)
    check_folder(study, experiment)
    note_nights(experiment, study.nights.to_json())
    note_nights(experiment, study.nights.to_json() | {"seed": 7})
    check_folder(study, experiment)


NORMS = ["batch", "adabn3"]


@pytest.fixture
def packed(tmp_path):
    """A study of two networks that are adapted, its packed results, and an empty folder."""
    study, experiment = drawn_study(tmp_path, tmp_path / "work", NORMS)
    return study, Archive(pack(study, experiment)), experiment_of(study, tmp_path / "new")


@pytest.mark.parametrize("place", range(4))
def test_a_network_in_work_is_left_with_all_of_its_runs(packed, place):
    study, archive, experiment = packed
    begun = study.runs[place]
    with held(experiment.folder(begun)):
        found = usable(study, archive, experiment, {})
        assert [run.norm for run in found] == NORMS
        assert begun.hold_out not in {run.hold_out for run in found}
        assert restore(study, experiment) == 2
        assert unusable(study, experiment) == []  # whoever works on them will finish them


@pytest.mark.parametrize("place", [0, 1])
def test_what_another_process_begins_after_the_look_is_left_to_it(packed, place):
    study, archive, experiment = packed
    runs = usable(study, archive, experiment, {})
    assert len(runs) == 4
    begun = runs[place]
    with held(experiment.folder(begun)):
        (experiment.folder(begun) / "resume.pt").write_text("its")
        before = tree(experiment.folder(begun))
        taken = take(study, archive, experiment, runs)
        assert [run.hold_out for run in taken] == ["MASS", "MASS"]
        assert tree(experiment.folder(begun)) == before
    assert not any(experiment.is_done(run) for run in runs if run not in taken)


def test_what_another_process_finishes_after_the_look_stays(packed):
    study, archive, experiment = packed
    runs = usable(study, archive, experiment, {})
    folder = experiment.folder(runs[0])
    folder.mkdir(parents=True)
    (folder / "done.json").write_text("its")
    assert runs[0] not in take(study, archive, experiment, runs)
    assert tree(folder) == {"done.json": b"its"}


def test_no_lock_is_left_where_runs_were_taken(packed):
    study, archive, experiment = packed
    take(study, archive, experiment, usable(study, archive, experiment, {}))
    assert not list(experiment.path.rglob("lock"))


def test_a_grid_is_changed_by_one_at_a_time(packed):
    _, _, experiment = packed
    order = []

    def change():
        with grid_lock(experiment):
            order.append("second")

    with grid_lock(experiment):
        other = threading.Thread(target=change)
        other.start()
        other.join(0.2)
        order.append("first")
    other.join(60)
    assert order == ["first", "second"]
    assert not list(experiment.path.iterdir())
