"""Pretrained networks as ONNX files in the cache, so that queries are encoded without torch.

Training writes a network once (`silohash.run.model.network_saving`), under the network's key. The files hold the whole
network, so the user's model folder is not needed to encode a query.

A search encodes one query, and then most of its time would be spent on reading hundreds of megabytes. The weights therefore
lie in a file of their own, which is mapped into memory, and files whose size and time of modification are unchanged since
they were last compared with their digests are not read to compare them again.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from silohash.base.cache import cache_folder
from silohash.base.errors import DamagedFile
from silohash.base.files import read_json, write_bytes, write_json
from silohash.base.forms import damaged, reading
from silohash.base.stamps import file_digests, remember
from silohash.base.types import Arrays
from silohash.base.visible import visible
from silohash.features.base import Value
from silohash.features.image import query_picture
from silohash.features.onnx_session import open_session, run_session
from silohash.features.preprocess import PicturePreparation
from silohash.features.text import query_text
from silohash.features.word_pieces import WordPieces

FOLDER = "onnx"


@dataclass(frozen=True)
class OnnxNetwork:
    """A network of the cache, run by onnxruntime, and what the cache records about it.

    Its other attributes are those of `silohash.features.network.Network`.

    Attributes:
        graph: Digest of the ONNX file, which names the file of weights.
        weights: Digest of the file of weights.
        pieces: The tokenizer, or None for pictures. Every text is padded to ``pieces.most`` word pieces.
    """

    key: str
    name: str
    width: int
    graph: str
    weights: str
    preparation: PicturePreparation | None = None
    pieces: WordPieces | None = None

    @property
    def digests(self) -> dict[str, str]:
        """The digests of the network's files by their names."""
        return {_graph_name(self.key): self.graph, weights_name(self.key): self.weights}

    def vectors(self, values: Iterable[Value]) -> npt.NDArray[np.float32]:
        """Return the vectors of pictures or texts, ``(n, width)`` float32.

        Another thread opens the network while the values are prepared. For one query, these two take most of the time.
        """
        # It is not imported in the thread, which would have to wait for the interpreter.
        import_module("onnxruntime")
        with ThreadPoolExecutor(1) as thread:
            opened = thread.submit(lambda: self._session)
            (inputs,) = prepared(values, self.preparation, self.pieces, padded=True).values()
            return run_session(opened.result(), inputs)

    @cached_property
    def _session(self) -> Any:  # noqa: ANN401  a class of onnxruntime, which has no types
        path = _folder() / _graph_name(self.key)
        with reading(path):
            found = file_digests(path.parent, list(self.digests))
        for name, digest in self.digests.items():
            if found[name] != digest:
                raise DamagedFile(
                    f"{path.parent / name} is damaged: it does not match its digest. Remove it and run the command again."
                )
        with reading(path):
            return open_session(path, few_items=True)


def prepared(
    values: Iterable[Value], preparation: PicturePreparation | None, pieces: WordPieces | None, *, padded: bool
) -> Arrays:
    """Return ``pixels (n, 3, h, w)`` uint8 of pictures, or ``ids (n, L)`` int32 of the word pieces of texts.

    Exactly one of the preparation and the tokenizer is given. With ``padded``, every text has the tokenizer's largest number
    of pieces.
    """
    if preparation is not None:
        drawn = [preparation.draw(query_picture(value)) for value in values]
        return {"pixels": np.stack(drawn) if drawn else np.zeros((0, 3, *preparation.shape), np.uint8)}
    assert pieces is not None  # noqa: S101  exactly one of them is set
    return {"ids": pieces.ids([query_text(value) for value in values], width=pieces.most if padded else None)}


def cached_network(key: str) -> OnnxNetwork | None:
    """Return the network with a key, or None if the cache does not hold all of its files.

    Raises:
        UserError: If its record is damaged, or is that of another network.
    """
    about = _folder() / f"{key}.json"
    if not about.is_file():
        return None
    found = read_json(about, OnnxNetwork)
    if found.key != key:
        raise damaged(about, f"it records the network {visible(found.key)}")
    return found if all((_folder() / name).is_file() for name in found.digests) else None


def store_network(network: OnnxNetwork, graph: bytes, weights: bytes) -> None:
    """Write a network to the cache: its ONNX file, the weights, which that file calls `weights_name`, and the record."""
    for name, content in zip(network.digests, (graph, weights), strict=True):
        write_bytes(_folder() / name, content)
    with reading(_folder() / _graph_name(network.key)):
        remember(_folder(), network.digests)
    write_json(_folder() / f"{network.key}.json", asdict(network))


def weights_name(key: str) -> str:
    """Return the name of a network's file of weights."""
    return f"{key}.weights"


def _graph_name(key: str) -> str:
    return f"{key}.onnx"


def _folder() -> Path:
    return cache_folder() / FOLDER
