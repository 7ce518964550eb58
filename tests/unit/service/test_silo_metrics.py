"""The metrics of a silo's process: answers, refusals by kind, and the address at which they are served."""

from __future__ import annotations

import socket
import time
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from silohash.base.types import UserError
from silohash.search.node import SiloNode
from silohash.search.policy import Policy
from silohash.search.released import silo_status
from silohash.search.requests import CodeRequest, ItemRequest, StatusRequest
from silohash.search.wire import Response, TimeOver, encode_request, respond
from silohash.service.audit import AuditError, AuditLog
from silohash.service.config import MetricsSettings
from silohash.service.silo import responder
from silohash.service.silo_metrics import SiloMetrics, refusal_of, serving_metrics
from tests.ports import free_port
from tests.silos import made_up_codes, made_up_node, query_of

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
    with serving_metrics(settings, silo_status(node)) as metrics, closing(AuditLog(tmp_path / "north.jsonl")) as log:
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
    assert refused == {"limited": 2, "not_found": 1, "unreadable": 1}
    assert found["silohash_silo_released_items_total",] == 5
    assert found["silohash_silo_answer_bytes_total",] == sent
    assert found["silohash_silo_answer_seconds_count", "search"] == 2
    assert found["silohash_items", "image"] == 20
    with pytest.raises(OSError, match="refused"), urlopen(f"http://{settings.listen}/metrics", timeout=60):
        pass


def test_kinds_of_refusals(node: SiloNode) -> None:
    assert refusal_of(respond(node, encode_request(StatusRequest()))) is None
    for error, kind in (
        (AuditError("full"), "audit_log"),
        (TimeOver("late"), "late"),
        (UserError("closed"), "refused"),
        (ValueError("broken"), "failed"),
    ):
        assert refusal_of(Response(b"", StatusRequest(), error=error)) == kind
    other = query_of(WORDS, 16, radius_bits=3)
    closed = made_up_node(Path(node._stores[0].path).parent, "south", WORDS, 16, Policy(modalities=()))
    assert refusal_of(respond(closed, encode_request(other))) == "refused"


def test_the_number_of_items_follows_the_summaries(node: SiloNode) -> None:
    metrics = SiloMetrics(silo_status(node))
    node._stores[0].remove(["3"])
    metrics.count(respond(node, encode_request(StatusRequest())), 0.1)
    assert metrics.registry.get_sample_value("silohash_items", {"modality": "image"}) == 19


def test_an_address_that_is_taken_is_explained(node: SiloNode) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = MetricsSettings(listen=f"127.0.0.1:{taken.getsockname()[1]}")
        with (
            pytest.raises(UserError, match="Each process of a silo needs an"),
            serving_metrics(settings, silo_status(node)),
        ):
            pass
