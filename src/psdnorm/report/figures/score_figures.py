"""Figures of scores: ranks, gains, subjects, stages, calibration and training curves."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from psdnorm.constants import STAGES
from psdnorm.errors import StoreError, os_errors_as
from psdnorm.evaluation import (
    MEAN_DATASET,
    MEAN_SUBJECT,
    CalibrationBins,
    bins_of,
    expected_calibration_error,
    overall_means,
)
from psdnorm.evaluation.statistics import (
    DECIMALS,
    ImprovedResult,
    NemenyiResult,
    WilcoxonHolmResult,
    bootstrap_gains,
    friedman,
    nemenyi,
    share_improved,
    wilcoxon_holm,
)
from psdnorm.present import BLUE, VERMILION, CannotDraw, Drawing, look_of, new_canvas, panels
from psdnorm.report.contest import BATCH, Contest, has_seeds, shortened
from psdnorm.runtime import listed, plural
from psdnorm.training import ADABN, HISTORY, norm_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Compared = NemenyiResult | WilcoxonHolmResult
Labels = dict[str, str]  # what each norm is called
_BAR, _ROW = 0.42, 0.62  # heights of a bar and of a label, in units of y
_SIDE = 0.36  # room for labels on either side, as a share of the axis
_TESTS = ("Nemenyi", "Wilcoxon–Holm")


def draw_ranks(contest: Contest, blocks: str) -> Drawing:
    """Draw the critical-difference diagrams of Nemenyi's and Wilcoxon's tests."""
    title = f"Critical differences over {blocks}"
    contest.needs_two_norms(title)
    values: pd.DataFrame = getattr(contest.percent, blocks)
    if len(values.dropna()) < 2:
        raise CannotDraw(
            f"{title} ({contest.name}): ranks need two {blocks} that every norm has, found "
            f"{len(values.dropna())}."
        )
    results: tuple[Compared, Compared] = nemenyi(values), wilcoxon_holm(values)
    heights = [_rank_height(result) for result in results]
    canvas = new_canvas(8, 0.28 * sum(heights) + 0.9)
    axes = canvas.subplots(2, height_ratios=heights)
    for panel, result, test in zip(axes, results, _TESTS, strict=True):
        _draw_rank_panel(panel, result, contest.labels)
        panel.set_title(_rank_heading(result, test), loc="left")
    return Drawing(
        name=f"ranks-{blocks}-{contest.key}",
        title=f"{title}: {contest.name}",
        words=_rank_words(results, contest.labels),
        caption=_rank_caption(contest, values, results),
        canvas=canvas,
    )


def _draw_rank_panel(axes: "Axes", result: Compared, labels: Labels) -> None:
    ranks = result.mean_ranks.sort_values(kind="stable")
    n, side = len(ranks), _SIDE * (len(ranks) - 1)
    axes.set_xlim(1 - side, n + side)
    axes.set_ylim(-_rank_height(result) + 1.4, 1.4)
    axes.axis("off")
    axes.plot([1, n], [0, 0], color="black", lw=1)
    for tick in range(1, n + 1):
        axes.plot([tick, tick], [0, 0.18], color="black", lw=1)
        axes.text(tick, 0.28, str(tick), ha="center", va="bottom", fontsize=8)
    axes.text(1 - 0.04 * (n - 1), 0.28, "mean rank", ha="right", va="bottom", fontsize=8)
    first_row = -(len(_bars(result)) * _BAR + _ROW)
    for place, (norm, rank) in enumerate(ranks.items()):
        is_left = place < (n + 1) // 2
        row = first_row - _ROW * (place if is_left else n - 1 - place)
        edge, align = (1 - 0.05 * side, "right") if is_left else (n + 0.05 * side, "left")
        look = look_of(str(norm))
        axes.plot([rank, rank, edge], [0, row, row], color=look.colour, lw=0.9)
        axes.plot([rank], [0], marker=look.marker, color=look.colour, label=labels[str(norm)])
        text = f" {labels[str(norm)]}  {rank:.2f} "
        axes.text(edge, row, text, ha=align, va="center", fontsize=8.5)
    for number, clique in enumerate(_bars(result)):
        at = result.mean_ranks[list(clique)]
        y = -(number + 0.75) * _BAR
        axes.plot([at.min(), at.max()], [y, y], color="black", lw=3, solid_capstyle="round")
        # a bar may pass over a norm outside the group: dots mark the members
        axes.plot(at, [y] * len(at), "o", ms=5, mfc="white", mec="black", label="members")
    if isinstance(result, NemenyiResult) and result.critical_difference <= len(result.p) - 1:
        ends = [1, 1 + result.critical_difference]
        axes.plot(ends, [1.15, 1.15], color="black", lw=1.5, marker="|", label="CD")
        axes.text(ends[1], 1.15, f"  CD {result.critical_difference:.2f}", va="center", fontsize=8)


def _bars(result: Compared) -> list[tuple[str, ...]]:
    """Return the groups to draw; none if nothing was tested."""
    return result.cliques if result.p.notna().all(axis=None) else []


def _rank_height(result: Compared) -> float:
    rows = (len(result.mean_ranks) + 1) // 2
    return 1.9 + len(_bars(result)) * _BAR + rows * _ROW


def _rank_heading(result: Compared, test: str) -> str:
    heading = f"{test}, α = {result.alpha:g}"
    if isinstance(result, NemenyiResult) and np.isnan(result.critical_difference):
        heading += ": not tested"
    return f"{heading}: {result.note}" if result.note else heading


def _rank_words(results: tuple[Compared, Compared], labels: Labels) -> str:
    ranks = results[0].mean_ranks.sort_values(kind="stable")
    named = listed([f"{labels[str(norm)]} {rank:.2f}" for norm, rank in ranks.items()])
    sentences = [f"Mean ranks over {results[0].counted}, 1 is best: {named}."]
    for result, test in zip(results, _TESTS, strict=True):
        groups = [listed([labels[norm] for norm in clique]) for clique in result.cliques]
        found = "; ".join(groups) or "none, all pairs differ"
        distance = ""
        if isinstance(result, NemenyiResult):
            if np.isnan(result.critical_difference):
                continue
            distance = f" (critical difference {result.critical_difference:.2f})"
        sentences.append(f"{test}{distance}, groups without a shown difference: {found}.")
    return " ".join(sentences)


def _rank_caption(
    contest: Contest, values: pd.DataFrame, results: tuple[Compared, Compared]
) -> str:
    test = friedman(values)
    p = "p < 1e-300" if test.p == 0 else f"p = {test.p:.2g}"
    overall = "" if np.isnan(test.p) else f"Friedman: χ² = {test.statistic:.2f}, {p}."
    n_others = len(test.left_out)
    omitted = f"; {n_others:,} not counted, which some norms do not have" if n_others else ""
    notes = [f"{t}: {r.note}." for r, t in zip(results, _TESTS, strict=True) if r.note]
    bars = (
        "Bars join norms that were not shown to differ, which is not equality; dots mark the "
        "members, as Wilcoxon's groups need not be neighbours."
    )
    said = [f"{test.counted}{omitted}.", overall, *notes, bars, test.caveat, contest.remarks]
    return " ".join(filter(None, said))


_GAINS = f"Gain over {norm_name(BATCH)}"
_DRAWS_OF_A_COHORT = 2000


def draw_gains(contest: Contest) -> Drawing:
    """Draw each norm's gain over BatchNorm in every cohort and in both means."""
    contest.needs_batch_norm(_GAINS)
    return forest(
        contest.percent.by_seed.dropna(),
        BATCH,
        contest.labels,
        name=f"gains-{contest.key}",
        title=f"{_GAINS}, by cohort: {contest.name}",
        remarks=contest.remarks,
    )


