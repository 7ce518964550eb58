"""The metrics of a hub and of a silo's process in the format of Prometheus.

The values of all labels come from closed sets: kinds and outcomes of this package, the names of the federation's silos, and
one model digest per silo. Nothing that a person or a program sends becomes a label, neither names of askers nor texts.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Literal, TypeAlias, get_args

import prometheus_client as prometheus
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from silohash import __version__
from silohash.base.errors import AddressUnavailable, AuditFailed, LimitReached, NotFound, TimeOver, UserError
from silohash.search.breaker import State
from silohash.search.bus import KINDS
from silohash.search.hits import Hits
from silohash.search.reasons import kind_of
from silohash.search.requests import FederationStatus, Item, SiloStatus
from silohash.search.wire import Response
from silohash.service.config import MetricsSettings, host_and_port
from silohash.service.logs import Kind, Outcome

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets of all times, in seconds."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Media type of `Metrics.text`."""

SignInFailure: TypeAlias = Literal["password", "waiting", "token"]
"""``password``: a wrong name or password. ``waiting``: a password that was sent before the wait was over. ``token``: a token
that is unknown or has expired."""

_DIGEST = re.compile("[0-9A-Za-z]{1,128}")


class _Federation(Collector):
    """Show the state of the silos as it was last seen; none before."""

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

    def __init__(self, silos: Iterable[str] = ()) -> None:
        """Count from 0. ``silos`` are those with a breaker."""
        self.registry = prometheus.CollectorRegistry()
        counter, gauge, histogram = _makers(self.registry)
        self._federation = _Federation()
        self._breaker = gauge("silohash_silo_breaker", "Whether the silo's breaker is in a state.", ("silo", "state"))
        self._breaker_changes = counter("silohash_silo_breaker_changes", "Changes to a state.", ("silo", "state"))
        self._queries = counter("silohash_queries", "Queries.", ("kind", "outcome"))
        self._seconds = histogram("silohash_query_seconds", "Time to answer a query.", ("kind",))
        self._silo_seconds = histogram(
            "silohash_silo_seconds", "Time from a query until the silo's answer arrived.", ("silo",)
        )
        self.missing = counter("silohash_missing_silos", "Silos that were missing from an answer.", ("silo", "reason"))
        self.findings = counter(
            "silohash_silo_findings", "What the checks of a silo's answers found.", ("silo", "kind")
        )
        self._requests = counter("silohash_http_requests", "Requests of HTTP.", ("area", "status"))
        self.in_flight = gauge("silohash_requests_in_flight", "Requests that are being answered.")
        self.sign_in_failures = counter("silohash_sign_in_failures", "Refused passwords and tokens.", ("reason",))
        self._rate_limited = counter(
            "silohash_rate_limited_requests", "Requests that were refused with the status 429."
        )
        gauge("silohash_build_info", "Version of silohash.", ("version",)).labels(__version__).set(1)
        self.registry.register(self._federation)
        prometheus.ProcessCollector(registry=self.registry)
        # A counter that appears with its first event has no rise from 0 that Prometheus could see.
        for kind, outcome in product(get_args(Kind), get_args(Outcome)):
            self._queries.labels(kind, outcome)
        for reason in get_args(SignInFailure):
            self.sign_in_failures.labels(reason)
        for silo, state in product(silos, get_args(State)):
            self._breaker.labels(silo, state).set(state == "closed")
            self._breaker_changes.labels(silo, state)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return prometheus.generate_latest(self.registry)

    def query(self, kind: Kind, outcome: Outcome, seconds: float) -> None:
        """Count a query."""
        self._queries.labels(kind, outcome).inc()
        self._seconds.labels(kind).observe(seconds)

    def silo_answered(self, silo: str, seconds: float) -> None:
        """Count the answer of a silo of the federation."""
        self._silo_seconds.labels(silo).observe(seconds)

    def breaker_changed(self, silo: str, state: State) -> None:
        """Count a change of a silo's breaker, and show its new state."""
        self._breaker_changes.labels(silo, state).inc()
        for each in get_args(State):
            self._breaker.labels(silo, each).set(each == state)

    def request(self, area: str, status: int) -> None:
        """Count a request of HTTP in an area, one of a closed set. The status is 0 if there was no response."""
        self._requests.labels(area, f"{status // 100}xx" if status else "none").inc()
        if status == 429:
            self._rate_limited.inc()

    def show(self, status: FederationStatus) -> None:
        """Show the state of the silos from now on."""
        self._federation.status = status


