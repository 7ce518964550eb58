"""Vectors from pretrained networks: the kinds of networks, a network with fixed weights, and the featurizer that uses one.

Each item is encoded once, and its vector is kept in a cache (`silohash.features.cache`). The vectors are standardized
like precomputed ones, with sums over silos.
"""

from __future__ import annotations

import importlib
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from PIL import Image
from PIL import __version__ as pillow_version

from silohash.base.arrays import whole
from silohash.base.cache import private_cache
from silohash.base.errors import NetworkChanged, NoEffect, UnsuitableFeatures
from silohash.base.files import digest_bytes, digest_json
from silohash.base.optional import require
from silohash.base.stamps import PICTURE_RULE
from silohash.base.types import Arrays, Modality, Rows
from silohash.data.archive import Column, Pictures, is_features
from silohash.data.pictures.reading import PictureContents, decode
from silohash.features.base import Value, check_switches
from silohash.features.cache import NetworkVectors
from silohash.features.device import choose_device, half_type
from silohash.features.given import WHITENING, GivenFeatures, TokenVectors, is_whitened
from silohash.features.image import explaining_picture, pictures_of, query_picture
from silohash.features.loading import loader_threads, prefetched, progress
from silohash.features.onnx_network import OnnxNetwork, cached_network, prepared
from silohash.features.preprocess import PicturePreparation
from silohash.features.text import query_text, texts_of
from silohash.features.word_pieces import WordPieces

if TYPE_CHECKING:
    import torch
    from torch import nn

NETWORKS: Mapping[str, str] = {"cnnf": "silohash.models.cnnf", "huggingface": "silohash.models.huggingface"}
"""Each kind of published network is a module with these functions, which raise `UserError` if the weights do not exist:

``frozen(modality, **options)`` returns the `Network` of fixed features. Its keyword-only parameters are the kind's options
in ``[features]``.

``settings(modality, featurizer, **options)`` reads the user's files and returns a JSON value from which a tower can be
built that fine-tunes the network. Its keyword-only parameters are the kind's options in ``[model]``. The value has an entry
``width``, and for images ``factor`` and ``offset``, which map pixels from 0 to 255 to the network's input scale (one number
per channel).

``build(settings)`` returns the network, ``(B, ...) -> (B, width)``, with arbitrary weights.

``weights(settings)`` reads the user's files and returns the published weights by their names in the state of the network.
"""

PICTURE_REGIONS = "picture_regions"
MODULES = {**NETWORKS, PICTURE_REGIONS: "silohash.features.nodes.picture_regions"}
"""The modules of all kinds that have the function ``frozen``."""

COMMON_OPTIONS: Mapping[str, Any] = {"batch": 32, "device": "auto", "half": False, "draft": False}
"""Options of all kinds: items per forward pass, device, 16-bit precision, and JPEG decoding at a reduced size."""

NETWORK_FILES = ("model", "weights", "detector")
"""Options that hold the path of a user's file or folder."""

REPORTED_ITEMS = 64
"""Encoding fewer items than this is not reported."""


