"""Vectors from pretrained networks: what such a network must offer, and the featuriser over any of them.

An item is encoded once and kept by its content (`silohash.features.vector_cache`); the vectors are then standardised as
given ones are, by sums over silos.
"""

from __future__ import annotations

import importlib
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image
from PIL import __version__ as pillow_version

from silohash.data.archive import Column, Pictures, is_features
from silohash.data.pictures.decoding import decode
from silohash.data.pictures.packing import PictureContents
from silohash.features.base import Value
from silohash.features.device import choose_device
from silohash.features.given import GivenFeatures
from silohash.features.image import query_picture
from silohash.features.loading import loader_threads, prefetched, progress
from silohash.features.text import query_text, texts_of
from silohash.features.vector_cache import NetworkVectors, VectorCache
from silohash.files import digest_bytes, digest_json
from silohash.types import Arrays, Modality, Rows, UserError

NETWORKS: Mapping[str, str] = {
    "cnnf": "silohash.models.cnnf_features:cnnf",
    "huggingface": "silohash.models.huggingface_features:huggingface",
}
"""Every kind of network as module:function, called as ``function(modality, **options) -> Network``.

The function's keyword-only parameters are the kind's options, with their defaults; it raises `UserError` where the
weights are not there.
"""

COMMON_OPTIONS: Mapping[str, Any] = {"batch": 32, "device": "auto", "half": False, "draft": False}
"""Options of every kind: items a pass; where to compute; 16 bits; JPEG files decoded at a reduced size."""

NETWORK_FILES = ("model", "weights")
"""Options that name a file or folder of the user's."""

SPOKEN_OF = 64
"""Fewer items than this are encoded without a word."""


class Network(Protocol):
    """A pretrained network that turns pictures or texts into vectors; its weights never change.

    Several threads call `prepare` at once, and one calls `embed`.
    """

    @property
    def modality(self) -> Modality:
        """The modality that it takes."""
        ...

    @property
    def name(self) -> str:
        """What it is called in messages, as ``google/vit-base-patch16-224``."""
        ...

    @property
    def key(self) -> str:
        """A digest of all that decides its vectors: kind, weights, layer or pooling, preprocessing."""
        ...

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        ...

    @property
    def smallest_pixels(self) -> int:
        """To which side a picture may be decoded and not be enlarged afterwards; 0 for texts."""
        ...

    def prepare(self, values: Iterable[Value]) -> Arrays:
        """Decide what the network sees of some pictures or texts: resizing, cropping, word pieces.

        Args:
            values: pictures (mode ``L`` or ``RGB``) or strings, given one at a time: keep none of them.

        Returns:
            Named arrays, each with a row a value. Pixels are best left uint8: `embed` scales them on the device.
        """
        ...

    def embed(self, batch: Arrays, device: str, *, half: bool) -> npt.NDArray[np.float32]:
        """Return the vectors of what `prepare` gave, ``(n, width)`` float32.

        Args:
            batch: what `prepare` gave for n values.
            device: as ``cpu`` or ``cuda``.
            half: whether to compute in 16 bits where that is faster.
        """
        ...


def make_network(kind: str, modality: Modality, options: Mapping[str, Any]) -> Network:
    """Return the network of a kind.

    Raises:
        UserError: if its weights are not there, or it does not take the modality.
    """
    network: Network = _factory(kind)(modality, **options)
    return network


def network_options(kind: str) -> dict[str, Any]:
    """Return the options that a kind of network takes, with their defaults."""
    parameters = inspect.signature(_factory(kind)).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _factory(kind: str) -> Any:  # noqa: ANN401  a function of the table
    module, _, function = NETWORKS[kind].partition(":")
    return getattr(importlib.import_module(module), function)


class Source:
    """Where a network comes from; it is opened when it is first needed, and must be the one that is expected.

    Args:
        kind: a kind of `NETWORKS`.
        modality: the modality.
        options: the kind's own options.
        expected: the network's key when the run was trained; None to take it as it is.
    """

    def __init__(self, kind: str, modality: Modality, options: Mapping[str, Any], expected: str | None = None) -> None:
        self.kind = kind
        self.modality = modality
        self.options = {name: _absolute(value) if name in NETWORK_FILES else value for name, value in options.items()}
        self._expected = expected
        self._network: Network | None = None
        self._lock = threading.Lock()

    def network(self) -> Network:
        """Return the network.

        Raises:
            UserError: if it is gone, or is not the one that the run was trained with.
        """
        with self._lock:
            if self._network is None:
                network = make_network(self.kind, self.modality, self.options)
                if self._expected not in {None, network.key}:
                    raise UserError(
                        f"{network.name} is no longer the network that the run was trained with: its weights or its "
                        "settings have changed, and vectors of another network mean nothing to the model. Put the former "
                        "one back, or train again."
                    )
                self._network = network
            return self._network


