"""All figures of a report, and a sentence for each that cannot be drawn."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from psdnorm.present import CannotDraw, Drawing, Figure, rendered, styled
from psdnorm.report.figures.comparison import Comparison, comparisons
from psdnorm.report.figures.critical_difference import draw_ranks
from psdnorm.report.figures.curve_figures import (
    FILTER_SIZE,
    NORM_DEPTH,
    Sweep,
    draw_sweep,
    draw_training_size,
    varied,
)
from psdnorm.report.figures.hypnodensity import draw_hypnodensity
from psdnorm.report.figures.spectra_figures import draw_spectra
from psdnorm.report.figures.stage_figures import draw_calibration, draw_learning, draw_stages
from psdnorm.report.figures.subject_figures import draw_gains, draw_scatter
from psdnorm.report.results import Results
from psdnorm.store import Store

Draw = Callable[[], Drawing]
_PLACES = 3  # of a curve that is worth a figure where there are any


class Figures(list[Figure]):
    """Figures in the order of a report.

    Attributes
    ----------
    missing : list of str
        A sentence for each figure, or part of one, that is not there, and why.
    """

    def __init__(self, figures: Iterable[Figure], missing: list[str]) -> None:
        super().__init__(figures)
        self.missing = missing


def build_figures(results: Results, store: Store | None = None) -> Figures:
    """Draw all that a folder of runs can show.

    Parameters
    ----------
    results : Results
    store : Store, optional
        The nights that the cells were trained on; spectra are drawn with them.

    Returns
    -------
    Figures
        For each model and training size ranks, subjects, gains, stages, calibration and training
        curves, then what varies a setting, spectra, and nights.
    """
    figures: list[Figure] = []
    missing: list[str] = []
    with styled():
        for drawing in _drawn(results, store, missing):
            figures.append(rendered(drawing, simulated=results.simulated, recipe=results.recipe))
    return Figures(figures, missing)


def _drawn(results: Results, store: Store | None, missing: list[str]) -> Iterator[Drawing]:
    """Yield what can be drawn, and write down what cannot."""
    for draw in _all(results, store):
        try:
            drawing = draw()
        except CannotDraw as reason:
            missing.append(str(reason))
            continue
        missing += drawing.missing
        yield drawing


def _all(results: Results, store: Store | None) -> Iterator[Draw]:
    compared = comparisons(results)
    for comparison in compared:
        for reason in comparison.contest.reasons.values():
            yield partial(_refused, f"Figures ({comparison.setting}): {reason}")
        yield partial(draw_ranks, comparison, "datasets")
        yield partial(draw_ranks, comparison, "subjects")
        yield partial(draw_scatter, comparison)
        yield partial(draw_gains, comparison)
        yield partial(draw_stages, comparison)
        yield partial(draw_calibration, comparison)
        yield partial(draw_learning, comparison)
    for sweep in (FILTER_SIZE, NORM_DEPTH):
        yield from _sweeps(results, compared, sweep)
    for model in dict.fromkeys(comparison.model for comparison in compared):
        yield partial(draw_training_size, results, model)
    yield partial(_spectra, compared, store)
    yield partial(draw_hypnodensity, compared)


def _sweeps(results: Results, compared: list[Comparison], sweep: Sweep) -> Iterator[Draw]:
    places = {
        comparison.setting: max(
            (len(c.arms) for c in varied(results, comparison, sweep)), default=0
        )
        for comparison in compared
    }
    most = max(places.values())
    if most == 0:
        yield partial(_refused, f"{sweep.title}: no norm was run with two of them.")
    for comparison in compared:
        found = places[comparison.setting]
        if found and found >= min(most, _PLACES):
            yield partial(draw_sweep, results, comparison, sweep)
        elif found:
            reason = f"{found} places only, where other settings have {most}"
            yield partial(_refused, f"{sweep.title} ({comparison.setting}): {reason}.")


def _refused(sentence: str) -> Drawing:
    raise CannotDraw(sentence)


def _spectra(compared: list[Comparison], store: Store | None) -> Drawing:
    """Draw the spectra of the first comparison that can be; else say why of the first."""
    reasons = []
    for comparison in compared:
        try:
            return draw_spectra(comparison, store)
        except CannotDraw as reason:
            reasons.append(reason)
    raise reasons[0]
