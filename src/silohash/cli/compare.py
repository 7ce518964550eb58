"""``compare`` and ``reproduce``: runs against each other, and against what papers print."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silohash.cli.talk import answer, answer_json, console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from silohash.study.compare import Difference


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(compare)


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
        answer_json({"differences": [asdict(difference) for difference in differences]})
        return
    console(err=False).print(_table(differences))
    answer(
        "Difference: the first less the second, its 95 % bootstrap interval over queries, and the two-sided p-value of the "
        "paired bootstrap. Seeds are not covered: for those, run a study."
    )


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
