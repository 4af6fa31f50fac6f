"""The page of a dissection: which norm for which trouble.

::

    REPORT/
      index.html         the words, the figure, the matrix
      tables/matrix.csv  the matrix; matrix.parquet the same
      tables/subjects.parquet  what every subject of every training lost
      figures/dissection.png, .svg
      report.json        the words, for programs
"""

import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

import psdnorm
from psdnorm.lab.dissect.dissected import CONFIDENCE, Losses
from psdnorm.lab.dissect.dissected_figure import cell_text, counts_in_words, losses_figure
from psdnorm.lab.dissect.dissected_limits import limits
from psdnorm.lab.dissect.dissected_words import Choice, choices, sentences
from psdnorm.lab.dissect.troubles import KINDS
from psdnorm.present.page import FRAME_BYTES, Page
from psdnorm.report.figures import Figure
from psdnorm.report.naming import listed
from psdnorm.report.pieces import MOST_BYTES, add_figures, write_figures
from psdnorm.report.report_folder import FIGURES, PAGE, TABLES, new_folder
from psdnorm.runtime.files import written

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
    """Write the page of a dissection, its tables and its figure.

    Parameters
    ----------
    losses : Losses
    out : path
        Folder: new, empty, or an earlier report, whose place it takes.
    command : str
        That made it.
    gone : sequence of str
        What is to be said of networks that could not predict all.
    figures : bool
        Whether to draw.

    Returns
    -------
    list of str
        The first sentence of each kind of shift, beginning with its title.
    """
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
    rows = [_pick(losses, choice) for choice in made]
    if not any(choice.not_compared() for choice in made):
        return _HEAD, rows
    for row, choice in zip(rows, made, strict=True):
        row.append(listed([losses.names[arm] for arm in choice.not_compared()]) or "none")
    return (*_HEAD, "not compared: no score"), rows


def _pick(losses: Losses, choice: Choice) -> list[str]:
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