@dataclass(frozen=True, eq=False)
class Network:
    """A pretrained network with fixed weights that turns pictures or texts into vectors.

    Several threads call `prepare` at the same time, and one thread calls `embed`.

    Attributes:
        name: Name in messages, for example ``google/vit-base-patch16-224``.
        key: Digest of everything that affects the vectors: kind, weights, layer or pooling, preprocessing.
        load: Function that returns the network, and is called on first use.
        preparation: The preprocessing of pictures, or None for texts.
        pieces: The tokenizer, or None for pictures.
        tokens: Number of tokens per item, whose vectors follow that of the item in a row; 0 for one vector per item.
        padded: Whether every text is padded to the tokenizer's largest number of pieces.
        half_type: Function that returns the 16-bit type in which the network computes on a device, or None.
    """

    name: str
    key: str
    width: int
    load: Callable[[], nn.Module] = field(repr=False)
    preparation: PicturePreparation | None = None
    pieces: WordPieces | None = None
    tokens: int = 0
    padded: bool = False
    half_type: Callable[[torch.device], torch.dtype | None] = half_type

    @cached_property
    def module(self) -> nn.Module:
        """The network, ``(n, 3, h, w)`` or ``(n, L)`` to ``(n, width)``."""
        return self.load()

    @property
    def modality(self) -> Modality:
        """The modality of the inputs."""
        return "image" if self.pieces is None else "text"

    @property
    def smallest_pixels(self) -> int:
        """The smallest side in pixels at which pictures may be decoded without being enlarged later; 0 for texts."""
        return 0 if self.preparation is None else self.preparation.smallest_pixels

    def prepare(self, values: Iterable[Value]) -> Arrays:
        """Return pictures or texts as `prepared`. The values are produced one at a time and are not kept."""
        return prepared(values, self.preparation, self.pieces, padded=self.padded)

    def embed(self, batch: Arrays, device: str, *, half: bool) -> npt.NDArray[np.float32]:
        """Return the vectors of n inputs that `prepare` returned, ``(n, width)`` float32, by way of 16 bits if ``half``."""
        import torch

        place = torch.device(device)
        kind = self.half_type(place) if half else None
        (values,) = batch.values()
        with torch.inference_mode(), torch.autocast(place.type, kind, enabled=kind is not None):
            inputs = torch.from_numpy(values).to(place, non_blocking=True)
            if self.preparation is not None:
                # Pixels are scaled on the device, so that only one byte of each is copied to it.
                factor, offset = (torch.from_numpy(array).to(place) for array in self.preparation.affine())
                inputs = inputs.float().mul_(factor).add_(offset)
            vectors = self.module.to(place)(inputs)
        found: npt.NDArray[np.float32] = vectors.float().cpu().numpy()
        return found


def network_module(kind: str) -> Any:  # noqa: ANN401  a module of the table
    """Return the module of a kind of `MODULES`. Those of `NETWORKS` import torch."""
    return importlib.import_module(MODULES[kind])


def make_network(kind: str, modality: Modality, options: Mapping[str, Any]) -> Network:
    """Return a network of a given kind with fixed weights."""
    network: Network = network_module(kind).frozen(modality, **options)
    return network


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the keyword-only parameters of a function with their defaults, which are a kind's options."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


class Source:
    """The source of a network of a kind of `NETWORKS`, which is loaded on first use.

    It is compared with the network's expected key when the run was trained, if that is given.
    """

    def __init__(self, kind: str, modality: Modality, options: Mapping[str, Any], expected: str | None = None) -> None:
        self.kind = kind
        self.modality = modality
        self.options = {name: _absolute(value) if name in NETWORK_FILES else value for name, value in options.items()}
        self._expected = expected
        self._network: Network | None = None
        self._stored: OnnxNetwork | None = None
        self._lock = threading.Lock()

    def network(self) -> Network:
        """Return the network.

        Raises:
            UserError: If it no longer exists, or is not the network that the run was trained with.
        """
        with self._lock:
            if self._network is None:
                network = make_network(self.kind, self.modality, self.options)
                if self._expected not in {None, network.key}:
                    raise NetworkChanged(
                        f"{network.name} is not the network that the run was trained with: its weights or settings have "
                        "changed. Restore the earlier network, or train again."
                    )
                self._network = network
            return self._network

    def stored_network(self, key: str) -> OnnxNetwork | None:
        """Return the network with a key from the cache, where it does not need torch, or None if the cache lacks it."""
        if self._stored is None:
            self._stored = cached_network(key)
        return self._stored


