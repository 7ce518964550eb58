"""Writes ``docs/reference/papers.md``, in what studies differ from their papers: ``python -m tests.docs.papers_page``."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from silohash.base.visible import markdown
from silohash.report.tables import markdown_table
from silohash.study.papers import PaperTable, differences, paper_tables
from silohash.study.reproduction import missing_methods, without_missing

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "papers.md"

HEAD = """# What differs from the papers

`silohash reproduce` runs the tables and figures of five papers. This page lists what each study covers, and every setting in
which its runs differ from what the paper states, with the place where the paper states it. It is computed from the configs
of all runs by `python -m tests.docs.papers_page`, and so is `silohash reproduce PAPER/TABLE --list`.
[Compare runs](../how-to/compare.md#reproduce-a-papers-table) explains the command and the files of the papers.
"""


def page() -> str:
    """Returns the content of the page."""
    return "\n\n".join([HEAD.rstrip("\n"), *map(section, papers())]) + "\n"


def papers() -> dict[str, list[PaperTable]]:
    """Returns the tables and figures of each paper."""
    tables = paper_tables(ROOT / "recipes").values()
    return {name: list(items) for name, items in groupby(tables, key=lambda table: table.key.partition("/")[0])}


def section(name: str) -> str:
    """Returns the section of a paper."""
    tables = papers()[name]
    lines = [
        [f"`{table.key}`" if table.study_path else "not run", ", ".join(table.item.covers), table.item.title]
        for table in tables
    ]
    parts = [
        f"## {tables[0].paper.title}",
        markdown_table(["study", "covers", "shows"], map(cells, lines), numbers_from=3),
    ]
    if found := differing(tables):
        headings = ["setting", "paper", "source", "here", "studies"]
        parts.append(markdown_table(headings, map(cells, found), numbers_from=5))
    parts.append("\n".join(f"- {note}" for note in tables[0].paper.notes))
    return "\n\n".join(part.rstrip("\n") for part in parts if part)


def cells(line: list[str]) -> list[str]:
    """Returns the cells of a line of a table; the first holds markup."""
    return [line[0], *map(markdown, line[1:])]


def differing(tables: list[PaperTable]) -> list[list[str]]:
    """Returns a line per setting and value, with the studies that differ in it and for which of their choices."""
    where: dict[tuple[str, ...], list[str]] = {}
    for table in tables:
        if table.study_path is None:
            continue
        config = without_missing(table.study(), missing_methods(table.study()))
        for one in differences(table.settings, config):
            name = table.key.partition("/")[2]
            ours = one.ours or "cannot be set"
            place = where.setdefault((f"`{one.key}`", one.paper, one.source, ours), [])
            place.append(f"{name} ({one.runs})" if one.runs else name)
    return [[*line, "; ".join(places)] for line, places in where.items()]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
