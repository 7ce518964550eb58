"""The report: one HTML page in one file. It loads nothing from elsewhere and does not run scripts.

The page leads with the headline and its chart, then example searches, curves and silos, and ends with tables and
provenance. It prints, and it follows the reader's light or dark setting.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from markupsafe import Markup

from silohash.base.files import write_text
from silohash.base.templates import html_environment
from silohash.base.types import ResultRow, database_modalities, query_modality
from silohash.evaluate.calibration import calibration_error
from silohash.evaluate.measures import is_rank
from silohash.measure.evaluation import RadiusCurve
from silohash.report import plots, tables
from silohash.report.examples import HITS_PER_SEARCH
from silohash.report.gather import ReportData
from silohash.report.headline import Headline, headline
from silohash.report.plots import TASK_WORDS, WORDS, LabelTable
from silohash.report.style import SERIES

EVALUATION_WORDS: Mapping[str, str] = WORDS["evaluations"]
MARK = "· silohash report</title>".encode()
"""End of the title of every page, by which an earlier report is recognized."""
WARNINGS_SHOWN = 3
"""Number of warnings below the chart. The rest can be expanded."""

LABELS_SHOWN = 12
"""Number of labels in the table of silos. The rest can be expanded."""


def write_report(data: ReportData, path: Path) -> None:
    """Write the page, either completely or not at all."""
    write_text(path, render(data))


def render(data: ReportData) -> str:
    """Return the page as HTML."""
    environment = html_environment("silohash.report")
    environment.filters["nobreak"] = lambda text: str(text).replace(" %", "\u00a0%")
    return environment.get_template("report.html").render(
        data=data, headline=_headline(data),
        comparison=tables.compare(data.fair_rows) if len(data.runs) > 1 else None,
        costs=[tables.compare(run.costs) for run in data.runs if run.costs],
        unfair=[run for run in data.runs if run.needs_label_at_query],
        cards=list({card.key: card for run in data.runs for card in run.cards}.values()), badge=badges(data),
        warnings_shown=WARNINGS_SHOWN, labels_shown=LABELS_SHOWN, tasks=TASK_WORDS, evaluations=EVALUATION_WORDS,
        query_modality=query_modality, database_modalities=database_modalities, first_hits=HITS_PER_SEARCH,
        uncounted=_uncounted(data.rows), shading=_shading, is_rank=is_rank,
        number=partial(tables.number, percent=True), span=partial(tables.span, percent=True),
        figure=partial(tables.figure, percent=True), interval=partial(tables.interval, percent=True),
        isfinite=math.isfinite, picked=_picked, measure_name=tables.measure_name, **_drawings(data),
    )  # fmt: skip


def _headline(data: ReportData) -> Headline:
    if data.unmeasured and not data.rows:
        return Headline(sentence="This model was trained without being measured.", explanation=data.unmeasured)
    if data.rows and not data.fair_rows:
        return Headline(
            sentence="These are oracle figures: queries were encoded with their true labels.",
            explanation="The relevance of results is computed from the same labels, and a real search does not have them.",
        )
    return headline(data.fair_rows, data.fair_unseen)


def _drawings(data: ReportData) -> dict[str, object]:
    """Return the plots of the page, the curves that their tables list, and the legend that they share."""
    names = [run.name for run in data.runs]
    curves = [run.curve for run in data.runs if run.curve is not None and run.curve.rounds]
    radius_curves = [curve for run in data.runs for curve in run.radius_curves if np.isfinite(curve.precision).any()]
    sure = [curve for run in data.runs for curve in run.radius_curves if curve.reliability]
    drawn = {curve.name for curve in curves} | {curve.name for curve in radius_curves}
    return {
        "curves": curves,
        "curve_plots": _safe(plots.round_curves(curves, measure=data.validation, names=names)),
        "radius_curves": radius_curves,
        "radius_plots": _safe(plots.precision_recall(radius_curves, names=names)),
        "sure": sure,
        "calibration_error": calibration_error,
        "sure_plots": _safe(plots.reliability(sure, names=names)),
        "legend": plots.legend_items(names, drawn),
    }


def _safe(drawings: Sequence[str]) -> list[Markup]:
    return [Markup(drawing) for drawing in drawings]  # noqa: S704


def badges(data: ReportData) -> dict[str, int]:
    """Return a color number from 1 for every silo that the page names, those of the partition first."""
    shown = data.examples.silos if data.examples is not None else []
    names = dict.fromkeys([*(silo.name for silo in data.silos), *shown])
    return {name: number % len(SERIES) + 1 for number, name in enumerate(names)}


def _shading(table: LabelTable, silo: int, label: int) -> int:
    """Return the silo's share of a label's items, in whole percent."""
    return round(100 * int(table.counts[silo, label]) / max(1, int(table.counts[:, label].sum())))


def _uncounted(rows: Sequence[ResultRow]) -> list[str]:
    """Return the number of queries without a relevant item per evaluation and task, for example ``12 (XS i2t)``."""
    found = {(row.run, row.evaluation, row.task): row.queries_without_relevant for row in rows}
    several = tables.runs_differ(rows)
    return [
        f"{count:,} ({f'{run}, ' if several else ''}{evaluation} {task})"
        for (run, evaluation, task), count in found.items()
        if count
    ]


def _picked(curve: RadiusCurve, most: int = 17) -> list[int]:
    """Return the radii that the table beside the plot lists: evenly spaced, including the first and the last."""
    last = len(curve.precision) - 1
    return sorted({round(position) for position in np.linspace(0, last, min(most, last + 1))})
