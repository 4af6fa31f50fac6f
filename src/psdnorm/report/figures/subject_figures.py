"""Gains and scores of subjects."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT
from psdnorm.evaluation.statistics import DECIMALS, ImprovedResult, bootstrap_gains, share_improved
from psdnorm.present import BLUE, VERMILION, CannotDraw, Drawing, look_of, panels
from psdnorm.report.figures.comparison import BATCH, Comparison
from psdnorm.report.verdict import has_seeds
from psdnorm.runtime import listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TITLE = "Gain over BatchNorm"
_DRAWS_OF_A_COHORT = 2000


def draw_gains(comparison: Comparison) -> Drawing:
    """Draw each norm's gain over BatchNorm in every cohort and in both means.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    Drawing
        One panel per norm; a point for each row of it, from the top.
    """
    if BATCH not in comparison.labels:
        raise CannotDraw(f"{_TITLE} ({comparison.setting}): BatchNorm has no result.")
    comparison.needs_two_norms(_TITLE)
    return forest(
        comparison.tables.by_seed.dropna(),
        BATCH,
        comparison.labels,
        name=f"gains-{comparison.key}",
        title=f"{_TITLE}, by cohort: {comparison.setting}",
        remarks=comparison.remarks,
    )


def forest(
    values: pd.DataFrame,
    reference: str,
    labels: dict[str, str],
    *,
    name: str,
    title: str,
    remarks: str,
) -> Drawing:
    """Draw gains over a reference in every cohort and in both means, a panel for each norm.

    Parameters
    ----------
    values : DataFrame, (n_scores, n_norms)
        Balanced accuracies in percent by cohort, subject and seed, without NaN.
    reference : str
    labels : dict of str to str
        What norms and reference are called.
    name, title : str
    remarks : str
        For the end of the caption.
    """
    is_seeded = has_seeds(values)
    overall = bootstrap_gains(values, reference, resample_seeds=is_seeded)
    cohorts = values.index.unique("cohort")
    if len(cohorts) == 1:  # whose means are its own
        gains = overall.gains[overall.gains["mean"] == MEAN_DATASET].assign(row=cohorts[0])
    else:
        of_means = overall.gains.assign(row=overall.gains["mean"])
        gains = pd.concat([_of_cohorts(values, reference), of_means])
    norms = [norm for norm in labels if norm != reference]
    rows = list(dict.fromkeys(gains["row"]))
    height = 0.21 * len(rows) + 0.75
    width = max(5.2, 2.3 * min(len(norms), 4) + 1.6)
    canvas, axes = panels(
        len(norms), columns=4, width=width, height=height, sharex=True, sharey=True
    )
    for panel, norm in zip(axes, norms, strict=True):
        own = gains[gains["norm"] == norm].set_index("row").loc[rows]
        _draw(panel, own, norm)
        panel.set_title(labels[norm], loc="left")
    axes[0].invert_yaxis()
    canvas.supxlabel("gain in balanced accuracy (points)", fontsize=9)
    drawn = f"; of the means, {listed(overall.resampled)}" if len(cohorts) > 1 else ""
    caption = (
        f"Points and {overall.confidence:.0%} bootstrap intervals. Of a cohort, its subjects"
        f"{' and seeds' * is_seeded} are drawn{drawn}. {overall.caption} "
    )
    return Drawing(
        name=name,
        title=title,
        words=_words(gains, norms, labels, labels[reference]),
        caption=(caption + remarks).strip(),
        canvas=canvas,
    )


def _of_cohorts(values: pd.DataFrame, reference: str) -> pd.DataFrame:
    tables = []
    for cohort, own in values.groupby(level="cohort", observed=True):
        table = bootstrap_gains(
            own, reference, n_draws=_DRAWS_OF_A_COHORT, resample_seeds=has_seeds(own)
        ).gains
        tables.append(table[table["mean"] == MEAN_DATASET].assign(row=cohort))
    return pd.concat(tables)


def _draw(axes: "Axes", gains: pd.DataFrame, norm: str) -> None:
    look = look_of(norm)
    at = np.arange(len(gains))
    is_mean = gains.index.isin([MEAN_DATASET, MEAN_SUBJECT])
    gain = gains["gain"].to_numpy()
    reach = np.abs(gains[["low", "high"]].to_numpy().T - gain)
    axes.axvline(0, color="black", lw=0.8, ls="--")
    if is_mean.any():
        axes.axhspan(at[is_mean].min() - 0.5, at.max() + 0.5, color="#EEEEEE", lw=0)
    for mask, size, width in ((~is_mean, 4, 1.0), (is_mean, 6, 2.0)):
        axes.errorbar(
            gain[mask],
            at[mask],
            xerr=reach[:, mask],
            fmt=look.marker,
            color=look.colour,
            ms=size,
            lw=width,
            label="means" if mask is is_mean else "cohorts",
        )
    axes.set_yticks(at, [str(row) for row in gains.index])
    axes.set_ylim(-0.7, at.max() + 0.5)
    axes.margins(x=0.05)
    axes.grid(axis="x", color="#DDDDDD", lw=0.5)
    axes.set_axisbelow(True)


def _words(gains: pd.DataFrame, norms: list[str], labels: dict[str, str], reference: str) -> str:
    sentences = []
    for norm in norms:
        own = gains[gains["norm"] == norm].set_index("row")
        is_mean = own.index.isin([MEAN_DATASET, MEAN_SUBJECT])
        cohorts = own[~is_mean]
        if len(cohorts) == 1:
            name, row = next(cohorts.iterrows())
            sentences.append(
                f"{labels[norm]} over {reference}, in points: {name} {_interval(row)}."
            )
            continue
        means = [f"{name} {_interval(row)}" for name, row in own[is_mean].iterrows()]
        ahead = int((cohorts["gain"] > 0).sum())
        each = listed([f"{name} {row['gain']:+.2f}" for name, row in cohorts.iterrows()])
        sentences.append(
            f"{labels[norm]} over {reference}, in points: {', '.join(means)}; ahead in {ahead} of "
            f"{len(cohorts)} cohorts: {each}."
        )
    return " ".join(sentences)


def _interval(row: "pd.Series[float]") -> str:
    return f"{row['gain']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f})"


_SCATTER_TITLE = "Balanced accuracy of each subject"


def draw_scatter(comparison: Comparison) -> Drawing:
    """Draw each subject's score under PSDNorm over that under BatchNorm and the best baseline.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    Drawing
        One panel for each; points are labelled "improved" and "not improved".
    """
    norm = next((name for name in ("psd", "psd-white") if name in comparison.labels), None)
    if norm is None:
        raise CannotDraw(f"{_SCATTER_TITLE} ({comparison.setting}): there is no PSDNorm.")
    comparison.needs_two_norms(_SCATTER_TITLE)
    references = _references(comparison)
    best = comparison.labels[references[-1]]
    return scattered(
        comparison.tables.subjects,
        norm,
        references,
        comparison.labels,
        name=f"subjects-{comparison.key}",
        title=f"{_SCATTER_TITLE}: {comparison.setting}",
        remarks=f"The best baseline by Mean(Dataset) of the subjects whom every norm has is "
        f"{best}. Intervals are Wilson's. {comparison.remarks}".strip(),
    )


def scattered(
    subjects: "pd.DataFrame",
    norm: str,
    references: list[str],
    labels: dict[str, str],
    *,
    name: str,
    title: str,
    remarks: str,
) -> Drawing:
    """Draw each subject's score under a norm over that under references, a panel for each.

    Parameters
    ----------
    subjects : DataFrame, (n_subjects, n_norms)
        Balanced accuracies in percent.
    norm : str
    references : list of str
    labels : dict of str to str
        What norm and references are called.
    name, title : str
    remarks : str
        For the caption.
    """
    results = [share_improved(subjects, norm, reference) for reference in references]
    canvas, axes = panels(len(results), columns=2, width=4.2 * len(results) + 0.4, height=4.4)
    for panel, improved in zip(axes, results, strict=True):
        _scatter_draw(panel, subjects[[improved.reference, norm]], improved, labels)
    return Drawing(
        name=name,
        title=title,
        words=" ".join(_scatter_words(result, labels) for result in results),
        caption=f"Mean over seeds. {results[0].caption} {remarks}",
        canvas=canvas,
    )


def _references(comparison: Comparison) -> list[str]:
    """Return BatchNorm and the best baseline, each once, the best one last."""
    baselines = [name for name in comparison.labels if not name.startswith("psd")]
    if not baselines:
        raise CannotDraw(f"{_SCATTER_TITLE} ({comparison.setting}): there is no baseline.")
    best = str(comparison.tables.datasets[baselines].mean().idxmax())
    return [BATCH, best] if BATCH in baselines and best != BATCH else [best]


def _scatter_draw(
    axes: "Axes", values: "pd.DataFrame", improved: ImprovedResult, labels: dict[str, str]
) -> None:
    x, y = values.dropna().round(DECIMALS).to_numpy().T  # ties as share_improved counts them
    size, alpha = (22, 0.8) if len(x) < 300 else (7, 0.45) if len(x) < 3000 else (3, 0.25)
    is_better = y > x
    for mask, colour, marker, label in (
        (is_better, VERMILION, "^", "improved"),
        (~is_better, BLUE, "v", "not improved"),
    ):
        axes.scatter(
            x[mask],
            y[mask],
            s=size,
            c=colour,
            marker=marker,
            alpha=alpha,
            linewidths=0,
            label=label,
            zorder=-1,
        )
    low, high = (min(x.min(), y.min()), max(x.max(), y.max()))
    margin = max(1.0, 0.04 * (high - low))
    limits = (low - margin, high + margin)
    axes.plot(limits, limits, color="black", lw=0.8, ls="--")
    axes.set_xlim(limits)
    axes.set_ylim(limits)
    axes.set_box_aspect(1)
    axes.set_rasterization_zorder(0)  # all points in one image
    axes.set_xlabel(f"{labels[improved.reference]}: balanced accuracy (%)")
    axes.set_ylabel(f"{labels[improved.norm]}: balanced accuracy (%)")
    share = f"▲ improved: {100 * improved.share:.1f} % of {improved.n_blocks:,}"
    axes.set_title(share, loc="left", color="#A34700")
    axes.set_title("▼ not improved", loc="right", color="#005A8C")


def _scatter_words(result: ImprovedResult, labels: dict[str, str]) -> str:
    return (
        f"Of {result.n_blocks:,} subjects, {result.improved:,} ({100 * result.share:.2f} %, 95 % "
        f"interval {100 * result.low:.2f} to {100 * result.high:.2f} %) score higher with "
        f"{labels[result.norm]} than with {labels[result.reference]}, {result.tied:,} the same and "
        f"{result.worse:,} lower."
    )
