"""The paper's tables, made from a folder of runs, with the paper's own numbers below ours.

:func:`build_tables` returns ``(tables, missing)``: tables, and a sentence for each that cannot be
built. A table's ``rows`` include headings, which are rows with a single entry.
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
