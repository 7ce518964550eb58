"""``[[figures]]`` of a study: what each kind of figure shows, checked before any run."""

from collections.abc import Collection, Mapping
from typing import Annotated, Literal, Self, TypeAlias, get_args

from pydantic import Field, model_validator

from silohash.base.types import Modality
from silohash.run.config.sections import Section

CurveName: TypeAlias = Literal["loss", "relative loss", "validation"]
Kind: TypeAlias = Literal[
    "rounds", "seconds", "precision_recall", "top_n", "axis", "surface", "methods", "tsne", "partition", "examples"
]

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "rounds": ("curves",),
    "seconds": ("curves",),
    "top_n": ("first",),
    "axis": ("axis",),
    "surface": ("axes", "view"),
    "tsne": ("modality", "split", "labels", "items", "perplexity", "seed"),
    "partition": ("view",),
    "examples": ("searches", "hits"),
}
"""Kind -> the settings that it has besides ``kind`` and ``only``."""

VIEWS: Mapping[str, tuple[str, ...]] = {"surface": ("map", "relief"), "partition": ("bars", "bubbles")}
"""Kind -> its views, the default first."""

POINTS_PER_NEIGHBOR = 3
"""t-SNE looks at this many times its perplexity of nearest neighbors, so it needs more items than that."""


class Figure(Section):
    """``[[figures]]``: what is drawn, in one file per combination of the choices that are not shown together."""

    kind: Kind
    """What is drawn. `rounds`, `seconds`: loss and validation score over the rounds, or over the seconds of local training,
    added up over the silos. `precision_recall`: precision over recall within each Hamming radius. `top_n`: precision and
    recall of the nearest N items, as expectations over ties. `axis`, `surface`, `methods`: the table's measures over an axis
    of numbers, over two axes, or by method. `tsne`: the codes of items in the plane. `partition`: the labels in each silo.
    `examples`: example searches."""
    only: dict[str, Annotated[tuple[str, ...], Field(min_length=1)]] = Field(default_factory=dict)
    """Axis -> the choices that are drawn, such as ``{ bits = ["16"] }``; all by default."""
    curves: tuple[CurveName, ...] = Field(default=("loss", "validation"), min_length=1)
    """Of `rounds` and `seconds`, one panel each: `loss`, `relative loss` (divided by that of the first round) or
    `validation`."""
    first: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
    """Of `top_n`: values of N from 1, in increasing order."""
    axis: str = ""
    """Of `axis`: the name of an axis, whose choices are numbers."""
    axes: tuple[str, ...] = ()
    """Of `surface`: the names of two axes. A map has the first downwards and the second to the right."""
    view: Literal["map", "relief", "bars", "bubbles"] | None = None
    """Of `surface`: `map` (default), colors with a number in each field, or `relief`, a surface in three dimensions. Of
    `partition`: `bars` (default), one per silo, or `bubbles`, a disk per silo and label whose area is the number of
    items."""
    modality: Modality = "image"
    """Of `tsne`: which codes are drawn."""
    split: Literal["query", "database", "train"] = "query"
    """Of `tsne`: split of the archive whose items are drawn."""
    labels: tuple[str, ...] = ()
    """Of `tsne`: names of the labels. Items with none of them, or with several, are left out. Leave empty for the six most
    frequent labels of the split."""
    items: int = Field(default=1000, ge=10, le=10_000)
    """Of `tsne`: the most items to draw. More are sampled with the run's seed."""
    perplexity: float = Field(default=30.0, ge=2.0)
    """Of `tsne`: roughly the number of neighbors that place an item. There must be more than three times as many items."""
    seed: int = Field(default=0, ge=0, lt=2**32)
    """Of `tsne`: its seed."""
    searches: int = Field(default=3, ge=1)
    """Of `examples`: the most searches per task."""
    hits: int = Field(default=5, ge=1)
    """Of `examples`: the most results per search."""

    @model_validator(mode="after")
    def _settings_fit_the_kind(self) -> Self:
        known = ("kind", "only", *SETTINGS.get(self.kind, ()))
        if unused := sorted(self.model_fields_set.difference(known)):
            raise ValueError(f'{unused[0]} has no effect in a figure of the kind "{self.kind}". Remove it')
        if self.kind == "axis" and not self.axis:
            raise ValueError('name an axis, such as axis = "bits"')
        if self.view and self.view not in VIEWS[self.kind]:
            raise ValueError(f"view of a {self.kind} is one of {', '.join(VIEWS[self.kind])}")
        if self.kind == "surface" and (len(self.axes) != 2 or self.axes[0] == self.axes[1]):
            raise ValueError('name two different axes, such as axes = ["mu", "phi"]')
        if len(self.first) < 2 or self.first[0] < 1 or list(self.first) != sorted(set(self.first)):
            raise ValueError("first: give at least two whole numbers from 1 in increasing order, such as [1, 10, 100]")
        if self.items <= POINTS_PER_NEIGHBOR * self.perplexity:
            raise ValueError(
                f"items = {self.items} must be more than {POINTS_PER_NEIGHBOR} times perplexity = {self.perplexity:g}"
            )
        return self

    def restricted(self, names: Mapping[str, Collection[str]]) -> Self:
        """Return the figure of a study with fewer choices, given by axis. A restriction to others is left out."""
        kept = {axis: tuple(name for name in some if name in names.get(axis, ())) for axis, some in self.only.items()}
        return self.model_copy(update={"only": {axis: some for axis, some in kept.items() if some}})

    @property
    def drawn_over(self) -> tuple[str, ...]:
        """The axes that the figure is drawn over. Each needs at least two choices."""
        return (self.axis,) if self.axis else self.axes


KINDS: tuple[str, ...] = get_args(Kind)
