"""The page of a dissection: figures, sentences, limits."""

import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

import psdnorm
from psdnorm.lab.dissect.dissected import (
    CASE,
    CONFIDENCE,
    Losses,
    interval,
    is_beyond_noise,
    ordered_cases,
)
from psdnorm.lab.dissect.troubles import KINDS, UNSHIFTED, Kind
from psdnorm.present import FRAME_BYTES, Drawing, Figure, Page, matplotlib, panels, rendered, styled
from psdnorm.report import FIGURES, MOST_BYTES, PAGE, TABLES, add_figures, new_folder, write_figures
from psdnorm.runtime import listed, written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage


def limits(losses: Losses) -> list[str]:
    """Say what of a dissection is not whole."""
    return [*_scores(losses), *_subjects(losses), *_trainings(losses)]


def strengths_in_words(kind: Kind, strengths: list[float]) -> str:
    """Return strengths of a kind as in a sentence, with their unit once.

    >>> strengths_in_words(KINDS["electrode"], [2.0, 10.0])
    '2 and 10 µV RMS'
    """
    *others, last = strengths
    return listed([*(kind.number(each) for each in others), kind.words(last)])


def _scores(losses: Losses) -> list[str]:
    """Say which norms have no score of which shifts."""
    asked = [(each.kind, each.strength) for each in losses.conditions if each != UNSHIFTED]
    there = list(losses.matrix[["arm", *CASE]].itertuples(index=False, name=None))
    cases = ordered_cases({*asked, *((kind, strength) for _, kind, strength in there)})
    lacking: dict[tuple[tuple[str, float], ...], list[str]] = {}
    for arm, name in losses.names.items():
        without = tuple(case for case in cases if (arm, *case) not in there)
        if without:
            lacking.setdefault(without, []).append(name)
    told = []
    for without, names in lacking.items():
        nobody = "No norm has a" if len(names) == len(losses.names) else ""
        some = f"{listed(names)} {'has' if len(names) == 1 else 'have'} no"
        told.append(f"{nobody or some} score of {_shifts(list(without), cases)}.")
    return told


def _shifts(some: list[tuple[str, float]], cases: list[tuple[str, float]]) -> str:
    """Name shifts: a kind with its strengths, or alone where it is there with all of ``cases``."""
    if len(some) == len(cases):
        return "any shift"
    parts = []
    for kind in dict.fromkeys(kind for kind, _ in some):
        own, all_of_it = ([s for k, s in those if k == kind] for those in (some, cases))
        title = KINDS[kind].title.lower()
        strengths = "" if own == all_of_it else f" ({strengths_in_words(KINDS[kind], own)})"
        parts.append(f"{title}{strengths}")
    return listed(parts)


def _subjects(losses: Losses) -> list[str]:
    fewer = losses.matrix[losses.matrix["subjects"] < losses.subjects]
    told = []
    for (kind, strength), rows in fewer.groupby(CASE, sort=False):
        words = KINDS[str(kind)].words(float(str(strength)))
        told.append(
            f"{KINDS[str(kind)].title}, {words}: {rows['subjects'].min()} of {losses.subjects} "
            "subjects have a score with and without it."
        )
    return told


def _trainings(losses: Losses) -> list[str]:
    trainings = losses.matrix.groupby("arm", sort=False)["trainings"].agg(["min", "max"])
    told = []
    for arm, row in trainings[trainings["min"] != trainings["max"]].iterrows():
        told.append(
            f"{losses.names[str(arm)]} has {row['min']} of {row['max']} trainings in some "
            "conditions."
        )
    most = int(trainings["max"].max())
    for arm, row in trainings[trainings["max"] < most].iterrows():
        told.append(f"{losses.names[str(arm)]} has {row['max']} of {most} trainings.")
    if most == 1:
        told.append("There is one training of each norm: another seed may lose otherwise.")
    return told


_NEARLY = 0.5  # points: a difference that decides nothing, however sure it is


