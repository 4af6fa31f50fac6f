"""Figures of a comparison of two sides: subjects, cohorts and stages, B over A."""

import re
from collections.abc import Callable

from psdnorm.compare.compared_remarks import A, B
from psdnorm.compare.comparison_of_runs import ArmComparison, Comparison
from psdnorm.present.figure import CannotDraw, Drawing, rendered, styled
from psdnorm.report.figures import Figure, Figures
from psdnorm.report.figures.gain_figures import forest
from psdnorm.report.figures.scatter import scattered
from psdnorm.report.figures.stages import SEEDS_LEFT_OUT, by_stage

_LABELS = {A: A, B: B}


def comparison_figures(comparison: Comparison) -> Figures:
    """Draw subjects, gains by cohort and differences by stage of every arm.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    Figures
    """
    figures: list[Figure] = []
    missing: list[str] = []
    draws: tuple[Callable[[ArmComparison], Drawing], ...] = (_subjects, _gains, _stages)
    with styled():
        for arm in comparison.arms:
            for draw in draws:
                try:
                    drawing = draw(arm)
                except CannotDraw as reason:
                    missing.append(str(reason))
                    continue
                recipe = comparison.recipes.removeprefix("recipe ")
                figures.append(rendered(drawing, simulated=comparison.simulated, recipe=recipe))
    return Figures(figures, missing)


def _key(arm: ArmComparison) -> str:
    return re.sub(r"[^a-z0-9]+", "-", arm.arm.lower()).strip("-")


def _subjects(arm: ArmComparison) -> Drawing:
    return scattered(
        100 * arm.subjects,
        B,
        [A],
        _LABELS,
        name=f"subjects-{_key(arm)}",
        title=f"Balanced accuracy of each subject: {arm.name}",
        remarks="Intervals are Wilson's.",
    )


def _gains(arm: ArmComparison) -> Drawing:
    return forest(
        100 * arm.scores,
        A,
        _LABELS,
        name=f"gains-{_key(arm)}",
        title=f"Gain of B over A, by cohort: {arm.name}",
        remarks="",
    )


def _stages(arm: ArmComparison) -> Drawing:
    title = "F1 of each stage, difference of B to A"
    cohorts = arm.runs.groupby("seed")["cohort"].nunique()
    whole = cohorts.index[cohorts == arm.runs["cohort"].nunique()]
    if whole.empty:
        raise CannotDraw(f"{title} ({arm.name}): there is no seed in which both have all cohorts.")
    runs = arm.runs[arm.runs["seed"].isin(whole)]
    left_out = "" if len(whole) == len(cohorts) else SEEDS_LEFT_OUT
    return by_stage(
        runs,
        A,
        _LABELS,
        name=f"stages-{_key(arm)}",
        title=f"{title}: {arm.name}",
        remarks=left_out,
    )