@dataclass(frozen=True, eq=False)
class NetworkFeatures:
    """Vectors of a pretrained network for pictures or texts, standardized per column. Tokens may have vectors of their own.

    Attributes:
        key: The key of the network. Vectors of networks with different keys are not comparable.
        half: Whether to compute in 16 bits if that is faster, and to store vectors in 16 bits.
        draft: Whether to decode pictures at a reduced size if that is large enough for the network.
    """

    source: Source
    key: str
    given: GivenFeatures | TokenVectors
    batch: int
    device: str
    half: bool
    draft: bool
    vectors: NetworkVectors = field(repr=False)

    options: ClassVar[Mapping[str, Any]] = {**COMMON_OPTIONS, **WHITENING}

    @classmethod
    def options_of(cls, kind: str) -> dict[str, Any]:
        """Return the options of a kind, with their defaults."""
        return {**options_of(network_module(kind).frozen), **COMMON_OPTIONS, **WHITENING}

    @classmethod
    def make(cls, kind: str, modality: Modality, column: Column, options: Mapping[str, Any]) -> NetworkFeatures:
        """Return an unfitted featurizer.

        Raises:
            UserError: If the column is of another kind, if an option is invalid, or if the network or the device is not
                available.
        """
        if is_features(column) or isinstance(column, Pictures) != (modality == "image"):
            raise UnsuitableFeatures(
                f'[features] kind "{kind}" needs pictures or texts, and this archive\'s {modality} column holds vectors. '
                'Set kind = "auto", or set the option of the archive that opens its pictures.'
            )
        whole("[features] batch", options["batch"], 1)
        check_switches(options, "half", "draft")
        choose_device(options["device"], f"features.{modality}.device")
        source = Source(kind, modality, {n: value for n, value in options.items() if n not in cls.options})
        network = source.network()
        given = _standardizer(network, whiten=is_whitened(modality, options))
        return cls._over(source, network.key, given, options)

    @classmethod
    def _over(
        cls, source: Source, key: str, given: GivenFeatures | TokenVectors, options: Mapping[str, Any]
    ) -> NetworkFeatures:
        settings = {name: options[name] for name in ("half", "draft")}
        if given.modality == "image":
            settings |= {"pillow": pillow_version, "rule": PICTURE_RULE}
        folder = private_cache("vectors") / digest_json([key, settings])
        vectors = NetworkVectors(folder, given.width, half=options["half"])
        return cls(source, key, given, **{name: options[name] for name in COMMON_OPTIONS}, vectors=vectors)

    @property
    def kind(self) -> str:
        """The kind of the network, which is the featurizer's name in the table of `silohash.features`."""
        return self.source.kind

    @property
    def modality(self) -> Modality:
        """The modality of the inputs."""
        return self.given.modality

    @property
    def pieces(self) -> WordPieces | None:
        """The tokenizer, or None for networks that do not read word pieces. It is taken from the cache where possible."""
        return (self.source.stored_network(self.key) or self.source.network()).pieces

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one item: ``(width,)``, or ``(1 + T, D)`` for the vectors of an item and of its tokens."""
        return self.given.shape

    def statistics(self, column: Column, rows: Rows) -> Arrays:
        """Return the sums of the network's vectors, as `GivenFeatures` defines them."""
        return self.given.statistics(self.network_vectors(column, rows), np.arange(len(rows)))

    def fitted(self, summed: Arrays) -> NetworkFeatures:
        """Return a featurizer with the mean and the standard deviation over all silos."""
        return replace(self, given=self.given.fitted(summed))

    def transform(self, column: Column, rows: Rows) -> npt.NDArray[np.float32]:
        """Return the standardized vectors of the rows, ``(n, *shape)`` float32."""
        return self.given.transform(self.network_vectors(column, rows), np.arange(len(rows)))

    def encode_one(self, value: Value) -> npt.NDArray[np.float32]:
        """Return one picture or text as ``(1, *shape)`` float32. The errors are those of `query_vector`."""
        return self.given.encode_one(self.query_vector(value))

    def query_vector(self, value: Value) -> npt.NDArray[np.float32]:
        """Return the network's vector of one picture or text before standardization, ``(1, width)`` float32.

        Raises:
            UserError: If the query is of the other modality, or if the cache does not hold the network and it no longer
                exists, has changed, or cannot run because torch is missing.
        """
        image = self.modality == "image"
        query = query_picture(value) if image else query_text(value)
        stored = None if self.half else self.source.stored_network(self.key)
        if stored is not None:
            found = stored.vectors([query])
        else:
            require("torch", f'Encoding this query, with "{self.kind}" features whose network the cache does not hold,')
            network = self.source.network()
            found = network.embed(network.prepare([query]), str(choose_device(self.device)), half=self.half)
        return self.vectors.rounded(found).astype(np.float32)

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the sums, and the source and key of the network, but not its weights."""
        about = {
            "kind": self.kind, "modality": self.modality, "width": self.given.width, "key": self.key,
            "options": self.source.options, "half": self.half, "draft": self.draft,
        }  # fmt: skip
        if self.modality == "image":
            about["rule"] = PICTURE_RULE
        return dict(self.given.summed or {}), about | self.given.settings()

    @classmethod
    def from_state(cls, arrays: Arrays, about: Mapping[str, Any]) -> NetworkFeatures:
        """Return the featurizer with a given state. The network is loaded when something must be encoded."""
        source = Source(about["kind"], about["modality"], about["options"], about["key"])
        given = (TokenVectors if about.get("tokens") else GivenFeatures).from_state(arrays, about)
        options = {**COMMON_OPTIONS, "half": about["half"], "draft": about["draft"]}
        return cls._over(source, about["key"], given, options)

    def network_vectors(self, column: Column, rows: Rows) -> npt.NDArray[np.float32]:
        """Return the network's vectors before standardization, ``(n, width)`` float32. Missing ones are computed first."""
        return self.vectors.take(self.encoded(column, rows))

    def encoded(self, column: Column, rows: Rows) -> list[str]:
        """Return the digests of items, by which the cache holds their vectors. Missing ones are computed first."""
        (pictures_of if self.modality == "image" else texts_of)(column)
        digests = [_content_digest(column, int(row)) for row in rows]
        lacking = self.vectors.missing(digests)
        if lacking:
            self._encode(column, rows, digests, lacking)
        return digests

    def _encode(self, column: Column, rows: Rows, digests: list[str], lacking: list[int]) -> None:
        network, device = self.source.network(), str(choose_device(self.device))
        what = f"Encoding {len(lacking):,} {'pictures' if self.modality == 'image' else 'texts'} with {network.name}"
        if len(lacking) >= REPORTED_ITEMS:
            self.vectors.notify(f"{what}; the result is kept for later runs ...")
        # Batches of texts of similar lengths need the least padding.
        if not isinstance(column, Pictures):
            lacking = sorted(lacking, key=lambda place: len(str(texts_of(column)[rows[place]])))
        groups = [lacking[start : start + self.batch] for start in range(0, len(lacking), self.batch)]
        prepare, threads = self._prepare(network, column, rows, device), loader_threads()
        batches = prefetched(groups, prepare, threads=threads, ahead=threads + 2)
        try:
            with progress(what, len(lacking), self.vectors.notify) as advance:
                for group, batch in zip(groups, batches, strict=True):
                    self.vectors.add([digests[place] for place in group], network.embed(batch, device, half=self.half))
                    advance(len(group))
        finally:
            batches.close()
            self.vectors.flush()

    def _prepare(self, network: Network, column: Column, rows: Rows, device: str) -> Callable[[list[int]], Arrays]:
        pixels = network.smallest_pixels if self.draft else 0

        def _value(row: int) -> Value:
            return _decoded(column, row, pixels) if isinstance(column, Pictures) else str(texts_of(column)[row])

        def _prepared(places: list[int]) -> Arrays:
            batch = network.prepare(_value(int(rows[place])) for place in places)
            return pinned(batch) if device.startswith("cuda") else batch

        return _prepared