@dataclass(frozen=True, eq=False)
class Choice:
    """What one kind of shift says about norms, at its greatest strength."""

    kind: Kind
    strength: float
    best: str  # the arm that loses least
    # arms whose loss differs from that of the best by no more than noise: the interval of the
    # difference, over subjects, holds zero
    alike: list[str]
    worse: list[str]  # the others, from the least loss to the greatest
    nearly_alike: bool  # whether none is worse by half a point, so that there is nothing to pick
    # arms that lose something beyond noise, and the strengths at which they do
    harmed: dict[str, list[float]]
    # arms that have no score at some strengths of this kind, and these
    absent: dict[str, list[float]]

    def not_compared(self) -> list[str]:
        """Return the arms that have no score at the greatest strength."""
        return [arm for arm, without in self.absent.items() if self.strength in without]


def choices(losses: Losses) -> list[Choice]:
    """Return what every kind of shift says about norms."""
    return [_choice(losses, kind) for kind in losses.kinds()]


def _choice(losses: Losses, kind: Kind) -> Choice:
    own = losses.matrix[losses.matrix["kind"] == kind.name]
    strength = float(own["strength"].iloc[-1])
    at_most = own[own["strength"] == strength].set_index("arm").sort_values("lost", kind="stable")
    best, *others = (str(arm) for arm in at_most.index)
    by_subject = losses.by_subject.loc[(kind.name, strength)]
    alike = [arm for arm in others if not _is_more(by_subject[arm] - by_subject[best])]
    return Choice(
        kind=kind,
        strength=strength,
        best=best,
        alike=alike,
        worse=[arm for arm in others if arm not in alike],
        nearly_alike=bool(at_most["lost"].max() - at_most["lost"].min() < _NEARLY),
        harmed=_harmed(own, losses),
        absent=_absent(own, losses),
    )


def _is_more(differences: "pd.Series[float]") -> bool:
    """Tell whether a mean over subjects is above zero for sure."""
    return interval(differences.dropna().to_numpy())[0] > 0


def _harmed(own: pd.DataFrame, losses: Losses) -> dict[str, list[float]]:
    lost = own[
        [row.lost > 0 and is_beyond_noise(row.lost, row.low, row.high) for row in own.itertuples()]
    ]
    return _filled({arm: _strengths(lost, arm) for arm in losses.names})


def _absent(own: pd.DataFrame, losses: Losses) -> dict[str, list[float]]:
    strengths = list(dict.fromkeys(own["strength"]))
    there = {arm: _strengths(own, arm) for arm in losses.arms()}
    return _filled({arm: [s for s in strengths if s not in has] for arm, has in there.items()})


def _strengths(rows: pd.DataFrame, arm: str) -> list[float]:
    return list(rows[rows["arm"] == arm]["strength"])


def _filled(by_arm: dict[str, list[float]]) -> dict[str, list[float]]:
    return {arm: strengths for arm, strengths in by_arm.items() if strengths}


def sentences(losses: Losses, choice: Choice) -> list[str]:
    """Say what one kind of shift costs whom, and which norm to pick against it."""
    first, *others = _compared(losses, choice)
    return [" ".join([first, *_not_there(losses, choice)]), *others]


def _compared(losses: Losses, choice: Choice) -> list[str]:
    kind, names = choice.kind, losses.names
    own = losses.matrix[losses.matrix["kind"] == kind.name]
    rows = own[own["strength"] == choice.strength].set_index("arm")
    most = kind.words(choice.strength)
    subjects = int(rows["subjects"].min())
    if subjects < 2:
        return [f"{subjects} subject cannot tell norms apart: at {most}, {_all(rows, names)}."]
    fewer = _fewer_trainings(rows, names)
    if not choice.harmed and not choice.worse and len(rows) > 1:
        row = own.loc[own["lost"].idxmax()]
        return [
            f"Pick for other reasons: up to {most}, no norm loses more than noise among "
            f"{subjects} subjects. The greatest loss is {_points(row)}, of {row['norm']} at "
            f"{kind.words(row['strength'])}.",
            *fewer,
        ]
    if choice.worse and choice.nearly_alike:
        each = _listed([choice.best, *choice.alike, *choice.worse], rows, names)
        return [
            f"Pick for other reasons: at {most} all lose nearly the same, {_range(rows)}.",
            f"Less than half a point lies between them: {each}.",
            *_harm(losses, choice, own),
            *fewer,
        ]
    told = [_pick(choice, rows, names)]
    if choice.worse:
        told.append(f"These lose more: {_listed(choice.worse, rows, names)}.")
    return [*told, *_harm(losses, choice, own), *_other_winner(choice, losses, rows), *fewer]


