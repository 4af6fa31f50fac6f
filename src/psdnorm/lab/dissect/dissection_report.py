"""Results of a dissection: the accuracy lost by norm, shift and strength; tables and page."""

import os
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import psdnorm
from psdnorm.errors import ArgumentError
from psdnorm.evaluation import read_scores, subject_metrics
from psdnorm.lab.dissect.dissection import (
    Dissection,
    begun_with,
    has_predicted,
    predicted_folder,
)
from psdnorm.lab.dissect.shifts import KINDS, UNSHIFTED, ShiftCondition, ShiftKind
from psdnorm.present import FRAME_BYTES, Drawing, Figure, Page, matplotlib, panels, rendered, styled
from psdnorm.report import (
    FIGURES,
    MOST_BYTES,
    PAGE,
    TABLES,
    add_figures,
    new_folder,
    norm_place,
    write_figures,
)
from psdnorm.runtime import listed, plural, verb, written
from psdnorm.training import SCORES, SIZES, Run, setting_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

CONFIDENCE = 0.95
_DRAWS = 10_000
_SHOWN = 0.05  # points: smaller numbers are shown as 0.0
CASE = ["kind", "strength"]


@dataclass(frozen=True, eq=False)
class Losses:
    """Accuracies of every network, subject and condition, and the losses to each shift."""

    # arm, training (cohort held out and seed), kind, strength, subject, balanced_accuracy (a share)
    accuracies: pd.DataFrame
    names: dict[str, str]  # of the arms, in the order of the paper
    recipe: str
    subjects: int  # planned, whether simulated or not
    conditions: tuple[ShiftCondition, ...] = ()  # requested, whether predicted or not
    version: str = psdnorm.__version__  # of the psdnorm that predicted

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """Points lost by each subject in each training: rows of ``accuracies``, and ``lost``.

        A shifted night is compared with the same subject's unshifted one, predicted by the same
        network. Subjects that lack either are left out.
        """
        keys = ["arm", "training", "subject"]
        is_plain = self.accuracies["kind"] == UNSHIFTED.kind
        plain = self.accuracies[is_plain].set_index(keys)["balanced_accuracy"].rename("unshifted")
        shifted = self.accuracies[~is_plain].join(plain, on=keys)
        shifted["lost"] = 100 * (shifted["unshifted"] - shifted["balanced_accuracy"])
        return shifted.dropna(subset="lost").reset_index(drop=True)

    @cached_property
    def by_subject(self) -> pd.DataFrame:
        """Points lost, mean over trainings: rows by kind, strength, subject; a column per arm."""
        table = self.pairs.pivot_table("lost", [*CASE, "subject"], "arm", aggfunc="mean")
        return table.reindex(columns=[arm for arm in self.names if arm in table])

    @cached_property
    def matrix(self) -> pd.DataFrame:
        """The matrix, one row for each arm, kind and strength.

        ``lost`` are points of balanced accuracy, mean over trainings of a subject and then over
        subjects; ``low`` and ``high`` its bootstrap interval over subjects, NaN for a single one;
        ``seeds_sd`` the standard deviation (ddof = 1) over trainings of their means over subjects;
        ``unshifted`` and ``shifted`` the accuracies in percent.
        """
        cases = ordered_cases(self.pairs[CASE].itertuples(index=False, name=None))
        groups = dict(list(self.pairs.groupby(["arm", *CASE])))
        rows = [
            self._row(arm, kind, strength, groups[arm, kind, strength])
            for kind, strength in cases
            for arm in self.names
            if (arm, kind, strength) in groups
        ]
        return pd.DataFrame(rows)

    def _row(self, arm: str, kind: str, strength: float, pairs: pd.DataFrame) -> dict[str, Any]:
        by_subject = pairs.groupby("subject")[["lost", "unshifted", "balanced_accuracy"]].mean()
        by_training = pairs.groupby("training")["lost"].mean()
        low, high = interval(by_subject["lost"].to_numpy())
        return {
            "arm": arm,
            "norm": self.names[arm],
            "kind": kind,
            "strength": strength,
            "unit": KINDS[kind].unit,
            "lost": by_subject["lost"].mean(),
            "low": low,
            "high": high,
            "seeds_sd": by_training.std(ddof=1),
            "unshifted": 100 * by_subject["unshifted"].mean(),
            "shifted": 100 * by_subject["balanced_accuracy"].mean(),
            "subjects": len(by_subject),
            "trainings": len(by_training),
        }

    def of_kind(self, kind: ShiftKind) -> pd.DataFrame:
        """Return the rows of the matrix for a kind of shift."""
        return self.matrix[self.matrix["kind"] == kind.name]

    def kinds(self) -> list[ShiftKind]:
        """Return the kinds in the matrix, in order."""
        return [KINDS[name] for name in dict.fromkeys(self.matrix["kind"])]

    def arms(self) -> list[str]:
        """Return the arms in the matrix, in order."""
        there = set(self.matrix["arm"])
        return [arm for arm in self.names if arm in there]

    def listed(self, arms: Iterable[str]) -> str:
        """Return names of arms as in a sentence."""
        return listed([self.names[arm] for arm in arms])