@dataclass(frozen=True, eq=False)
class NetworkFeatures:
    """Pictures or texts as a pretrained network's vectors, standardised column by column.

    Attributes:
        source: where the network comes from.
        key: the network's own key; codes of one key and of another have nothing in common.
        given: what standardises the vectors.
        batch: items a pass.
        device: where to compute, as ``auto`` or ``cpu``.
        half: whether to compute in 16 bits where that is faster, and to keep vectors in 16 bits.
        draft: whether JPEG files are decoded at a reduced size where the network needs no more.
        vectors: the vectors that are there already.
    """

    source: Source
    key: str
    given: GivenFeatures
    batch: int
    device: str
    half: bool
    draft: bool
    vectors: NetworkVectors = field(repr=False)

    options: ClassVar[Mapping[str, Any]] = COMMON_OPTIONS

    @classmethod
    def options_of(cls, kind: str) -> dict[str, Any]:
        """Return the options of a kind, with their defaults."""
        return {**network_options(kind), **COMMON_OPTIONS}

    @classmethod
    def make(cls, kind: str, modality: Modality, column: Column, options: Mapping[str, Any]) -> NetworkFeatures:
        """Return the featuriser that the options ask for."""
        if is_features(column) or isinstance(column, Pictures) != (modality == "image"):
            raise UserError(
                f'[features] kind "{kind}" needs pictures or texts, and this archive\'s {modality} column holds vectors. '
                'Set kind = "auto", or an option of the archive that opens its pictures.'
            )
        if type(options["batch"]) is not int or options["batch"] < 1:
            raise UserError(f"[features] batch is {options['batch']!r}; it must be a whole number of items.")
        for name in ("half", "draft"):
            if not isinstance(options[name], bool):
                raise UserError(f"[features] {name} is {options[name]!r}; it must be true or false.")
        choose_device(options["device"], f"features.{modality}.device")
        source = Source(kind, modality, {n: value for n, value in options.items() if n not in COMMON_OPTIONS})
        network = source.network()
        return cls._over(source, network.key, GivenFeatures(modality, network.width), options)

    @classmethod
    def _over(cls, source: Source, key: str, given: GivenFeatures, options: Mapping[str, Any]) -> NetworkFeatures:
        made_by = {name: options[name] for name in ("half", "draft")}
        if given.modality == "image":
            made_by["pillow"] = pillow_version
        vectors = VectorCache().of_network(digest_json([key, made_by]), given.width, half=options["half"])
        return cls(source, key, given, options["batch"], options["device"], options["half"], options["draft"], vectors)

    @property
    def kind(self) -> str:
        """The network's kind, which is the name in the table of featurisers."""
        return self.source.kind

    @property
    def modality(self) -> Modality:
        """The modality that the network takes."""
        return self.given.modality

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one vector, ``(width,)``."""
        return self.given.shape

    def statistics(self, column: Column, rows: Rows) -> Arrays:
        """Return the sums of `GivenFeatures` over the network's vectors."""
        return self.given.statistics(self.raw(column, rows), np.arange(len(rows)))

    def fitted(self, summed: Arrays) -> NetworkFeatures:
        """Return the featuriser that knows the mean and the deviation over all silos."""
        return replace(self, given=self.given.fitted(summed))

    def transform(self, column: Column, rows: Rows) -> npt.NDArray[np.float32]:
        """Return ``(n, width)`` float32.

        Raises:
            UserError: if a picture cannot be decoded, the column holds none of the kind, or the network is gone.
        """
        return self.given.transform(self.raw(column, rows), np.arange(len(rows)))

    def encode_one(self, value: Value) -> npt.NDArray[np.float32]:
        """Return one picture or text as ``(1, width)`` float32.

        Raises:
            UserError: if the query is of the other modality, or the network is gone or not what it was.
        """
        query = query_picture(value) if self.modality == "image" else query_text(value)
        network = self.source.network()
        found = network.embed(network.prepare([query]), str(choose_device(self.device)), half=self.half)
        return self.given.encode_one(self.vectors.rounded(found).astype(np.float32))

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the sums, and where the network came from and what it was; not its weights."""
        about = {
            "kind": self.kind,
            "modality": self.modality,
            "width": self.given.width,
            "key": self.key,
            "options": self.source.options,
            "half": self.half,
            "draft": self.draft,
        }
        return dict(self.given.summed or {}), about

    @classmethod
    def from_state(cls, arrays: Arrays, about: Mapping[str, Any]) -> NetworkFeatures:
        """Return the featuriser that gave the state; the network is looked for when something must be encoded."""
        source = Source(about["kind"], about["modality"], about["options"], about["key"])
        given = GivenFeatures(about["modality"], about["width"], dict(arrays) or None)
        options = {**COMMON_OPTIONS, "half": about["half"], "draft": about["draft"]}
        return cls._over(source, about["key"], given, options)

    def raw(self, column: Column, rows: Rows) -> npt.NDArray[np.float32]:
        """Return the network's own vectors, ``(n, width)``; what is not kept is encoded first."""
        self._check(column)
        digests = [_content_digest(column, int(row)) for row in rows]
        lacking = self.vectors.lacking(digests)
        if lacking:
            self._encode(column, rows, digests, lacking)
        return self.vectors.take(digests)

    def _check(self, column: Column) -> None:
        if self.modality == "image" and not isinstance(column, Pictures):
            raise UserError(
                "The run was trained on pictures, and this archive holds none. Give an archive of pictures."
            )
        if self.modality == "text":
            texts_of(column)

    def _encode(self, column: Column, rows: Rows, digests: list[str], lacking: list[int]) -> None:
        network, device = self.source.network(), str(choose_device(self.device))
        what = f"Encoding {len(lacking):,} {'pictures' if self.modality == 'image' else 'texts'} with {network.name}"
        if len(lacking) >= SPOKEN_OF:
            self.vectors.notify(f"{what}, once ...")
        if not isinstance(column, Pictures):  # texts of one length need the least padding
            lacking = sorted(lacking, key=lambda place: len(column[rows[place]]))
        groups = [lacking[start : start + self.batch] for start in range(0, len(lacking), self.batch)]
        prepared = prefetched(
            groups, self._prepare(network, column, rows, device), threads=loader_threads(), ahead=loader_threads() + 2
        )
        try:
            with progress(what, len(lacking), self.vectors.notify) as advance:
                for group, batch in zip(groups, prepared, strict=True):
                    self.vectors.add([digests[place] for place in group], network.embed(batch, device, half=self.half))
                    advance(len(group))
        finally:
            prepared.close()
            self.vectors.flush()

    def _prepare(self, network: Network, column: Column, rows: Rows, device: str) -> Callable[[list[int]], Arrays]:
        """Return what the threads do with each group of places."""
        pixels = network.smallest_pixels if self.draft else 0

        def prepare(places: list[int]) -> Arrays:
            """Decode and prepares one group, a picture after the other."""
            batch = network.prepare(_value(column, int(rows[place]), pixels) for place in places)
            return pinned(batch) if device.startswith("cuda") else batch

        return prepare


