"""Finish a run after training: measure it, then write its figures, its example searches, its card and its page."""

from silohash.base.files import write_json, write_text
from silohash.measure.costs import costs_of, is_compared
from silohash.measure.evaluation import Evaluator, Figures, write_per_query
from silohash.measure.measurable import unmeasured
from silohash.report.card import card_text
from silohash.report.examples import draw_examples, write_examples
from silohash.report.gather import report_data
from silohash.report.page import write_report
from silohash.report.tables import write_results
from silohash.run.folder import Run


def finish_run(run: Run) -> None:
    """Measure a trained run and write everything that follows from it, the page included."""
    with run.writing():
        measure_run(run)
        write_report(report_data([run]), run.report_path)


def measure_run(run: Run) -> Figures:
    """Measure a trained run as its config says, and write the figures, and what hashing costs if `is_compared`.

    ``results.csv`` is written after the files that belong to it, so a run that has it is complete. The card shows the
    figures and is written last. A run whose archive does not have queries gets files without figures.

    Raises:
        UserError: If the run does not have a model, its archive lacks labels or a database, or another process writes to
            the run.
    """
    with run.writing():
        evaluator = None if unmeasured(run.archive) else Evaluator(run, run.config.evaluate)
        figures = Figures(rows=[], curves=[]) if evaluator is None else evaluator.figures()
        write_json(run.curves_path, [curve.to_json() for curve in figures.curves])
        write_per_query(run.per_query_path, figures)
        unseen = figures.unseen or figures
        write_per_query(run.unseen_per_query_path, unseen)
        write_results(run.unseen_results_path, unseen.rows)
        if evaluator is not None:
            write_examples(run.examples_path, draw_examples(evaluator))
            if is_compared(run):
                write_results(run.costs_path, costs_of(run, run.config.evaluate))
        write_results(run.results_path, figures.rows)
        write_text(run.card_path, card_text(run))
    return figures
