"""What a silo releases of an item, and what of it people see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from silohash.base.types import Modality
from silohash.evaluate.calibration import Strength
from silohash.index.preview import preview_content
from silohash.search.fields import PAYLOAD, Text, Unsent

if TYPE_CHECKING:
    from PIL import Image


class Shown(NamedTuple):
    """What a payload holds for people to see, see `Released`. Values that do not have the right form are left out."""

    caption: str
    labels: tuple[str, ...]
    preview_url: str | None
    columns: dict[str, str]


def shown_of(payload: Mapping[str, Any]) -> Shown:
    """Return what a payload that a silo released holds for people to see."""
    labels, url, columns = payload.get("labels"), payload.get("preview"), payload.get("columns")
    return Shown(
        str(payload.get("caption") or ""),
        tuple(map(str, labels)) if labels and isinstance(labels, list | tuple) else (),
        url if url is not None and preview_content(url) is not None else None,
        {str(name): str(value) for name, value in columns.items()} if isinstance(columns, dict) else {},
    )


@dataclass(frozen=True, kw_only=True, repr=False)
class Released:
    """Hold what a silo releases of an item.

    Attributes:
        id: Id of the item within its silo.
        silo: Name of the silo that holds the item.
        payload: The released fields.
        path: The item's picture file on this machine; None if it is not released or does not exist here.
    """

    id: Text
    silo: Annotated[str, Unsent] = ""
    payload: Annotated[Mapping[str, Any], PAYLOAD] = field(default_factory=dict)
    path: Annotated[Path | None, Unsent] = None

    def __repr__(self) -> str:
        """Return all values but the preview, which is long."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values["payload"] = {name: value for name, value in self.payload.items() if name != "preview"}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    @cached_property
    def _shown(self) -> Shown:
        return shown_of(self.payload)

    @property
    def caption(self) -> str:
        """Text of the item, empty if it is not released."""
        return self._shown.caption

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the item's labels, empty if they are not released."""
        return self._shown.labels

    @property
    def columns(self) -> Mapping[str, str]:
        """Values of the item in further columns of the archive, as far as they are released."""
        return self._shown.columns

    @property
    def preview_url(self) -> str | None:
        """Small picture of the item as a data URL; None without one."""
        return self._shown.preview_url

    @property
    def preview(self) -> Image.Image | None:
        """The small picture of the item, or None."""
        content = preview_content(self.preview_url)
        if content is None:
            return None
        from silohash.data.pictures.formats import open_picture

        return open_picture(content)


@dataclass(frozen=True, kw_only=True, repr=False)
class Hit(Released):
    """Describe one item of a result.

    Attributes:
        distance_bits: Hamming distance to the query; None if the silo does not release it.
        score: Score of the item with the query, which orders the hits; None if their distances do.
        rank: Rank of the item within its silo if silos use different models, only some of them score, or some release ranks
            only; otherwise None.
        found_by: The modalities whose code is at this distance: ``("image",)``, ``("text",)`` or both.
        probability: Probability that the item is right, as held-back queries showed; None if that is not known.
        strength: "strong", "likely" or "weak", or "none" if the item is not close; None if that is not known.
        matched: The words of the query that the item has in its id or in a released field.
    """

    distance_bits: int | None
    score: float | None = None
    rank: int | None = None
    found_by: tuple[Modality, ...] = ()
    probability: float | None = None
    strength: Strength | None = None
    matched: tuple[str, ...] = ()
