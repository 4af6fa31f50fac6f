"""How a table of scores is laid out, and how it is filled."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from psdnorm.report.naming import AUTO_SIZE, listed, setting_name
from psdnorm.report.results import ARM, Results
from psdnorm.report.tables.notes import (
    BOLD,
    NO_BOLD,
    SPREAD,
    block_notes,
    chosen_notes,
    general_notes,
)
from psdnorm.report.tables.paper_block import paper_notes, paper_rows
from psdnorm.report.tables.table import OURS, Entry, Table, figure, with_best
from psdnorm.report.tables.table_scores import MEANS, Arm, Scores, Setting
from psdnorm.training.cell import AUTO

LOWER_IS_BETTER = ("calibration_error",)
Named = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Block:
    """Rows under a heading.

    Attributes
    ----------
    heading : str
    facts : dict
        What all its numbers share: fields of :class:`Arm`, ``metric``, ``dataset``.
    rows : list of (str, dict)
        Names of the rows, and what their numbers share.
    datasets : tuple of str
        Those that a mean in this block is over.
    setting : str
        What notes call it where blocks lack the same; its heading if it is not given.
    """

    heading: str
    facts: dict[str, Any]
    rows: list[Named]
    datasets: tuple[str, ...]
    setting: str = ""


@dataclass(frozen=True)
class Layout:
    """A table of scores before it is filled.

    Attributes
    ----------
    name, title : str
    first : str
        Name of the first column.
    columns : list of (str, dict)
        Names of the columns, and what their numbers share. Facts of block, row and column together
        tell what a number is.
    blocks : list of Block
    paper : str, optional
        The table of the paper that is shown below.
    bold : bool
        Whether the best of a row is in bold: not where columns cannot be compared.
    notes : list of str
    """

    name: str
    title: str
    columns: list[Named]
    blocks: list[Block]
    first: str = "Dataset"
    paper: str | None = None
    bold: bool = True
    notes: list[str] = field(default_factory=list)


def dataset_block(scores: Scores, setting: Setting, arms: Iterable[Arm], **facts: Any) -> Block:
    """Return a block with one row per dataset that any of the arms has, and the two means."""
    datasets = scores.datasets_of(arms)
    rows = [(name, {"dataset": name}) for name in (*datasets, *MEANS)]
    model, balanced = setting
    shared = {"model": model, "balanced": balanced, **facts}
    return Block(setting_name(model, balanced), shared, rows, datasets)


def column(arm: Arm, said: Collection[str] = ()) -> Named:
    """Return the column of an arm, whatever it learned from, see :meth:`Arm.named`."""
    names = ("norm", "filter_size", "norm_depth")
    return arm.named(said), {name: getattr(arm, name) for name in names}


def fill(layout: Layout, scores: Scores) -> Table:
    """Fill a table with our scores and those of the paper.

    Parameters
    ----------
    layout : Layout
    scores : Scores
    """
    rows: list[list[Entry]] = []
    notes: list[str] = []
    shown: set[str] = set()
    metrics = _metrics(layout)
    for block in layout.blocks:
        rows.append([Entry(block.heading)])
        filled = [_row(layout, block, named, scores) for named in block.rows]
        rows += [row for row, _ in filled]
        arms = arms_of(layout, block)
        setting = block.setting or block.heading
        notes += block_notes(setting, arms, block.datasets, metrics, scores)
        notes += chosen_notes(setting, arms, scores)
        unlike = [row[0].text for row, alike in filled if not alike]
        if layout.bold and unlike:
            notes.append(f"{setting}; {listed(unlike)}: {NO_BOLD}")
        shown |= {*block.datasets}
    reading = [SPREAD, BOLD] if layout.bold else [SPREAD]
    notes = [*layout.notes, *reading, *dict.fromkeys(notes), *general_notes(scores, shown, metrics)]
    if layout.paper is not None:
        rows += paper_rows(layout.paper, layout.columns, shown)
        notes += paper_notes(layout.paper, shown)
    title = full_title(layout.title, scores.results)
    head = [layout.first, *(name for name, _ in layout.columns)]
    return Table(layout.name, title, head, rows, notes)


def full_title(title: str, results: Results) -> str:
    """Return a title that names the recipe, and says whether the nights are simulated."""
    simulated = ", of simulated nights" if results.simulated else ""
    return f"{title}{simulated}, recipe {results.recipe}"


def arms_of(layout: Layout, block: Block) -> list[Arm]:
    """Return the arms of a block, each once, in the order of the table."""
    found = {
        _arm(block.facts | row | column): None
        for _, row in block.rows
        for _, column in layout.columns
    }
    return [*found]


def our_facts(results: Results) -> dict[str, Any]:
    """Return what every number of ours says of itself in a CSV file."""
    simulated = "yes" if results.simulated else "no"
    return {"block": OURS, "recipe": results.recipe, "simulated": simulated}


def _row(layout: Layout, block: Block, named: Named, scores: Scores) -> tuple[list[Entry], bool]:
    """Return a row, and whether all its numbers are over the same seeds."""
    name, row = named
    facts = [block.facts | row | column for _, column in layout.columns]
    entries = [_entry(one, block.datasets, scores) for one in facts]
    seeds = {
        (_seeds(one, block.datasets, scores), entry.facts["seeds"])
        for one, entry in zip(facts, entries, strict=True)
        if entry.value is not None
    }
    alike = len(seeds) < 2
    if layout.bold and alike:
        entries = with_best(entries, lowest=facts[0]["metric"] in LOWER_IS_BETTER)
    return [Entry(name), *entries], alike


def _seeds(facts: dict[str, Any], datasets: Sequence[str], scores: Scores) -> frozenset[int]:
    """Return the seeds that a number is over: of a mean, those that have every dataset."""
    over = datasets if facts["dataset"] in MEANS else [facts["dataset"]]
    found = (scores.seeds(_arm(facts), dataset) for dataset in over)
    return frozenset.intersection(*map(frozenset, found))


def _entry(facts: dict[str, Any], datasets: Sequence[str], scores: Scores) -> Entry:
    own = our_facts(scores.results) | facts
    if facts["filter_size"] == AUTO_SIZE:
        own["filter_size"] = AUTO
    found = scores.score(_arm(facts), facts["metric"], facts["dataset"], datasets)
    if found is None:
        return Entry(figure(None), facts=own)
    std = None if found.std != found.std else found.std
    own |= {"std": std, "seeds": found.seeds, "subjects": found.subjects}
    return Entry(figure(found.mean, std), found.mean, facts=own)


def _arm(facts: dict[str, Any]) -> Arm:
    return Arm(**{name: facts[name] for name in ARM})


def _metrics(layout: Layout) -> list[str]:
    found = {
        (block.facts | row | column)["metric"]: None
        for block in layout.blocks
        for _, row in block.rows
        for _, column in layout.columns
    }
    return [*found]