def forest(
    values: pd.DataFrame, reference: str, labels: Labels, *, name: str, title: str, remarks: str
) -> Drawing:
    """Draw gains over a reference in every cohort and in both means, a panel for each norm."""
    is_seeded = has_seeds(values)
    overall = bootstrap_gains(values, reference, resample_seeds=is_seeded)
    cohorts = values.index.unique("cohort")
    if len(cohorts) == 1:  # both means are those of the cohort
        gains = overall.gains[overall.gains["mean"] == MEAN_DATASET].assign(row=cohorts[0])
    else:
        of_means = overall.gains.assign(row=overall.gains["mean"])
        gains = pd.concat([_of_cohorts(values, reference), of_means])
    norms = [norm for norm in labels if norm != reference]
    rows = list(dict.fromkeys(gains["row"]))
    n, height = len(norms), 0.21 * len(rows) + 0.75
    width = max(5.2, 2.3 * min(n, 4) + 1.6)
    canvas, axes = panels(n, columns=4, width=width, height=height, sharex=True, sharey=True)
    for panel, norm in zip(axes, norms, strict=True):
        own = gains[gains["norm"] == norm].set_index("row").loc[rows]
        _draw_gains(panel, own, norm)
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
        words=_gain_words(gains, norms, labels, labels[reference]),
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