def read_losses(dissection: Dissection) -> Losses:
    """Read what was predicted so far."""
    tables = [
        _read(dissection, run, condition)
        for run in dissection.runs
        for condition in dissection.conditions
        if has_predicted(dissection.out, run, condition)
    ]
    found = Losses(
        pd.concat(tables) if tables else pd.DataFrame({"kind": []}),
        arm_names(dissection.runs),
        dissection.recipe.name,
        dissection.subjects,
        dissection.conditions,
        str(begun_with(dissection.out).get("psdnorm")),
    )
    plain = (found.accuracies["kind"] == UNSHIFTED.kind).sum()
    if plain in (0, len(found.accuracies)) or found.pairs.empty:
        raise ArgumentError(
            f"{dissection.out} has no network that predicted the same subjects with and without a "
            "shift"
        )
    return found


def _read(dissection: Dissection, run: Run, condition: ShiftCondition) -> pd.DataFrame:
    folder = predicted_folder(dissection.out, run, condition)
    scores = subject_metrics(read_scores(folder / SCORES))
    return scores[["subject", "balanced_accuracy"]].assign(
        arm=run.label,
        training=f"{run.hold_out}, seed {run.seed}",
        kind=condition.kind,
        strength=condition.strength,
    )


def arm_names(runs: Sequence[Run]) -> dict[str, str]:
    """Return the names of the arms of some runs, with the sizes that distinguish them.

    >>> arm_names([Run("usleep", "psd"), Run("usleep", "batch", seed=1)])
    {'usleep batch @all': 'BatchNorm', 'usleep psd f5 d3 @all': 'PSDNorm'}
    >>> list(arm_names([Run("usleep", "psd"), Run("usleep", "psd", filter_size=17)]).values())
    ['PSDNorm (f = 5)', 'PSDNorm (f = 17)']
    """

    def place(run: Run) -> tuple:
        sizes = run.arm.filter_size or 0, run.norm_depth or 0
        return run.model, run.balanced or 0, norm_place(run.norm), *sizes

    several = len({(run.model, run.balanced) for run in runs}) > 1
    names = {}
    for run in sorted(runs, key=place):
        same = [other for other in runs if other.norm == run.norm]
        shown = [size for size in SIZES if len({getattr(other, size) for other in same}) > 1]
        name = run.arm.named(shown)
        where = f", {setting_name(run.model, run.balanced)}" if several else ""
        names[run.label] = f"{name}{where}"
    return names


