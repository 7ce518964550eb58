"""The bus between a hub and the silos: one request per silo, and the answers that arrive before a deadline.

A bus carries bytes (see `silohash.search.wire`) and knows neither queries nor codes. To each request it adds the time for
which the hub still waits, so that a silo does not work for nobody. `LocalBus` connects silos of this process. Silos of other
machines are connected by `silohash.service.nats_bus`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

from silohash.base.types import UserError
from silohash.index.server import time_limit
from silohash.search.answers import MOST_ANSWER_BYTES, Answer, ReleasedItem, encode_answer, encode_refusal
from silohash.search.hits import Query, Reason
from silohash.search.node import SiloNode
from silohash.search.released import item_code, released_item, silo_status
from silohash.search.wire import CodeRequest, ItemRequest, Request, decode_request, with_time_left

T = TypeVar("T")

UNKNOWN = Reason("It is not part of the federation.", "unknown")

Responder: TypeAlias = Callable[[bytes, int, float], bytes]
"""Function that returns the answer to a request.

It is given the request, the limit on the answer's number of bytes, and the value of the monotonic clock at which the request
arrived.
"""

Reader: TypeAlias = Callable[[str, bytes], None]
"""Function that takes the name of a silo and its answer."""

_log = logging.getLogger(__name__)


def ignore(silo: str, answer: bytes) -> None:
    """Do nothing with an answer."""


@dataclass(frozen=True)
class Replies:
    """Hold what arrived before the deadline. Every silo of the request is in one of the two mappings.

    Attributes:
        answers: Maps each silo that answered to its answer.
        reasons: Maps each other silo to the reason.
        seconds: Maps each silo that answered to the time from the request until its answer arrived.
    """

    answers: Mapping[str, bytes] = field(default_factory=dict)
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


class Bus(Protocol):
    """Carry requests to silos, and their answers back."""

    async def ask(self, requests: Mapping[str, bytes], deadline_seconds: float, read: Reader = ignore) -> Replies:
        """Send one request per silo at the same time, and wait for the answers.

        Args:
            requests: Maps the names of silos to requests.
            deadline_seconds: Time limit for all answers.
            read: Called with each answer as soon as it arrives, while other silos still work on theirs.

        Returns:
            The answers, and the reason for each silo without an answer. Nothing is raised for such a silo.
        """
        ...


async def completed(
    futures: Collection[asyncio.Future[T]], deadline_seconds: float
) -> AsyncIterator[asyncio.Future[T]]:
    """Yield futures in the order in which they are done, until a deadline."""
    clock = asyncio.get_running_loop().time
    end, waiting = clock() + deadline_seconds, {*futures}
    while waiting:
        seconds = max(0.0, end - clock())
        done, waiting = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return
        for future in done:
            yield future


class TimeOver(UserError):  # noqa: N818  a refusal, not a failure
    """The sender of a request does not wait for its answer any more."""


@dataclass(frozen=True)
class Response:
    """Hold the answer of a silo as bytes, and what it was made from, for the silo's log.

    Attributes:
        content: The answer.
        request: The request; None if it could not be read.
        answer: The answer before it was encoded; None for a refusal.
        error: Why the silo refused; None if it did not.
    """

    content: bytes
    request: Request | None = None
    answer: Answer | None = None
    error: Exception | None = None


def late(deadline_seconds: float) -> Reason:
    """Return the reason for a silo that did not answer before the deadline."""
    return Reason(f"It did not answer within {deadline_seconds:g} seconds.", "late")


def respond(
    node: SiloNode,
    content: bytes,
    most_bytes: int = MOST_ANSWER_BYTES,
    choose: Callable[[Request], SiloNode] | None = None,
    *,
    arrived: float | None = None,
) -> Response:
    """Return the answer of a silo to a request.

    A request whose sender does not wait any more is refused without work. Searches on servers end when the sender stops
    waiting. No error leaves this function. An unexpected one is logged, and the hub gets a refusal without its details.

    Args:
        node: The silo.
        content: The request.
        most_bytes: Limit on the number of bytes of the answer.
        choose: Returns the node that answers a request, if the silo has one per model; None if ``node`` answers all.
        arrived: Value of the monotonic clock at which the request arrived; None for now.
    """
    request: Request | None = None
    try:
        request = decode_request(content)
        with time_limit(_seconds_left(request, arrived)):
            answer = _answer(node if choose is None else choose(request), request)
        return Response(encode_answer(node.name, answer, most_bytes=most_bytes), request, answer)
    except UserError as error:
        return Response(encode_refusal(node.name, error), request, error=error)
    except Exception as error:  # a request that makes one silo fail must not end its process
        _log.exception("The silo %s failed to answer", node.name)
        return Response(encode_refusal(node.name, error), request, error=error)


def _seconds_left(request: Request, arrived: float | None) -> float | None:
    """Return the time for which the sender of a request still waits; None if it is not known.

    Raises:
        TimeOver: If it does not wait any more.
    """
    if request.seconds_left is None:
        return None
    waited = 0.0 if arrived is None else time.monotonic() - arrived
    if waited >= request.seconds_left:
        raise TimeOver("Its time limit had passed before the silo could begin with it.")
    return request.seconds_left - waited


def _answer(node: SiloNode, request: Request) -> Answer:
    if isinstance(request, Query):
        return node.answer(request)
    if isinstance(request, ItemRequest | CodeRequest):
        node.admit(request.asker)
    if isinstance(request, ItemRequest):
        modalities, payload = released_item(node, request.id)
        return ReleasedItem(request.id, modalities, payload)
    if isinstance(request, CodeRequest):
        return item_code(node, request.id, request.modality)
    return silo_status(node)


class LocalBus:
    """Connect silos of this process. Each request runs in a thread.

    Attributes:
        responders: Maps the names of silos to the functions that answer for them.
    """

    def __init__(self, responders: Mapping[str, Responder]) -> None:
        self.responders = responders

    @classmethod
    def of(cls, *nodes: SiloNode) -> LocalBus:
        """Return a bus to the given silos."""

        def responder(node: SiloNode) -> Responder:
            """Return the function that answers for a node."""
            return lambda content, most_bytes, arrived: respond(node, content, most_bytes, arrived=arrived).content

        return cls({node.name: responder(node) for node in nodes})

    async def ask(self, requests: Mapping[str, bytes], deadline_seconds: float, read: Reader = ignore) -> Replies:
        """Send one request per silo, and wait for the answers. See `Bus.ask`."""
        start = time.monotonic()
        silo_of: dict[asyncio.Future[tuple[bytes, float]], str] = {
            asyncio.create_task(
                asyncio.to_thread(_timed, self.responders[silo], with_time_left(content, deadline_seconds), start)
            ): silo
            for silo, content in requests.items()
            if silo in self.responders
        }
        answers: dict[str, bytes] = {}
        seconds: dict[str, float] = {}
        reasons = {silo: UNKNOWN for silo in requests if silo not in self.responders}
        async for task in completed(silo_of, deadline_seconds):
            silo = silo_of[task]
            if error := task.exception():
                reasons[silo] = Reason(f"It failed: {type(error).__name__}: {error}", "failed")
                continue
            answers[silo], seconds[silo] = task.result()
            read(silo, answers[silo])
        for task, silo in silo_of.items():
            if silo not in answers and silo not in reasons:
                task.cancel()
                reasons[silo] = late(deadline_seconds)
        return Replies(answers, reasons, seconds)


def _timed(responder: Responder, content: bytes, arrived: float) -> tuple[bytes, float]:
    """Return the answer to a request, and the seconds that it took."""
    start = time.perf_counter()
    return responder(content, MOST_ANSWER_BYTES, arrived), time.perf_counter() - start
