"""The demo goes from nothing to a page, and from anywhere in between."""

import sys
from dataclasses import replace

import pytest

import psdnorm.demo
from psdnorm.cli import main
from psdnorm.demo import Demo
from psdnorm.prepare.recipe import Recipe
from psdnorm.store import Store
from psdnorm.training import Protocol

TINY = {
    "n_subjects": 2,
    "hours": 0.05,
    "recipe": Recipe("tiny", scaling="recording", lowpass_hz=3.0, sfreq=10.0),
    "protocol": Protocol(
        batch_size=2, max_epochs=1, length=3, stride=3, model_arguments={"depth": 3}
    ),
}


def make_tiny(monkeypatch):
    """Let the demo have two cohorts and two norms, and take seconds."""
    monkeypatch.setattr(psdnorm.demo, "COHORTS", ("PHYS", "phys-st"))
    monkeypatch.setattr(psdnorm.demo, "NORMS", ("batch", "psd"))
    monkeypatch.setattr(psdnorm.demo, "Demo", lambda *given: replace(Demo(*given), **TINY))
    monkeypatch.setattr(psdnorm.demo, "LEAST", 0.0)


@pytest.fixture
def tiny(monkeypatch):
    make_tiny(monkeypatch)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a demo that has been run; run again, it has only its page to write."""
    folder = tmp_path_factory.mktemp("tiny") / "demo"
    with pytest.MonkeyPatch.context() as monkeypatch:
        make_tiny(monkeypatch)
        assert _run(monkeypatch, "--out", folder) == 0
    return folder


def _run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["psdnorm", "demo", "--jobs", "1", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code


@pytest.mark.usefixtures("tiny")
def test_it_ends_with_a_table_a_page_and_what_to_type_next(monkeypatch, capsys, finished):
    done = {path: path.stat().st_mtime_ns for path in finished.rglob("done.json")}
    assert len(done) == 4
    assert _run(monkeypatch, "--out", finished) == 0
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("done.json")} == done
    said = capsys.readouterr()
    assert "SIMULATED" in said.err
    assert "Mean(Dataset)" in said.out
    assert "of simulated nights, recipe tiny" in " ".join(said.out.split())
    assert f"Look at {finished}/index.html" in said.out
    assert "psdnorm prepare folder YOUR_EDFS STORE" in said.out
    page = (finished / "index.html").read_text()
    assert "These nights are simulated" in page
    assert "recipe tiny" in page
    assert page.count("<img") == 2
    assert Store.open(finished / "store").index["simulated"].all()


@pytest.mark.usefixtures("tiny")
def test_a_norm_that_learns_nothing_fails_the_demo(monkeypatch, capsys, finished):
    monkeypatch.setattr(psdnorm.demo, "LEAST", 1.1)
    assert _run(monkeypatch, "--out", finished) == 1
    assert "batch, psd below 1.1: the demo failed" in capsys.readouterr().err


@pytest.mark.usefixtures("tiny")
def test_a_norm_without_a_figure_fails_the_demo(monkeypatch, capsys, finished):
    def accuracies(self, real=Demo.accuracies):
        table = real(self)
        is_lost = (table["norm"] == "psd") & (table["cohort"] == "PHYS")
        return table.assign(balanced_accuracy=table["balanced_accuracy"].mask(is_lost))

    monkeypatch.setattr(Demo, "accuracies", accuracies)
    assert _run(monkeypatch, "--out", finished) == 1
    assert "psdnorm: psd below 0.0: the demo failed" in capsys.readouterr().err
