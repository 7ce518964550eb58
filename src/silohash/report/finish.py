"""What follows a training: the run is measured, and its figures and its page are written."""

from __future__ import annotations

from silohash.files import write_json
from silohash.report.card import write_card
from silohash.report.gather import report_data
from silohash.report.page import write_report
from silohash.report.tables import write_results
from silohash.runtime.evaluation import Figures, evaluate_run
from silohash.runtime.per_query import write_per_query
from silohash.runtime.run import Run


def finish_run(run: Run) -> None:
    """Writes a run's figures, curves and report; ``results.csv`` comes when all that it needs beside it is there."""
    figures = evaluate_run(run)
    write_json(run.curves_path, [curve.to_json() for curve in figures.curves])
    write_figures(run, figures)
    write_report(report_data([run]), run.report_path)


def write_figures(run: Run, figures: Figures) -> None:
    """Writes ``per_query.safetensors``, then ``results.csv``, then the model's card, which shows them."""
    write_per_query(run.per_query_path, figures)
    write_results(run.results_path, figures.rows)
    write_card(run)
