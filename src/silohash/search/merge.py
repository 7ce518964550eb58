"""Asks every silo and merges the answers, so that they equal the answer of one pooled index.

Each silo answers with its first ``offset + k`` items in one order that holds everywhere: (distance, keyed hash of silo
and id). The first ``offset + k`` of all items are among those, and merging finds them. No silo is first among equals.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from silohash.search.hits import Hits, Node, Query, silent
from silohash.search.order import question_key, tie_order
from silohash.types import UserError


def merge(parts: Sequence[Hits], *, k: int, key: bytes, across_models: bool = False) -> Hits:
    """Merges answers into one. Associative, and the order of the parts does not matter.

    Args:
        parts: answers of silos, or of hubs that merged some; each was asked for at least k hits under the same key.
        k: how many hits are kept.
        key: the key of the order among equals.
        across_models: whether parts of different models may be merged; the result then says ``comparable == False``.

    Returns:
        The k nearest hits, and how many items are known to be left out at each distance up to the last hit's.

    Raises:
        UserError: if the parts come from different models.
    """
    digests = frozenset[str]().union(*(part.model_digests for part in parts))
    if len(digests) > 1 and not across_models:
        raise UserError(
            f"The answers come from {len(digests)} models ({', '.join(sorted(digests))}), and distances between codes "
            "of different models mean nothing. Index every silo with the same model, or ask each with its own code."
        )
    joined = Hits(
        ids=tuple(item for part in parts for item in part.ids),
        distances=tuple(distance for part in parts for distance in part.distances),
        silos=tuple(silo for part in parts for silo in part.silos),
        payloads=tuple(payload for part in parts for payload in part.payloads),
        missing_silos=_joined([part.missing_silos for part in parts]),
        limited_silos=_joined([part.limited_silos for part in parts]),
        model_digests=digests,
    )
    places = tie_order(joined.silos, joined.ids, key)
    ranked = sorted(
        range(len(joined)), key=lambda p: (joined.distances[p], int(places[p]), joined.silos[p], joined.ids[p])
    )
    left_out = Counter(joined.distances[p] for p in ranked[k:])
    for part in parts:
        left_out.update(part.left_out)
    kept = joined.taken(ranked[:k])
    if len(kept) == k:
        left_out = Counter({distance: n for distance, n in left_out.items() if distance <= kept.distances[-1]})
    return replace(kept, left_out=dict(sorted(left_out.items())))


def _joined(parts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Joins reasons; where two parts speak of one silo, the order of the parts does not decide."""
    reasons: dict[str, str] = {}
    for silo, reason in sorted({pair for part in parts for pair in part.items()}):
        reasons.setdefault(silo, reason)
    return reasons


def ask(
    nodes: Sequence[Node],
    query: Query | Mapping[str, Query],
    *,
    secret: bytes = b"",
    deadline_seconds: float = 10.0,
) -> Hits:
    """Asks every silo at once and merges what comes before the deadline.

    Args:
        nodes: the silos; names must differ.
        query: one question for all, or one a silo where each has a model of its own. The latter must agree in
            everything but the code and its model; their answers are merged by distance, and ``comparable`` tells that.
        secret: the hub's key of the order among equals. The same secret gives the same order, page after page.
        deadline_seconds: how long the hub waits for the slowest.

    Returns:
        The asked page of hits. A silo that raised, refused, was late or answered nonsense stands in ``missing_silos``
        with the reason; if all did, there are no hits.

    Raises:
        UserError: if two nodes have one name, or the questions of a mapping disagree.
    """
    names = [node.name for node in nodes]
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise UserError(f'Two silos are called "{twice}". Give each a name of its own.')
    queries = dict(query) if isinstance(query, Mapping) else dict.fromkeys(names, query)
    first = _common(queries)
    if first is None:
        return Hits(missing_silos=dict.fromkeys(sorted(names), "It was not asked: there is no query for it."))
    codes = [query.words] if isinstance(query, Query) else [query[name].words for name in sorted(query)]
    key = question_key(secret, codes)
    keyed = {name: replace(value, tie_key=key) for name, value in queries.items()}
    answers = _answers(nodes, keyed, deadline_seconds)
    merged = merge(answers, k=first.reach, key=key, across_models=isinstance(query, Mapping))
    return merged.page(first.offset)


def _common(queries: Mapping[str, Query]) -> Query | None:
    """Returns one of the questions, after checking that they ask the same."""
    asked = {(q.bits, q.modality, q.k, q.offset, q.radius_bits) for q in queries.values()}
    if len(asked) > 1:
        raise UserError(
            "The silos' queries differ in bits, modality, k, offset or radius; only their codes may differ."
        )
    return next(iter(queries.values()), None)


def _answers(nodes: Sequence[Node], queries: Mapping[str, Query], deadline_seconds: float) -> list[Hits]:
    """Asks in one daemon thread a node: a node that never returns delays neither the hub nor its end."""
    replies: queue.SimpleQueue[tuple[str, Hits]] = queue.SimpleQueue()
    answers: dict[str, Hits] = {}
    waiting = set()
    for node in nodes:
        if node.name in queries:
            waiting.add(node.name)
            threading.Thread(
                target=_reply, args=(node, queries[node.name], replies), name=f"ask {node.name}", daemon=True
            ).start()
        else:
            answers[node.name] = silent(node.name, "It was not asked: there is no query for it.")
    end = time.monotonic() + deadline_seconds
    while waiting:
        try:
            name, hits = replies.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            break
        waiting.discard(name)
        answers[name] = hits
    for name in waiting:
        answers[name] = silent(name, f"It did not answer within {deadline_seconds:g} seconds.")
    return [answers[node.name] for node in nodes]


def _reply(node: Node, query: Query, replies: queue.SimpleQueue[tuple[str, Hits]]) -> None:
    """Puts a node's answer, or why there is none, where the hub waits for it."""
    try:
        hits = node.answer(query)
        flaw = _flaw(hits, node.name, query)
        replies.put((node.name, silent(node.name, flaw) if flaw else hits))
    except UserError as error:
        replies.put((node.name, silent(node.name, str(error))))
    except Exception as error:  # whatever a silo's store or wire raises, the others' answers still count
        replies.put((node.name, silent(node.name, f"It failed: {type(error).__name__}: {error}")))


def _flaw(hits: Hits, name: str, query: Query) -> str:
    """Returns what is wrong with an answer; empty if nothing."""
    if any(silo != name for silo in (*hits.silos, *hits.missing_silos, *hits.limited_silos)):
        return "It answered in the name of another silo."
    if hits.model_digests - {query.model_digest}:
        return f"It answered with codes of another model ({', '.join(sorted(hits.model_digests))})."
    columns = (hits.distances, hits.silos, hits.payloads)
    if len(hits) > query.reach or any(len(column) != len(hits) for column in columns):
        return (
            f"It answered with {len(hits)} hits where {query.reach} were asked for, or with columns of unequal length."
        )
    reach_bits = query.bits if query.radius_bits is None else min(query.bits, query.radius_bits)
    if any(not 0 <= distance <= reach_bits for distance in hits.distances):
        return f"It answered with a distance outside 0 to {reach_bits} bits."
    if any(count < 0 for count in hits.left_out.values()):
        return "It answered with a negative number of items left out."
    return ""