def _not_there(losses: Losses, choice: Choice) -> list[str]:
    """Say whom the comparison lacks, and where."""
    own = losses.matrix[losses.matrix["kind"] == choice.kind.name]
    together: dict[tuple[float, ...], list[str]] = {}
    for arm, without in choice.absent.items():
        together.setdefault(tuple(without), []).append(losses.names[arm])
    told = []
    for lacking, arms in together.items():
        is_all = len(lacking) == own["strength"].nunique()
        at = "any strength" if is_all else strengths_in_words(choice.kind, list(lacking))
        one = len(arms) == 1
        who = f"{listed(arms)} {'is' if one else 'are'} not compared: {'it' if one else 'they'}"
        if choice.strength not in lacking:
            who = listed(arms)
        told.append(f"{who} {'has' if one else 'have'} no score at {at}.")
    return told


def _fewer_trainings(rows: pd.DataFrame, names: dict[str, str]) -> list[str]:
    most = int(rows["trainings"].max())
    fewer = rows[rows["trainings"] < most]
    each = [f"{names[str(arm)]} has {n}" for arm, n in fewer["trainings"].items()]
    return [f"Of {most} trainings {listed(each)} here."] if each else []


def _harm(losses: Losses, choice: Choice, own: pd.DataFrame) -> list[str]:
    """Say who loses something beyond noise at which strengths, and who does not."""
    if not choice.harmed:
        return []
    kind, names = choice.kind, losses.names
    together: dict[str, list[str]] = {}
    for arm, each in choice.harmed.items():
        together.setdefault(strengths_in_words(kind, each), []).append(names[arm])
    where = "; ".join(f"{listed(arms)} at {each}" for each, arms in together.items())
    told = [f"There is a loss beyond noise of {where}."]
    spared: dict[str, list[str]] = {}
    for arm in dict.fromkeys(own["arm"]):
        if arm not in choice.harmed:
            at = "any strength"
            if arm in choice.absent:
                at = strengths_in_words(kind, _strengths(own, arm))
            spared.setdefault(at, []).append(names[arm])
    for at, arms in spared.items():
        verb = "loses" if len(arms) == 1 else "lose"
        told.append(f"{listed(arms)} {verb} nothing beyond noise at {at}.")
    return told


def _pick(choice: Choice, rows: pd.DataFrame, names: dict[str, str]) -> str:
    best = f"{names[choice.best]} loses {_points(rows.loc[choice.best])}"
    at = choice.kind.words(choice.strength)
    if len(rows) == 1:
        return f"There is no norm to compare with: at {at} {best}."
    if not choice.alike:
        return (
            f"Pick {names[choice.best]}: at {at} it loses least, {_points(rows.loc[choice.best])}."
        )
    alike = _listed(choice.alike, rows, names)
    if not choice.worse:
        return f"No norm is better than another beyond noise: at {at} {best}, {alike}."
    return f"At {at} {best}, the least; within noise of it: {alike}. Pick one of these."


def _other_winner(choice: Choice, losses: Losses, rows: pd.DataFrame) -> list[str]:
    """Say who is the most accurate under the shift, where that is not who loses least."""
    winner = str(rows["shifted"].idxmax())
    if winner in (choice.best, *choice.alike):
        return []
    return [
        f"Under the shift {losses.names[winner]} is still the most accurate, with "
        f"{rows.loc[winner, 'shifted']:.1f} % against {rows.loc[choice.best, 'shifted']:.1f} % of "
        f"{losses.names[choice.best]}: it began at {rows.loc[winner, 'unshifted']:.1f} %."
    ]


