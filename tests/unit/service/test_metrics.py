"""The metrics of a hub: their names and values, closed sets of labels, and one registry per application."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from silohash.base.errors import AddressUnavailable, AuditFailed, TimeOver, UserError
from silohash.search.node import SiloNode
from silohash.search.policy import Policy
from silohash.search.requests import CodeRequest, ItemRequest, StatusRequest
from silohash.search.wire import Response, encode_request, respond
from silohash.service.audit import AuditLog
from silohash.service.config import MetricsSettings
from silohash.service.logs import Kind, Outcome
from silohash.service.metrics import BUCKETS, Metrics, SiloMetrics, refusal_of, serving_metrics
from silohash.service.silo import responder
from tests.ports import free_port
from tests.served import MadeUpBackend
from tests.silos import made_up_codes, made_up_node, query_of


def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return all values by the name of the sample and the values of its labels, in the order of the labels' names."""
    families = text_string_to_metric_families(metrics.text().decode())
    return {(each.name, tuple(each.labels.values())): each.value for family in families for each in family.samples}


def test_queries_are_counted_by_kind_and_outcome() -> None:
    metrics = Metrics()
    assert samples(metrics)["silohash_queries_total", ("text", "partial")] == 0, "counters exist from the start"
    metrics.query("text", "partial", 0.003)
    metrics.query("text", "complete", 20.0)
    metrics.query("item", "refused", 0.001)
    found = samples(metrics)
    assert found["silohash_queries_total", ("text", "partial")] == 1
    assert found["silohash_queries_total", ("item", "refused")] == 1
    assert sum(value for (name, _), value in found.items() if name == "silohash_queries_total") == 3
    buckets = {labels[1]: value for (name, labels), value in found.items() if name == "silohash_query_seconds_bucket"
               and labels[0] == "text"}  # fmt: skip
    assert [float(bound) for bound in buckets][:-1] == list(BUCKETS)
    assert (BUCKETS[0], BUCKETS[-1]) == (0.001, 10.0)
    assert (buckets["0.0025"], buckets["0.005"], buckets["10.0"], buckets["+Inf"]) == (0, 1, 1, 2)
    assert found["silohash_query_seconds_sum", ("text",)] == pytest.approx(20.003)


def test_the_state_of_breakers_is_shown_and_its_changes_are_counted() -> None:
    metrics = Metrics(["north", "south"])
    for state in ("open", "half_open", "open", "half_open"):
        metrics.breaker_changed("south", state)
    found = samples(metrics)
    states = {labels: value for (name, labels), value in found.items() if name == "silohash_silo_breaker"}
    assert {labels for labels, value in states.items() if value} == {("north", "closed"), ("south", "half_open")}
    assert len(states) == 6
    changes = {
        labels: value for (name, labels), value in found.items() if name == "silohash_silo_breaker_changes_total"
    }
    assert changes["south", "open"] == changes["south", "half_open"] == 2
    assert sum(changes.values()) == 4


def test_silos_are_counted_by_name_and_reason() -> None:
    metrics = Metrics()
    metrics.silo_answered("north", 0.5)
    metrics.missing.labels("south", "late").inc()
    metrics.missing.labels("south", "late").inc()
    found = samples(metrics)
    assert found["silohash_silo_seconds_count", ("north",)] == 1
    assert found["silohash_silo_seconds_sum", ("north",)] == 0.5
    assert found["silohash_missing_silos_total", ("late", "south")] == 2


def test_requests_are_counted_by_class_of_status() -> None:
    metrics = Metrics()
    for status in (200, 204, 404, 429, 503, 0):
        metrics.request("api", status)
    metrics.sign_in_failures.labels("token").inc()
    with metrics.in_flight.track_inprogress():
        assert samples(metrics)["silohash_requests_in_flight", ()] == 1
    found = samples(metrics)
    counts = {
        status: found["silohash_http_requests_total", ("api", status)] for status in ("2xx", "4xx", "5xx", "none")
    }
    assert counts == {"2xx": 2, "4xx": 2, "5xx": 1, "none": 1}
    assert found["silohash_rate_limited_requests_total", ()] == 1
    assert found["silohash_sign_in_failures_total", ("token",)] == 1
    assert found["silohash_sign_in_failures_total", ("password",)] == 0
    assert found["silohash_requests_in_flight", ()] == 0