def _draw_gains(axes: "Axes", gains: pd.DataFrame, norm: str) -> None:
    look = look_of(norm)
    at = np.arange(len(gains))
    is_mean = gains.index.isin([MEAN_DATASET, MEAN_SUBJECT])
    gain = gains["gain"].to_numpy()
    reach = np.abs(gains[["low", "high"]].to_numpy().T - gain)
    axes.axvline(0, color="black", lw=0.8, ls="--")
    if is_mean.any():
        axes.axhspan(at[is_mean].min() - 0.5, at.max() + 0.5, color="#EEEEEE", lw=0)
    for mask, label, size, width in ((~is_mean, "cohorts", 4, 1.0), (is_mean, "means", 6, 2.0)):
        style: dict[str, Any] = {"fmt": look.marker, "color": look.colour, "ms": size, "lw": width}
        axes.errorbar(gain[mask], at[mask], xerr=reach[:, mask], label=label, **style)
    axes.set_yticks(at, [str(row) for row in gains.index])
    axes.set_ylim(-0.7, at.max() + 0.5)
    axes.margins(x=0.05)
    axes.grid(axis="x", color="#DDDDDD", lw=0.5)
    axes.set_axisbelow(True)


def _gain_words(gains: pd.DataFrame, norms: list[str], labels: Labels, reference: str) -> str:
    sentences = []
    for norm in norms:
        own = gains[gains["norm"] == norm].set_index("row")
        is_mean = own.index.isin([MEAN_DATASET, MEAN_SUBJECT])
        cohorts = own[~is_mean]
        rows = cohorts if len(cohorts) == 1 else own[is_mean]
        said = ", ".join(
            f"{name} {row['gain']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f})"
            for name, row in rows.iterrows()
        )
        if len(cohorts) != 1:
            ahead = int((cohorts["gain"] > 0).sum())
            each = listed([f"{name} {gain:+.2f}" for name, gain in cohorts["gain"].items()])
            said += f"; ahead in {ahead} of {len(cohorts)} cohorts: {each}"
        sentences.append(f"{labels[norm]} over {reference}, in points: {said}.")
    return " ".join(sentences)


_SUBJECTS = "Balanced accuracy of each subject"


