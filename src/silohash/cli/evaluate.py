"""The commands ``evaluate`` and ``report``: the figures of a run and its page."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from silohash.base.errors import LabelsNeeded
from silohash.base.types import TASKS
from silohash.cli.console import print_json, print_result, print_table, spinner
from silohash.cli.help import TRAIN, add_command

Ensemble = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        metavar="RUN",
        help="Further run whose scores of pairs are averaged with those of the run. Can be repeated.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_command(app, evaluate, TRAIN)
    add_command(app, report, TRAIN)


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a trained run.")],
    measure: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MEASURE",
            help="Measure, for example mAP@all or P@10, in place of the config's. Can be repeated.",
        ),
    ] = None,
    evaluation: Annotated[
        list[str] | None,
        typer.Option(metavar="EVALUATION", help="GG, GL, PL, PG or XS, in place of the config's. Can be repeated."),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TASK", help=f"{', '.join(TASKS[:-1])} or {TASKS[-1]}, in place of the config's. Can be repeated."
        ),
    ] = None,
    ignore_label: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="Label that does not make items relevant to each other. Can be repeated."),
    ] = None,
    with_: Ensemble = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure a trained run, per evaluation, task and measure.

    Without options, the run is measured as its config says, and its results.csv and example searches are rewritten. With
    options, the figures are only printed.
    """
    from silohash.run.config.load import check_section
    from silohash.run.config.sections import EvaluateConfig

    given = {"measures": measure, "evaluations": evaluation, "tasks": task, "ignore_labels": ignore_label}
    chosen = {name: value for name, value in given.items() if value}
    check_section(EvaluateConfig, chosen, where="evaluate")
    from silohash.measure.measurable import unmeasured
    from silohash.report.tables import console as as_table
    from silohash.run.folder import Run

    found = Run.open(run)
    if sentence := unmeasured(found.archive):
        raise LabelsNeeded(sentence)
    with spinner("Evaluating"):
        from silohash.measure.evaluation import evaluate_run
        from silohash.report.finish import measure_run

        ensemble = [Run.open(folder) for folder in with_ or ()]
        figures = evaluate_run(found, ensemble=ensemble, **chosen) if chosen or ensemble else measure_run(found)
    if as_json:
        print_json({"results": [asdict(row) for row in figures.rows]})
    else:
        print_table(as_table(figures.rows, percent=True))


def report(
    run: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Folders of trained runs. Several runs are compared.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write. Default: report.html in the folder of the first run."),
    ] = None,
    examples: Annotated[
        bool, typer.Option(help="Show example searches, which contain texts and pictures of the silos.")
    ] = True,
) -> None:
    """Write the report of one or several runs as a single HTML file.

    The page shows the result in a sentence and a chart, example searches, curves, the silos and all figures. It loads
    nothing from elsewhere and does not run scripts.
    """
    from silohash.base.files import check_replaceable
    from silohash.report.gather import report_data
    from silohash.report.page import MARK, write_report
    from silohash.run.folder import Run

    found = [Run.open(folder) for folder in run]
    path = out or found[0].report_path
    check_replaceable(path, MARK)
    with spinner("Writing the report"):
        write_report(report_data(found, examples=examples), path)
    print_result(str(path))
