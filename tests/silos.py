"""Made-up silos with stores of codes, for tests of the search."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import weakref
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from silohash.base.errors import NotFound, UnreadableMessage
from silohash.base.types import Modality, Target
from silohash.index.base import IndexManifest
from silohash.index.codes import pack
from silohash.index.store import Store
from silohash.run.folder import Run
from silohash.search import merge
from silohash.search.bus import UNKNOWN, LocalBus, Replies, flaw, late, now
from silohash.search.hits import Hits, Query, silent
from silohash.search.node import SiloNode
from silohash.search.policy import Policy
from silohash.search.requests import CodeRequest, ItemRequest, Refusal, Request, SearchRequest, StatusRequest
from silohash.search.silos import RunSearch
from silohash.search.wire import MOST_ANSWER_BYTES, Reader, Responder, decode_answer, respond, with_time_left

MODEL = "3f2a"
T = TypeVar("T")


def ask(
    nodes: Sequence[Any], query: Query | Mapping[str, Query], *, secret: bytes = b"", deadline_seconds: float = 60.0
) -> Hits:
    """Returns what silos of this process answer to a query, or to one query each."""
    queries = dict(query) if isinstance(query, Mapping) else {node.name: query for node in nodes}
    return now(merge.ask(LocalBus(nodes), queries, deadline_seconds=deadline_seconds, secret=secret))


def ask_run(
    run: Run,
    value: Any,
    modality: Modality,
    target: Target = "item",
    *,
    nodes: Sequence[SiloNode] | None = None,
    **options: Any,
) -> Hits:
    """Returns what the silos of a run answer to a text, a picture or a vector, without previews."""
    request = SearchRequest(value=value, modality=modality, target=target, **{"previews": False, **options})
    return now(RunSearch(run, nodes).search(request))


def decoded(content: bytes, request: Request, silo: str) -> Any:
    """Returns the checked answer of a silo to a request; hits of a silo that refused are silent.

    Raises:
        NotFound: what is requested does not exist.
        UnreadableMessage: the silo refused something else than a search, or its answer cannot be used.
    """
    answer = decode_answer(content, silo)
    if text := flaw(silo, request, answer):
        raise UnreadableMessage(text)
    if not isinstance(answer, Refusal):
        return answer
    if isinstance(request, Query):
        return silent(silo, answer.reason)
    raise (NotFound if answer.not_found else UnreadableMessage)(answer.reason)


def decode_hits(content: bytes, query: Query, silo: str) -> Any:
    """Returns the hits of a silo, see `decoded`."""
    return decoded(content, query, silo)


def decode_item(content: bytes, request: ItemRequest, silo: str) -> Any:
    """Returns the item of a silo, see `decoded`."""
    return decoded(content, request, silo)


def decode_code(content: bytes, request: CodeRequest, silo: str) -> Any:
    """Returns the code of an item of a silo, see `decoded`."""
    return decoded(content, request, silo)


def decode_status(content: bytes, silo: str) -> Any:
    """Returns the summary of a silo, see `decoded`."""
    return decoded(content, StatusRequest(), silo)


async def completed(futures: Collection[asyncio.Future[T]], seconds: float) -> AsyncIterator[asyncio.Future[T]]:
    """Yield futures in the order in which they are done, until a deadline."""
    end, waiting = time.monotonic() + seconds, {*futures}
    while waiting:
        left = max(0.0, end - time.monotonic())
        done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return
        for future in done:
            yield future


class BytesInThreads:
    """Carry bytes to silos of this process, each of which answers in a thread. See `silohash.search.wire.Carrier`."""

    def __init__(self, responders: Mapping[str, Responder]) -> None:
        self.responders = dict(responders)

    @classmethod
    def of(cls, *nodes: SiloNode) -> BytesInThreads:
        """Returns a carrier to some silos."""

        def responder(node: SiloNode) -> Responder:
            return lambda content, most_bytes, arrived: respond(node, content, most_bytes, arrived=arrived).content

        return cls({node.name: responder(node) for node in nodes})

    async def ask(
        self, requests: Mapping[str, bytes], deadline_seconds: float, read: Reader = lambda silo, answer: None
    ) -> Replies[bytes]:
        start = time.monotonic()
        silo_of = {
            asyncio.create_task(
                asyncio.to_thread(
                    self.responders[silo], with_time_left(content, deadline_seconds), MOST_ANSWER_BYTES, start
                )
            ): silo
            for silo, content in requests.items()
            if silo in self.responders
        }
        answers: dict[str, bytes] = {}
        reasons = {silo: UNKNOWN for silo in requests if silo not in self.responders}
        async for task in completed(silo_of, deadline_seconds):
            silo = silo_of[task]
            answers[silo] = task.result()
            read(silo, answers[silo])
        for task, silo in silo_of.items():
            if silo not in answers:
                task.cancel()
                reasons[silo] = late(deadline_seconds)
        return Replies(answers, reasons, dict.fromkeys(answers, 0.0))


class AnswerAfterRead:
    """A silo that does not answer before the hub has read the answer of another one.

    Attributes:
        seen: The name and the answer of each silo that the hub has read.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes]] = []
        self._read = threading.Event()

    def read(self, silo: str, answer: bytes) -> None:
        """Note an answer."""
        self.seen.append((silo, answer))
        self._read.set()

    def __call__(self, content: bytes, most_bytes: int, arrived: float) -> bytes:
        """Answer with the request."""
        assert self._read.wait(60)
        return content


def made_up_codes(count: int, bits: int, seed: int, *, centers: int = 4, flipped: float = 0.1) -> np.ndarray:
    """Returns ``(count, W)`` words in few clusters, so that distances tie."""
    generator = np.random.default_rng(seed)
    middle = np.random.default_rng(0).choice([-1, 1], (centers, bits))
    signs = middle[generator.integers(centers, size=count)]
    return pack(np.where(generator.random((count, bits)) < flipped, -signs, signs))


def made_up_store(
    path: Path, words: np.ndarray, bits: int, *, ids: list[str] | None = None, model: str = MODEL
) -> Store:
    """Returns a new store of image codes; items are called "0", "1", … unless named."""
    store = Store.create(path, IndexManifest(model_digest=model, bits=bits, modality="image"))
    names = ids or [str(row) for row in range(len(words))]
    if names:
        store.add(names, words, [json.dumps({"caption": f"item {name}", "owner": "secret"}) for name in names])
    return store


def made_up_node(
    folder: Path, name: str, words: np.ndarray, bits: int, policy: Policy | None = None, **store: Any
) -> SiloNode:
    """Returns a silo with an image index; its store is closed when the node goes."""
    opened = made_up_store(folder / f"{name}.index", words, bits, **store)
    node = SiloNode(name, {"image": opened}, policy)
    weakref.finalize(node, opened.close)
    return node


def query_of(words: np.ndarray, bits: int, **asked: Any) -> Query:
    """Returns a query for pictures with the first of some codes."""
    return Query(words=words[0], bits=bits, model_digest=MODEL, target="image", **asked)


def distances_to(words: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Returns Hamming distances the plain way, ``(n,)``."""
    return np.bitwise_count(words ^ query).sum(axis=1).astype(int)
