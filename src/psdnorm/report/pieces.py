"""The pieces that a page of results is made of."""

from collections.abc import Sequence
from pathlib import Path

from psdnorm.present import Part
from psdnorm.report.figures import Figure
from psdnorm.report.report_folder import FIGURES, TABLES
from psdnorm.report.tables import Table
from psdnorm.report.verdict import Verdict
from psdnorm.runtime import written

_SHOWN_NOTES = 4
MOST_BYTES = 4_900_000  # of a page: it shall stay below 5 MB


def add_verdict(page: Part, verdicts: Sequence[Verdict]) -> None:
    """Add who won, how much, how sure, and what cannot be said; the first contest in full.

    Parameters
    ----------
    page : Part
    verdicts : sequence of Verdict
        The main one first.
    """
    main = verdicts[0]
    page.heading("Verdict")
    page.verdict(page.part().text(main.headline).items(main.sentences))
    recipe, nights = main.results.recipe, " of simulated nights" if main.results.simulated else ""
    page.table(
        f"{main.contest.name}: balanced accuracy{nights}, recipe {recipe}; gains are over "
        "BatchNorm unless their column says otherwise, in points of Mean(Dataset)",
        main.head,
        main.rows(),
        sortable=True,
    )
    page.heading("What this cannot say", 3).items(main.limits)
    if len(verdicts) > 1:
        page.heading("Other models and training sizes", 3)
        for verdict in verdicts[1:]:
            part = page.part().items(verdict.sentences)
            part.table(
                f"{verdict.contest.name}: balanced accuracy{nights}, recipe {recipe}",
                verdict.head,
                verdict.rows(),
                sortable=True,
            )
            part.text("What this cannot say:").items(verdict.limits)
            page.fold(f"{verdict.contest.name}: {verdict.headline}", part)


def add_tables(page: Part, tables: Sequence[Table]) -> None:
    """Add tables that can be sorted, with their notes and their files.

    Parameters
    ----------
    page : Part
    tables : sequence of Table
    """
    page.heading("Tables")
    page.text("Press the head of a column to sort by it; what is not there stays last.", "note")
    for table in tables:
        page.heading(table.title, 3)
        page.table(table.title, table.head, table.rows, sortable=True, unseen=True)
        page.items(table.notes[:_SHOWN_NOTES])
        others = table.notes[_SHOWN_NOTES:]
        if others:
            page.fold(f"More notes on this table: {len(others)}", page.part().items(others))
        files = [(f"{TABLES}/{table.name}.{kind}", kind) for kind in ("md", "tex", "csv")]
        page.links("As", files)


def add_figures(page: Part, figures: Sequence[Figure], room: int) -> None:
    """Add figures as long as there is room, and links to the others.

    Parameters
    ----------
    page : Part
    figures : sequence of Figure
    room : int
        Bytes that they may take in all.
    """
    page.heading("Figures")
    if not figures:
        page.text("None.")
    for figure in figures:
        kind, picture = min(("png", figure.png), ("svg", figure.svg), key=lambda p: len(p[1]))
        page.heading(figure.title, 3)
        room -= 4 * len(picture) // 3 + 5000  # and its words
        if room > 0:
            page.picture(picture, figure.words, figure.caption, kind)
        else:
            page.text(f"{figure.words} {figure.caption}")
            page.text("Not shown, to keep this page small: see the files.", "note")
        files = [(f"{FIGURES}/{figure.name}.{ending}", ending) for ending in ("png", "svg")]
        page.links("As", files)


def write_figures(figures: Sequence[Figure], folder: Path) -> None:
    """Write figures as NAME.png and NAME.svg; no folder where there are none.

    Parameters
    ----------
    figures : sequence of Figure
    folder : Path
    """
    if figures:
        folder.mkdir(parents=True, exist_ok=True)
    for figure in figures:
        for ending, data in (("png", figure.png), ("svg", figure.svg)):
            with written(folder / f"{figure.name}.{ending}") as file:
                file.write(data)
