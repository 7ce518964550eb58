"""``compare`` and ``reproduce``: comparison of runs with each other, and with the figures of papers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from silohash.base.errors import ConflictingOptions, NothingUsable, UserError
from silohash.base.optional import require
from silohash.base.visible import visible
from silohash.cli.console import print_json, print_result, print_status, print_table, spinner
from silohash.cli.demo import recipe
from silohash.cli.help import ABOUT, AsJson, argument, flag, option
from silohash.cli.study import Only, Set, print_failures, run_and_write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from silohash.study.compare import Difference
    from silohash.study.config import StudyConfig
    from silohash.study.papers import PaperTable


def compare(
    run: Annotated[list[Path], argument("RUN", "Folders of two or more evaluated runs on the same data.")],
    measure: Annotated[list[str] | None, option("MEASURE", ABOUT["compare --measure"])] = None,
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
    table: Annotated[str | None, argument("PAPER/TABLE", ABOUT["reproduce PAPER/TABLE"])] = None,
    out: Annotated[Path | None, option("FOLDER", ABOUT["reproduce --out"])] = None,
    data: Annotated[Literal["paper", "open"], option("paper|open", ABOUT["reproduce --data"])] = "paper",
    set_: Set = None,
    only: Only = None,
    smoke: Annotated[bool, flag(ABOUT["reproduce --smoke"], "--smoke")] = False,
    all_: Annotated[bool, flag("Run all tables and figures, one after the other.", "--all")] = False,
    list_: Annotated[bool, flag(ABOUT["reproduce --list"], "--list")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a table or a figure of a paper, and compare its figures with ours.

    Runs whose methods or data are not available are skipped and named.
    """
    if table is not None and all_:
        raise ConflictingOptions("Give either PAPER/TABLE or --all.")
    require("torch", "Comparing a study with its paper")
    from silohash.study.papers import paper_table, paper_tables

    recipes = recipe("demo.toml").parent
    chosen = list(paper_tables(recipes).values()) if table is None else [paper_table(recipes, table)]
    if list_ or (table is None and not all_):
        _list(chosen, in_detail=table is not None, open_data=data == "open", as_json=as_json)
        return
    codes = set()
    for one in chosen:
        try:
            config = _study(one, data=data, smoke=smoke, overrides=set_ or [])
            folder = _folder(one, out, data=data, smoke=smoke, of_many=all_)
            codes.add(_reproduce(one, config, folder, data=data, smoke=smoke, only=only or [], as_json=as_json))
        except UserError as error:
            if not all_:
                raise
            print_status(f"{one.key} is skipped: {error}")
    if failed := codes - {0}:
        raise typer.Exit(min(failed))


def _folder(table: PaperTable, out: Path | None, *, data: str, smoke: bool, of_many: bool) -> Path:
    if out is not None and not of_many:
        return out
    name = "-".join([table.key.replace("/", "-"), *(["open"] * (data == "open")), *(["smoke"] * smoke)])
    return (out or Path("studies")) / name


def _study(table: PaperTable, *, data: str, smoke: bool, overrides: list[str]) -> StudyConfig:
    """Return the study of a table with those of its runs that can be done here."""
    from silohash.study.reproduction import missing_requirements, study_of, without_missing

    config = study_of(table, open_data=data == "open", smoke=smoke, overrides=overrides)
    missing = missing_requirements(config)
    try:
        available = without_missing(config, missing)
    except NothingUsable as error:
        if data == "open" or not table.item.open:
            raise
        raise error.reworded(
            f"{error}\nWithout these files, use data that anyone may use: silohash reproduce {table.key} --data open"
        ) from error
    print_status(*(f"skipped: {requirement}" for requirement in missing))
    return available


def _reproduce(
    table: PaperTable, config: StudyConfig, out: Path, *, data: str, smoke: bool, only: list[str], as_json: bool
) -> int:
    """Run a paper's study, write its tables, and return the exit status."""
    from silohash.study.papers import write_comparison
    from silohash.study.reproduction import SMOKE_TITLE

    remarks = [f"{SMOKE_TITLE}."] * smoke
    if data == "open":
        remarks.append("The data is not the paper's, so its figures do not apply.")
    print_status(*remarks)
    outcome = run_and_write(config, out, only=only, smoke=smoke)
    written = write_comparison(table, outcome.results, out, remarks) if outcome.results.runs else []
    print_failures(outcome.failed)
    if as_json:
        print_json({"key": table.key, "study": str(out), "beside_the_paper": [str(path) for path in written]})
    elif written:
        print_result(f"Comparison with the paper: {written[0]}")
        print_status(*remarks)
    return outcome.code


def _list(tables: Sequence[PaperTable], *, in_detail: bool, open_data: bool, as_json: bool) -> None:
    """Print tables and figures of papers with what is missing to run them, and what differs from the paper."""
    from silohash.study.reproduction import listed

    with spinner("Comparing the studies with their papers"):
        found = [listed(table, open_data=open_data) for table in tables]
    if as_json:
        print_json({"tables": [one.document() for one in found]})
        return
    print_result(*("\n".join(one.lines(in_detail=in_detail)) for one in found))
    if not in_detail:
        print_status("To see which files are missing and what differs, run: silohash reproduce PAPER/TABLE --list")


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
