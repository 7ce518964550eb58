"""Pretrained networks as ONNX files in the cache, so that queries are encoded without torch.

Training writes a network once (`silohash.encode.network_saving`), under the network's key. The file holds the whole network,
so the user's model folder is not needed to encode a query.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from silohash.data.cache import cache_folder
from silohash.features.base import Value
from silohash.features.image import query_picture
from silohash.features.onnx_session import open_session, run_session
from silohash.features.preprocess import PicturePreparation
from silohash.features.text import query_text
from silohash.features.word_pieces import WordPieces
from silohash.files import digest_bytes, read_json, write_bytes, write_json
from silohash.forms import reading
from silohash.types import Arrays, Modality, UserError

FOLDER = "networks"


@dataclass(frozen=True)
class NetworkRecord:
    """What the cache records about a network.

    Attributes:
        key: the network's key, see `silohash.features.network.Network`.
        name: the name in messages.
        width: the length of a vector.
        digest: digest of the ONNX file.
        preparation: the preprocessing of pictures, or None for texts.
        pieces: the tokenizer, or None for pictures. Every text is padded to ``pieces.most`` word pieces.
    """

    key: str
    name: str
    width: int
    digest: str
    preparation: PicturePreparation | None = None
    pieces: WordPieces | None = None


@dataclass(frozen=True)
class OnnxNetwork:
    """A network of the cache, run by onnxruntime. It implements `silohash.features.network.Network`."""

    record: NetworkRecord

    @property
    def modality(self) -> Modality:
        """The modality of the inputs."""
        return "text" if self.record.preparation is None else "image"

    @property
    def name(self) -> str:
        """The name in messages."""
        return self.record.name

    @property
    def key(self) -> str:
        """The key of the network."""
        return self.record.key

    @property
    def width(self) -> int:
        """The length of a vector."""
        return self.record.width

    @property
    def smallest_pixels(self) -> int:
        """The smallest side in pixels at which pictures may be decoded without being enlarged later; 0 for texts."""
        return 0 if self.record.preparation is None else self.record.preparation.smallest_pixels

    def prepare(self, values: Iterable[Value]) -> Arrays:
        """Return ``inputs``: ``(n, 3, h, w)`` uint8 pixels, or ``(n, L)`` int32 ids of word pieces.

        Raises:
            UserError: if a value is of the other modality, or the package tokenizers is missing.
        """
        if self.record.preparation is not None:
            return {"inputs": np.stack([self.record.preparation.draw(query_picture(value)) for value in values])}
        assert self.record.pieces is not None  # noqa: S101  exactly one of them is set
        pieces = self.record.pieces
        return {"inputs": pieces.ids([query_text(value) for value in values], width=pieces.most)}

    def embed(self, batch: Arrays, device: str = "cpu", *, half: bool = False) -> npt.NDArray[np.float32]:
        """Return the vectors, ``(n, width)`` float32. They are computed on the CPU in 32 bits."""
        return run_session(self._session, batch["inputs"])

    @cached_property
    def _session(self) -> Any:  # noqa: ANN401  a class of onnxruntime, which has no types
        path, _ = _paths(self.key)
        with reading(path):
            content = path.read_bytes()
        if digest_bytes(content) != self.record.digest:
            raise UserError(f"{path} is damaged: it does not match its digest. Remove it and run the command again.")
        return open_session(content)


def cached_network(key: str) -> OnnxNetwork | None:
    """Return the network with a key, or None if the cache does not hold it.

    Raises:
        UserError: if its record is damaged.
    """
    content, about = _paths(key)
    return OnnxNetwork(read_json(about, NetworkRecord)) if content.is_file() and about.is_file() else None


def store_network(record: NetworkRecord, content: bytes) -> None:
    """Write a network to the cache.

    Raises:
        UserError: if the cache cannot be written.
    """
    path, about = _paths(record.key)
    write_bytes(path, content)
    write_json(about, asdict(record))


def _paths(key: str) -> tuple[Path, Path]:
    folder = cache_folder() / FOLDER
    return folder / f"{key}.onnx", folder / f"{key}.json"
