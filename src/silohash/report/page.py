"""The report: one page in one file, which shows what a run did, how good it is, and what it looks like in use.

The page loads nothing from elsewhere, runs no script, prints, and follows the reader's light or dark setting.
"""

from __future__ import annotations

import base64
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Literal, TypeAlias

import jinja2
import numpy as np
from PIL import Image

from silohash.files import write_text
from silohash.report import plots, tables
from silohash.report.plots import TASK_WORDS, LabelTable, RadiusCurve, RoundCurve
from silohash.report.style import SERIES
from silohash.types import MethodCard, ResultRow, Task, query_modality

PICTURE_PIXELS = 176
EVALUATION_WORDS: Mapping[str, str] = {
    "GG": "global model, all silos' data",
    "GL": "global model, each silo's own data",
    "PL": "each silo's personal model, its own data",
    "PG": "each silo's personal model, all silos' data",
    "XS": "query of one silo, answers of all silos",
}

WarningKind: TypeAlias = Literal["training", "rejected update", "skipped rows", "other"]


@dataclass(frozen=True)
class ReportWarning:
    """Something that a reader must know before trusting the figures."""

    kind: WarningKind
    text: str


@dataclass(frozen=True, kw_only=True)
class ExampleHit:
    """One answer to an example query.

    Attributes:
        item_id: the item's id in its silo.
        silo: the silo that holds it.
        distance_bits: its distance from the query.
        relevant: whether it shares a label with the query; None where nobody knows.
        caption: its text, as far as released.
        picture: its picture, as far as released.
        labels: its labels' names.
        code: its code as "0110", to show which bits differ; None to leave that out.
    """

    item_id: str
    silo: str
    distance_bits: int
    relevant: bool | None = None
    caption: str = ""
    picture: Image.Image | None = None
    labels: tuple[str, ...] = ()
    code: str | None = None


@dataclass(frozen=True, kw_only=True)
class ExampleQuery:
    """One question asked of the silos, and what they answered.

    Attributes:
        task: as "t2i".
        caption: the question's text; with a picture as the question, its caption for the reader.
        picture: the question's picture, or None.
        labels: the question's labels, by which relevance is told.
        hits: the answers, nearest first.
        ties_at_cut: how many more items lie at the last hit's distance.
        missing_silos: silo -> why it did not answer.
        code: the question's code as "0110", or None.
    """

    task: Task
    caption: str = ""
    picture: Image.Image | None = None
    labels: tuple[str, ...] = ()
    hits: tuple[ExampleHit, ...] = ()
    ties_at_cut: int = 0
    missing_silos: Mapping[str, str] = field(default_factory=dict)
    code: str | None = None


@dataclass(frozen=True, kw_only=True)
class MethodRun:
    """One run of one method.

    Attributes:
        name: what the run is called in tables and legends; `ResultRow.run` of its rows is the same.
        rows: its figures.
        curve: losses and validations over the rounds.
        radius_curves: precision and recall by radius, one a task.
        cards: the local and the federated method's cards.
    """

    name: str
    rows: tuple[ResultRow, ...] = ()
    curve: RoundCurve | None = None
    radius_curves: tuple[RadiusCurve, ...] = ()
    cards: tuple[MethodCard, ...] = ()

    @property
    def needs_label_at_query(self) -> bool:
        """Whether the method is told the query's own label, which no search in use can be."""
        return any(card.needs_label_at_query for card in self.cards)


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """All that the page shows.

    Attributes:
        title: as "glyphs, 5 silos".
        facts: what was run, name -> value, in order: data, partition, method, bits, seed, digest, ….
        runs: one run, or several to compare.
        digest: the configuration's digest; its bits are drawn as the run's fingerprint.
        validation: what the validation figure is called, as "mAP@all, t2i".
        label_table: items of each label in each silo.
        examples: example queries.
        silent_silos: silo -> why it said nothing.
        warnings: of silos, rejected updates, skipped rows.
        headline: the sentence at the top; made from the figures if empty.
        percent: whether figures are printed times 100.
    """

    title: str
    facts: Mapping[str, str]
    runs: tuple[MethodRun, ...]
    digest: str = ""
    validation: str = "mAP"
    label_table: LabelTable | None = None
    examples: tuple[ExampleQuery, ...] = ()
    silent_silos: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[ReportWarning, ...] = ()
    headline: str = ""
    percent: bool = True

    @property
    def rows(self) -> list[ResultRow]:
        """All runs' figures."""
        return [row for run in self.runs for row in run.rows]


def write_report(data: ReportData, path: Path) -> None:
    """Writes the page, whole or not at all.

    Raises:
        UserError: if the disk is full or the folder may not be written.
    """
    write_text(path, render(data))