def interval(values: NDArray[np.float64], seed: int = 0) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a mean over subjects; NaN for fewer than two."""
    if len(values) < 2:
        return float("nan"), float("nan")
    draws = np.random.default_rng(seed).integers(0, len(values), (_DRAWS, len(values)))
    tails = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(values[draws].mean(axis=1), (tails, 100 - tails))
    return float(low), float(high)


def is_beyond_noise(lost: float, low: float, high: float) -> bool:
    """Tell whether a loss or gain is significant, and large enough to be visible in its number.

    >>> is_beyond_noise(0.2, 0.1, 0.3), is_beyond_noise(0.2, -0.1, 0.5)
    (True, False)
    >>> is_beyond_noise(0.01, 0.005, 0.02)
    False
    """
    return (low > 0 or high < 0) and abs(lost) >= _SHOWN


def ordered_cases(cases: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return distinct kinds and strengths: kinds in the order of `KINDS`, mild before severe."""
    kinds = list(KINDS)
    return sorted(
        {*cases}, key=lambda case: (kinds.index(case[0]), abs(case[1] - KINDS[case[0]].neutral))
    )


def limits(losses: Losses) -> list[str]:
    """Return sentences on missing scores, subjects and trainings."""
    return [*_missing_scores(losses), *_missing_subjects(losses), *_missing_trainings(losses)]


def strengths_in_words(kind: ShiftKind, strengths: Sequence[float]) -> str:
    """Return strengths of a kind as in a sentence, with their unit once.

    >>> strengths_in_words(KINDS["electrode"], [2.0, 10.0])
    '2 and 10 µV RMS'
    """
    *others, last = strengths
    return listed([*(kind.number(each) for each in others), kind.words(last)])


def _missing_scores(losses: Losses) -> list[str]:
    asked = [(each.kind, each.strength) for each in losses.conditions if each != UNSHIFTED]
    there = list(losses.matrix[["arm", *CASE]].itertuples(index=False, name=None))
    cases = ordered_cases({*asked, *((kind, strength) for _, kind, strength in there)})
    missing: dict[tuple[tuple[str, float], ...], list[str]] = {}
    for arm in losses.names:
        without = tuple(case for case in cases if (arm, *case) not in there)
        if without:
            missing.setdefault(without, []).append(arm)
    sentences = []
    for without, arms in missing.items():
        who = f"{losses.listed(arms)} {verb(arms, 'has', 'have')} no"
        if len(arms) == len(losses.names):
            who = "No norm has a"
        sentences.append(f"{who} score of {_shifts(without, cases)}.")
    return sentences


def _shifts(some: Sequence[tuple[str, float]], cases: Sequence[tuple[str, float]]) -> str:
    """Name shifts; a kind is named without strengths if all of its ``cases`` are meant."""
    if len(some) == len(cases):
        return "any shift"
    parts = []
    for kind in dict.fromkeys(kind for kind, _ in some):
        own, all_of_it = ([s for k, s in those if k == kind] for those in (some, cases))
        strengths = "" if own == all_of_it else f" ({strengths_in_words(KINDS[kind], own)})"
        parts.append(f"{KINDS[kind].title.lower()}{strengths}")
    return listed(parts)


def _missing_subjects(losses: Losses) -> list[str]:
    fewer = losses.matrix[losses.matrix["subjects"] < losses.subjects]
    sentences = []
    for (kind, strength), rows in fewer.groupby(CASE, sort=False):
        own = KINDS[str(kind)]
        sentences.append(
            f"{own.title}, {own.words(float(str(strength)))}: {rows['subjects'].min()} of "
            f"{plural(losses.subjects, 'subject')} have a score with and without it."
        )
    return sentences


def _missing_trainings(losses: Losses) -> list[str]:
    trainings = losses.matrix.groupby("arm", sort=False)["trainings"].agg(["min", "max"])
    most = int(trainings["max"].max())
    sentences = [
        f"{losses.names[str(arm)]} has {row['min']} of {row['max']} trainings in some conditions."
        for arm, row in trainings[trainings["min"] != trainings["max"]].iterrows()
    ]
    sentences += [
        f"{losses.names[str(arm)]} has {row['max']} of {most} trainings."
        for arm, row in trainings[trainings["max"] < most].iterrows()
    ]
    if most == 1:
        sentences.append("There is one training of each norm: another seed may give other losses.")
    return sentences