def pinned(batch: Arrays) -> Arrays:
    """Return the arrays in memory from which a graphics card copies while it computes."""
    import torch

    return {name: torch.from_numpy(array).pin_memory().numpy() for name, array in batch.items()}


def _absolute(value: Any) -> Any:  # noqa: ANN401  an option's value
    there = isinstance(value, str) and value and Path(value).expanduser().exists()
    return str(Path(value).expanduser().resolve()) if there else value


def _content_digest(column: Column, row: int) -> str:
    if isinstance(column, PictureContents):
        return column.content_digest(row)
    if not isinstance(column, Pictures):
        return digest_bytes(str(column[row]).encode())
    picture = _decoded(column, row, 0)
    return digest_bytes(f"{picture.mode} {picture.size} ".encode() + picture.tobytes())


def _value(column: Column, row: int, at_least_pixels: int) -> Value:
    return _decoded(column, row, at_least_pixels) if isinstance(column, Pictures) else str(column[row])


def _decoded(column: Pictures, row: int, at_least_pixels: int) -> Image.Image:
    try:
        if at_least_pixels and isinstance(column, PictureContents):
            return decode(column.content(row), at_least_pixels=at_least_pixels)
        return column.picture(row)
    except (OSError, ValueError) as error:
        raise UserError(
            f"The picture in row {row} cannot be decoded ({error}). Replace the file, or leave the item out."
        ) from error