def render(data: ReportData) -> str:
    """Returns the page as HTML."""
    source = files("silohash.report").joinpath("templates/report.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    curves = [run.curve for run in data.runs if run.curve is not None and run.curve.rounds]
    radius_curves = [curve for run in data.runs for curve in run.radius_curves if _is_drawable(curve)]
    silos = _silos(data)
    names = [run.name for run in data.runs]
    return environment.from_string(source).render(
        data=data,
        headline=data.headline or headline(data),
        key_rows=key_rows(data) if len(data.runs) == 1 else [],
        curves=curves,
        curves_svg=plots.round_curves(curves, measure=data.validation, names=names) if curves else "",
        labels_svg=_label_svg(data.label_table),
        radius_curves=radius_curves,
        radius_svg=plots.precision_recall(radius_curves, names=names) if radius_curves else "",
        comparison=tables.compare(fair_rows(data)) if len(data.runs) > 1 else None,
        unfair=[run for run in data.runs if run.needs_label_at_query],
        cards=list({card.key: card for run in data.runs for card in run.cards}.values()),
        badge={silo: number % len(SERIES) + 1 for number, silo in enumerate(silos)},
        fingerprint=_fingerprint(data.digest),
        warnings_by_kind=Counter(warning.kind for warning in data.warnings),
        tasks=TASK_WORDS,
        evaluations=EVALUATION_WORDS,
        query_modality=query_modality,
        mark=_mark,
        uncounted=_uncounted(data.rows),
        data_uri=data_uri,
        bit_strip=plots.bit_strip,
        number=partial(tables.number, percent=data.percent),
        span=partial(tables.span, percent=data.percent),
        isfinite=math.isfinite,
        picked=_picked,
    )


def data_uri(picture: Image.Image) -> str:
    """Returns a picture as a PNG inside a link, shrunk to at most `PICTURE_PIXELS` a side."""
    shown = picture if picture.mode in {"L", "RGB"} else picture.convert("RGB")
    if max(shown.size) > PICTURE_PIXELS:
        shown = shown.copy()
        shown.thumbnail((PICTURE_PIXELS, PICTURE_PIXELS))
    stream = io.BytesIO()
    shown.save(stream, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"


def key_rows(data: ReportData) -> list[ResultRow]:
    """Returns the figures that stand at the top: the first evaluation's first measure, a task each."""
    rows = [row for row in data.rows if math.isfinite(row.value)]
    measures = [row for row in rows if row.measure.startswith("mAP")] or rows
    chosen = next((row for row in measures if row.evaluation == "GG"), measures[0] if measures else None)
    if chosen is None:
        return []
    same = [(row.task, row) for row in measures if (row.evaluation, row.measure) == (chosen.evaluation, chosen.measure)]
    first: dict[str, ResultRow] = {}
    for task, row in same:
        first.setdefault(task, row)
    return list(first.values())


def fair_rows(data: ReportData) -> list[ResultRow]:
    """Returns the figures of the runs that are not told the query's own label."""
    return [row for run in data.runs if not run.needs_label_at_query for row in run.rows]


def headline(data: ReportData) -> str:
    """Returns the sentence at the top of the page."""
    if len(data.runs) > 1:
        return _headline_of_several(data)
    rows = key_rows(data)
    if not rows:
        return "This run has no figures yet."
    show = partial(tables.number, percent=data.percent)
    parts = [f"{TASK_WORDS[row.task]} at {show(row.value)}" for row in rows]
    parts[1:] = [part[0].lower() + part[1:] for part in parts[1:]]
    priors = [row.prior for row in rows if math.isfinite(row.prior)]
    chance = f"; chance would reach {show(float(np.mean(priors)))}" if priors else ""
    return f"{_list_of(parts)} ({rows[0].measure}){chance}."


def _headline_of_several(data: ReportData) -> str:
    table = tables.compare(fair_rows(data))
    leaders = [table.leader(line) for line in range(len(table.keys))]
    wins = Counter(table.runs[leader] for leader in leaders if leader is not None)
    if not wins:
        return f"{len(data.runs)} runs, and no figure in which one leads another."
    best, count = wins.most_common(1)[0]
    clear = sum(
        table.settled(i) for i, leader in enumerate(leaders) if leader is not None and table.runs[leader] == best
    )
    figures = f"{count} of {len(table.keys)} figures"
    return f"{best} leads in {figures}; in {clear} of them its 95 % interval lies above every other run's."


def _list_of(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _silos(data: ReportData) -> list[str]:
    """Returns every silo's name once, those of the partition first."""
    named = list(data.label_table.silos) if data.label_table else []
    named += [hit.silo for example in data.examples for hit in example.hits]
    return list(dict.fromkeys(named))


def _label_svg(table: LabelTable | None) -> str:
    return plots.label_map(table) if table is not None and table.counts.size else ""


def _is_drawable(curve: RadiusCurve) -> bool:
    return bool(np.isfinite(curve.precision).any())


def _fingerprint(digest: str) -> str:
    """Draws a hexadecimal digest's bits, an empty text if it is none."""
    try:
        return plots.bit_strip("".join(f"{int(digit, 16):04b}" for digit in digest[:32]))
    except ValueError:
        return ""


def _mark(row: ResultRow) -> str:
    return plots.interval_mark(row.value, low=row.low, high=row.high, worst=row.worst, best=row.best, prior=row.prior)


def _uncounted(rows: Sequence[ResultRow]) -> list[str]:
    """Returns, as "12 (XS i2t)", how many queries of a run's evaluation had no relevant item."""
    found = {(row.run, row.evaluation, row.task): row.queries_without_relevant for row in rows}
    several = tables.runs_differ(rows)
    return [
        f"{count:,} ({f'{run}, ' if several else ''}{evaluation} {task})"
        for (run, evaluation, task), count in found.items()
        if count
    ]


def _picked(curve: RadiusCurve, most: int = 17) -> list[int]:
    """Returns the radii that the table beside the plot lists: evenly spaced, the first and the last among them."""
    last = len(curve.precision) - 1
    return sorted({round(position) for position in np.linspace(0, last, min(most, last + 1))})
