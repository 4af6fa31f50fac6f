"""The tables of the paper from a folder of runs, its own numbers below ours.

:func:`build_tables` gives ``(tables, missing)``: tables, and a sentence for each that cannot be
built. A table's ``rows`` hold headings too, rows of a single entry.
"""

from psdnorm.report.tables.paper_tables import build_tables
from psdnorm.report.tables.table import (
    Table,
    TableCell,
    Tables,
    csv_text,
    figure,
    latex,
    markdown,
    with_best,
    write_tables,
)

__all__ = [
    "Table",
    "TableCell",
    "Tables",
    "build_tables",
    "csv_text",
    "latex",
    "markdown",
    "write_tables",
]