def draw_scatter(contest: Contest) -> Drawing:
    """Plot each subject's score with PSDNorm against BatchNorm's and the best baseline's."""
    norm = next((name for name in ("psd", "psd-white") if name in contest.labels), None)
    if norm is None:
        raise CannotDraw(f"{_SUBJECTS} ({contest.name}): PSDNorm has no result.")
    contest.needs_two_norms(_SUBJECTS)
    baselines = [name for name in contest.labels if not name.startswith("psd")]
    if not baselines:
        raise CannotDraw(f"{_SUBJECTS} ({contest.name}): there is no baseline.")
    best = str(contest.percent.datasets[baselines].mean().idxmax())
    references = [BATCH, best] if BATCH in baselines and best != BATCH else [best]
    return scattered(
        contest.percent.subjects,
        norm,
        references,
        contest.labels,
        name=f"subjects-{contest.key}",
        title=f"{_SUBJECTS}: {contest.name}",
        remarks=f"The best baseline by Mean(Dataset) of the subjects whom every norm has is "
        f"{contest.labels[best]}. Intervals are Wilson's. {contest.remarks}".strip(),
    )


def scattered(
    subjects: "pd.DataFrame",
    norm: str,
    references: list[str],
    labels: Labels,
    *,
    name: str,
    title: str,
    remarks: str,
) -> Drawing:
    """Plot each subject's score with a norm against its score with each reference, in panels."""
    results = [share_improved(subjects, norm, reference) for reference in references]
    canvas, axes = panels(len(results), columns=2, width=4.2 * len(results) + 0.4, height=4.4)
    for panel, improved in zip(axes, results, strict=True):
        _draw_subjects(panel, subjects[[improved.reference, norm]], improved, labels)
    return Drawing(
        name=name,
        title=title,
        words=" ".join(_subject_words(result, labels) for result in results),
        caption=f"Mean over seeds. {results[0].caption} {remarks}",
        canvas=canvas,
    )


def _draw_subjects(
    axes: "Axes", values: "pd.DataFrame", improved: ImprovedResult, labels: Labels
) -> None:
    x, y = values.dropna().round(DECIMALS).to_numpy().T  # ties as share_improved counts them
    size, alpha = (22, 0.8) if len(x) < 300 else (7, 0.45) if len(x) < 3000 else (3, 0.25)
    is_better = y > x
    improvements = (is_better, VERMILION, "^", "improved"), (~is_better, BLUE, "v", "not improved")
    for mask, colour, marker, label in improvements:
        look: dict[str, Any] = {
            "s": size,
            "c": colour,
            "marker": marker,
            "alpha": alpha,
            "linewidths": 0,
        }
        axes.scatter(x[mask], y[mask], **look, label=label, zorder=-1)
    low, high = min(x.min(), y.min()), max(x.max(), y.max())
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


def _subject_words(result: ImprovedResult, labels: Labels) -> str:
    return (
        f"Of {result.n_blocks:,} subjects, {result.improved:,} ({100 * result.share:.2f} %, 95 % "
        f"interval {100 * result.low:.2f} to {100 * result.high:.2f} %) score higher with "
        f"{labels[result.norm]} than with {labels[result.reference]}, {result.tied:,} the same and "
        f"{result.worse:,} lower."
    )


SEEDS_OMITTED = "Seeds without all cohorts are not counted."
_STAGES = f"F1 of each stage, difference from {norm_name(BATCH)}"


def draw_stages(contest: Contest) -> Drawing:
    """Draw the difference from BatchNorm in each stage's F1, with its spread over seeds."""
    contest.needs_batch_norm(_STAGES)
    seeds = contest.seeds[MEAN_DATASET].index
    if seeds.empty:
        raise CannotDraw(
            f"{_STAGES} ({contest.name}): there is no seed in which every norm has all cohorts."
        )
    scores = contest.scores
    whole = scores[scores["seed"].isin(seeds)]
    omitted = "" if len(whole) == len(scores) else SEEDS_OMITTED
    return by_stage(
        whole,
        BATCH,
        contest.labels,
        name=f"stages-{contest.key}",
        title=f"{_STAGES}: {contest.name}",
        remarks=f"{omitted} {contest.remarks}".strip(),
    )


