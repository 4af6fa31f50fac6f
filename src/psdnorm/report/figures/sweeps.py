"""Balanced accuracy over the filter size, and over the number of blocks with the norm."""

from dataclasses import dataclass

from psdnorm.present.figure import Drawing
from psdnorm.report.figures.comparison import Comparison
from psdnorm.report.figures.curves import Curve, draw_curves, incomplete, means_of, words_of
from psdnorm.report.naming import AUTO_SIZE, arm_name, norm_name, norms_in_order, unusual
from psdnorm.report.results import Results


@dataclass(frozen=True)
class Sweep:
    """A setting that is varied.

    Attributes
    ----------
    axis, fixed : str
        Columns of the cells: the one that is varied, and the one that stays.
    name, title, x_label, unit : str
    """

    axis: str
    fixed: str
    name: str
    title: str
    x_label: str
    unit: str


FILTER_SIZE = Sweep(
    axis="filter_size",
    fixed="norm_depth",
    name="filter-size",
    title="Balanced accuracy by filter size",
    x_label="filter size f of the first block (samples)",
    unit="samples",
)
NORM_DEPTH = Sweep(
    axis="norm_depth",
    fixed="filter_size",
    name="norm-depth",
    title="Balanced accuracy by number of layers with the norm",
    x_label="encoder blocks with the norm",
    unit="blocks",
)


def varied(results: Results, comparison: Comparison, sweep: Sweep) -> list[Curve]:
    """Return a curve for every norm that was run at two places of a sweep or more.

    Parameters
    ----------
    results : Results
        With all settings.
    comparison : Comparison
        Says which model and size.
    sweep : Sweep
    """
    cells = results.of(model=comparison.model, balanced=comparison.balanced).cells
    curves = []
    for norm in norms_in_order(cells["norm"]):
        own = cells[(cells["norm"] == norm) & cells[sweep.axis].notna()]
        own = own[own[sweep.axis] != AUTO_SIZE] if sweep is FILTER_SIZE else own
        for _, group in own.groupby(sweep.fixed, dropna=False):
            arms = dict(zip(group[sweep.axis].astype(int), group["arm"], strict=True))
            if len(arms) > 1:
                fixed = group.iloc[0][[sweep.fixed]].to_dict()
                curves.append(Curve(norm, norm_name(norm) + unusual(**fixed), arms))
    return curves


def _chosen(results: Results, comparison: Comparison) -> list[Curve]:
    """Return a line across for every norm whose filter size was chosen for each cohort."""
    cells = results.of(model=comparison.model, balanced=comparison.balanced).cells
    own = cells[cells["filter_size"] == AUTO_SIZE].drop_duplicates("arm")
    sizes = zip(own["norm"], own["filter_size"], own["norm_depth"], own["arm"], strict=True)
    return [Curve(norm, arm_name(norm, f, depth), {None: arm}) for norm, f, depth, arm in sizes]


def draw_sweep(results: Results, comparison: Comparison, sweep: Sweep) -> Drawing:
    """Draw balanced accuracy over a setting; norms that do not vary are baselines.

    Parameters
    ----------
    results : Results
    comparison : Comparison
        Of which :func:`varied` finds curves.
    sweep : Sweep

    Returns
    -------
    Drawing
    """
    curves = varied(results, comparison, sweep)
    arms = comparison.results.cells.drop_duplicates("norm").set_index("norm")["arm"]
    is_varied = {curve.norm for curve in curves}
    curves += [
        Curve(norm, label, {None: arms[norm]})
        for norm, label in comparison.labels.items()
        if norm not in is_varied
    ]
    if sweep is FILTER_SIZE:
        drawn = {arm for curve in curves for arm in curve.arms.values()}
        curves += [curve for curve in _chosen(results, comparison) if curve.arms[None] not in drawn]
    title = f"{sweep.title}: {comparison.setting}"
    means = means_of(results, curves, title)
    return Drawing(
        name=f"{sweep.name}-{comparison.key}",
        title=title,
        words=words_of(curves, means, sweep.unit),
        caption=f"{len(means.cohorts)} held-out cohort{'s' * (len(means.cohorts) != 1)}. "
        f"{means.seeds} {means.remark}".strip(),
        canvas=draw_curves(curves, means, x_label=sweep.x_label),
        missing=incomplete(curves, means, title),
    )