_NEARLY = 0.5  # points: a smaller difference decides nothing, however significant


class Choice:
    """What one kind of shift says about norms, at its greatest strength."""

    def __init__(self, losses: Losses, kind: ShiftKind) -> None:
        self.losses, self.kind = losses, kind
        self.own = losses.of_kind(kind)
        self.strength = float(self.own["strength"].iloc[-1])
        self.rows = self.own[self.own["strength"] == self.strength].set_index("arm")
        order = self.rows.sort_values("lost", kind="stable")
        self.best, *others = (str(arm) for arm in order.index)
        by_subject = losses.by_subject.loc[(kind.name, self.strength)]
        differences = {arm: (by_subject[arm] - by_subject[self.best]).dropna() for arm in others}
        # arms that lose significantly more than the best, subject by subject, and the others
        self.worse = [arm for arm in others if interval(differences[arm].to_numpy())[0] > 0]
        self.alike = [arm for arm in others if arm not in self.worse]
        self.nearly_alike = bool(self.rows["lost"].max() - self.rows["lost"].min() < _NEARLY)
        # strengths of each arm: all it has, those with a loss beyond noise, those without a score
        self.strengths: dict[str, list[float]] = {arm: [] for arm in losses.arms()}
        self.harmed: dict[str, list[float]] = {}
        for row in self.own.itertuples():
            arm, strength = str(row.arm), float(str(row.strength))
            self.strengths[arm].append(strength)
            if row.lost > 0 and is_beyond_noise(row.lost, row.low, row.high):
                self.harmed.setdefault(arm, []).append(strength)
        everywhere = list(dict.fromkeys(self.own["strength"]))
        absent = {arm: [s for s in everywhere if s not in h] for arm, h in self.strengths.items()}
        self.absent = {arm: without for arm, without in absent.items() if without}

    def not_compared(self) -> list[str]:
        """Return the arms that have no score at the greatest strength."""
        return [arm for arm, without in self.absent.items() if self.strength in without]

    def sentences(self) -> list[str]:
        """Return sentences; the first says which norm to pick, and which were not compared."""
        first, *others = self._comparison()
        return [" ".join([first, *self._absence()]), *others]

    def _comparison(self) -> list[str]:
        subjects, at = int(self.rows["subjects"].min()), self.kind.words(self.strength)
        if subjects < 2:
            own = [f"{row.norm} lost {row.lost:.1f} points" for row in self.rows.itertuples()]
            return [
                f"{plural(subjects, 'subject')} cannot tell norms apart: at {at}, {listed(own)}."
            ]
        if not self.harmed and not self.worse and len(self.rows) > 1:
            row = self.own.loc[self.own["lost"].idxmax()]
            return [
                f"Pick for other reasons: up to {at}, no norm loses more than noise among "
                f"{subjects} subjects. The greatest loss is {_points(row)}, of {row['norm']} at "
                f"{self.kind.words(row['strength'])}.",
                *self._fewer_trainings(),
            ]
        if self.worse and self.nearly_alike:
            ends = [_signed(f"{self.rows['lost'].agg(end):.1f}") for end in ("min", "max")]
            each = self._points_of([self.best, *self.alike, *self.worse])
            return [
                f"Pick for other reasons: at {at} all lose nearly the same, "
                f"{' to '.join(dict.fromkeys(ends))} points.",
                f"Less than half a point lies between them: {each}.",
                *self._harm(),
                *self._fewer_trainings(),
            ]
        sentences = [self._pick()]
        if self.worse:
            sentences.append(f"These lose more: {self._points_of(self.worse)}.")
        return [*sentences, *self._harm(), *self._other_winner(), *self._fewer_trainings()]

    def _absence(self) -> list[str]:
        """Say which norms have no score, and at which strengths."""
        together: dict[tuple[float, ...], list[str]] = {}
        for arm, without in self.absent.items():
            together.setdefault(tuple(without), []).append(arm)
        sentences = []
        for missing, arms in together.items():
            is_all = len(missing) == self.own["strength"].nunique()
            at = "any strength" if is_all else strengths_in_words(self.kind, missing)
            who = self.losses.listed(arms)
            if self.strength in missing:
                who += verb(arms, " is not compared: it", " are not compared: they")
            sentences.append(f"{who} {verb(arms, 'has', 'have')} no score at {at}.")
        return sentences

    def _fewer_trainings(self) -> list[str]:
        most = int(self.rows["trainings"].max())
        fewer = self.rows[self.rows["trainings"] < most]
        each = [f"{row['norm']} has {row['trainings']}" for _, row in fewer.iterrows()]
        return [f"{listed(each)} of {most} trainings here."] if each else []

    def _harm(self) -> list[str]:
        """Say which norms have a loss beyond noise at which strengths, and which have none."""
        if not self.harmed:
            return []
        harmed: dict[str, list[str]] = {}
        spared: dict[str, list[str]] = {}
        for arm, strengths in self.strengths.items():
            if arm in self.harmed:
                at = strengths_in_words(self.kind, self.harmed[arm])
                harmed.setdefault(at, []).append(arm)
            elif strengths:
                is_all = arm not in self.absent
                at = "any strength" if is_all else strengths_in_words(self.kind, strengths)
                spared.setdefault(at, []).append(arm)
        where = "; ".join(f"{self.losses.listed(arms)} at {at}" for at, arms in harmed.items())
        sentences = [f"Losses beyond noise: {where}."]
        for at, arms in spared.items():
            none = f"{verb(arms, 'loses', 'lose')} nothing beyond noise"
            sentences.append(f"{self.losses.listed(arms)} {none} at {at}.")
        return sentences

    def _pick(self) -> str:
        name, at = self.losses.names[self.best], self.kind.words(self.strength)
        points = _points(self.rows.loc[self.best])
        if len(self.rows) == 1:
            return f"There is no norm to compare with: at {at} {name} loses {points}."
        if not self.alike:
            return f"Pick {name}: at {at} it loses least, {points}."
        alike = self._points_of(self.alike)
        if not self.worse:
            return (
                f"No norm is better than another beyond noise: at {at} {name} loses {points}, "
                f"{alike}."
            )
        return (
            f"At {at} {name} loses {points}, the least; within noise of it: {alike}. Pick one of "
            "these."
        )

    def _other_winner(self) -> list[str]:
        """Say which norm is the most accurate under the shift, if it is not one to pick."""
        winner = str(self.rows["shifted"].idxmax())
        if winner in (self.best, *self.alike):
            return []
        won, best = self.rows.loc[winner], self.rows.loc[self.best]
        return [
            f"Under the shift {won['norm']} is still the most accurate, with "
            f"{won['shifted']:.1f} % against {best['shifted']:.1f} % of {best['norm']}: it started "
            f"from {won['unshifted']:.1f} %."
        ]

    def _points_of(self, arms: Sequence[str]) -> str:
        names = self.losses.names
        return listed([f"{names[arm]} {_points(self.rows.loc[arm], unit='')}" for arm in arms])


