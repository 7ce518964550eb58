"""Regions of pictures, given or found, standardized per column, for local methods that match regions with words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from silohash.base.errors import ArchiveUnsuitable, OutOfRange, QueryUnsuitable
from silohash.base.types import Arrays, Modality, Rows
from silohash.data.archive import Column
from silohash.data.regions import WHOLE, Regions
from silohash.features.base import Value, blocks, check_switches, lacking
from silohash.features.given import WHITENING, GivenFeatures
from silohash.features.network import PICTURE_REGIONS, NetworkFeatures

BLOCK_ITEMS = 512
BOX = 4
"""Number of columns of a box, the last ones of a region: x1, y1, x2, y2 as shares of the picture's width and height."""


@dataclass(frozen=True, eq=False)
class RegionFeatures:
    """The regions of a picture with their boxes, ``(R, D + 4)`` float16.

    The features of all regions share a mean and a deviation, whatever their place. Boxes are left as they are. Regions that
    are padding are not part of the sums, and are zero, box included.

    Attributes:
        regions: Number of regions per picture, R.
        vectors: Standardizes the features of a region, ``(D,)``.
        source: What finds the regions of pictures, in the kind `PICTURE_REGIONS`; None for a column of regions.
    """

    regions: int
    vectors: GivenFeatures
    source: NetworkFeatures | None = None

    modality: ClassVar[Modality] = "image"

    @property
    def kind(self) -> str:
        """The name of the featurizer: ``regions`` for those of a column, and `PICTURE_REGIONS` for those of pictures."""
        return "regions" if self.source is None else PICTURE_REGIONS

    @classmethod
    def options_of(cls, kind: str) -> dict[str, Any]:
        """Return the options of a kind, with their defaults."""
        of_pictures = NetworkFeatures.options_of(kind) if kind == PICTURE_REGIONS else {}
        return {"standardize": True, **{name: of_pictures[name] for name in of_pictures if name not in WHITENING}}

    @classmethod
    def make(cls, kind: str, modality: Modality, column: Column, options: Mapping[str, Any]) -> Self:
        """Return an unfitted featurizer for a column of regions.

        Raises:
            UserError: If the column does not hold regions, or if an option is invalid.
        """
        check_switches(options, "standardize")
        standardize, source = options["standardize"], None
        if kind == PICTURE_REGIONS:
            of_pictures = {name: value for name, value in options.items() if name != "standardize"}
            source = NetworkFeatures.make(kind, modality, column, {**of_pictures, **WHITENING})
            regions = int(options["regions"]) if options["detector"] else int(options["grid"]) ** 2
            width = source.given.width // regions - BOX
            return cls(regions, GivenFeatures("image", width, standardize=standardize), source)
        if not isinstance(column, Regions):
            raise lacking(kind, modality, 'regions (kind = "picture_regions" finds them in pictures)')
        regions, width = column.shape
        return cls(regions, GivenFeatures("image", width, standardize=standardize))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one item, ``(R, D + 4)``."""
        return (self.regions, self.vectors.width + BOX)

    def statistics(self, column: Column, rows: Rows) -> Arrays:
        """Return the `MOMENTS` of the regions of the rows, each ``(D,)`` float64."""
        whole: list[npt.NDArray[np.bool_]] = []

        def counted(regions: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
            """Return the features of regions, and note in which pictures no box was found."""
            whole.append((regions[:, 0, -BOX:] == WHOLE).all(1) & ~regions[:, 1:, -BOX:].any((1, 2)))
            return self._held(regions)

        sums = self.vectors.added(counted(regions) for _, regions in self._blocks(column, rows))
        unplaced = sum(int(some.sum()) for some in whole)
        if self.source is not None and unplaced and self.regions > 1:
            lacking_boxes = f"No box was found in {unplaced:,} of {len(rows):,} pictures. Each is one region."
            self.source.vectors.notify(lacking_boxes)
        return sums

    def fitted(self, summed: Arrays) -> Self:
        """Return a featurizer with the mean and the deviation over the regions of all silos."""
        return replace(self, vectors=self.vectors.fitted(summed))

    def transform(self, column: Column, rows: Rows) -> npt.NDArray[np.float16]:
        """Return the standardized regions of the rows with their boxes, ``(n, R, D + 4)`` float16."""
        found = np.empty((len(rows), *self.shape), np.float16)
        for place, regions in self._blocks(column, rows):
            found[place] = self._standardized(regions)
        return found

    def _blocks(self, column: Column, rows: Rows) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
        """Yield the regions of rows, ``(n, R, D + 4)`` float32, in blocks, each with its place among the rows."""
        if self.source is None:
            regions = self._column(column)
            yield from ((place, regions.of(block)) for place, block in blocks(rows, BLOCK_ITEMS))
            return
        digests = self.source.encoded(column, rows)
        for place, _ in blocks(rows, BLOCK_ITEMS):
            yield place, self.source.vectors.take(digests[place]).reshape(-1, *self.shape)

    def encode_one(self, value: Value) -> npt.NDArray[np.float16]:
        """Return the regions of one picture with their boxes, ``(R, D + 4)``, as ``(1, R, D + 4)`` float16.

        Raises:
            UserError: If the query is something else, has numbers that are not finite, or boxes that are not shares.
        """
        if self.source is not None:
            return self._standardized(self.source.query_vector(value).reshape(1, *self.shape))
        if not isinstance(value, np.ndarray) or value.shape[-2:] != self.shape or value.size != np.prod(self.shape):
            raise QueryUnsuitable(
                f"The run was trained on {self.regions} regions per picture, each with {self.vectors.width} features and a "
                f"box. Pass a .npy array of shape {self.shape} that was computed like those regions."
            )
        regions = value.reshape(1, *self.shape).astype(np.float32)
        boxes = regions[..., -BOX:]
        if not np.isfinite(regions).all() or boxes.min() < 0 or boxes.max() > 1:
            raise OutOfRange(
                "The regions of the query have numbers that are not finite, or boxes outside of their picture. Boxes are "
                "shares of the width and height of the picture, from 0 to 1."
            )
        return self._standardized(regions)

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the sums and the settings."""
        arrays, about = self.vectors.state()
        found = {} if self.source is None else self.source.state()[1]
        return arrays, {**found, **about, "kind": self.kind, "regions": self.regions}

    @classmethod
    def from_state(cls, arrays: Arrays, about: Mapping[str, Any]) -> Self:
        """Return the featurizer with a given state."""
        regions, vectors, source = about["regions"], GivenFeatures.from_state(arrays, about), None
        if about["kind"] == PICTURE_REGIONS:
            source = NetworkFeatures.from_state({}, {**about, "width": regions * (vectors.width + BOX)})
        return cls(regions, vectors, source)

    def _column(self, column: Column) -> Regions:
        if not isinstance(column, Regions) or column.shape != (self.regions, self.vectors.width):
            held = f"{column.shape[0]} with {column.shape[1]} features" if isinstance(column, Regions) else "none"
            raise ArchiveUnsuitable(
                f"The run was trained on {self.regions} regions per picture with {self.vectors.width} features, and this "
                f"archive has {held}. Use an archive with such regions."
            )
        return column

    def _held(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the features of the regions that are not padding, ``(n, D)``."""
        return np.asarray(values[values[..., -2] > values[..., -BOX]][:, :-BOX])

    def _standardized(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float16]:
        """Return regions with their features standardized, ``(n, R, D + 4)``."""
        found = values.astype(np.float16)
        there = values[..., -2] > values[..., -BOX]
        held = self._held(values)
        found[..., :-BOX][there] = self.vectors.transform(held, np.arange(len(held)))
        return found