def test_the_state_of_the_silos_is_that_last_seen() -> None:
    metrics, backend = Metrics(), MadeUpBackend()
    assert samples(metrics)["silohash_silos", ()] == 0
    backend.missing = {"south": "It is asleep."}
    status = asyncio.run(backend.status())
    metrics.show(status)
    found = samples(metrics)
    assert (found["silohash_silos", ()], found["silohash_silos_connected", ()]) == (2, 1)
    assert (found["silohash_silo_up", ("north",)], found["silohash_silo_up", ("south",)]) == (1, 0)
    assert (found["silohash_silo_items", ("image", "north")], found["silohash_silo_items", ("text", "north")]) == (
        30,
        20,
    )
    assert found["silohash_silo_model_info", ("m" * 32, "north")] == 1
    assert not [labels for name, labels in found if "south" in labels and name != "silohash_silo_up"]
    strange = replace(status, silos=tuple(replace(silo, model_digest='x"} 1\n') for silo in status.silos))
    metrics.show(strange)
    found = samples(metrics)
    assert found["silohash_silo_model_info", ("invalid", "north")] == 1, "a silo does not write labels of its own"
    assert ("silohash_silo_model_info", ("m" * 32, "north")) not in found


def test_metrics_do_not_share_counters() -> None:
    first, second = Metrics(), Metrics()
    first.query("code", "complete", 0.01)
    kind: Kind = "code"
    outcome: Outcome = "complete"
    assert samples(first)["silohash_queries_total", (kind, outcome)] == 1
    assert samples(second)["silohash_queries_total", (kind, outcome)] == 0


WORDS = made_up_codes(20, 16, 1)


@pytest.fixture
def node(tmp_path: Path) -> SiloNode:
    return made_up_node(tmp_path, "north", WORDS, 16, Policy(max_queries_per_day=3))


def values(text: str) -> dict[tuple[str, ...], float]:
    """Return all values by the name of the sample and the values of its labels."""
    families = text_string_to_metric_families(text)
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


def test_answers_are_counted_and_served(node: SiloNode, tmp_path: Path) -> None:
    settings = MetricsSettings(listen=f"127.0.0.1:{free_port()}")
    with serving_metrics(settings, node.status()) as metrics, closing(AuditLog(tmp_path / "north.jsonl")) as log:
        answer = responder(node, log, metrics)
        sent = 0
        for request in (query_of(WORDS, 16, k=4, asker="ann"), ItemRequest("3", "ann"), CodeRequest("3", None, "ann"),
                        query_of(WORDS, 16, asker="ann"), ItemRequest("3", "ann"), ItemRequest("none", "bob"),
                        StatusRequest()):  # fmt: skip
            sent += len(answer(encode_request(request), 1 << 20, time.monotonic()))
        sent += len(answer(b"garbage", 1 << 20, time.monotonic()))
        with urlopen(f"http://{settings.listen}/metrics", timeout=60) as opened:
            text = opened.read().decode()
        assert "ann" not in text
    found = values(text)
    answered = {kind: found["silohash_silo_answered_total", kind] for kind in ("search", "item", "code", "status")}
    assert answered == {"search": 1, "item": 1, "code": 1, "status": 1}
    refused = {labels[0]: value for (name, *labels), value in found.items() if name == "silohash_silo_refused_total"}
    assert refused == {"limited": 2, "not_found": 1, "unreadable": 1, "forged": 0, "replayed": 0, "stale": 0}
    assert found["silohash_silo_released_items_total",] == 5
    assert found["silohash_silo_answer_bytes_total",] == sent
    assert found["silohash_silo_answer_seconds_count", "search"] == 2
    assert found["silohash_items", "image"] == 20
    with pytest.raises(OSError, match="refused"), urlopen(f"http://{settings.listen}/metrics", timeout=60):
        pass


def test_kinds_of_refusals(node: SiloNode) -> None:
    assert refusal_of(respond(node, encode_request(StatusRequest()))) is None
    for error, kind in (
        (AuditFailed("full"), "audit_log"),
        (TimeOver("late"), "late"),
        (UserError("closed"), "refused"),
        (ValueError("broken"), "failed"),
    ):
        assert refusal_of(Response(b"", StatusRequest(), error=error)) == kind
    other = query_of(WORDS, 16, radius_bits=3)
    closed = made_up_node(Path(node._stores[0].path).parent, "south", WORDS, 16, Policy(modalities=()))
    assert refusal_of(respond(closed, encode_request(other))) == "refused"


def test_requests_that_are_not_read_are_counted(node: SiloNode) -> None:
    metrics = SiloMetrics(node.status())
    metrics.reject("replayed")
    assert values(generate_latest(metrics.registry).decode())["silohash_silo_refused_total", "replayed"] == 1


def test_the_number_of_items_follows_the_summaries(node: SiloNode) -> None:
    metrics = SiloMetrics(node.status())
    node._stores[0].remove(["3"])
    metrics.count(respond(node, encode_request(StatusRequest())), 0.1)
    assert metrics.registry.get_sample_value("silohash_items", {"modality": "image"}) == 19


def test_an_address_that_is_taken_is_explained(node: SiloNode) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = MetricsSettings(listen=f"127.0.0.1:{taken.getsockname()[1]}")
        with (
            pytest.raises(AddressUnavailable),
            serving_metrics(settings, node.status()),
        ):
            pass