def choices(losses: Losses) -> list[Choice]:
    """Return what every kind of shift says about norms."""
    return [Choice(losses, kind) for kind in losses.kinds()]


def _points(row: "pd.Series[float]", unit: str = " points") -> str:
    return _signed(f"{row['lost']:.1f}{unit} ({row['low']:.1f} to {row['high']:.1f})")


def _signed(numbers: str) -> str:
    return numbers.replace("-0.0", "0.0").replace("-", "−")


# orange and purple are distinct for the colour-blind, too, and both darken away from zero
_COLOURS, _SHADES = "PuOr_r", 11  # few enough for the palette of a PNG
_LEAST_SCALE = 5.0  # points: noise must not look like a loss
_DARK = 7 / 11  # of the scale: letters are white on the two darkest shades of each side
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
        image = _draw(panel, losses.of_kind(kind), kind, arms, scale)
    axes[0].set_yticks(range(len(arms)), [losses.names[arm] for arm in arms])
    axes[0].set_ylim(len(arms) - 0.5, -0.5)
    bar = canvas.colorbar(image, ax=axes, shrink=0.8, aspect=30)
    bar.set_label("balanced accuracy lost (points)")
    notes = (
        f"In brackets: the {CONFIDENCE:.0%} bootstrap interval over subjects contains zero, or the "
        "number rounds to it. "
    )
    if len(losses.matrix) < len(arms) * len(losses.matrix[CASE].drop_duplicates()):
        notes += f"{_NO_SCORE} on hatching: the norm has no score there. "
    return Drawing(
        name="dissection",
        title="Balanced accuracy lost to one kind of shift at a time",
        words=" ".join(map(_figure_in_words, choices(losses))),
        caption=(
            "Points lost against the same subjects without the shift, mean over subjects and "
            f"trainings; orange is loss, purple gain. {notes}{counts_in_words(losses)}"
        ),
        canvas=canvas,
    )


