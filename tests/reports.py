"""Made-up results and reports for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from silohash.report.page import (
    ExampleHit,
    ExampleQuery,
    LabelTable,
    MethodRun,
    RadiusCurve,
    ReportData,
    ReportWarning,
    RoundCurve,
)
from silohash.types import MethodCard, ResultRow

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
)


def row(**changed: Any) -> ResultRow:
    """Returns a result with some fields changed."""
    return replace(ROW, **changed)


def card(key: str, **changed: Any) -> MethodCard:
    """Returns a method's card."""
    told = {"title": f"Title of {key}", "authors": "A. Author", "venue": "Venue", "year": 2024}
    return MethodCard(
        **{"key": key, **told, "link": "https://example.org", "summary": "Sums.", "supervised": True, **changed}
    )


def made_up_run(name: str, shift: float = 0.0, **changed: Any) -> MethodRun:
    """Returns a run with figures and curves."""
    rows = tuple(
        row(run=name, task=task, measure=measure, value=0.6 + shift, low=0.58 + shift, high=0.62 + shift)
        for task in ("i2t", "t2i")
        for measure in ("mAP@all", "P@10")
    )
    parts = {
        "rows": rows,
        "curve": RoundCurve(name, (1, 2, 3), (2.0, 1.0, 0.5), (0.3, 0.6, 0.5), best_round=2),
        "radius_curves": tuple(
            RadiusCurve(name, task, (NAN, 0.9, 0.6, 0.2), (0.0, 0.2, 0.7, 1.0), 0.17) for task in ("i2t", "t2i")
        ),
        "cards": (card(name),),
    }
    return MethodRun(name=name, **{**parts, **changed})


def made_up_report(**changed: Any) -> ReportData:
    """Returns a report in which every section has something."""
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32), np.uint8))
    hits = tuple(
        ExampleHit(
            item_id=str(n),
            silo=("north", "south")[n % 2],
            distance_bits=n,
            relevant=(True, False, None)[n],
            caption=f"answer {n}",
            picture=picture if n else None,
            code="01100110"[n:] + "0" * n,
        )
        for n in range(3)
    )
    examples = (
        ExampleQuery(task="t2i", caption="chess knight", hits=hits, ties_at_cut=4, code="01100110"),
        ExampleQuery(
            task="i2t", caption="an arrow", picture=picture, hits=hits, missing_silos={"south": "It is late."}
        ),
    )
    parts = {
        "title": "glyphs, 2 silos",
        "facts": {"data": "glyphs", "bits": "64", "seed": "0"},
        "runs": (made_up_run("fedcafe"),),
        "digest": "8f3a52b19c0de477",
        "label_table": LabelTable(("north", "south"), ("arrow", "chess"), np.array([[3, 0], [1, 1234]])),
        "examples": examples,
        "silent_silos": {"east": "It holds no image index."},
        "warnings": (ReportWarning("skipped rows", "12 rows were left out."),),
    }
    return ReportData(**{**parts, **changed})