def by_stage(
    scores: pd.DataFrame, reference: str, labels: Labels, *, name: str, title: str, remarks: str
) -> Drawing:
    """Draw the differences from a reference in each stage's F1."""
    found = _differences(scores, reference, [norm for norm in labels if norm != reference])
    bars = "bars are ± the standard deviation over seeds (ddof = 1)"
    spread = bars if scores["seed"].nunique() > 1 else "one seed has no ±"
    return Drawing(
        name=name,
        title=title,
        words=_stage_words(found, labels, labels[reference]),
        caption=f"Mean(Dataset) of subjects' F1 minus that of {labels[reference]} in the same "
        f"seed; {spread}. {remarks}".strip(),
        canvas=_draw_stages(found, labels),
    )


def _draw_stages(known: dict[str, pd.DataFrame], labels: Labels) -> "Canvas":
    canvas = new_canvas(8, 3.6)
    axes = canvas.subplots()
    step = 0.8 / len(known)
    for place, (norm, table) in enumerate(known.items()):
        look = look_of(norm)
        at = np.arange(len(STAGES)) + step * (place - (len(known) - 1) / 2)
        spread = table.std(ddof=1).fillna(0).to_numpy()
        style: dict[str, Any] = {
            "fmt": look.marker,
            "color": look.colour,
            "ms": 5,
            "capsize": 2,
            "lw": 1,
        }
        axes.errorbar(at, table.mean().to_numpy(), yerr=spread, label=labels[norm], **style)
    axes.axhline(0, color="black", lw=0.8, ls="--")
    for border in np.arange(len(STAGES) - 1) + 0.5:
        axes.axvline(border, color="#DDDDDD", lw=0.6)
    axes.set_xticks(range(len(STAGES)), STAGES)
    axes.set_xlim(-0.5, len(STAGES) - 0.5)
    axes.set_ylabel("difference in F1 (points)")
    canvas.legend(loc="outside right center", handletextpad=0.3)
    return canvas


def _differences(scores: pd.DataFrame, reference: str, norms: list[str]) -> dict[str, pd.DataFrame]:
    """Return the differences of Mean(Dataset) in points, by norm: seeds by stages."""
    columns = [f"f1_{stage}" for stage in STAGES]
    means = scores.groupby(["norm", "seed", "cohort"])[columns].mean()  # ignoring NaN
    means = 100 * means.set_axis(list(STAGES), axis="columns")
    return {
        # per cohort: one that lacks a stage under either norm counts for neither
        norm: overall_means(means.loc[norm] - means.loc[reference], ["seed"])[MEAN_DATASET]
        for norm in norms
    }


def _stage_words(known: dict[str, pd.DataFrame], labels: Labels, reference: str) -> str:
    sentences = []
    for norm, table in known.items():
        spreads = [f" ± {std:.2f}" if np.isfinite(std) else "" for std in table.std(ddof=1)]
        means = zip(STAGES, table[[*STAGES]].mean(), spreads, strict=True)
        each = listed([f"{stage} {mean:+.2f}{spread}" for stage, mean, spread in means])
        sentences.append(f"{labels[norm]}, points of F1 over {reference}: {each}.")
    return " ".join(sentences)


_CALIBRATION = "Calibration"