def _draw(
    axes: "Axes", own: pd.DataFrame, kind: ShiftKind, arms: list[str], scale: float
) -> "AxesImage":
    strengths = list(dict.fromkeys(own["strength"]))
    table = own.pivot(index="arm", columns="strength", values="lost").reindex(arms)[strengths]
    shades = matplotlib().colormaps[_COLOURS].resampled(_SHADES)
    image = axes.imshow(table.to_numpy(), cmap=shades, vmin=-scale, vmax=scale, aspect="auto")
    # missing cells are transparent, and white alone would look like no loss
    axes.patch.set(facecolor="white", edgecolor="0.7", hatch="/////", linewidth=0)
    for down, across in zip(*np.nonzero(table.isna().to_numpy()), strict=True):
        axes.text(across, down, _NO_SCORE, ha="center", va="center", backgroundcolor="white")
    for row in own.itertuples():
        place = strengths.index(row.strength), arms.index(str(row.arm))
        colour = "white" if abs(float(row.lost)) > _DARK * scale else "black"
        text = cell_text(float(row.lost), float(row.low), float(row.high))
        axes.text(*place, text, ha="center", va="center", fontsize=8, color=colour)
    axes.set_xticks(range(len(strengths)), [kind.number(each) for each in strengths])
    axes.set_xlabel(kind.unit)
    axes.set_title("\n".join(textwrap.wrap(kind.title, 22)), loc="left")
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    return image


def cell_text(lost: float, low: float, high: float) -> str:
    """Return a loss as a cell shows it: in brackets if it may be zero.

    >>> cell_text(12.34, 9, 15), cell_text(-0.2, -1, 1), cell_text(0.02, 0.01, 0.03)
    ('12.3', '(−0.2)', '(0.0)')
    """
    text = _signed(f"{lost:.1f}")
    return text if is_beyond_noise(lost, low, high) else f"({text})"


def _figure_in_words(choice: Choice) -> str:
    each = ", ".join(
        f"{row.norm} {cell_text(float(row.lost), float(row.low), float(row.high))}"
        for row in choice.rows.itertuples()
    )
    absent = choice.losses.listed(choice.not_compared())
    without = f"; no score of {absent}" if absent else ""
    return f"{choice.kind.title} at {choice.kind.words(choice.strength)}: {each}{without}."


def counts_in_words(losses: Losses) -> str:
    """Return the numbers of subjects and trainings behind the numbers of the matrix."""
    subjects, trainings = (
        " to ".join(dict.fromkeys(f"{losses.matrix[name].agg(end)}" for end in ("min", "max")))
        for name in ("subjects", "trainings")
    )
    return f"Subjects: {subjects}; trainings of each norm: {trainings}."


