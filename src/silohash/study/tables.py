"""A study's tables as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import astuple, replace
from itertools import groupby
from pathlib import Path

from silohash.files import note_written, write_text
from silohash.report.tables import COLUMNS, markdown_table
from silohash.study.costs import cost_sheet
from silohash.study.marks import SURE, marked
from silohash.study.pivot import Sheet, Spot, sheets
from silohash.study.results import StudyResults

TABLES = "tables"
FIGURES = "figures.csv"
SPOT_COLUMNS = (
    *("mean", "low", "high", "interval", "seeds", "seeds_missing", "evaluation_used", "rank", "p_value"),
    *("queries_tested", "told_query_label", "measured_on", "lack"),
)
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{letter: f"${letter}$" for letter in "<>|"},
    **{letter: f"{{{letter}}}" for letter in "[]*"},
    "±": r"$\pm$", "×": r"$\times$", "≤": r"$\leq$", "≥": r"$\geq$", "–": "--", "—": "---", "…": r"\ldots{}",
    "†": r"$^\dagger$", "‡": r"$^\ddagger$", '"': "''", "’": "'",
}  # fmt: skip
"""Letter -> what LaTeX prints it from; square brackets and stars in braces, as they mean something after a line's end."""


def write_tables(study: StudyResults, out: Path) -> list[Path]:
    """Writes a study's tables, and removes those of an earlier layout.

    Args:
        study: what its runs found.
        out: the study's folder. In its ``tables/``: ``table….md``, ``.csv`` and ``.tex`` for each choice of what stands
            in neither rows nor columns, ``costs`` likewise, and ``figures.csv`` with every figure of every run.

    Returns:
        The files.

    Raises:
        UserError: if runs that differ in their seed only were measured differently, or a file cannot be written.
    """
    folder = out / TABLES
    written = []
    tuned = (study.config.tune.words(),) if study.config.tune else ()
    for sheet in [
        marked(replace(sheet, notes=(*sheet.notes, *tuned))) for sheet in (*sheets(study), cost_sheet(study))
    ]:
        for suffix, text in ((".md", markdown(sheet)), (".csv", summary(sheet)), (".tex", latex(sheet))):
            path = folder / f"{sheet.name}{suffix}"
            write_text(path, text)
            written.append(path)
    write_text(folder / FIGURES, long_form(study))
    written.append(folder / FIGURES)
    note_written(folder, written)
    return written


def markdown(sheet: Sheet) -> str:
    """Returns a table as Markdown: its title, the table, and a list of what must be known beside it."""
    headings = [*sheet.row_fields, *(", ".join(column) for column in sheet.columns)]
    lines = [[*row, *(_markdown_cell(sheet, spot) for spot in spots)] for row, spots in sheet.lines()]
    table = markdown_table(headings, lines, numbers_from=len(sheet.row_fields))
    notes = "".join(f"- {note}\n" for note in sheet.notes)
    return f"### {sheet.title}\n\n{table}\n{notes}"


def summary(sheet: Sheet) -> str:
    """Returns a table as CSV, a line a cell: its choices, mean, interval, seeds, rank and how it was measured."""
    fields = list(next(iter(sheet.spots.values())).fields)
    return _csv([*fields, *SPOT_COLUMNS], [[*spot.fields.values(), *_spot_line(spot)] for spot in sheet.spots.values()])


def long_form(study: StudyResults) -> str:
    """Returns every figure of every run as CSV: the study's axes, then the columns of a run's ``results.csv``."""
    axes = study.config.axis_names
    return _csv(
        [*(f"axis {axis}" for axis in axes), *COLUMNS],
        [[*(cell.choices[axis] for axis in axes), *astuple(row)] for cell in study.cells for row in cell.rows],
    )