def _standardizer(network: Network, *, whiten: bool) -> GivenFeatures | TokenVectors:
    """Return what standardizes the vectors of a network, or those of an item and of its tokens, before fitting."""
    if not network.tokens:
        return GivenFeatures(network.modality, network.width, whiten=whiten)
    if whiten:
        raise NoEffect('[features] whiten does not apply to the vectors of tokens. Remove it, or pooling = "tokens".')
    return TokenVectors.make(network.modality, network.width, network.tokens)


def pinned(batch: Arrays) -> Arrays:
    """Return the arrays in page-locked memory, from which a GPU can copy asynchronously."""
    import torch

    return {name: torch.from_numpy(array).pin_memory().numpy() for name, array in batch.items()}


def _absolute(value: Any) -> Any:  # noqa: ANN401  an option's value
    there = isinstance(value, str) and value and Path(value).expanduser().exists()
    return str(Path(value).expanduser().resolve()) if there else value


def _content_digest(column: Column, row: int) -> str:
    if isinstance(column, PictureContents):
        return column.content_digest(row)
    if not isinstance(column, Pictures):
        return digest_bytes(str(texts_of(column)[row]).encode())
    picture = _decoded(column, row, 0)
    return digest_bytes(f"{picture.mode} {picture.size} ".encode() + picture.tobytes())


def _decoded(column: Pictures, row: int, at_least_pixels: int) -> Image.Image:
    with explaining_picture(row):
        if at_least_pixels and isinstance(column, PictureContents):
            return decode(column.content(row), at_least_pixels=at_least_pixels)
        return column.picture(row)
