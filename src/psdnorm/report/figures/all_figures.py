"""All figures of a report, and a sentence for each that cannot be drawn."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from psdnorm.present import CannotDraw, Drawing, Figure, rendered, styled
from psdnorm.report.contest import Contest, contests, paper_order
from psdnorm.report.figures.curve_figures import (
    FILTER_SIZE,
    NORM_DEPTH,
    Sweep,
    draw_sweep,
    draw_training_size,
    varied,
)
from psdnorm.report.figures.night_figures import draw_hypnodensity, draw_spectra
from psdnorm.report.figures.score_figures import (
    draw_calibration,
    draw_gains,
    draw_learning,
    draw_ranks,
    draw_scatter,
    draw_stages,
)
from psdnorm.report.results import Results
from psdnorm.store import Store

Draw = Callable[[], Drawing]
_PLACES = 3  # on a curve; one with fewer gets a figure only if no curve has more


class Figures(list[Figure]):
    """Figures in the order of a report.

    Attributes
    ----------
    missing : list of str
        A sentence for each figure, or part of one, that could not be drawn.
    """

    def __init__(self, figures: Iterable[Figure], missing: list[str]) -> None:
        super().__init__(figures)
        self.missing = missing


def build_figures(results: Results, store: Store | None = None) -> Figures:
    """Draw all that a folder of runs can show.

    For each model and training size: ranks, subjects, gains, stages, calibration and training
    curves; then sweeps of a setting, spectra if ``store`` has the nights of the runs, and nights.
    """
    planned = _planned(results, store)
    return draw_all(planned, simulated=results.simulated, recipe=results.recipe)


def draw_all(draws: Iterable[Draw], *, simulated: bool, recipe: str) -> Figures:
    """Draw what can be drawn, and say why the rest cannot."""
    figures: list[Figure] = []
    missing: list[str] = []
    with styled():
        for draw in draws:
            try:
                drawing = draw()
            except CannotDraw as reason:
                missing.append(str(reason))
                continue
            missing += drawing.missing
            figures.append(rendered(drawing, simulated=simulated, recipe=recipe))
    return Figures(figures, missing)


def _planned(results: Results, store: Store | None) -> Iterator[Draw]:
    compared = sorted(contests(results), key=paper_order)
    for contest in compared:
        for reason in contest.reasons.values():
            yield partial(_no_figure, f"Figures ({contest.name}): {reason}")
        yield partial(draw_ranks, contest, "datasets")
        yield partial(draw_ranks, contest, "subjects")
        for draw in (draw_scatter, draw_gains, draw_stages, draw_calibration, draw_learning):
            yield partial(draw, contest)
    for sweep in (FILTER_SIZE, NORM_DEPTH):
        yield from _sweeps(results, compared, sweep)
    for model in dict.fromkeys(contest.model for contest in compared):
        yield partial(draw_training_size, results, model)
    yield partial(_spectra, compared, store)
    yield partial(draw_hypnodensity, compared)


def _sweeps(results: Results, compared: list[Contest], sweep: Sweep) -> Iterator[Draw]:
    places = {
        contest.name: max((len(curve.arms) for curve in varied(results, contest, sweep)), default=0)
        for contest in compared
    }
    most = max(places.values())
    if most == 0:
        yield partial(_no_figure, f"{sweep.title}: no norm was run with two of them.")
    for contest in compared:
        found = places[contest.name]
        if found and found >= min(most, _PLACES):
            yield partial(draw_sweep, results, contest, sweep)
        elif found:
            reason = f"{found} places only, where other settings have {most}"
            yield partial(_no_figure, f"{sweep.title} ({contest.name}): {reason}.")


def _no_figure(sentence: str) -> Drawing:
    raise CannotDraw(sentence)


def _spectra(compared: list[Contest], store: Store | None) -> Drawing:
    """Draw the spectra of the first contest that has weights; if none has, raise for the first."""
    reasons = []
    for contest in compared:
        try:
            return draw_spectra(contest, store)
        except CannotDraw as reason:
            reasons.append(reason)
    raise reasons[0]
