"""Tables on disk: three formats, nothing lost, nothing that breaks them."""

import csv
import io
import re
import shutil
import subprocess

import pytest

from psdnorm.errors import StoreError
from psdnorm.report.tables import Table, TableCell, csv_text, latex, markdown, write_tables
from psdnorm.report.tables.table import figure, with_best

ODD = Table(
    "odd",
    r"50 % of a_b & c | d \ {e}",
    ["Data#set", "PSD_Norm", "~^"],
    [
        [TableCell("[1] | first_block")],
        [TableCell("*a|b"), TableCell("1.00 ± 0.10", 1.0, True), TableCell("–")],
        [TableCell("[c]"), TableCell("<2>", 2.0), TableCell("$3")],
    ],
    ["costs $1 & 2 %"],
)  # fmt: skip


def cells_of(line):
    return re.split(r"(?<!\\)\|", line)[1:-1]


def test_every_line_of_a_markdown_table_has_as_many_cells(built):
    for table in (*built.tables, ODD):
        lines = [line for line in markdown(table).splitlines() if line.startswith("|")]
        assert len(lines) == len(table.rows) + 2
        assert {len(cells_of(line)) for line in lines} == {len(table.head)}


def test_markdown_shows_bold_and_every_note(tables):
    table = tables["results"]
    text = markdown(table)
    best = [entry.text for row in table.rows for entry in row if entry.bold]
    assert best
    assert text.count("| **") == len(best)
    assert sum(line.startswith("- ") for line in text.splitlines()) == len(table.notes)


def test_pipes_in_a_name_do_not_make_a_column():
    assert r"\*a\|b" in markdown(ODD)


def check_latex(text, n_columns):
    """A small parser: braces and environments match, every row has its columns."""
    text = re.sub(r"(?m)^%.*$", "", text).replace("{!}{%", "{!}{")
    plain = re.sub(r"\\[\\&%$#_{}]", lambda m: r"\\" if m.group() == r"\\" else "", text)
    depth = 0
    for character in plain:
        depth += (character == "{") - (character == "}")
        assert depth >= 0
    assert depth == 0
    opened = []
    for what, name in re.findall(r"\\(begin|end)\{(\w+)\}", plain):
        if what == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert not opened
    assert plain.count("$") % 2 == 0
    for special in "#%_^~":
        assert special not in plain
    body = plain.split(r"\toprule")[1].split(r"\bottomrule")[0]
    rows = [row for row in body.split(r"\\") if row.strip(" \n")]
    for row in rows:
        spans = [int(n) for n in re.findall(r"\\multicolumn\{(\d+)\}", row)]
        assert row.count("&") + 1 + sum(spans) - len(spans) == n_columns
        assert not re.sub(r"\\(mid)rule", "", row).lstrip().startswith(("[", "*"))
    return len(rows)


def test_latex_has_matching_braces_and_as_many_columns_in_every_row(built):
    for table in (*built.tables, ODD):
        assert check_latex(latex(table), len(table.head)) == len(table.rows) + 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs LaTeX")
def test_latex_sets_every_table_with_the_packages_that_it_names(tmp_path, built):
    texts = [latex(table) for table in (*built.tables, ODD)]
    named = {
        line.lstrip("% ") for t in texts for line in t.splitlines() if line.startswith("% \\use")
    }
    lines = [r"\documentclass{article}", *named, r"\begin{document}"]
    for text in texts:
        lines += [text, r"\clearpage"]
    (tmp_path / "all.tex").write_text("\n".join([*lines, r"\end{document}"]), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert run.returncode == 0, run.stdout[-2000:]
    for complaint in ("Missing character", "Overfull", "multiply defined"):
        assert complaint not in run.stdout


def test_a_minus_is_a_minus_in_every_format():
    entry = TableCell(figure(-2.071), -2.071, facts={"metric": "overhead_percent"})
    table = Table("t", "Times", ["", "LayerNorm"], [[TableCell("More"), entry]], [])
    assert "| −2.07 |" in markdown(table)
    assert "& $-$2.07 " in latex(table)
    assert ",-2.071," in csv_text(table)


def test_latex_has_the_rules_of_booktabs_and_bold(tables):
    text = latex(tables["results"])
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert rule in text
    best = [entry for row in tables["results"].rows for entry in row if entry.bold]
    assert text.count(r"\textbf{") == len(best)
    assert "±" not in text
    assert "–" not in text


def test_csv_has_a_row_for_every_number_with_all_its_digits(built):
    for table in built.tables:
        rows = list(csv.DictReader(io.StringIO(csv_text(table))))
        entries = [entry for row in table.rows for entry in row if entry.facts]
        assert len(rows) == len(entries) > 0
        for row, entry in zip(rows, entries, strict=True):
            assert row["table"] == table.name
            assert row["block"] == entry.facts["block"]
            assert row["bold"] == ("yes" if entry.bold else "no")
            assert (float(row["mean"]) if row["mean"] else None) == entry.value
            assert row["dataset"] == (entry.facts.get("dataset") or "")
            std = entry.facts.get("std")
            assert row["std"] == ("" if std is None else repr(float(std)))


def test_files_are_written_beside_each_other(tmp_path, built):
    paths = write_tables(built.tables, tmp_path / "new" / "tables")
    assert {path.suffix for path in paths} == {".md", ".tex", ".csv"}
    assert {path.name for path in (tmp_path / "new" / "tables").iterdir()} == {
        f"{table.name}.{ending}" for table in built.tables for ending in ("md", "tex", "csv")
    }
    (first,) = (path for path in paths if path.name == "results.md")
    table = next(table for table in built.tables if table.name == "results")
    assert first.read_text(encoding="utf-8") == markdown(table)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file/tables cannot be made"):
        write_tables([ODD], tmp_path / "file" / "tables")


def test_numbers_that_are_printed_alike_are_all_in_bold():
    entries = [
        TableCell("1.23", 1.2341),
        TableCell("1.23", 1.2339),
        TableCell("1.22", 1.22),
        TableCell("–"),
    ]
    assert [entry.bold for entry in with_best(entries)] == [True, True, False, False]
    assert [entry.bold for entry in with_best(entries, lowest=True)] == [False, False, True, False]


def test_the_only_number_of_a_row_is_not_the_best():
    assert not any(entry.bold for entry in with_best([TableCell("1.00", 1.0), TableCell("–")]))
