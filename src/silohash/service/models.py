"""The models with which a silo answers: one, or two while it changes to a new one.

A query states the digest of its model. It is answered by the index of that model, so that both models can be searched with
until all hubs have changed.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from silohash.base.errors import NotSearchable, UserError
from silohash.search.hits import Query
from silohash.search.node import SiloNode
from silohash.search.policy import Policy
from silohash.search.requests import CodeRequest, Request, StatusRequest


class SiloModels:
    """Choose the node that answers a request. The node of the oldest model is the first of the nodes.

    ``unready`` returns why a model cannot be searched with yet, or an empty text.
    """

    def __init__(self, node: SiloNode, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.nodes: tuple[SiloNode, ...] = (node,)
        self._lock = threading.Lock()
        self._clock = clock
        self._last_old = clock()
        self.unready: Callable[[str], str] = lambda model_digest: ""

    @property
    def policy(self) -> Policy:
        """The policy of the silo, which is the same for all models."""
        return self.nodes[0].policy

    @property
    def quick(self) -> bool:
        """Whether all answers take about a millisecond or less, so that they do not need a thread of their own."""
        return all(node.quick and not node.policy.accept_query_content for node in self.nodes)

    def choose(self, request: Request) -> SiloNode:
        """Return the node that answers a request.

        Raises:
            UserError: If the request needs a model with which the items are still being encoded.
        """
        with self._lock:
            nodes = self.nodes
            digest = request.model_digest if isinstance(request, Query | CodeRequest) else ""
            for node in nodes:
                if digest and _has(node, digest):
                    if node is nodes[0]:
                        self._last_old = self._clock()
                    return node
        if reason := self.unready(digest):
            raise NotSearchable(reason)
        return nodes[-1] if isinstance(request, StatusRequest) else nodes[0]

    def add(self, node: SiloNode) -> None:
        """Answer with a further node, that of a new model."""
        with self._lock:
            node.share_limits(self.nodes[0])
            self._last_old = self._clock()
            self.nodes = (*self.nodes, node)
            self._note_models()

    def unused_seconds(self) -> float | None:
        """Return for how many seconds the old model was not asked for; None if there is only one model."""
        with self._lock:
            return None if len(self.nodes) < 2 else self._clock() - self._last_old

    def drop_oldest(self) -> SiloNode:
        """Answer without the oldest model from now on, and return its node, which the caller closes."""
        with self._lock:
            oldest, self.nodes = self.nodes[0], self.nodes[1:]
            self._note_models()
            return oldest

    def close(self) -> None:
        """Close the index files of all nodes."""
        for node in self.nodes:
            node.close()

    def _note_models(self) -> None:
        """Let the summary of each node list the models of the others."""
        for node in self.nodes:
            node.other_models = tuple(other.model_digest for other in self.nodes if other is not node)


def _has(node: SiloNode, digest: str) -> bool:
    # Without an index that can be read, the node does not have a digest to compare.
    with suppress(UserError):
        return node.model_digest == digest
    return False
