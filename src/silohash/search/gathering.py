"""Send a query to several nodes, and collect the answers that arrive before a deadline.

A node may have to wait for another machine, so each node is queried in a thread of its own. Nodes that state that they are
quick are queried by the calling thread, because their queries take less time than starting another thread. If they hold many
codes together, threads that already run take some of them, one per further core.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeAlias

from silohash.base.cores import available_cores
from silohash.base.types import UserError, sides_of
from silohash.index.server import time_limit
from silohash.search.hits import Hits, Node, Query, Reason, silent

NOT_QUERIED = Reason("It was not queried, because there is no query for it.", "no_code")

SHARED_CODES = 1_000_000
"""Quick nodes with more codes than this together are shared with other threads, which saves more time than it takes."""

Replies: TypeAlias = "queue.SimpleQueue[tuple[str, Hits]]"


def gather(nodes: Sequence[Node], queries: Mapping[str, Query], deadline_seconds: float) -> list[Hits]:
    """Query nodes at the same time, and return their answers.

    A node that is not quick is queried in a daemon thread. It delays neither the hub nor its exit if it never returns. Its
    search on a server that does not answer ends soon after the deadline.

    Args:
        nodes: The nodes, with unique names. Those whose attribute ``quick`` is True are queried by the calling thread, and
            shared with other threads if they have more than `SHARED_CODES` codes (attribute ``codes``) together.
        queries: The query of each node. A node without one is not queried.
        deadline_seconds: Time limit for the slowest node. After it, no further quick node is queried.

    Returns:
        One answer per node, which is silent with the reason if the node raised an error, was late or gave an invalid answer.
    """
    end = time.monotonic() + deadline_seconds
    replies: Replies = queue.SimpleQueue()
    queried = [node for node in nodes if node.name in queries]
    quick = [node for node in queried if getattr(node, "quick", False)]
    slow = [node for node in queried if node not in quick]
    _start(slow, queries, replies, deadline_seconds)
    answers = _of_quick(quick, queries, end)
    answers |= _arrived(replies, len(slow), end) if slow else {}
    return [
        answers[node.name] if node.name in answers else _absent(node.name, queries, deadline_seconds) for node in nodes
    ]


def _of_quick(nodes: Sequence[Node], queries: Mapping[str, Query], end: float) -> dict[str, Hits]:
    """Return the answers of quick nodes by name. None is queried after ``end``, a value of the monotonic clock.

    This thread and the helpers each take the next node until none is left. A helper that is still busy with another search
    is not waited for.
    """
    waiting, answers = deque(nodes), dict[str, Hits]()

    def work() -> None:
        """Query nodes until none is left."""
        while waiting and time.monotonic() < end:
            try:
                node = waiting.popleft()
            except IndexError:  # another thread took the last
                return
            answers[node.name] = _answer(node, queries[node.name])

    shared = len(nodes) > 1 and sum(getattr(node, "codes", 0) for node in nodes) > SHARED_CODES
    helpers = min(available_cores(), len(nodes)) - 1 if shared else 0
    started = [_helpers().submit(work) for _ in range(helpers)]
    work()
    for helper in started:
        if not helper.cancel():
            helper.result()
    return answers


@cache
def _helpers() -> ThreadPoolExecutor:
    """Return the threads that share quick nodes with those that search."""
    return ThreadPoolExecutor(max(1, available_cores() - 1), "search")


def _absent(name: str, queries: Mapping[str, Query], deadline_seconds: float) -> Hits:
    """Return the answer in place of a node that did not answer."""
    if name not in queries:
        return silent(name, NOT_QUERIED)
    return silent(name, Reason(f"It did not answer within {deadline_seconds:g} seconds.", "late"))


def _start(nodes: Sequence[Node], queries: Mapping[str, Query], replies: Replies, deadline_seconds: float) -> None:
    """Query each node in a daemon thread."""
    for node in nodes:
        arguments = (node, queries[node.name], replies, deadline_seconds)
        threading.Thread(target=_reply, args=arguments, name=f"ask {node.name}", daemon=True).start()


def _arrived(replies: Replies, count: int, end: float) -> dict[str, Hits]:
    """Return up to ``count`` answers by name, those that arrive before ``end``, a value of the monotonic clock."""
    answers: dict[str, Hits] = {}
    while len(answers) < count:
        try:
            name, hits = replies.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            break
        answers[name] = hits
    return answers


def _reply(node: Node, query: Query, replies: Replies, deadline_seconds: float) -> None:
    """Put the answer of a node into the queue that the hub waits for. Its search on a server ends at the deadline."""
    with time_limit(deadline_seconds):
        replies.put((node.name, _answer(node, query)))


def _answer(node: Node, query: Query) -> Hits:
    """Return the answer of a node, or a silent one with the reason for its absence."""
    try:
        hits = node.answer(query)
        flaw = _flaw(hits, node.name, query)
    except UserError as error:
        return silent(node.name, str(error))
    except Exception as error:  # an error of one silo must not cost the answers of the others
        return silent(node.name, Reason(f"It failed: {type(error).__name__}: {error}", "failed"))
    return silent(node.name, Reason(flaw, "invalid")) if flaw else hits


def _flaw(hits: Hits, name: str, query: Query) -> str:
    """Return what is wrong with the answer of a silo, or an empty string."""
    if {*hits.silos, *hits.missing_silos, *hits.limited_silos} - {name}:
        return "It answered in the name of another silo."
    if hits.model_digests - {query.model_digest}:
        return f"It answered with codes of another model ({', '.join(sorted(hits.model_digests))})."
    if hits.ranks is not None:
        return "It answered with ranks, which only the hub assigns."
    return _flaw_of_columns(hits, query) or _flaw_of_numbers(hits, query)


def _flaw_of_columns(hits: Hits, query: Query) -> str:
    columns = (hits.distances, hits.silos, hits.payloads, hits.sides, hits.ids if hits.scores is None else hits.scores)
    if len(hits) > query.reach or any(len(column) != len(hits) for column in columns):
        return (
            f"It answered with {len(hits)} hits when {query.reach} were requested, or with columns of unequal length."
        )
    if {side for sides in set(hits.sides) for side in sides}.difference(sides_of(query.target)):
        return f"It answered with sides other than {' and '.join(sides_of(query.target))}."
    return ""


def _flaw_of_numbers(hits: Hits, query: Query) -> str:
    reach_bits = query.bits if query.radius_bits is None else min(query.bits, query.radius_bits)
    if hits.distances and not 0 <= min(hits.distances) <= max(hits.distances) <= reach_bits:
        return f"It answered with a distance outside the range from 0 to {reach_bits} bits."
    if any(count < 0 for count in hits.left_out.values()):
        return "It answered with a negative number of items left out."
    return ""
