"""``[[figures]]`` of a study: what each kind of figure shows. Study configs are checked before any run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import BeforeValidator, Field, field_validator, model_validator

from silohash.base.registry import suggestion
from silohash.base.types import Modality
from silohash.run.config.sections import Section

CurveName: TypeAlias = Literal["loss", "relative loss", "validation"]

POINTS_PER_NEIGHBOR = 3
"""t-SNE looks at this many times its perplexity of nearest neighbors, so it needs more items than that."""


class Figure(Section):
    """A figure: one file per combination of the choices that it does not show together."""

    only: dict[str, Annotated[tuple[str, ...], Field(min_length=1)]] = Field(default_factory=dict)
    """Axis -> the choices that are drawn, such as ``{ bits = ["16"] }``; all by default."""

    @property
    def axes_shown(self) -> tuple[str, ...]:
        """The axes that the figure is drawn over. Each needs at least two choices."""
        return ()


class Rounds(Figure):
    """``rounds``, ``seconds``: loss and validation score of every run, over the rounds or the time of local training."""

    kind: Literal["rounds", "seconds"]
    """Kind of figure. `seconds` is the time of local training, added up over the silos."""
    curves: tuple[CurveName, ...] = Field(default=("loss", "validation"), min_length=1)
    """Curves, one panel each: `loss`, `relative loss` (divided by that of the first round) or `validation`."""


class PrecisionRecall(Figure):
    """``precision_recall``: precision over recall within each Hamming radius, which ties do not influence."""

    kind: Literal["precision_recall"]
    """Kind of figure."""


class TopN(Figure):
    """``top_n``: precision and recall of the nearest N items, as the expectation over ties."""

    kind: Literal["top_n"]
    """Kind of figure."""
    first: tuple[int, ...] = Field(default=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000))
    """Values of N, in increasing order. Those above the number of searched items are left out."""

    @field_validator("first")
    @classmethod
    def _rises(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(value) < 2 or value[0] < 1 or list(value) != sorted(set(value)):
            raise ValueError("give at least two whole numbers from 1 in increasing order, such as [1, 10, 100]")
        return value


class OverAxis(Figure):
    """``axis``: the table's measures over the numbers of an axis, with one line per method."""

    kind: Literal["axis"]
    """Kind of figure."""
    axis: str
    """Name of an axis whose choices are numbers."""

    @property
    def axes_shown(self) -> tuple[str, ...]:
        """The axis."""
        return (self.axis,)


class Surface(Figure):
    """``surface``: the table's measures over two axes."""

    kind: Literal["surface"]
    """Kind of figure."""
    axes: tuple[str, ...]
    """Names of two axes. A map has the first downwards and the second to the right."""
    view: Literal["map", "relief"] = "map"
    """`map`: colors with a number in each field. `relief`: a surface in three dimensions."""

    @property
    def axes_shown(self) -> tuple[str, ...]:
        """Both axes."""
        return self.axes

    @field_validator("axes")
    @classmethod
    def _are_two(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != 2 or len(value) != 2:
            raise ValueError("name two different axes")
        return value


class Methods(Figure):
    """``methods``: the table's measures, with the methods below each other."""

    kind: Literal["methods"]
    """Kind of figure."""


class Tsne(Figure):
    """``tsne``: the codes of items in the plane by t-SNE, colored by label, with one panel per method."""

    kind: Literal["tsne"]
    """Kind of figure."""
    modality: Modality = "image"
    """`image` or `text`: which codes are drawn."""
    split: Literal["query", "database", "train"] = "query"
    """Split of the archive whose items are drawn."""
    labels: tuple[str, ...] = ()
    """Names of the labels. Items with none of them, or with several, are left out. Leave empty for the six most frequent
    labels of the split."""
    items: int = Field(default=1000, ge=10, le=10_000)
    """Most items to draw. More are sampled with the run's seed."""
    perplexity: float = Field(default=30.0, ge=2.0)
    """Perplexity of t-SNE: roughly the number of neighbors that each item is placed by. There must be more than three
    times as many items."""
    seed: int = Field(default=0, ge=0)
    """Seed of t-SNE."""

    @model_validator(mode="after")
    def _has_enough_items(self) -> Tsne:
        if self.items <= POINTS_PER_NEIGHBOR * self.perplexity:
            raise ValueError(
                f"items = {self.items} must be more than {POINTS_PER_NEIGHBOR} times perplexity = {self.perplexity:g}"
            )
        return self


class PartitionCounts(Figure):
    """``partition``: the number of items of each label in each silo."""

    kind: Literal["partition"]
    """Kind of figure."""
    view: Literal["bars", "bubbles"] = "bars"
    """`bars`: one bar per silo, stacked by label. `bubbles`: a disk per silo and label, whose area is the
    number of items."""


class RankedExamples(Figure):
    """``examples``: the example searches of a run with their results in order, in one figure per run."""

    kind: Literal["examples"]
    """Kind of figure."""
    searches: int = Field(default=3, ge=1)
    """Most searches per task."""
    hits: int = Field(default=5, ge=1)
    """Most results per search."""


_Any: TypeAlias = (
    Rounds | PrecisionRecall | TopN | OverAxis | Surface | Methods | Tsne | PartitionCounts | RankedExamples
)

KINDS: Mapping[str, type[Figure]] = {
    kind: model for model in get_args(_Any) for kind in get_args(model.model_fields["kind"].annotation)
}
"""Kind -> the model of its settings."""


def _of_known_kind(value: Any) -> Any:  # noqa: ANN401  pydantic's
    if not isinstance(value, dict):
        return value
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        asked = f'there is no kind "{kind}"{suggestion(str(kind), KINDS)}' if kind else "kind is missing"
        raise ValueError(f"{asked}. Available: {', '.join(KINDS)}")
    return value


AnyFigure: TypeAlias = Annotated[_Any, Field(discriminator="kind"), BeforeValidator(_of_known_kind)]
"""A figure of any kind, read from a table with its ``kind``."""
