"""A folder of runs becomes figures that fit a page, whatever is missing."""

import io
import re
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from experiment_runs import write_runs
from PIL import Image

from psdnorm.errors import MissingExtraError
from psdnorm.experiments.grid import Axes
from psdnorm.present.figure import look_of, rendered, styled
from psdnorm.report.contest import contests
from psdnorm.report.figures import build_figures
from psdnorm.report.figures.score_figures import draw_ranks, draw_scatter
from psdnorm.report.results import read_results

MOST_BYTES = 250_000
NINE = ("batch", "adabn3", "adabn12", "adabnall", "layer", "instance", "tma", "psd-white", "psd")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    path = tmp_path_factory.mktemp("built")
    axes = [Axes(norms=("batch", "instance", "psd"), hold_outs=("ABC", "MASS"), seeds=(0,))]
    write_runs(path, axes)
    return build_figures(read_results(path))


def test_every_figure_that_scores_and_histories_can_give_is_there(built):
    kinds = [figure.name.removesuffix("-usleep-all") for figure in built]
    assert kinds == [
        "ranks-datasets",
        "ranks-subjects",
        "subjects",
        "gains",
        "stages",
        "calibration",
        "learning",
    ]


def test_what_cannot_be_drawn_is_said_in_a_sentence_each(built):
    assert len(built.missing) == 5
    said = " ".join(built.missing)
    for reason in ("filter size", "layers", "training sizes", "--keep weights", "--keep predict"):
        assert reason in said
    assert all(sentence.endswith(".") for sentence in built.missing)


def test_files_are_whole_small_and_white(built):
    for figure in built:
        assert len(figure.png) < MOST_BYTES
        assert len(figure.svg) < MOST_BYTES
        picture = np.asarray(Image.open(io.BytesIO(figure.png)).convert("RGB"))
        for edge in (picture[0], picture[-1], picture[:, 0], picture[:, -1]):
            assert (edge == 255).all(), f"{figure.name} is cut off"
        assert figure.svg.rstrip().endswith(b"</svg>")
        assert not re.search(rb"<dc:date>|href=\"http", figure.svg)


def test_simulation_and_recipe_are_named_with_every_figure(built, tmp_path):
    for figure in built:
        assert figure.title.startswith("SIMULATED: ")
        assert "Recipe: paper." in figure.caption
        assert "Simulated nights" in figure.caption
    write_runs(tmp_path, [Axes(norms=("psd",), hold_outs=("ABC",), seeds=(0,))], simulated=False)
    for figure in build_figures(read_results(tmp_path)):
        assert "simulated" not in f"{figure.title} {figure.caption}".lower()


def test_without_matplotlib_it_is_said_what_to_install(results, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r'pip install "psdnorm\[report\]"'):
        build_figures(results)


def test_words_have_numbers(built):
    for figure in built:
        assert re.search(r"\d\.\d\d", figure.words), figure.name


def test_the_same_runs_give_the_same_bytes(contest):
    with styled():
        one, other = (
            rendered(draw_ranks(contest, "subjects"), simulated=True, recipe="paper")
            for _ in range(2)
        )
    assert one == other


def test_colours_that_tell_norms_apart_survive_the_palette(built):
    for figure in built:
        if figure.name.startswith(("ranks", "calibration", "gains")):
            picture = Image.open(io.BytesIO(figure.png)).convert("RGB")
            found = {colour for _, colour in picture.getcolors(2**20)}
            for norm in ("instance", "psd"):
                colour = look_of(norm).colour
                assert tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5)) in found, norm


def test_thousands_of_points_stay_small(results):
    rng = np.random.default_rng(0)
    copies, one_seed = [], results.of(seed=0)
    for copy in range(300):
        own = one_seed.subjects.assign(subject=one_seed.subjects["subject"] + f"-{copy}")
        own["balanced_accuracy"] += 0.05 * rng.standard_normal(len(own))
        copies.append(own)
    many = replace(one_seed, subjects=pd.concat(copies, ignore_index=True))
    with styled():
        drawing = draw_scatter(contests(many)[0])
        figure = rendered(drawing, simulated=True, recipe="paper")
    assert "Of 6,600 subjects" in figure.words
    assert max(len(figure.png), len(figure.svg)) < MOST_BYTES


@pytest.mark.parametrize(
    ("norms", "cohorts", "seeds"),
    [
        (("psd",), 1, 1),
        (("layer", "tma"), 1, 1),
        pytest.param(("batch", "psd"), 2, 1, marks=pytest.mark.slow),
    ],
)
def test_partial_grids_are_drawn_and_say_what_they_cannot(tmp_path, norms, cohorts, seeds):
    names = ("ABC", "CHAT", "MASS")[:cohorts]
    write_runs(tmp_path, [Axes(norms=norms, hold_outs=names, seeds=tuple(range(seeds)))])
    built = build_figures(read_results(tmp_path))
    assert {"calibration-usleep-all", "learning-usleep-all"} <= {each.name for each in built}
    assert built.missing


def test_a_norm_that_is_in_no_figure_is_named_among_what_is_missing(tmp_path):
    shared = Axes(norms=("psd",), hold_outs=("ABC", "CHAT"), seeds=(0,))
    write_runs(tmp_path, [shared, Axes(norms=("tma",), hold_outs=("MASS",), seeds=(0,))])
    sentence = (
        "Figures (U-Sleep, all subjects): TMA is not compared: it has none of the 2 places (a "
        "cohort in a seed) that PSDNorm has."
    )
    assert sentence in build_figures(read_results(tmp_path)).missing


@pytest.mark.slow
def test_no_label_covers_another_with_nine_norms_and_ten_cohorts(tmp_path):
    cohorts = {f"COHORT{i}": 4 for i in range(10)}
    write_runs(tmp_path, [Axes(norms=NINE, hold_outs=tuple(cohorts), seeds=(0,))], cohorts)
    results = read_results(tmp_path)
    with styled():
        drawing = draw_ranks(contests(results)[0], "subjects")
        drawing.canvas.draw_without_rendering()
        for axes in drawing.canvas.axes:
            boxes = [text.get_window_extent() for text in axes.texts if text.get_text()]
            assert not any(
                one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i]
            )
    for figure in build_figures(results):
        assert max(len(figure.png), len(figure.svg)) < MOST_BYTES
