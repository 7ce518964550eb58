"""``evaluate`` and ``report``: a run's figures and its page."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from silohash.cli.console import console, print_json, print_result, spinner


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(evaluate)
    app.command()(report)


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.")],
    measure: Annotated[list[str] | None, typer.Option(help="As mAP@all or P@10; instead of the config's.")] = None,
    evaluation: Annotated[list[str] | None, typer.Option(help="GG, GL, PL, PG, XS; instead of the config's.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="i2t, t2i, i2i, t2t; instead of the config's.")] = None,
    ignore_label: Annotated[list[str] | None, typer.Option(help="A label that makes nothing relevant.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure a run: evaluation x task x measure. Without options, results.csv is written anew."""
    from silohash.report.finish import write_figures
    from silohash.report.tables import console as as_table
    from silohash.runtime.evaluation import evaluate_run
    from silohash.runtime.run import Run

    found = Run(run)
    asked = {"measures": measure, "evaluations": evaluation, "tasks": task, "ignore_labels": ignore_label}
    chosen = {name: value for name, value in asked.items() if value}
    with spinner("Evaluating"):
        figures = evaluate_run(found, **chosen)
    rows = figures.rows
    if not chosen:
        write_figures(found, figures)
    if as_json:
        print_json({"results": [asdict(row) for row in rows]})
    else:
        console(err=False).print(as_table(rows, percent=True))


def report(
    run: Annotated[list[Path], typer.Argument(help="Folders of trained runs; several are compared.")],
    out: Annotated[Path | None, typer.Option(help="The page; RUN/report.html of the first by default.")] = None,
) -> None:
    """Write report.html: curves, silos, figures with intervals, example queries. One file, no script."""
    from silohash.report.gather import report_data
    from silohash.report.page import write_report
    from silohash.runtime.run import runs

    found = runs(run)
    path = out or found[0].report_path
    with spinner("Writing the report"):
        write_report(report_data(found), path)
    print_result(str(path))
