"""``compare`` and ``reproduce``: runs against each other, and against what papers print."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silohash.cli.console import console, print_json, print_result, print_status, spinner
from silohash.cli.demo import recipe
from silohash.cli.train import SMOKE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from silohash.study.compare import Difference
    from silohash.study.grid import StudyConfig
    from silohash.study.papers import PaperTable


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(compare)
    app.command()(reproduce)


def compare(
    run: Annotated[list[Path], typer.Argument(help="Folders of two or more evaluated runs on the same data.")],
    measure: Annotated[list[str] | None, typer.Option(help="As mAP@all; all that they have by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compare runs query by query: difference, 95 % interval and p-value of a paired bootstrap."""
    from silohash.runtime.run import runs
    from silohash.study.compare import compare_runs, read_measured

    differences = compare_runs(read_measured(runs(run)), measure or [])
    if as_json:
        print_json({"differences": [asdict(difference) for difference in differences]})
        return
    console(err=False).print(_table(differences))
    print_result(
        "Difference: the first less the second, its 95 % bootstrap interval over queries, and the two-sided p-value of the "
        "paired bootstrap. Seeds are not covered: for those, run a study."
    )


def reproduce(
    table: Annotated[
        str | None, typer.Argument(help="PAPER/TABLE, as fedcafe/table2; all are listed without it.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the study; studies/PAPER-TABLE by default.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.key=value, over every run.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="axis=choice: only these runs; may be repeated.")] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="Two rounds of one epoch each, to see that it works.")] = False,
    list_: Annotated[
        bool, typer.Option("--list", help="List the tables, and what each needs that is not here.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Run a paper's table as far as its methods and data are here, and set its printed figures beside ours."""
    from silohash.study.papers import lacks, paper_table, without

    recipes = recipe("demo.toml").parent
    if table is None or list_:
        _list_tables(recipes, table, as_json=as_json)
        return
    chosen = paper_table(table)
    config = chosen.study(recipes, [*(set_ or []), *(SMOKE if smoke else ())])
    missing = lacks(config)
    for lack in missing:
        print_status(f"left out: {lack}")
    folder = out or Path("studies") / table.replace("/", "-")
    _reproduce(chosen, without(config, missing), folder, recipes, only=only or [], smoke=smoke, as_json=as_json)


def _reproduce(
    table: PaperTable,
    config: StudyConfig,
    out: Path,
    recipes: Path,
    *,
    only: list[str],
    smoke: bool,
    as_json: bool,
) -> None:
    """Runs a paper's study and writes its tables. Exits with 1 or 2 if a run failed."""
    from silohash.study.conduct import conduct
    from silohash.study.papers import read_published, write_beside
    from silohash.study.plots import write_plots
    from silohash.study.tables import write_tables

    done = conduct(config, out, console(), only=only, smoke=smoke)
    written: list[Path] = []
    if done.results.cells:
        with spinner("Writing tables and plots"):
            written = write_beside(table, done.results, read_published(table.file(recipes, ".csv")), out)
            write_tables(done.results, out)
            write_plots(done.results, out)
    for one in done.failed:
        print_status(f"{one.job.name} failed: {one.said} ({one.job.log_path})")
    if as_json:
        print_json({"study": str(out), "beside_the_paper": [str(path) for path in written]})
    elif written:
        print_result(f"Beside the paper's figures: {written[0]}")
    if done.code:
        raise typer.Exit(done.code)


def _list_tables(recipes: Path, wanted: str | None, *, as_json: bool) -> None:
    """Tells which tables there are, and for each what it needs that is not here."""
    from silohash.study.papers import PAPER_TABLES, lacks, paper_table

    tables = [paper_table(wanted)] if wanted is not None else list(PAPER_TABLES.values())
    found = {table.key: lacks(table.study(recipes)) for table in tables}
    if as_json:
        print_json(
            {
                "tables": [
                    {
                        "key": table.key,
                        "title": table.title,
                        "needs": [asdict(lack) for lack in found[table.key]],
                        "differs": list(table.differs),
                    }
                    for table in tables
                ]
            }
        )
        return
    for table in tables:
        print_result(f"{table.key}: {table.title}")
        needs = dict.fromkeys(lack.needs for lack in found[table.key])
        if needs:
            print_result(f"  needs: {'; '.join(needs)}")
        if wanted is not None:
            for line in [*(lack.remedy for lack in found[table.key] if lack.remedy), *table.differs]:
                print_result(f"  {line}")
    if wanted is None and any(found.values()):
        print_status("Which files are missing: silohash reproduce PAPER/TABLE --list, or silohash data check NAME.")


def _table(differences: Sequence[Difference]) -> Table:
    from rich.table import Table

    from silohash.report.tables import number

    table = Table(header_style="bold")
    for heading in ("first", "second", "evaluation", "task", "measure"):
        table.add_column(heading, overflow="fold")
    for heading in ("first's", "second's", "difference", "95 % interval", "p", "queries"):
        table.add_column(heading, justify="right")
    for d in differences:
        table.add_row(
            d.first, d.second, d.evaluation, d.task, d.measure,
            number(d.first_mean, percent=True, digits=4), number(d.second_mean, percent=True, digits=4),
            f"{100 * d.difference:+.2f}", f"{100 * d.low:+.2f} to {100 * d.high:+.2f}", f"{d.p_value:.4f}",
            f"{d.queries:,}",
        )  # fmt: skip
    return table
