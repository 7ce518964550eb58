"""Curves of the training rounds, as SVG that follows the page's colors and needs no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from silohash.run.events import RoundRecord

WIDTH, HEIGHT = 480, 200
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 14, 30
GRID_LINES = 4

OTHER_VALIDATION = ("Validation, score in percent", "Measured on held-out items of the silos.")
VALIDATION: Mapping[frozenset[str], tuple[str, str]] = {
    frozenset({"labels"}): ("Validation, mAP in percent", OTHER_VALIDATION[1]),
    frozenset({"pairs"}): (
        "Validation, score of pairs in percent",
        "Measured on held-out pairs of the silos: mean reciprocal rank, or mean recall if the model scores pairs.",
    ),
}
"""Title and note of the score on held-out items, for each kind of relevance (`RoundRecord.validation_by`)."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One value of a chart, at its place in the picture."""

    x: float
    y: float
    round: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A curve over the rounds.

    Attributes:
        line: The points as the attribute of a polyline.
        ticks: Height and text of each grid line.
    """

    title: str
    points: tuple[Point, ...]
    line: str
    ticks: tuple[tuple[float, str], ...]
    note: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    bottom: int = HEIGHT - BOTTOM


def charts(rounds: Sequence[RoundRecord], chosen: int | None) -> list[Chart]:
    """Return the charts of a run: the score on held-out items if it was measured, and the loss."""
    losses = [(record.round, record.loss) for record in rounds if record.loss is not None]
    scores = [(record.round, 100 * record.validation) for record in rounds if record.validation is not None]
    deployed = "" if chosen is None else f" The model of round {chosen + 1} is deployed."
    title, note = VALIDATION.get(frozenset(record.validation_by for record in rounds), OTHER_VALIDATION)
    found = [
        _chart(title, scores, f"{note}{deployed}"),
        _chart("Training loss", losses, "Mean over silos, weighted by their numbers of items."),
    ]
    return [chart for chart in found if chart is not None]


def _chart(title: str, values: Sequence[tuple[int, float]], note: str) -> Chart | None:
    if not values:
        return None
    numbers = [value for _, value in values]
    low, high = _limits(min(numbers), max(numbers))
    width, most = WIDTH - LEFT - RIGHT, len(values) - 1
    points = tuple(
        Point(
            x=LEFT + width * (place / most if most else 0.5),
            y=_up(value, low, high),
            round=number + 1,
            text=f"{value:.3g}",
        )
        for place, (number, value) in enumerate(values)
    )
    steps = [low + (high - low) * step / GRID_LINES for step in range(GRID_LINES + 1)]
    return Chart(
        title=title,
        points=points,
        line=" ".join(f"{point.x:.1f},{point.y:.1f}" for point in points),
        ticks=tuple((_up(step, low, high), f"{step:.3g}") for step in steps),
        note=note,
    )


def _limits(low: float, high: float) -> tuple[float, float]:
    """Return the lower and upper end of an axis that shows all values with some room."""
    room = 0.08 * (high - low) or max(abs(high) * 0.1, 1e-6)
    return max(0.0, low - room) if low >= 0 else low - room, high + room


def _up(value: float, low: float, high: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)


def size_in_words(count: int) -> str:
    """Return a number of bytes in words.

    Example:
        >>> size_in_words(512), size_in_words(17_770_240)
        ('512 B', '17.8 MB')
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} B"