def _makers(
    registry: prometheus.CollectorRegistry,
) -> tuple[Callable[..., prometheus.Counter], Callable[..., prometheus.Gauge], Callable[..., prometheus.Histogram]]:
    """Return what makes the counters, gauges and histograms of a registry."""
    histogram = partial(prometheus.Histogram, buckets=BUCKETS, registry=registry)
    return partial(prometheus.Counter, registry=registry), partial(prometheus.Gauge, registry=registry), histogram


Refusal: TypeAlias = Literal[
    "unreadable", "not_found", "limited", "late", "audit_log", "refused", "failed", "forged", "replayed", "stale"
]
"""Kinds of reasons for which a silo refuses a request.

``unreadable``: the request cannot be read. ``not_found``: the silo does not have the item. ``limited``: the asker has
reached a limit. ``late``: the hub did not wait any more when the turn of the request came. ``audit_log``: the audit log
cannot be written. ``refused``: the policy forbids it, or the index cannot be used for it. ``failed``: an unexpected error.
``forged``, ``replayed``, ``stale``: see `silohash.service.envelope.Rejected`.
"""

REFUSALS: Mapping[type[Exception], Refusal] = {
    NotFound: "not_found",
    LimitReached: "limited",
    TimeOver: "late",
    AuditFailed: "audit_log",
    UserError: "refused",
}
"""The kind of reason of each error, the first that fits."""


class SiloMetrics:
    """Count what a silo answers. Every process has metrics of its own."""

    def __init__(self, status: SiloStatus) -> None:
        self.registry = prometheus.CollectorRegistry()
        counter, gauge, histogram = _makers(self.registry)
        self._answered = counter("silohash_silo_answered", "Requests that were answered.", ("kind",))
        self._refused = counter("silohash_silo_refused", "Requests that were refused.", ("reason",))
        self._seconds = histogram("silohash_silo_answer_seconds", "Time to answer a request.", ("kind",))
        self._released = counter("silohash_silo_released_items", "Items in answers to queries.")
        self._bytes = counter("silohash_silo_answer_bytes", "Bytes of all answers.")
        self._items = gauge("silohash_items", "Codes that can be searched.", ("modality",))
        prometheus.ProcessCollector(registry=self.registry)
        for reason in ("forged", "replayed", "stale"):
            self._refused.labels(reason)
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

    def reject(self, kind: Refusal) -> None:
        """Count a request that was refused without reading it."""
        self._refused.labels(kind).inc()

    def _show(self, status: SiloStatus) -> None:
        for modality, count in status.items.items():
            self._items.labels(modality).set(count)


def refusal_of(response: Response) -> Refusal | None:
    """Return the kind of reason for which a request was refused, or None if it was answered."""
    if response.error is not None and response.request is None:
        return "unreadable"
    if response.error is not None:
        return next((kind for error, kind in REFUSALS.items() if isinstance(response.error, error)), "failed")
    if isinstance(response.answer, Hits) and response.answer.missing_silos:
        limited = "limited" in map(kind_of, response.answer.missing_silos.values())
        return "limited" if limited else "refused"
    return None


@contextmanager
def serving_metrics(settings: MetricsSettings, status: SiloStatus) -> Iterator[SiloMetrics]:
    """Serve the metrics of a process while the block runs, beginning with the summary of the silo.

    Raises:
        UserError: If the address is taken or may not be used.
    """
    metrics, (host, port) = SiloMetrics(status), host_and_port(settings.listen)
    try:
        server, thread = prometheus.start_http_server(port, host, metrics.registry)
    except OSError as error:
        raise AddressUnavailable(
            f"The address {settings.listen} of [metrics] cannot be used ({error.strerror}). Each process of a silo needs an "
            "address of its own."
        ) from error
    try:
        yield metrics
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
