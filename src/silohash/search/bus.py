"""The bus between a hub and the silos: one request per silo, and the answers that arrive before a deadline.

A hub compares each answer with its request (`answers_to`). If anything is wrong, nothing of the answer is used, and the silo
is listed as missing with the reason.

`LocalBus` connects silos of this process. A silo may have to wait for another machine, so each is asked in a thread of its
own. Silos that state that they are quick are asked by the calling thread, because this takes less time than starting another
thread. If they hold many codes together, threads that already run take some of them, one per further core. Silos of other
machines are connected by `silohash.search.wire`.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from math import sqrt
from typing import Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from silohash.base.cores import available_cores
from silohash.base.errors import NotFound, UserError
from silohash.base.types import modalities_of
from silohash.index.server import time_limit
from silohash.search.hits import Hits, Query
from silohash.search.node import SiloNode
from silohash.search.order import COSINE_STEPS
from silohash.search.reasons import Reason
from silohash.search.requests import (
    Answer,
    Browse,
    Code,
    CodeRequest,
    Item,
    ItemRequest,
    Refusal,
    Request,
    SiloStatus,
    StatusRequest,
)

T = TypeVar("T")

SHARED_CODES = 1_000_000
"""Quick silos with more codes than this together are shared with other threads, which saves more time than it takes."""

UNKNOWN = Reason("It is not part of the federation.", "unknown")

WANTED = {Query: Hits, Browse: Hits, ItemRequest: Item, CodeRequest: Code, StatusRequest: SiloStatus}
"""The answer to each request, unless it is refused."""

KINDS: Mapping[type, str] = {
    Query: "search", Browse: "browse", ItemRequest: "item", CodeRequest: "code", StatusRequest: "status",
    Hits: "hits", Item: "released", Code: "item code", SiloStatus: "summary", Refusal: "refusal",
}  # fmt: skip
_log = logging.getLogger(__name__)

Arrived: TypeAlias = Callable[[str, Answer | Reason], None]
"""Function that takes the name of a silo and its answer, or the reason why the answer cannot be used."""


@dataclass(frozen=True)
class Replies(Generic[T]):
    """Hold what arrived before the deadline. Every silo of the request is in one of the first two mappings.

    Attributes:
        answers: Maps each silo that answered to its answer.
        reasons: Maps each other silo to the reason.
        seconds: Maps silos that answered to the time from the request until their answers arrived, if it is known.
    """

    answers: Mapping[str, T] = field(default_factory=dict)
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, outcomes: Mapping[str, T | Reason], seconds: Mapping[str, float] | None = None) -> Replies[T]:
        """Return the replies of silos that answered, or are missing for a reason."""
        answers = {silo: outcome for silo, outcome in outcomes.items() if not isinstance(outcome, Reason)}
        reasons = {silo: outcome for silo, outcome in outcomes.items() if isinstance(outcome, Reason)}
        return cls(answers, reasons, seconds or {})


def ignored(silo: str, answer: Answer | Reason) -> None:
    """Take an answer for which nobody waits before all have arrived."""


class Bus(Protocol):
    """Carry requests to silos, and their answers back."""

    async def ask(
        self, requests: Mapping[str, Request], deadline_seconds: float, arrived: Arrived = ignored
    ) -> Replies[Answer]:
        """Send one request per silo at the same time, and wait for all answers until the deadline.

        A silo without an answer is returned with the reason. Nothing is raised for it. ``arrived`` gets each answer while
        other silos still work on theirs.
        """
        ...


def now(coroutine: Coroutine[object, object, T]) -> T:
    """Return the result of a coroutine that does not wait for others, such as a search over a `LocalBus`.

    It runs without an event loop, which would take longer to start than a search takes.
    """
    try:
        coroutine.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    # Its `finally` blocks run now, not when it happens to be collected.
    coroutine.close()
    raise RuntimeError("The coroutine waits for others, and needs an event loop.")


def late(deadline_seconds: float) -> Reason:
    """Return the reason for a silo that did not answer before the deadline."""
    return Reason(f"It did not answer within {deadline_seconds:.3g} seconds.", "late")


def answer_of(node: SiloNode, request: Request) -> Answer:
    """Return the answer of a silo to a request.

    Raises:
        UserError: If the silo does not have what is requested, or its index cannot be used.
    """
    if isinstance(request, Query | Browse):
        return node.answer(request)
    if isinstance(request, ItemRequest):
        return node.item(request.id)
    return node.code(request.id, request.modality) if isinstance(request, CodeRequest) else node.status()


async def answers_to(
    bus: Bus, requests: Mapping[str, Request], deadline_seconds: float, arrived: Arrived = ignored
) -> Replies[Answer]:
    """Ask silos, and check their answers. The arguments are those of `Bus.ask`."""
    checked: dict[str, Answer | Reason] = {}

    def check(silo: str, answer: Answer | Reason) -> None:
        """Replace an answer that cannot be used by the reason, and pass it on."""
        text = "" if isinstance(answer, Reason) else flaw(silo, requests[silo], answer)
        checked[silo] = Reason(text, "invalid") if text else answer
        arrived(silo, checked[silo])

    replies = await bus.ask(requests, deadline_seconds, check)
    checked = {**replies.reasons, **checked}
    for silo, reason in checked.items():
        if isinstance(reason, Reason) and reason.kind == "invalid":
            fields = {"silo": silo, "reason": str(reason)}
            _log.warning("ignored an answer that cannot be used", extra={"fields": fields})
    return Replies.of(checked, replies.seconds)


def flaw(silo: str, request: Request, answer: Answer) -> str:
    """Return what is wrong with the answer of a silo to a request, or an empty string. A refusal answers any request."""
    if isinstance(answer, Refusal):
        return ""
    if not isinstance(answer, wanted := WANTED[type(request)]):
        return f"It answered with {KINDS[type(answer)]} instead of {KINDS[wanted]}."
    match request, answer:
        case _, Hits() if {*answer.silos, *answer.missing_silos, *answer.limited_silos} - {silo}:
            return "It answered in the name of another silo."
        case Query(), Hits():
            return _flaw_of_hits(request, answer)
        case Browse(), Hits():
            return _flaw_of_list(request, answer)
        case ItemRequest(), Item() if answer.id != request.id:
            return "It answered with another item."
        case CodeRequest(), Code() if request.modality not in (None, answer.modality):
            return f"It answered with the code of the item's {answer.modality} instead of its {request.modality}."
    return ""


def _flaw_of_list(request: Browse, hits: Hits) -> str:
    columns = (hits.distances, hits.silos, hits.payloads, hits.order_values or hits.ids)
    others = (hits.scores, hits.cosines, hits.tiers, hits.matched, hits.ranks, hits.left_out or None)
    placed = [*zip(hits.known_distances, hits.values, strict=False)]
    if any(other is not None for other in others) or {len(placed), *map(len, columns)} != {len(hits)}:
        return "It answered with columns of unequal length, or that are not those of a list."
    if len(hits) > request.most_hits or len(set(hits.ids)) < len(hits) or placed != sorted(placed):
        return "It answered with more items than requested, with the same item twice, or not from new to old."
    return ""


def _flaw_of_hits(query: Query, hits: Hits) -> str:
    if hits.applied != len(query.where):
        return "It did not apply all conditions of the search."
    if others := hits.model_digests - {query.model_digest}:
        return f"It answered with codes of another model ({min(others)[:12]} instead of {query.model_digest[:12]})."
    if hits.ranks is not None:
        return "It answered with ranks, which only the hub assigns."
    flaw = _flaw_of_columns(query, hits)
    if flaw or hits.has_distances:
        return flaw or _flaw_of_distances(query, hits)
    # Without distances, hits do not tell anything that could be compared with some.
    clean = "ranks" in (hits.alterations or ()) and not (hits.known_distances or hits.left_out or hits.scores)
    return "" if clean else "It answered with distances of some items only."


def _flaw_of_columns(query: Query, hits: Hits) -> str:
    sometimes = (hits.scores, hits.order_values, hits.cosines, hits.tiers, hits.matched)
    optional = (hits.ids if column is None else column for column in sometimes)
    columns = (hits.distances, hits.silos, hits.payloads, hits.found, *optional)
    if {len(hits), *map(len, columns)} != {len(hits)}:
        return "It answered with columns of unequal length."
    if len(hits) > query.most_hits:
        return f"It answered with {len(hits):,} hits when {query.most_hits:,} were requested."
    if len(set(hits.ids)) < len(hits):
        return "It answered with the same item twice."
    if (hits.tiers or hits.matched) and query.text is query.own_text is None:
        return "It answered with words of the query, although it was not sent any."
    modalities = modalities_of(query.target)
    if not set(modalities).issuperset(chain.from_iterable(set(hits.found))):
        return f"It answered with sides other than {' and '.join(modalities)}."
    return ""


def _flaw_of_distances(query: Query, hits: Hits) -> str:
    told, hits = hits, hits.by_distance
    reach_bits = query.bits if query.radius_bits is None else min(query.bits, query.radius_bits)
    steps, ascending = hits.steps if hits.tiers else hits.known_distances, sorted(hits.known_distances)
    if hits.scores is None and sorted(steps) != steps:
        return "It answered with distances that are not in ascending order."
    if ascending and ascending[-1] > reach_bits:
        return f"It answered with a distance of {ascending[-1]} bits, beyond the limit of {reach_bits} bits."
    if any(distance > reach_bits for distance in hits.left_out):
        return f"It answered with items left out beyond the limit of {reach_bits} bits."
    if min([*ascending[:1], *hits.left_out.values()], default=0) < 0:
        return "It answered with a negative distance or number of items left out."
    if hits.order_values is not None and (flaw := _flaw_of_order_values(query, hits, hits.order_values)):
        return flaw
    return _flaw_of_cosines(query, told) or ("" if hits.scores is None else _flaw_of_scores(query, hits))


def _flaw_of_order_values(query: Query, hits: Hits, values: tuple[int, ...]) -> str:
    if query.magnitudes is None:
        return "It answered with order values, although it was not sent magnitudes."
    counts = (-words.bit_count() for words in hits.held_words)
    placed = [*zip(hits.steps, counts, values, strict=True)]
    if placed != sorted(placed):
        return "It answered with order values that are not in ascending order at a distance."
    highest = int(query.magnitudes.sum(dtype=np.int64))
    return f"It answered with an order value above {highest}." if max(values, default=0) > highest else ""


def _flaw_of_cosines(query: Query, hits: Hits) -> str:
    """Return what is wrong with cosines, which the order values of the same items limit (Cauchy and Schwarz)."""
    if hits.cosines is None:
        return ""
    if query.magnitudes is None or hits.order_values is None or hits.scores is not None:
        return (
            "It answered with cosines of outputs, although it was not sent magnitudes or tells nothing that they limit."
        )
    total = int((query.magnitudes.astype(np.int64) ** 2).sum())
    for distance, value, cosine in zip(hits.known_distances, hits.order_values, hits.cosines, strict=True):
        agreeing = max(0.0, 1 - value * value / max(distance * total, 1))
        if cosine is None or cosine > COSINE_STEPS * (1 + sqrt(agreeing)) + 1:
            return "It answered with a cosine of outputs that is impossible at the stated distance."
    return ""


def _flaw_of_scores(query: Query, hits: Hits) -> str:
    if query.content is None and query.nodes is None:
        return "It answered with scores, although it was sent a code only."
    if sorted(hits.steps) != hits.steps or hits.left_out:
        return "It answered with scores that are not in descending order, or with items left out at a distance."
    return ""


class LocalBus:
    """Connect silos of this process. `ask` never waits for another coroutine, so that `now` can run it.

    A silo that is not quick is asked in a daemon thread. It delays neither the hub nor its exit if it never returns. Its
    search on a server that does not answer ends soon after the deadline.

    Attributes:
        nodes: Maps the names of the silos to the silos.
    """

    def __init__(self, nodes: Iterable[SiloNode]) -> None:
        """Connect silos. Those whose attribute ``quick`` is true are asked by the calling thread."""
        self.nodes = {node.name: node for node in nodes}

    async def ask(
        self, requests: Mapping[str, Request], deadline_seconds: float, arrived: Arrived = ignored
    ) -> Replies[Answer]:
        """Send one request per silo, and wait for the answers. After the deadline, no further quick silo is asked."""
        end = time.monotonic() + deadline_seconds
        nodes = [self.nodes[silo] for silo in requests if silo in self.nodes]
        slow = [node for node in nodes if not node.quick]
        outcomes: queue.SimpleQueue[tuple[str, Answer | Reason]] = queue.SimpleQueue()
        for node in slow:
            arguments = (node, requests[node.name], outcomes, deadline_seconds)
            threading.Thread(target=_reply, args=arguments, name=f"ask {node.name}", daemon=True).start()
        # The slow silos work meanwhile, each in its thread.
        found = _of_quick([node for node in nodes if node not in slow], requests, end)
        for name, outcome in found.items():
            arrived(name, outcome)
        with suppress(queue.Empty):
            for _ in slow:
                name, outcome = outcomes.get(timeout=max(0.0, end - time.monotonic()))
                found[name] = outcome
                arrived(name, outcome)
        for silo in requests.keys() - found:
            found[silo] = late(deadline_seconds) if silo in self.nodes else UNKNOWN
        return Replies.of(found)


def _reply(
    node: SiloNode, request: Request, outcomes: queue.SimpleQueue[tuple[str, Answer | Reason]], deadline_seconds: float
) -> None:
    """Put the answer of a silo into a queue. Its search on a server ends at the deadline."""
    with time_limit(deadline_seconds):
        outcomes.put((node.name, _outcome(node, request)))


def _of_quick(nodes: Sequence[SiloNode], requests: Mapping[str, Request], end: float) -> dict[str, Answer | Reason]:
    """Return the answers of quick silos by name. None is asked after ``end``, a value of the monotonic clock."""
    waiting, found = deque(nodes), dict[str, Answer | Reason]()

    def work() -> None:
        """Ask silos until none is left."""
        while waiting and time.monotonic() < end:
            try:
                node = waiting.popleft()
            except IndexError:
                # Another thread took the last one after this one had looked.
                return
            found[node.name] = _outcome(node, requests[node.name])

    # Below this size, waking a helper takes longer than it saves.
    shared = len(nodes) > 1 and sum(node.codes for node in nodes) > SHARED_CODES
    helpers = min(available_cores(), len(nodes)) - 1 if shared else 0
    started = [_helpers().submit(work) for _ in range(helpers)]
    work()
    for helper in started:
        if not helper.cancel():  # one that is still busy with another search is not waited for
            helper.result()
    return found


@cache
def _helpers() -> ThreadPoolExecutor:
    """Return the threads that share quick silos with those that search."""
    return ThreadPoolExecutor(max(1, available_cores() - 1), "search")


def _outcome(node: SiloNode, request: Request) -> Answer | Reason:
    """Return the answer of a silo, or the reason for its absence."""
    try:
        return answer_of(node, request)
    except UserError as error:
        return Refusal(str(error), isinstance(error, NotFound))
    # An unexpected error of one silo must not cost the answers of the others.
    except Exception as error:
        return Reason(f"It failed: {type(error).__name__}: {error}", "failed")
