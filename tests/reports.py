"""Made-up results and reports for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from silohash.base.types import MethodCard, ResultRow
from silohash.measure.evaluation import RadiusCurve
from silohash.report.examples import ExampleHit, ExampleItem, Examples, ExampleSearch, data_uri
from silohash.report.gather import MethodRun, ReportData, ReportWarning, SiloSummary
from silohash.report.plots import LabelTable, RoundCurve

NAN = float("nan")

ROW = ResultRow(
    run="fedcafe",
    dataset="glyphs",
    protocol="default",
    partition="dirichlet",
    local="dcmh",
    federated="fedcafe",
    evaluation="GG",
    task="t2i",
    bits=64,
    seed=0,
    measure="mAP@all",
    value=0.7123456789012345,
    low=0.69,
    high=0.73,
    best=0.75,
    worst=0.66,
    queries=1994,
    queries_without_relevant=12,
    prior=0.17,
    config_digest="8f3a",
    code_version="0.1.0",
    population=20_015,
    no_hits="zero",
    query_in_database=False,
    database_code="one view",
    round_by="validation",
)


def row(**changed: Any) -> ResultRow:
    """Return a result with some fields changed."""
    return replace(ROW, **changed)


def card(key: str, **changed: Any) -> MethodCard:
    """Return a method's card."""
    details = {"title": f"Title of {key}", "authors": "A. Author", "venue": "Venue", "year": 2024}
    return MethodCard(
        **{"key": key, **details, "link": "https://example.org", "summary": "Sums.", "supervised": True, **changed}
    )


def made_up_run(name: str, shift: float = 0.0, **changed: Any) -> MethodRun:
    """Return a run with figures and curves."""
    rows = tuple(
        row(run=name, task=task, measure=measure, value=0.6 + shift, low=0.58 + shift, high=0.62 + shift)
        for task in ("i2t", "t2i")
        for measure in ("mAP@all", "P@10")
    )
    parts = {
        "rows": rows,
        "curve": RoundCurve(name, (1, 2, 3), (2.0, 1.0, 0.5), (0.3, 0.6, 0.5), best_round=2),
        "radius_curves": tuple(
            RadiusCurve(task, (NAN, 0.9, 0.6, 0.2), (0.0, 0.2, 0.7, 1.0), 0.17, name=name) for task in ("i2t", "t2i")
        ),
        "cards": (card(name),),
    }
    return MethodRun(name=name, **{**parts, **changed})


def item(name: str, **changed: Any) -> ExampleItem:
    """Return an item of an example search."""
    return ExampleItem(**{"item_id": name, "silo": "north", "text": f"text {name}", "labels": ("arrow",), **changed})


def made_up_examples() -> Examples:
    """Return two searches: a text that finds pictures and texts without one, and a picture that finds texts."""
    picture = data_uri(Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32), np.uint8)))
    hits = tuple(
        ExampleHit(
            item=item(f"answer {n}", silo=("north", "south")[n % 2], picture=picture if n else ""),
            distance_bits=n,
            relevant=(True, False, None)[n],
        )
        for n in range(3)
    )
    searches = (
        ExampleSearch(task="t2i", query=item("chess knight"), hits=hits, ties_at_cut=4),
        ExampleSearch(task="i2t", query=item("an arrow", picture=picture), hits=hits),
    )
    return Examples(drawn="The queries were drawn at random.", searches=searches)


def made_up_report(**changed: Any) -> ReportData:
    """Return a report in which every section has something."""
    parts = {
        "title": "glyphs, 2 silos",
        "facts": {"data": "glyphs", "bits": "64", "seed": "0"},
        "runs": (made_up_run("fedcafe"),),
        "label_table": LabelTable(("north", "south"), ("arrow", "chess"), np.array([[3, 0], [1, 1234]])),
        "examples": made_up_examples(),
        "silos": (
            SiloSummary(name="north", items=3, train=2, drift=0.25, rejected=2, warnings=1),
            SiloSummary(name="south", items=1235, train=1000, lacks="texts", drift=0.0),
        ),
        "warnings": (ReportWarning("skipped rows", "12 rows were left out."),),
    }
    return ReportData(**{**parts, **changed})