def _listed(arms: list[str], rows: pd.DataFrame, names: dict[str, str]) -> str:
    return listed([f"{names[arm]} {_points(rows.loc[arm], unit='')}" for arm in arms])


def _all(rows: pd.DataFrame, names: dict[str, str]) -> str:
    return listed(
        [f"{names[str(arm)]} lost {rows.loc[arm, 'lost']:.1f} points" for arm in rows.index]
    )


def _range(rows: pd.DataFrame) -> str:
    least, most = (_signed(f"{rows['lost'].agg(end):.1f}") for end in ("min", "max"))
    return f"{least} points" if least == most else f"{least} to {most} points"


def _points(row: "pd.Series[float]", unit: str = " points") -> str:
    return _signed(f"{row['lost']:.1f}{unit} ({row['low']:.1f} to {row['high']:.1f})")


def _signed(numbers: str) -> str:
    return numbers.replace("-0.0", "0.0").replace("-", "−")


# orange and purple differ for the colour-blind, too, and both darken away from zero
_COLOURS, _SHADES = "PuOr_r", 11  # few enough for the palette of a PNG
_LEAST_SCALE = 5.0  # points: noise shall not look like a loss
_DARK = 7 / 11  # of the scale: letters turn white on the two darkest shades of each side
_COLUMNS = 4
_NO_SCORE = "–"


def draw_losses(losses: Losses) -> Drawing:
    """Draw the matrix: a panel per kind, norms down, strengths across, points lost in each cell."""
    kinds, arms = losses.kinds(), losses.arms()
    scale = max(_LEAST_SCALE, float(losses.matrix["lost"].abs().max()))
    widest = max(len(name) for name in losses.names.values())
    columns = min(_COLUMNS, len(kinds))
    canvas, axes = panels(
        len(kinds),
        columns=_COLUMNS,
        width=max(4.5, 1.9 * columns + 0.075 * widest + 1.2),
        height=0.26 * len(arms) + 1.0,
        sharey=True,
    )
    for panel, kind in zip(axes, kinds, strict=True):
        own = losses.matrix[losses.matrix["kind"] == kind.name]
        image = _draw(panel, own, kind, arms, scale)
    axes[0].set_yticks(range(len(arms)), [losses.names[arm] for arm in arms])
    axes[0].set_ylim(len(arms) - 0.5, -0.5)
    bar = canvas.colorbar(image, ax=axes, shrink=0.8, aspect=30)
    bar.set_label("balanced accuracy lost (points)")
    notes = (
        f"In brackets: the {CONFIDENCE:.0%} bootstrap interval over subjects holds zero, or the "
        "number rounds to it. "
    )
    if len(losses.matrix) < len(arms) * len(losses.matrix[CASE].drop_duplicates()):
        notes += f"{_NO_SCORE} on hatching: the norm has no score there. "
    return Drawing(
        name="dissection",
        title="Balanced accuracy lost to one kind of shift at a time",
        words=_words(losses),
        caption=(
            "Points lost against the same subjects without the shift, mean over subjects and "
            f"trainings; orange is loss, purple gain. {notes}{counts_in_words(losses)}"
        ),
        canvas=canvas,
    )


def losses_figure(losses: Losses) -> Figure:
    """Return the figure as PNG and SVG."""
    with styled():
        return rendered(draw_losses(losses), simulated=True, recipe=losses.recipe)


