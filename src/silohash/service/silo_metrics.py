"""The metrics of a silo's process in the format of Prometheus, served to programs on the same machine.

The values of all labels come from closed sets. They hold neither names of askers nor texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, start_http_server

from silohash.base.types import UserError
from silohash.search.hits import Hits, Query, kind_of
from silohash.search.policy import LimitReached
from silohash.search.released import Item, NotFound, SiloStatus
from silohash.search.requests import CodeRequest, ItemRequest, StatusRequest
from silohash.search.wire import Response, TimeOver
from silohash.service.audit import AuditError
from silohash.service.config import MetricsSettings
from silohash.service.metrics import BUCKETS

Refusal: TypeAlias = Literal["unreadable", "not_found", "limited", "late", "audit_log", "refused", "failed"]
"""Kinds of reasons for which a silo refuses a request.

``unreadable``: the request cannot be read. ``not_found``: the silo does not have the item. ``limited``: the asker has
reached a limit. ``late``: the hub did not wait any more when the turn of the request came. ``audit_log``: the audit log
cannot be written. ``refused``: the policy forbids it, or the index cannot be used for it. ``failed``: an unexpected error.
"""

KINDS: Mapping[type, str] = {Query: "search", ItemRequest: "item", CodeRequest: "code", StatusRequest: "status"}
"""The kind of each request."""


class SiloMetrics:
    """Count what a silo answers. Every process has metrics of its own.

    Attributes:
        registry: Where the counters are.
    """

    def __init__(self, status: SiloStatus) -> None:
        """Begin with all counters at 0, and the items of a summary."""
        self.registry = registry = CollectorRegistry()
        self._answered = Counter("silohash_silo_answered", "Requests that were answered.", ("kind",), registry=registry)
        self._refused = Counter("silohash_silo_refused", "Requests that were refused.", ("reason",), registry=registry)
        self._seconds = Histogram(
            "silohash_silo_answer_seconds", "Time to answer a request.", ("kind",), buckets=BUCKETS, registry=registry
        )
        self._released = Counter("silohash_silo_released_items", "Items in answers to queries.", registry=registry)
        self._bytes = Counter("silohash_silo_answer_bytes", "Bytes of all answers.", registry=registry)
        self._items = Gauge("silohash_items", "Codes that can be searched.", ("modality",), registry=registry)
        ProcessCollector(registry=registry)
        self._show(status)

    def count(self, response: Response, seconds: float) -> None:
        """Count the response to a request, and the seconds that it took."""
        kind = KINDS.get(type(response.request), "unreadable")
        self._seconds.labels(kind).observe(seconds)
        self._bytes.inc(len(response.content))
        refusal = refusal_of(response)
        if refusal is not None:
            self._refused.labels(refusal).inc()
            return
        self._answered.labels(kind).inc()
        if isinstance(response.answer, SiloStatus):
            self._show(response.answer)
        elif isinstance(response.answer, Hits | Item):
            self._released.inc(len(response.answer) if isinstance(response.answer, Hits) else 1)

    def _show(self, status: SiloStatus) -> None:
        """Show the number of items of a summary."""
        for modality, count in status.items.items():
            self._items.labels(modality).set(count)


def refusal_of(response: Response) -> Refusal | None:
    """Return the kind of reason for which a request was refused, or None if it was answered."""
    if response.error is not None:
        return "unreadable" if response.request is None else _refusal_of(response.error)
    if isinstance(response.answer, Hits) and response.answer.missing_silos:
        limited = "limited" in map(kind_of, response.answer.missing_silos.values())
        return "limited" if limited else "refused"
    return None


def _refusal_of(error: Exception) -> Refusal:
    kinds: Mapping[type[Exception], Refusal] = {
        NotFound: "not_found",
        LimitReached: "limited",
        TimeOver: "late",
        AuditError: "audit_log",
        UserError: "refused",
    }
    return next((refusal for kind, refusal in kinds.items() if isinstance(error, kind)), "failed")


@contextmanager
def serving_metrics(settings: MetricsSettings, status: SiloStatus) -> Iterator[SiloMetrics]:
    """Serve the metrics of a process while the block runs.

    Args:
        settings: Where to serve.
        status: The summary of the silo at the start.

    Raises:
        UserError: If the address is taken or may not be used.
    """
    metrics, (host, port) = SiloMetrics(status), settings.address
    try:
        server, thread = start_http_server(port, host, metrics.registry)
    except OSError as error:
        raise UserError(
            f"The address {settings.listen} of [metrics] cannot be used ({error.strerror}). Each process of a silo needs an "
            "address of its own."
        ) from error
    try:
        yield metrics
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
