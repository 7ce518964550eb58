"""``compare`` and ``reproduce``: comparison of runs with each other, and with the figures of papers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from silohash.base.optional import require
from silohash.base.visible import visible
from silohash.cli.console import print_json, print_result, print_status, print_table
from silohash.cli.demo import recipe
from silohash.cli.study import AsJson, Only, Set, Smoke, print_failures, run_and_write
from silohash.cli.train import SMOKE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from silohash.study.compare import Difference
    from silohash.study.config import StudyConfig
    from silohash.study.papers import MissingRequirement, PaperTable


def compare(
    run: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Folders of two or more evaluated runs on the same data.")
    ],
    measure: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MEASURE",
            help="Measure to compare, such as mAP@all. Can be repeated. Default: all that the runs share.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs query by query, with a paired bootstrap.

    The table shows the difference with its 95 % interval and its p-value.
    """
    from silohash.run.folder import Run
    from silohash.study.compare import compare_runs, read_evaluated

    differences = compare_runs(read_evaluated([Run.open(folder) for folder in run]), measure or [])
    if as_json:
        print_json({"differences": [asdict(difference) for difference in differences]})
        return
    print_table(_table(differences))
    print_result(
        "Difference: the first run minus the second, with the 95 % bootstrap interval over the queries and the two-sided "
        "p-value of the paired bootstrap. It does not cover the seeds; for that, run a study."
    )


def reproduce(
    table: Annotated[
        str | None,
        typer.Argument(metavar="PAPER/TABLE", help="Such as fedcafe/table2. Without it, all tables are listed."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of the study. Default: studies/PAPER-TABLE.")
    ] = None,
    set_: Set = None,
    only: Only = None,
    smoke: Smoke = False,
    list_: Annotated[
        bool, typer.Option("--list", help="List the tables with the methods and data that are missing here.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a table of a paper, and compare its figures with ours.

    Runs whose methods or data are not available are skipped and named.
    """
    from silohash.study.papers import missing_requirements, paper_table, without_missing

    recipes = recipe("demo.toml").parent
    if table is None or list_:
        _list_tables(recipes, table, as_json=as_json)
        return
    chosen = paper_table(recipes, table)
    require("torch", "A study")
    config = chosen.study(recipes, [*(set_ or []), *(SMOKE if smoke else ())])
    missing = missing_requirements(config)
    for requirement in missing:
        print_status(f"skipped: {requirement}")
    folder = out or Path("studies") / table.replace("/", "-")
    available = without_missing(config, missing)
    _reproduce(chosen, available, folder, recipes, only=only or [], smoke=smoke, as_json=as_json)


def _reproduce(
    table: PaperTable, config: StudyConfig, out: Path, recipes: Path, *, only: list[str], smoke: bool, as_json: bool
) -> None:
    """Run a paper's study and write its tables. Exit with 1 or 2 if a run failed."""
    from silohash.study.papers import read_published, write_comparison

    outcome = run_and_write(config, out, only=only, smoke=smoke)
    written: list[Path] = []
    if outcome.results.runs:
        published = read_published(table.file(recipes, ".csv"))
        written = write_comparison(table, outcome.results, published, out)
    print_failures(outcome.failed)
    if as_json:
        print_json({"study": str(out), "beside_the_paper": [str(path) for path in written]})
    elif written:
        print_result(f"Comparison with the published figures: {written[0]}")
    if outcome.code:
        raise typer.Exit(outcome.code)


def _list_tables(recipes: Path, wanted: str | None, *, as_json: bool) -> None:
    """Print the tables of papers, or one of them in detail, with what is missing to run them."""
    from silohash.study.papers import missing_requirements, paper_table, paper_tables

    tables = list(paper_tables(recipes).values()) if wanted is None else [paper_table(recipes, wanted)]
    missing = {table.key: missing_requirements(table.study(recipes)) for table in tables}
    if as_json:
        print_json(_document(tables, missing))
        return
    for table in tables:
        _print_table(table, missing[table.key], in_detail=wanted is not None)
    if wanted is None and any(missing.values()):
        print_status(
            "To see which files are missing, run: silohash reproduce PAPER/TABLE --list, or silohash data check NAME."
        )


def _document(tables: Sequence[PaperTable], missing: Mapping[str, Sequence[MissingRequirement]]) -> dict[str, Any]:
    """Return the JSON document of the tables of papers."""
    return {
        "tables": [
            {
                "key": table.key,
                "title": table.title,
                "needs": [asdict(requirement) for requirement in missing[table.key]],
                "differs": list(table.differences),
            }
            for table in tables
        ]
    }


def _print_table(table: PaperTable, missing: Sequence[MissingRequirement], *, in_detail: bool) -> None:
    """Print a table's title and what is missing; in detail, also how to get it and why the figures differ."""
    print_result(f"{table.key}: {table.title}")
    needs = dict.fromkeys(requirement.needs for requirement in missing)
    if needs:
        print_result(f"  missing: {'; '.join(needs)}")
    if in_detail:
        remedies = [requirement.remedy for requirement in missing if requirement.remedy]
        for line in (*remedies, *table.differences):
            print_result(f"  {line}")


def _table(differences: Sequence[Difference]) -> Table:
    from rich.table import Table

    from silohash.report.tables import number

    table = Table(header_style="bold")
    for heading in ("first", "second", "evaluation", "task", "measure"):
        table.add_column(heading, overflow="fold")
    for heading in ("first (%)", "second (%)", "difference", "95 % interval", "p", "queries"):
        table.add_column(heading, justify="right")
    for d in differences:
        table.add_row(
            visible(d.first), visible(d.second), d.evaluation, d.task, d.measure,
            number(d.first_mean, percent=True, digits=4), number(d.second_mean, percent=True, digits=4),
            f"{100 * d.difference:+.2f}", f"{100 * d.low:+.2f} to {100 * d.high:+.2f}", f"{d.p_value:.4f}",
            f"{d.queries:,}",
        )  # fmt: skip
    return table
