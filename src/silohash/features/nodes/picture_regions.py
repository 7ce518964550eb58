"""Regions of a user's own pictures: the cells of a grid, or the boxes of a detector in an ONNX file, each with a vector.

A vector is the mean of a backbone's feature map within the box, or what the detector itself gives for the box.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import Field, ValidationError

from silohash.base.errors import OneInputNeeded, UnsuitableFeatures, UnsupportedNetwork, WrongValue
from silohash.base.files import digest_file, digest_json
from silohash.base.forms import detail, fault, of_value, reading
from silohash.base.types import Arrays, Modality
from silohash.data.regions import WHOLE
from silohash.features.base import Value
from silohash.features.image import query_picture
from silohash.features.network import Network, network_module
from silohash.features.onnx_session import open_session

Numbers = npt.NDArray[np.floating]
LONGER_SIDE = 640
"""Side in pixels to which the longer side of a picture is resized for a detector that takes pictures of any size."""


@dataclass(frozen=True)
class Finder:
    """What finds boxes: a detector in an ONNX file, or a grid. The attributes are options of `frozen`."""

    detector: str
    grid: Annotated[int, Field(ge=1, le=32)]
    regions: Annotated[int, Field(ge=1, le=1_000)]
    outputs: Annotated[tuple[str, ...], Field(min_length=2, max_length=3)]
    vectors: str
    values: Literal["unit", "bytes"]
    units: Literal["pixels", "shares"]
    threshold: float
    overlap: Annotated[float, Field(gt=0, le=1)]

    @property
    def path(self) -> Path:
        """The detector's file."""
        return Path(self.detector).expanduser()

    @property
    def most(self) -> int:
        """The largest number of boxes."""
        return self.regions if self.detector else self.grid**2

    def found(self, picture: Image.Image) -> tuple[Numbers, Numbers]:
        """Return the boxes with the highest scores as shares, ``(n, 4)``, and their vectors, ``(n, D)``; D can be 0.

        Boxes that are not finite, or have no area within the picture, are left out.

        Raises:
            UserError: If the file is not that of a detector with these outputs.
        """
        if not self.detector:
            return grid_boxes(self.grid), np.zeros((self.most, 0))
        try:
            given, scores, labels, vectors = self._run(picture)
        except Exception as error:  # onnxruntime has an error of its own for each reason
            raise UnsupportedNetwork(
                f"{self.detector} is not a detector with one picture as its input and the outputs "
                f"{', '.join(filter(None, [*self.outputs, self.vectors]))} ({detail(error)}). Set features.image.outputs to "
                "the names of its boxes (n, 4) and scores (n,)."
            ) from error
        # Boxes are stored in 16 bits, in which two sides can become one.
        boxes = np.clip(np.nan_to_num(given), 0, 1).astype(np.float16).astype(np.float32)
        there = np.isfinite(given).all(1) & (boxes[:, 2:] > boxes[:, :2]).all(1) & (scores >= self.threshold)
        kept = best(boxes, np.where(there, scores, -np.inf), labels, self.overlap, self.most)
        return boxes[kept], vectors[kept]

    def _run(self, picture: Image.Image) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        given = self._session.get_inputs()[0]
        own = [max(1, round(side * LONGER_SIDE / max(picture.size))) for side in reversed(picture.size)]
        height, width = (n if isinstance(n, int) else side for n, side in zip(given.shape[-2:], own, strict=True))
        pixels = np.asarray(picture.convert("RGB").resize((width, height))).transpose(2, 0, 1)
        if given.type != "tensor(uint8)":
            pixels = (pixels / (255 if self.values == "unit" else 1)).astype(np.float32)
        names = [*self.outputs, *filter(None, [self.vectors])]
        made = self._session.run(names, {given.name: pixels[None] if len(given.shape) == 4 else pixels})
        count, unit = made[0].shape[-2], (width, height) * 2 if self.units == "pixels" else (1,) * 4
        scores, *labels = (values.reshape(count) for values in made[1 : len(self.outputs)])
        vectors = made[-1].reshape(count, made[-1].shape[-1]) if self.vectors else np.zeros((count, 0))
        return made[0].reshape(count, 4) / np.array(unit), scores, labels[0] if labels else np.zeros(count), vectors

    @cached_property
    def _session(self) -> Any:  # noqa: ANN401  a class of onnxruntime, which has no types
        return open_session(self.path)


def best(boxes: Numbers, scores: Numbers, labels: npt.NDArray[Any], overlap: float, most: int) -> list[int]:
    """Return the positions of at most ``most`` boxes in descending order of their scores, without those of minus infinity.

    A box is left out if its intersection with a better one of the same label exceeds ``overlap`` of their union.

    Example:
        >>> boxes = np.array([[0.0, 0.0, 0.5, 1.0], [0.0, 0.0, 0.4, 1.0], [0.5, 0.0, 1.0, 1.0]])
        >>> best(boxes, np.array([0.3, 0.2, 0.9]), np.zeros(3), 0.5, 36)
        [2, 0]
    """
    kept: list[int] = []
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    for place in np.argsort(-scores, kind="stable")[: int(np.isfinite(scores).sum())].tolist():
        same = [other for other in kept if labels[other] == labels[place]]
        low, high = np.maximum(boxes[same, :2], boxes[place, :2]), np.minimum(boxes[same, 2:], boxes[place, 2:])
        common = np.maximum(high - low, 0).prod(1)
        if (common <= overlap * (areas[same] + areas[place] - common)).all():
            kept.append(place)
        if len(kept) == most:
            break
    return kept


