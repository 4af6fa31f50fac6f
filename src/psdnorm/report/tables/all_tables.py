"""All tables at once."""

from psdnorm.report.results import Results
from psdnorm.report.tables.facts import dataset_table, size_table, timing_table
from psdnorm.report.tables.layout import Scores, fill
from psdnorm.report.tables.lodo_tables import curve_layouts, lodo_layouts
from psdnorm.report.tables.table import Table, Tables
from psdnorm.store import Store


def build_tables(results: Results, store: Store | None = None) -> Tables:
    """Build every table of the paper from results, and what its curves show as tables.

    Parameters
    ----------
    results : Results
    store : Store, optional
        The nights that were staged: its index knows their people's age and sex.

    Returns
    -------
    tables : list of Table
        In the order of the paper, then what it does not show as tables.
    missing : list of str
        A sentence for each table that has no result at all.
    """
    scores = Scores(results)
    of_paper, missing = lodo_layouts(scores)
    curves, missing_curves = curve_layouts(scores)
    missing += missing_curves
    tables = [fill(layout, scores) for layout in of_paper]
    for other in (timing_table(results), size_table(results)):
        if isinstance(other, Table):
            tables.append(other)
        else:
            missing.append(other)
    tables.append(dataset_table(results, store))
    return Tables([*tables, *(fill(layout, scores) for layout in curves)], missing)