def latex(sheet: Sheet) -> str:
    """Returns a table as LaTeX, for a document that loads booktabs; best bold, second underlined."""
    left = len(sheet.row_fields)
    head = _latex_head(sheet)
    body = []
    for _, block in groupby(sheet.lines(), key=lambda line: line[0][:-1]):
        for number, (row, spots) in enumerate(block):
            names = [escaped(name) if not number or place == left - 1 else "" for place, name in enumerate(row)]
            body.append(" & ".join([*names, *(_latex_cell(sheet, spot) for spot in spots)]) + r" \\")
        if left > 1:
            body.append(r"\addlinespace")
    body = body[:-1] if left > 1 else body
    caption = " ".join(escaped(note) for note in (f"{sheet.title}.", *sheet.notes))
    lines = [
        r"\begin{table}[t]",
        r"\centering\small\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{caption}}}",
        rf"\label{{tab:{re.sub('[^A-Za-z0-9-]', '-', sheet.name)}}}",
        rf"\begin{{tabular}}{{{'l' * left}{'r' * len(sheet.columns)}}}",
        r"\toprule",
        *head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "".join(f"{line}\n" for line in lines)


def escaped(text: str) -> str:
    r"""Returns text that LaTeX prints as it stands.

    Example:
        >>> print(escaped("50% of R&D_1 ± β"))
        50\% of R\&D\_1 $\pm$ $\beta$
    """
    return "".join(_LATEX.get(letter) or _greek(letter) for letter in text)


def value_text(sheet: Sheet, spot: Spot) -> tuple[str, str]:
    """Returns a cell's figure and its interval as plain text; a lack and nothing where there is none."""
    if not math.isfinite(spot.mean):
        return spot.lack or "–", ""
    half = (spot.high - spot.low) / 2
    if spot.interval == "seeds":
        return sheet.figure(spot.mean), f"± {sheet.figure(half)}"
    if spot.interval == "queries" and math.isfinite(half):
        return sheet.figure(spot.mean), f"({sheet.figure(spot.low)}–{sheet.figure(spot.high)})"
    return sheet.figure(spot.mean), ""


def _marks(spot: Spot) -> str:
    sure = "†" if spot.p_value is not None and spot.p_value < SURE else ""
    return sure + ("‡" if spot.told_label else "")


def _seeds_text(spot: Spot) -> str:
    """Returns how many seeds there are where some are missing."""
    wanted = len(spot.seeds) + spot.missing
    return f"[{len(spot.values)} of {wanted} seeds]" if spot.values and len(spot.values) < wanted else ""


def _markdown_cell(sheet: Sheet, spot: Spot) -> str:
    figure, interval = value_text(sheet, spot)
    figure = {"best": f"**{figure}**", "second": f"*{figure}*", "": figure}[spot.rank]
    letter = f"<sup>{spot.footnote}</sup>" if spot.footnote else ""
    return " ".join(part for part in (figure + _marks(spot) + letter, interval, _seeds_text(spot)) if part)


def _latex_cell(sheet: Sheet, spot: Spot) -> str:
    figure, interval = value_text(sheet, spot)
    figure = escaped(figure)
    figure = {"best": rf"\textbf{{{figure}}}", "second": rf"\underline{{{figure}}}", "": figure}[spot.rank]
    letter = rf"\textsuperscript{{{spot.footnote}}}" if spot.footnote else ""
    beside = " ".join(part for part in (interval, _seeds_text(spot)) if part)
    small = rf" {{\scriptsize {escaped(beside)}}}" if beside else ""
    return figure + escaped(_marks(spot)) + letter + small


def _latex_head(sheet: Sheet) -> list[str]:
    """Returns the lines of the heading: one a column field, equal neighbours joined."""
    left = len(sheet.row_fields)
    lines = []
    for level in range(len(sheet.column_fields)):
        last = level == len(sheet.column_fields) - 1
        names = [escaped(name) for name in sheet.row_fields] if last else [""] * left
        cells, rules, column = names, [], left + 1
        for key, members in groupby(sheet.columns, key=lambda key: key[: level + 1]):
            width = len(list(members))
            cells.append(escaped(key[-1]) if width == 1 else rf"\multicolumn{{{width}}}{{c}}{{{escaped(key[-1])}}}")
            rules.append(rf"\cmidrule(lr){{{column}-{column + width - 1}}}")
            column += width
        lines.append(" & ".join(cells) + r" \\")
        if not last:
            lines.append("".join(rules))
    return lines or [" & ".join([*(escaped(name) for name in sheet.row_fields), ""]) + r" \\"]


def _spot_line(spot: Spot) -> list[object]:
    used = "/".join(sorted({row.evaluation for row in spot.rows}))
    return [
        *(spot.mean, spot.low, spot.high, spot.interval, len(spot.values)),
        *(len(spot.seeds) + spot.missing - len(spot.values), used, spot.rank),
        *("" if spot.p_value is None else spot.p_value, spot.tested_on, spot.told_label, spot.conditions, spot.lack),
    ]


def _csv(columns: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(lines)
    return stream.getvalue()


def _greek(letter: str) -> str:
    """Returns a Greek small letter as LaTeX's command for it, any other letter as it is."""
    name = unicodedata.name(letter, "").removeprefix("GREEK SMALL LETTER ")
    return f"$\\{name.lower()}$" if letter.lower() != letter.upper() and "α" <= letter <= "ω" else letter
