"""The metrics of a hub in the format of Prometheus.

The values of all labels come from closed sets: kinds and outcomes of this package, the names of the federation's silos, and
one model digest per silo. Nothing that a person or a program sends becomes a label.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import product
from typing import Literal, TypeAlias, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from silohash import __version__
from silohash.search.hits import MissingKind
from silohash.search.requests import FederationStatus
from silohash.service.request_record import Kind, Outcome

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets of all times, in seconds."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Media type of `Metrics.text`."""

SignInFailure: TypeAlias = Literal["password", "waiting", "token"]
"""``password``: a wrong name or password. ``waiting``: a password that was sent before the wait was over. ``token``: a token
that is unknown or has expired."""

_DIGEST = re.compile("[0-9A-Za-z]{1,128}")


class _Federation(Collector):
    """Show the state of the silos as it was last seen.

    Attributes:
        status: The state; None if it was not seen yet.
    """

    def __init__(self) -> None:
        self.status: FederationStatus | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield one metric after another."""
        silos = () if self.status is None else self.status.silos
        up = GaugeMetricFamily("silohash_silo_up", "Whether the silo can be searched.", labels=("silo",))
        items = GaugeMetricFamily("silohash_silo_items", "Codes of the silo.", labels=("silo", "modality"))
        model = GaugeMetricFamily("silohash_silo_model_info", "Model of the silo's codes.", labels=("silo", "digest"))
        for silo in silos:
            up.add_metric((silo.name,), silo.reachable)
            for modality, count in silo.items.items():
                items.add_metric((silo.name, modality), count)
            if silo.model_digest:
                known = _DIGEST.fullmatch(silo.model_digest)
                model.add_metric((silo.name, silo.model_digest if known else "invalid"), 1)
        connected = sum(silo.reachable for silo in silos)
        yield GaugeMetricFamily("silohash_silos", "Silos of the federation.", value=len(silos))
        yield GaugeMetricFamily("silohash_silos_connected", "Silos that can be searched.", value=connected)
        yield from (up, items, model)


class Metrics:
    """Count what a hub does. Every application has metrics of its own."""

    def __init__(self) -> None:
        """Begin with all counters at 0."""
        self._registry = registry = CollectorRegistry()
        self._federation = _Federation()
        self._queries = Counter("silohash_queries", "Queries.", ("kind", "outcome"), registry=registry)
        self._seconds = _histogram("silohash_query_seconds", "Time to answer a query.", ("kind",), registry)
        self._silo_seconds = _histogram(
            "silohash_silo_seconds", "Time from a query until the silo's answer arrived.", ("silo",), registry
        )
        self._missing = Counter(
            "silohash_missing_silos", "Silos that were missing from an answer.", ("silo", "reason"), registry=registry
        )
        self._requests = Counter("silohash_http_requests", "Requests of HTTP.", ("area", "status"), registry=registry)
        self._in_flight = Gauge("silohash_requests_in_flight", "Requests that are being answered.", registry=registry)
        self._sign_in_failures = Counter(
            "silohash_sign_in_failures", "Refused passwords and tokens.", ("reason",), registry=registry
        )
        self._rate_limited = Counter(
            "silohash_rate_limited_requests", "Requests that were refused with the status 429.", registry=registry
        )
        Gauge("silohash_build_info", "Version of silohash.", ("version",), registry=registry).labels(__version__).set(1)
        registry.register(self._federation)
        ProcessCollector(registry=registry)
        for kind, outcome in product(get_args(Kind), get_args(Outcome)):
            self._queries.labels(kind, outcome)
        for reason in get_args(SignInFailure):
            self._sign_in_failures.labels(reason)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)

    def query(self, kind: Kind, outcome: Outcome, seconds: float) -> None:
        """Count a query."""
        self._queries.labels(kind, outcome).inc()
        self._seconds.labels(kind).observe(seconds)

    def silo_answered(self, silo: str, seconds: float) -> None:
        """Count the answer of a silo of the federation."""
        self._silo_seconds.labels(silo).observe(seconds)

    def silo_missing(self, silo: str, reason: MissingKind) -> None:
        """Count an answer without a silo of the federation."""
        self._missing.labels(silo, reason).inc()

    def request(self, area: str, status: int) -> None:
        """Count a request of HTTP.

        Args:
            area: Part of the service, one of a closed set.
            status: Status code of the response; 0 if there was none.
        """
        self._requests.labels(area, f"{status // 100}xx" if status else "none").inc()
        if status == 429:
            self._rate_limited.inc()

    def in_flight(self) -> AbstractContextManager[object]:
        """Return a context manager that counts a request while its block runs."""
        return self._in_flight.track_inprogress()

    def sign_in_failed(self, reason: SignInFailure) -> None:
        """Count a refused password or token."""
        self._sign_in_failures.labels(reason).inc()

    def show(self, status: FederationStatus) -> None:
        """Show the state of the silos from now on."""
        self._federation.status = status


def _histogram(name: str, text: str, labels: tuple[str, ...], registry: CollectorRegistry) -> Histogram:
    return Histogram(name, text, labels, buckets=BUCKETS, registry=registry)
