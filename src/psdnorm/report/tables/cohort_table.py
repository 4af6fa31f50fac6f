"""Who was staged: the held-out datasets."""

import math
from typing import Any

import pandas as pd

from psdnorm.errors import PsdnormError
from psdnorm.models.card import STAGES
from psdnorm.report.naming import listed
from psdnorm.report.paper import paper_table
from psdnorm.report.results import Results
from psdnorm.report.tables.layout import full_title, our_facts
from psdnorm.report.tables.notes import SIMULATED
from psdnorm.report.tables.paper_block import paper_entry, paper_notes
from psdnorm.report.tables.table import Entry, Table, figure
from psdnorm.store import Store
from psdnorm.training.cell import read_json
from psdnorm.training.run_folder import CONFIG

# names of columns, and digits behind the point; those of the paper have its names
COLUMNS = {
    "subjects": ("Subjects", 0),
    "recordings": ("Nights", 0),
    "epochs": ("Scored epochs", 0),
    **{f"{stage}_percent": (f"{stage}, %", 2) for stage in STAGES},
    "age_years": ("Age, years", 1),
    "female_percent": ("Female, %", 0),
    "male_percent": ("Male, %", 0),
}
TOTAL = "Total"
_SUMS = ("subjects", "recordings", "epochs")
_PEOPLE = ("age_years", "female_percent", "male_percent")


def dataset_table(results: Results, store: Store | None = None) -> Table:
    """Build the table of datasets: those that were held out, from what was counted there.

    Parameters
    ----------
    results : Results
    store : Store, optional
        Whose index knows age and sex.
    """
    known, notes = _counted(results)
    if store is None:
        notes.append("Age and sex are not there: they are in the store, which was not given.")
    else:
        known = known.join(_people(store))
        notes += _unknown_people(known)
        notes.append("The ± of an age is its standard deviation over people (ddof = 1).")
    rows = [[Entry("Ours")]]
    for dataset, row in known.iterrows():
        rows.append([Entry(str(dataset)), *_entries(str(dataset), row, our_facts(results))])
    total = known.reindex(columns=_SUMS).sum(min_count=len(known))
    rows.append([Entry(TOTAL), *_entries(TOTAL, total, our_facts(results))])
    notes += [SIMULATED] if results.simulated else []
    return Table(
        "datasets",
        full_title("Held-out datasets", results),
        ["Dataset", *(name for name, _ in COLUMNS.values())],
        [*rows, *_paper_rows([str(name) for name in known.index])],
        notes + paper_notes("datasets"),
    )


def _counted(results: Results) -> tuple[pd.DataFrame, list[str]]:
    """Return subjects, nights, epochs and stages by dataset; and what is odd about them."""
    notes = ["Epochs are those that count in the scores: scored, and central in their sequence."]
    stages = pd.DataFrame(
        {
            stage: results.subjects[[f"{stage}_as_{other}" for other in STAGES]].sum(axis=1)
            for stage in STAGES
        }
    )
    by_cell = stages.groupby(results.subjects["cell"]).sum()
    by_cell["subjects"] = results.subjects.groupby("cell")["subject"].nunique()
    cells = results.cells.set_index("cell")
    by_cell["dataset"] = cells["hold_out"]
    differ = by_cell.groupby("dataset").nunique().gt(1).any(axis=1)
    if differ.any():
        names = listed([str(name) for name in differ.index[differ]])
        notes.append(f"Runs counted different epochs of {names}; the first of them is shown.")
    first = by_cell.drop_duplicates("dataset").sort_values("dataset")
    table = first.set_index("dataset")[["subjects"]].astype(float)
    table["recordings"], unread = _nights(cells.loc[first.index])
    counts = first.set_index("dataset")[[*STAGES]]
    table["epochs"] = counts.sum(axis=1).astype(float)
    for stage in STAGES:
        table[f"{stage}_percent"] = 100 * counts[stage] / table["epochs"]
    return table, notes + unread


def _nights(cells: pd.DataFrame) -> tuple[list[float], list[str]]:
    nights: list[float] = []
    notes = []
    for folder in cells["folder"]:
        try:
            nights.append(float(read_json(folder / CONFIG)["data"]["test"]["nights"]))
        except PsdnormError as error:
            nights.append(math.nan)
            notes.append(f"The number of nights is unknown: {error}.")
    return nights, notes


def _people(store: Store) -> pd.DataFrame:
    people = store.index.groupby(["cohort", "subject"])[["age", "sex"]].first()
    ages = people["age"].groupby("cohort")
    sexes = people["sex"].dropna()
    table = pd.DataFrame({"age_years": ages.mean(), "age_std": ages.std(ddof=1)})
    for name, letter in (("female_percent", "F"), ("male_percent", "M")):
        table[name] = 100 * sexes.eq(letter).groupby("cohort").mean()
    return table


def _unknown_people(known: pd.DataFrame) -> list[str]:
    without = [str(name) for name in known.index[known[[*_PEOPLE]].isna().any(axis=1)]]
    return [f"The store does not know age or sex in {listed(without)}."] if without else []


def _entries(dataset: str, row: "pd.Series[Any]", shared: dict[str, Any]) -> list[Entry]:
    entries = []
    for metric, (_, digits) in COLUMNS.items():
        value = row.get(metric)
        value = None if value is None or pd.isna(value) else float(value)
        std = row.get("age_std") if metric == "age_years" else None
        std = None if std is None or pd.isna(std) else float(std)
        facts = shared | {"metric": metric, "dataset": dataset, "std": std}
        entries.append(Entry(figure(value, std, digits), value, facts=facts))
    return entries


def _paper_rows(ours: list[str]) -> list[list[Entry]]:
    table = paper_table("datasets")
    printed = {(row["dataset"], row["metric"]): row for row in table.rows.to_dict("records")}
    rows = [[Entry(f"The paper ({table.label})")]]
    names = sorted({*ours, *table.rows["dataset"]} - {TOTAL})
    for dataset in (*names, TOTAL):
        entries = [
            paper_entry(
                printed.get((dataset, metric)), {"metric": metric, "dataset": dataset}, digits
            )
            for metric, (_, digits) in COLUMNS.items()
        ]
        rows.append([Entry(dataset), *entries])
    return rows
