"""How many subjects train when at most N of each cohort are kept."""

from typing import Any

import pandas as pd

from psdnorm.errors import PsdnormError
from psdnorm.report.naming import ALL
from psdnorm.report.paper import paper_table
from psdnorm.report.results import Results
from psdnorm.report.tables.layout import full_title, our_facts
from psdnorm.report.tables.notes import SIMULATED
from psdnorm.report.tables.paper_block import paper_entry, paper_notes
from psdnorm.report.tables.table import Entry, Table, figure
from psdnorm.training.cell import read_json
from psdnorm.training.run_folder import CONFIG

SOURCE, TRAIN, VALIDATION, FOLDS = (
    "source_subjects",
    "train_subjects",
    "validation_subjects",
    "held_out_datasets",
)
COLUMNS = {
    SOURCE: "Train and validate",
    TRAIN: "Train",
    VALIDATION: "Validate",
    FOLDS: "Datasets held out",
}
_DIGITS = 0  # as the paper prints them
_NOTE = (
    "Subjects, averaged over the dataset that is held out; ± is the standard deviation over these "
    "datasets, with ddof = 0 as in the paper."
)


def size_table(results: Results) -> Table | str:
    """Build the table of training sizes from what the cells say of themselves.

    Parameters
    ----------
    results : Results

    Returns
    -------
    Table or str
        The reason why there is none.
    """
    try:
        counts = _counts(results)
    except PsdnormError as error:
        return f"Subjects that train (balanced-sizes) are not there: {error}."
    rows: list[list[Entry]] = [[Entry("Ours")]]
    sizes = sorted(counts["balanced"].unique(), key=lambda size: (size == 0, size))
    for size in sizes:
        rows.append(_row(size, counts[counts["balanced"] == size], our_facts(results)))
    notes = [_NOTE, *([SIMULATED] if results.simulated else [])]
    return Table(
        "balanced-sizes",
        full_title("Subjects that train", results),
        ["Subjects of each cohort, at most", *COLUMNS.values()],
        rows + _paper_rows(),
        notes + paper_notes("balanced-sizes"),
    )


def _counts(results: Results) -> pd.DataFrame:
    """Return train and validation subjects by size (0 for all) and held-out dataset."""
    keys = ["balanced", "hold_out", "seed"]
    cells = results.cells.assign(balanced=results.cells["balanced"].fillna(0).astype(int))
    cells = cells.drop_duplicates(keys)  # the split is the same whatever learns from it
    data = [read_json(folder / CONFIG)["data"] for folder in cells["folder"]]
    counts = cells[keys].assign(
        **{
            TRAIN: [roles["train"]["subjects"] for roles in data],
            VALIDATION: [roles["validation"]["subjects"] for roles in data],
        }
    )
    counts[SOURCE] = counts[TRAIN] + counts[VALIDATION]
    return counts.groupby(["balanced", "hold_out"], as_index=False)[
        [SOURCE, TRAIN, VALIDATION]
    ].mean()


def _row(size: int, counts: pd.DataFrame, shared: dict[str, Any]) -> list[Entry]:
    facts = shared | {"balanced": int(size) or ALL}
    row = [Entry(str(facts["balanced"]))]
    for metric in (SOURCE, TRAIN, VALIDATION):
        mean, std = float(counts[metric].mean()), float(counts[metric].std(ddof=0))
        own = facts | {"metric": metric, "std": std}
        row.append(Entry(figure(mean, std, _DIGITS), mean, facts=own))
    folds = len(counts)
    return [*row, Entry(str(folds), float(folds), facts=facts | {"metric": FOLDS})]


def _paper_rows() -> list[list[Entry]]:
    table = paper_table("balanced-sizes")
    rows = [[Entry(f"The paper ({table.label})")]]
    for printed in table.rows.to_dict("records"):
        facts = {"balanced": printed["balanced"]}
        entries = [
            paper_entry(printed if metric == SOURCE else None, facts | {"metric": metric}, 0)
            for metric in COLUMNS
        ]
        rows.append([Entry(str(printed["balanced"])), *entries])
    return rows
