"""Curves of the rounds: places of values, limits of axes, what is left out."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from silohash.service.web.view.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, charts, size_in_words
from tests.served import MadeUpBackend


def test_points_lie_inside_and_in_order() -> None:
    rounds = asyncio.run(MadeUpBackend().status()).rounds
    validation, loss = charts(rounds, 1)
    assert [point.text for point in validation.points] == ["50", "60", "70"]
    assert [point.round for point in loss.points] == [1, 2, 3]
    assert [point.x for point in loss.points] == [LEFT, (LEFT + WIDTH - RIGHT) / 2, WIDTH - RIGHT]
    heights = [point.y for point in validation.points]
    assert heights == sorted(heights, reverse=True), "a higher score is drawn higher up"
    assert all(TOP < point.y < HEIGHT - BOTTOM for chart in (validation, loss) for point in chart.points)
    assert validation.ticks[0][0] == HEIGHT - BOTTOM
    assert validation.ticks[-1][0] == pytest.approx(TOP)
    assert float(validation.ticks[0][1]) == pytest.approx(50 - 0.08 * 20)
    assert "The model of round 2 is deployed." in validation.note
    assert "deployed" not in charts(rounds, None)[0].note
    assert loss.line.count(",") == 3


def test_the_validation_is_named_by_what_makes_a_right_answer() -> None:
    rounds = asyncio.run(MadeUpBackend().status()).rounds
    pairs = [replace(record, validation_by="pairs") for record in rounds]
    named = [charts(each, None)[0] for each in (rounds, pairs, [*rounds[:1], *pairs[1:]])]
    assert ["mAP" in chart.title for chart in named] == [True, False, False]
    assert ["pairs" in chart.title for chart in named] == [False, True, False]
    assert "reciprocal rank" in named[1].note


def test_values_that_are_not_there_are_left_out() -> None:
    rounds = asyncio.run(MadeUpBackend().status()).rounds
    without = [replace(record, validation=None, loss=None) for record in rounds]
    assert charts(without, 0) == []
    assert charts((), None) == []
    [chart] = charts([replace(rounds[0], validation=None, loss=0.0)], 0)
    assert chart.points[0].x == (LEFT + WIDTH - RIGHT) / 2
    assert TOP <= chart.points[0].y <= HEIGHT - BOTTOM
    [chart] = charts([replace(record, validation=None, loss=-1.0 - record.round) for record in rounds], 0)
    assert float(chart.ticks[0][1]) < -3


def test_sizes_in_words() -> None:
    sizes = {0: "0 B", 999: "999 B", 1000: "1.0 kB", 1_500_000: "1.5 MB", 2_340_000_000: "2.3 GB"}
    assert {size: size_in_words(size) for size in sizes} == sizes