def grid_boxes(side: int) -> Numbers:
    """Return the boxes of a grid of ``side * side`` cells, row by row, ``(side * side, 4)`` float32."""
    top, left = np.divmod(np.arange(side * side), side)
    return np.stack([left, top, left + 1, top + 1], axis=1).astype(np.float32) / side


def pooled(maps: Numbers, boxes: Numbers) -> Numbers:
    """Return the mean of a map ``(h, w, D)`` within each box, ``(R, D)``. Cells count by their area within the box.

    Boxes ``(R, 4)`` are shares of the picture that the map covers. The mean in a box without area is zero.
    """
    weights = []
    for cells, low, high in ((maps.shape[0], boxes[:, 1], boxes[:, 3]), (maps.shape[1], boxes[:, 0], boxes[:, 2])):
        place = np.arange(cells)
        common = np.minimum(high[:, None] * cells, place + 1) - np.maximum(low[:, None] * cells, place)
        weights.append(np.maximum(common, 0) / np.maximum((high - low) * cells, 1e-9)[:, None])
    return np.asarray(np.einsum("rh,rw,hwd->rd", *weights, maps, optimize=True))


@dataclass(frozen=True, eq=False)
class RegionNetwork(Network):
    """What turns a picture into its regions, ``R * (D + 4)`` numbers; a region is its vector and its box.

    Regions after the last one that was found are zeros. If none is found, the only region is the whole picture.

    Attributes:
        finder: What finds R boxes at most.
        backbone: The network whose map is pooled, or None if the detector gives vectors.
    """

    finder: Finder | None = None
    backbone: Network | None = None

    def prepare(self, values: Iterable[Value]) -> Arrays:
        """Return the regions ``(n, R, D + 4)`` float32, and ``pixels (n, 3, h, w)`` uint8 if a backbone gives vectors."""
        assert self.finder is not None  # noqa: S101  a default only because `Network` has some
        items: list[Arrays] = []
        for picture in map(query_picture, values):
            boxes, vectors = self.finder.found(picture)
            regions = np.zeros((self.finder.most, self.width // self.finder.most), np.float32)
            regions[: max(1, len(boxes)), -4:] = boxes if len(boxes) else WHOLE
            regions[: len(vectors), : vectors.shape[1]] = vectors
            pixels = {} if self.backbone is None else {"pixels": self.backbone.prepare([picture])["pixels"][0]}
            items.append({"regions": regions, **pixels})
        return {name: np.stack([item[name] for item in items]) for name in items[0]}

    def embed(self, batch: Arrays, device: str, *, half: bool) -> npt.NDArray[np.float32]:
        """Return the regions of n pictures that `prepare` returned, ``(n, R * (D + 4))`` float32."""
        found = np.array(batch["regions"])
        if self.backbone is not None:
            side = math.isqrt(self.backbone.tokens)
            maps = self.backbone.embed({"pixels": batch["pixels"]}, device, half=half)
            for regions, cells in zip(found, maps, strict=True):
                regions[:, :-4] = pooled(cells.reshape(side, side, -1), regions[:, -4:])
        return found.reshape(len(found), -1)


def frozen(
    modality: Modality, *, model: str = "", size: int = 0, download: bool = False, detector: str = "", grid: int = 6,
    regions: int = 36, outputs: Sequence[str] = ("boxes", "scores"), vectors: str = "", values: str = "unit",
    units: str = "pixels", threshold: float = 0.05, overlap: float = 0.7,
) -> RegionNetwork:  # fmt: skip
    """Return what finds the regions of pictures. The options are described in docs/how-to/matching.md.

    Raises:
        UserError: If an option is invalid, or the backbone or the detector cannot be used.
    """
    if modality != "image":
        raise UnsuitableFeatures('[features.text] kind "picture_regions" is for pictures. Choose another kind.')
    if bool(model) == bool(vectors) or (vectors and not detector):
        raise OneInputNeeded(
            "[features.image] regions have either the mean of a map (set model) or vectors of the detector (set vectors to "
            "the name of its output)."
        )
    given = {
        "detector": detector, "grid": grid, "regions": regions, "outputs": outputs, "vectors": vectors,
        "values": values, "units": units, "threshold": threshold, "overlap": overlap,
    }  # fmt: skip
    try:
        finder = of_value(given, Finder)
    except ValidationError as error:
        raise WrongValue("features.image", f"features.image: {fault(error)}. Correct the value.") from error
    base = network_module("huggingface").maps(model=model, size=size, download=download) if model else None
    width, key = base.width // base.tokens if base else 0, base.key if base else ""
    if detector:
        with reading(finder.path, missing="Set features.image.detector to the ONNX file of a detector."):
            given["detector"] = digest_file(finder.path)
        # A detector shows on any picture that it is one.
        width += finder.found(Image.new("RGB", (64, 64)))[1].shape[1]
    return RegionNetwork(
        name=f"regions of {model or detector}", key=digest_json(["regions", key, given]),
        width=finder.most * (width + 4), load=partial(getattr, base, "module"), finder=finder, backbone=base,
    )  # fmt: skip