def draw_calibration(contest: Contest) -> Drawing:
    """Plot accuracy against confidence for each norm."""
    known = {}
    for norm in contest.labels:
        bins = bins_of(contest.results.of(norm=norm).subjects)
        sums = (each.sum(axis=0) for each in (bins.counts, bins.correct, bins.confidence_sums))
        pooled = CalibrationBins(*sums)
        if pooled.counts.sum():
            known[norm] = pooled
    if not known:
        raise CannotDraw(f"{_CALIBRATION} ({contest.name}): no epoch was scored.")
    canvas, axes = panels(len(known), columns=5, width=9, height=2.2, sharex=True, sharey=True)
    if len(known) < 4:
        canvas.set_size_inches(2.6 * len(known) + 0.8, 3.1)
    errors = {norm: float(expected_calibration_error(each)) for norm, each in known.items()}
    for panel, (norm, each) in zip(axes, known.items(), strict=True):
        _draw_bins(panel, each, norm)
        panel.set_title(f"{contest.labels[norm]}\nECE {100 * errors[norm]:.2f} %", loc="left")
    canvas.supxlabel("confidence (%)", fontsize=9)
    canvas.supylabel("accuracy (%)", fontsize=9)
    said = [f"{contest.labels[norm]} {100 * error:.2f} %" for norm, error in errors.items()]
    unlike = shortened(_unlike(contest))
    if contest.uncounted:
        unlike.append("The verdict does not count all of these runs.")
    return Drawing(
        name=f"calibration-{contest.key}",
        title=f"{_CALIBRATION}: {contest.name}",
        words="Accuracy over confidence in 15 bins; the expected calibration error (ECE) of all "
        f"epochs together is {listed(said)}.",
        caption="Epochs of all held-out subjects and seeds together, so that large cohorts weigh "
        "most. Bars are the share of epochs in a bin; points below the "
        f"diagonal are overconfident. {' '.join([*unlike, *contest.omitted_arms])}".strip(),
        canvas=canvas,
    )


def _unlike(contest: Contest) -> list[str]:
    """Return a sentence for each norm with fewer runs, and so fewer people, than others."""
    runs = contest.results.runs
    places = runs.groupby("norm").apply(
        lambda own: {*zip(own["hold_out"], own["seed"], strict=True)}, include_groups=False
    )
    any_has = set().union(*places)
    return [
        f"{label} has {len(places[norm])} of {len(any_has)} runs."
        for norm, label in contest.labels.items()
        if places[norm] != any_has
    ]


def _draw_bins(axes: "Axes", bins: CalibrationBins, norm: str) -> None:
    look = look_of(norm)
    edges = 100 * np.linspace(0, 1, len(bins.counts) + 1)
    share = 100 * bins.counts / bins.counts.sum()
    axes.bar(edges[:-1], share, np.diff(edges), align="edge", color="#CCCCCC", label="epochs")
    axes.plot([0, 100], [0, 100], color="black", lw=0.8, ls="--")
    used = bins.counts > 0
    x, y = 100 * bins.mean_confidence[used], 100 * bins.accuracy[used]
    axes.plot(x, y, **look.styled(ms=3.5, lw=1, label="accuracy"))
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 100)
    axes.set_xticks([0, 50, 100])
    axes.set_box_aspect(1)


MOST_RUNS = 12  # per norm
_LEARNING = "Training curves"
_DASHED = (0, (3, 2))
_COLUMNS = ["step", "train_loss", "validation_loss"]


def draw_learning(contest: Contest) -> Drawing:
    """Draw the training and validation loss of each norm's runs."""
    trained = [norm for norm in contest.labels if not norm.startswith(ADABN)]
    histories, missing, capped = {}, [], []
    for norm in trained:
        runs = contest.results.of(norm=norm).runs
        folders = list(runs.sort_values(["seed", "hold_out"])["folder"])
        if len(folders) > MOST_RUNS:
            capped.append(f"{contest.labels[norm]} ({MOST_RUNS} of {len(folders)})")
            folders = [folders[i] for i in np.linspace(0, len(folders) - 1, MOST_RUNS).astype(int)]
        found = {}
        for folder in folders:
            try:
                found[folder.name] = read_history(folder / HISTORY)
            except StoreError as error:
                missing.append(f"{_LEARNING} ({contest.name}): {error}.")
        if found:
            histories[norm] = found
    if not histories:
        raise CannotDraw(f"{_LEARNING} ({contest.name}): no run has a {HISTORY} that can be read.")
    n, width = len(histories), 2.5 * min(len(histories), 4) + 1
    canvas, axes = panels(n, columns=4, width=width, height=2.3, sharex=True, sharey=True)
    for panel, (norm, found) in zip(axes, histories.items(), strict=True):
        _draw_losses(panel, found, norm)
        panel.set_title(f"{contest.labels[norm]} ({len(found)})", loc="left")
    axes[0].set_xlim(left=0)
    axes[0].plot([], [], color="black", ls=_DASHED, lw=0.8, label="training")
    axes[0].plot([], [], color="black", lw=0.8, label="validation")
    canvas.legend(handles=axes[0].lines[-2:], loc="outside right upper", fontsize=8)
    canvas.supxlabel("step", fontsize=9)
    canvas.supylabel("loss (nats)", fontsize=9)
    said = f"Not all runs are drawn: {listed(capped)}. " if capped else ""
    others = [label for norm, label in contest.labels.items() if norm not in trained]
    said += f"{listed(others)}: not trained, these are BatchNorm's networks. " if others else ""
    said += " ".join(contest.omitted_arms)
    return Drawing(
        name=f"learning-{contest.key}",
        title=f"{_LEARNING}: {contest.name}",
        words=_loss_words(histories, contest.labels),
        caption="Weighted cross-entropy. One thin line per run, that is cohort and seed; dashed: "
        "training, solid: validation, dot: the lowest validation loss, whose weights were kept. "
        f"{said}".strip(),
        canvas=canvas,
        missing=missing,
    )