def _draw(
    axes: "Axes", own: pd.DataFrame, kind: Kind, arms: list[str], scale: float
) -> "AxesImage":
    strengths = list(dict.fromkeys(own["strength"]))
    table = own.pivot(index="arm", columns="strength", values="lost").reindex(arms)[strengths]
    shades = matplotlib().colormaps[_COLOURS].resampled(_SHADES)
    image = axes.imshow(table.to_numpy(), cmap=shades, vmin=-scale, vmax=scale, aspect="auto")
    # what is not there is transparent, and near white would be no loss
    axes.patch.set(facecolor="white", edgecolor="0.7", hatch="/////", linewidth=0)
    for down, across in zip(*np.nonzero(table.isna().to_numpy()), strict=True):
        axes.text(across, down, _NO_SCORE, ha="center", va="center", backgroundcolor="white")
    for row in own.itertuples():
        place = strengths.index(row.strength), arms.index(str(row.arm))
        is_dark = abs(float(row.lost)) > _DARK * scale
        axes.text(
            *place,
            cell_text(float(row.lost), float(row.low), float(row.high)),
            ha="center",
            va="center",
            fontsize=8,
            color="white" if is_dark else "black",
        )
    axes.set_xticks(range(len(strengths)), [kind.number(each) for each in strengths])
    axes.set_xlabel(kind.unit)
    axes.set_title("\n".join(textwrap.wrap(kind.title, 22)), loc="left")
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    return image


def cell_text(lost: float, low: float, high: float) -> str:
    """Return a loss as a cell shows it: in brackets where it may be none.

    >>> cell_text(12.34, 9, 15), cell_text(-0.2, -1, 1), cell_text(0.02, 0.01, 0.03)
    ('12.3', '(−0.2)', '(0.0)')
    """
    text = f"{lost:.1f}".replace("-0.0", "0.0").replace("-", "−")
    return text if is_beyond_noise(lost, low, high) else f"({text})"


def _words(losses: Losses) -> str:
    parts = []
    for kind in losses.kinds():
        own = losses.matrix[losses.matrix["kind"] == kind.name]
        strength = own["strength"].iloc[-1]
        rows = own[own["strength"] == strength]
        each = ", ".join(
            f"{row.norm} {cell_text(float(row.lost), float(row.low), float(row.high))}"
            for row in rows.itertuples()
        )
        absent = [losses.names[a] for a in losses.arms() if a not in set(rows["arm"])]
        without = f"; no score of {listed(absent)}" if absent else ""
        parts.append(f"{kind.title} at {kind.words(strength)}: {each}{without}.")
    return " ".join(parts)


def counts_in_words(losses: Losses) -> str:
    """Say of how many subjects and trainings the numbers are."""
    subjects, trainings = (
        np.unique(losses.matrix[name]).tolist() for name in ("subjects", "trainings")
    )
    return f"Subjects: {_span(subjects)}; trainings of each norm: {_span(trainings)}."


def _span(counts: list[int]) -> str:
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


MATRIX, SUBJECTS = "matrix", "subjects"
_LIMITS = (
    "Nights are simulated: they show what a norm does under a shift that is known, not how often "
    "patients bring it.",
    "Losses are against each network's own unshifted nights, which are of the reference population "
    "(29 years, Fpz-Cz and Pz-Oz, no noise): a network that learned from others is elsewhere at "
    "home.",
    f"Intervals, at {CONFIDENCE:.0%}, are over subjects and know nothing of other trainings: the "
    "spread over seeds is beside them. Many comparisons are made, and one in twenty of those in "
    "which nothing differs shows a difference.",
)


def write_dissection(
    losses: Losses,
    out: str | os.PathLike[str],
    command: str,
    *,
    gone: Sequence[str] = (),
    figures: bool = True,
) -> list[str]:
    """Write the page of a dissection, its tables and its figure."""
    told = {choice: sentences(losses, choice) for choice in choices(losses)}
    drawn = [losses_figure(losses)] if figures else []
    headlines = [f"{choice.kind.title}. {words[0]}" for choice, words in told.items()]
    unsaid = [*(f"{sentence}." for sentence in gone), *limits(losses), *_LIMITS]
    record = {
        "psdnorm": psdnorm.__version__,
        "simulated": True,
        "sentences": {choice.kind.name: words for choice, words in told.items()},
        "limits": unsaid,
    }
    with new_folder(Path(out), record) as folder:
        tables = folder / TABLES
        tables.mkdir()
        with written(tables / f"{MATRIX}.csv") as file:
            losses.matrix.to_csv(file, index=False, float_format="%.6g")
        for name, table in ((MATRIX, losses.matrix), (SUBJECTS, losses.pairs)):
            with written(tables / f"{name}.parquet") as file:
                table.to_parquet(file, index=False)
        write_figures(drawn, folder / FIGURES)
        _page(losses, told, unsaid, command, drawn).write(folder / PAGE)
    return headlines