MATRIX, SUBJECTS = "matrix", "subjects"
_LIMITS = (
    "Nights are simulated: they show what a norm does under a known shift, not how often patients "
    "bring it.",
    "Losses are against each network's own unshifted nights, which are of the reference population "
    "(29 years, Fpz-Cz and Pz-Oz, no noise): a network that learned from other nights may do "
    "better under a shift.",
    f"Intervals, at {CONFIDENCE:.0%}, are over subjects and ignore the spread over trainings, "
    "which is beside them. Many comparisons are made, and one in twenty of those without a "
    "difference shows one.",
)


def write_dissection(
    losses: Losses,
    out: str | os.PathLike[str],
    command: str,
    *,
    gone: Sequence[str] = (),
    figures: bool = True,
) -> list[str]:
    """Write page, tables and figure; return the first sentence of each kind of shift.

    ``gone`` are sentences on networks that could not predict everything. The folder is new, empty,
    or an earlier report, which is replaced.
    """
    made = choices(losses)
    said = {choice.kind.name: choice.sentences() for choice in made}
    drawn = []
    if figures:
        with styled():
            drawn = [rendered(draw_losses(losses), simulated=True, recipe=losses.recipe)]
    caveats = [*(f"{sentence}." for sentence in gone), *limits(losses), *_LIMITS]
    record = {
        "psdnorm": psdnorm.__version__,
        "simulated": True,
        "sentences": said,
        "limits": caveats,
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
        _page(losses, made, caveats, command, drawn).write(folder / PAGE)
    return [f"{KINDS[name].title}. {sentences[0]}" for name, sentences in said.items()]


_HEAD = ("shift", "at", "loses least", "within noise of it", "costs, points")
_MATRIX_HEAD = (
    "shift", "strength", "norm", "lost", "interval", "SD of trainings", "unshifted, %",
    "shifted, %", "subjects", "trainings",
)  # fmt: skip


def _page(
    losses: Losses, made: list[Choice], caveats: list[str], command: str, figures: list[Figure]
) -> Page:
    page = Page("Which norm for which shift", simulated=True, contents=True)
    page.heading("What to pick").text(
        "Points of balanced accuracy that the same subjects lose to one kind of shift. "
        f"{counts_in_words(losses)} Recipe: {losses.recipe}."
    )
    head, rows = [*_HEAD], [_pick_row(choice) for choice in made]
    if any(choice.not_compared() for choice in made):
        head.append("not compared: no score")
        for row, choice in zip(rows, made, strict=True):
            row.append(losses.listed(choice.not_compared()) or "none")
    page.table("Picks at the greatest strength", head, rows)
    for choice in made:
        page.heading(choice.kind.title, 3).text(choice.kind.what)
        page.items(choice.sentences())
    page.heading("What this cannot say").items(caveats)
    after = page.part().heading("The matrix")
    rows = [_matrix_row(row) for _, row in losses.matrix.iterrows()]
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


def _pick_row(choice: Choice) -> list[str]:
    best, lost = choice.losses.names[choice.best], choice.rows["lost"]
    alike = choice.losses.listed(choice.alike)
    # the smallest loss means nothing if no other one is larger beyond noise
    picked = [best, alike or "none"] if choice.worse else ["nobody", "all"]
    if choice.worse and choice.nearly_alike:
        picked = ["nobody", "all, nearly: less than half a point"]
    if len(lost) == 1:
        picked = [f"only {best}", "none"]
    at = choice.kind.words(choice.strength)
    return [choice.kind.title, at, *picked, f"{_one(lost.min())} to {_one(lost.max())}"]


def _matrix_row(row: "pd.Series") -> list[str]:
    kind = KINDS[row["kind"]]
    return [
        kind.title,
        kind.words(row["strength"]),
        row["norm"],
        cell_text(row["lost"], row["low"], row["high"]),
        f"{_one(row['low'])} to {_one(row['high'])}",
        *(_one(row[name]) for name in ("seeds_sd", "unshifted", "shifted")),
        *(f"{row[name]}" for name in ("subjects", "trainings")),
    ]


def _one(value: float) -> str:
    return "–" if pd.isna(value) else _signed(f"{value:.1f}")