def read_history(path: Path) -> pd.DataFrame:
    """Read the losses of a run, one row per epoch."""
    try:
        with os_errors_as(StoreError, path, "cannot be read"):
            table = pd.read_csv(path)
        losses = table[_COLUMNS].astype(float)
    except KeyError as error:
        raise StoreError(f"{path} needs the columns {', '.join(_COLUMNS)}") from error
    except ValueError as error:  # errors of pandas are ValueErrors, too
        reason = str(error).splitlines()[0]
        raise StoreError(f"{path} is not a table of losses: {reason:.80}") from error
    if losses["validation_loss"].notna().sum() == 0:
        raise StoreError(f"{path} has no validation loss")
    return losses


def _draw_losses(axes: "Axes", histories: dict[str, pd.DataFrame], norm: str) -> None:
    colour = look_of(norm).colour
    thin: dict[str, Any] = {"color": colour, "lw": 0.8, "alpha": 0.7}
    for name, history in histories.items():
        axes.plot(history["step"], history["train_loss"], ls=_DASHED, label=f"train {name}", **thin)
        axes.plot(history["step"], history["validation_loss"], label=f"validation {name}", **thin)
        lowest = history.loc[history["validation_loss"].idxmin()]
        axes.plot(lowest["step"], lowest["validation_loss"], "o", ms=3, color=colour)


def _loss_words(histories: dict[str, dict[str, pd.DataFrame]], labels: Labels) -> str:
    sentences = []
    for norm, found in histories.items():
        lowest = [float(each["validation_loss"].min()) for each in found.values()]
        steps = [float(each["step"].max()) for each in found.values()]
        sentences.append(
            f"{labels[norm]}: the lowest validation loss is {np.mean(lowest):.3f} on average over "
            f"{plural(len(found), 'run')} ({min(lowest):.3f} to {max(lowest):.3f}), "
            f"after {min(steps):,.0f} to {max(steps):,.0f} steps in all."
        )
    return " ".join([*sentences, *_speed_words(histories, labels)])


def _speed_words(histories: dict[str, dict[str, pd.DataFrame]], labels: Labels) -> list[str]:
    """Compare the losses after as many steps, the most that all runs have made."""
    runs = [history for found in histories.values() for history in found.values()]
    common = set.intersection(*({*history["step"]} for history in runs))
    if not common or len(histories) < 2:
        return []
    step = max(common)
    losses = []
    for norm, found in histories.items():
        rows = pd.concat([history[history["step"] == step] for history in found.values()])
        training, validation = rows["train_loss"].mean(), rows["validation_loss"].mean()
        losses.append(f"{labels[norm]} {training:.3f} and {validation:.3f}")
    where = f"After {step:,.0f} steps, the last epoch that all of these runs have"
    return [f"{where}, the mean training and validation losses are: {'; '.join(losses)}."]