def _page(
    losses: Losses,
    told: dict[Choice, list[str]],
    unsaid: list[str],
    command: str,
    figures: list[Figure],
) -> Page:
    page = Page("Which norm for which trouble", simulated=True, contents=True)
    page.heading("What to pick").text(
        "Points of balanced accuracy that the same subjects lose to one kind of shift. "
        f"{counts_in_words(losses)} Recipe: {losses.recipe}."
    )
    page.table("Picks at the greatest strength", *_picks(losses, list(told)))
    for choice, (first, *others) in told.items():
        page.heading(choice.kind.title, 3).text(choice.kind.what)
        page.items([first, *others])
    page.heading("What this cannot say").items(unsaid)
    after = page.part().heading("The matrix")
    rows = [_row(row) for _, row in losses.matrix.iterrows()]
    after.table("Balanced accuracy lost, points", _MATRIX_HEAD, rows, sortable=True)
    files = (f"{MATRIX}.csv", f"{MATRIX}.parquet", f"{SUBJECTS}.parquet")
    after.links("As", [(f"{TABLES}/{name}", name) for name in files])
    after.heading("How it was made").command(command)
    after.text(f"Scores: psdnorm {losses.version}, recipe {losses.recipe}")
    after.text(f"This page: psdnorm {psdnorm.__version__}")
    if figures:
        add_figures(page, figures, MOST_BYTES - page.n_bytes - after.n_bytes - FRAME_BYTES)
    page.add(after)
    return page


_HEAD = ("trouble", "at", "loses least", "within noise of it", "costs, points")
_MATRIX_HEAD = (
    "trouble", "strength", "norm", "lost", "interval", "SD of trainings", "unshifted, %",
    "shifted, %", "subjects", "trainings",
)  # fmt: skip


def _picks(losses: Losses, made: list[Choice]) -> tuple[tuple[str, ...], list[list[str]]]:
    """Return the head and the rows of a table; who is not compared has a column if needed."""
    rows = [_pick_loss(losses, choice) for choice in made]
    if not any(choice.not_compared() for choice in made):
        return _HEAD, rows
    for row, choice in zip(rows, made, strict=True):
        row.append(listed([losses.names[arm] for arm in choice.not_compared()]) or "none")
    return (*_HEAD, "not compared: no score"), rows


def _pick_loss(losses: Losses, choice: Choice) -> list[str]:
    names = losses.names
    own = losses.matrix[losses.matrix["kind"] == choice.kind.name]
    rows = own[own["strength"] == choice.strength]
    alike = listed([names[arm] for arm in choice.alike])
    # whose number is the least means nothing where nobody's is more beyond noise
    picked = [names[choice.best], alike or "none"] if choice.worse else ["nobody", "all"]
    if choice.worse and choice.nearly_alike:
        picked = ["nobody", "all, nearly: less than half a point"]
    if len(rows) == 1:
        picked = [f"only {names[choice.best]}", "none"]
    return [
        choice.kind.title,
        choice.kind.words(choice.strength),
        *picked,
        f"{_one(rows['lost'].min())} to {_one(rows['lost'].max())}",
    ]


def _row(row: "pd.Series") -> list[str]:
    kind = KINDS[row["kind"]]
    return [
        kind.title,
        kind.words(row["strength"]),
        row["norm"],
        cell_text(row["lost"], row["low"], row["high"]),
        f"{_one(row['low'])} to {_one(row['high'])}",
        _one(row["seeds_sd"]),
        _one(row["unshifted"]),
        _one(row["shifted"]),
        f"{row['subjects']}",
        f"{row['trainings']}",
    ]


def _one(value: float) -> str:
    if pd.isna(value):
        return "–"
    return f"{value:.1f}".replace("-0.0", "0.0").replace("-", "−")
