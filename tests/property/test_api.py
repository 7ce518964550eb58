"""Requests that are made up from the API's own description: nothing fails, and every response is as described."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from silohash.service.backends import LocalBackend
from silohash.service.web.app import create_app
from silohash.service.web.auth import Gate, RateLimit, app_for
from tests.accounts import PASSWORD, quick_accounts
from tests.served import SHAPES, MadeUpBackend, drawn, npy, png, served_run

pytestmark = pytest.mark.whole_run

AS_DESCRIBED = [
    *(status_code_conformance, content_type_conformance),
    *(response_headers_conformance, response_schema_conformance),
]
SILO = st.sampled_from(["silo-0", "silo-1", "silo-2", "nowhere"])
ITEM = st.sampled_from([f"red-{shape}-{number}" for shape in SHAPES for number in range(3)])
TEXT = st.sampled_from(["red square", "blue", "green zebra", "zebra", "\x00", "<script>"])
LABEL = st.sampled_from(["red", "square", "zebra"])
PICTURE = st.sampled_from([png(), png(drawn("blue", "frame")), png()[:40], png() + b"PK", b"%PDF-1.4", b"<svg/>", b""])
VECTOR = st.sampled_from([npy(np.ones(3)), npy(np.array(["a"])), npy(np.ones(3))[:-1], png(), b""])


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBackend]:
    opened = LocalBackend.open(served_run(tmp_path_factory.mktemp("served")))
    yield opened
    opened.close()


def fuzz(app: FastAPI, mode: GenerationMode, examples: int, check: Callable[[Case, Any], None]) -> None:
    """Send made-up requests to every call of an application. They are the same each time."""
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", app)
    for result in schema.get_all_operations():
        operation = result.ok()
        if mode is GenerationMode.NEGATIVE and operation.path in ("/healthz", "/readyz", "/api/v1/status"):
            continue  # there is nothing in these requests that could be wrong

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
        def send(case: Case, data: Any) -> None:
            check(case, data)

        send()


def fill(case: Case, data: Any, code: dict[str, Any]) -> None:
    """Put names, pictures and vectors that exist into a request, so that it finds something. A few made-up values remain."""
    silos = SILO if case.path.endswith("/item") else st.lists(SILO, min_size=1, max_size=2)
    values = {"text": TEXT, "label": LABEL, "of_silo": SILO, "of_id": ITEM, "id": ITEM, "silo": silos}
    for name in [name for name in case.query or {} if name in values]:
        if data.draw(st.integers(0, 9)):
            case.query[name] = data.draw(values[name])
    files = {"picture": PICTURE, "vector": VECTOR}
    sent = next((name for name in files if isinstance(case.body, dict) and name in case.body), None)
    if sent is not None:
        case.body[sent] = data.draw(files[sent])
    elif isinstance(case.body, dict):
        case.body |= {name: data.draw(values[name]) for name in ("silo", "label") if case.body.get(name) is not None}
        chosen = data.draw(st.sampled_from([{"text": "red square"}, {"code": code}, {"text": "red", "code": code}]))
        case.body = {name: value for name, value in case.body.items() if name not in ("text", "code")} | chosen


def test_no_request_fails_and_every_response_is_as_described(backend: LocalBackend) -> None:
    app = create_app(backend, hosts=["testserver"])
    node = backend.nodes["silo-1"]
    bits = node.loaded("image").index.bits
    code = {"hex": "5a" * (bits // 8), "bits": bits, "model_digest": node.model_digest}
    seen: defaultdict[str, set[int]] = defaultdict(set)

    def valid(case: Case, data: Any) -> None:
        fill(case, data, code)
        response = case.call()
        case.validate_response(response, checks=[not_a_server_error, *AS_DESCRIBED])
        seen[case.operation.label].add(response.status_code)

    fuzz(app, GenerationMode.POSITIVE, 25, valid)
    made_up = create_app(MadeUpBackend(silos=("silo-1", "silo-2")), hosts=["testserver"])
    fuzz(made_up, GenerationMode.POSITIVE, 10, valid)  # the model of the run takes pictures, and no vectors
    assert seen.pop("GET /api/v1/search/picture") <= {422}, "no host is allowed here"
    assert {label: statuses for label, statuses in seen.items() if 200 not in statuses} == {}, "some must succeed"
    assert {404, 422} <= set.union(*seen.values())


def test_requests_against_the_description_are_refused_as_described(backend: LocalBackend) -> None:
    app = create_app(backend, hosts=["testserver"])

    def wrong(case: Case, _: Any) -> None:
        checks = [not_a_server_error, negative_data_rejection, *AS_DESCRIBED]
        case.validate_response(case.call(), checks=checks)

    fuzz(app, GenerationMode.NEGATIVE, 15, wrong)


@pytest.mark.parametrize(
    ("scopes", "burst", "expected"), [((), 9, 401), (("metrics",), 9, 403), (("search", "items"), 0, 429)]
)
def test_refusals_of_accounts_are_as_described(
    tmp_path: Path, scopes: tuple[str, ...], burst: int, expected: int
) -> None:
    with quick_accounts(tmp_path) as accounts:
        accounts.add("ada", PASSWORD)
        token = accounts.add_token("ada", scopes)[1] if scopes else "unknown"
        limit = RateLimit(per_minute=0.01, burst=burst)
        app = app_for(MadeUpBackend(), Gate(accounts, account_limit=limit), ["testserver"])

        def refused(case: Case, _: Any) -> None:
            response = case.call(headers={"authorization": f"Bearer {token}"})
            case.validate_response(response, checks=[not_a_server_error, *AS_DESCRIBED])
            assert response.status_code == (expected if case.path.startswith("/api/") else 200)

        fuzz(app, GenerationMode.POSITIVE, 1, refused)


def test_absent_silos_are_answered_as_described() -> None:
    absent = MadeUpBackend()
    absent.missing = dict.fromkeys(absent.silos, "It is asleep.")
    app = create_app(absent, hosts=["testserver"])
    seen = set()

    def unavailable(case: Case, _: Any) -> None:
        for name in ("silo", "of_silo"):
            if name in (case.query or {}):
                case.query[name] = "north"
        response = case.call()
        case.validate_response(response, checks=AS_DESCRIBED)
        seen.add((case.path, response.status_code))

    fuzz(app, GenerationMode.POSITIVE, 4, unavailable)
    assert {("/api/v1/search", 503), ("/api/v1/similar", 503), ("/api/v1/item", 503), ("/readyz", 503)} <= seen


@pytest.mark.parametrize(
    ("headers", "status"), [({"host": "evil.example.org"}, 400), ({"origin": "https://evil.example.org"}, 403)]
)
def test_requests_for_other_hosts_and_from_other_sites_are_refused_as_described(
    headers: dict[str, str], status: int
) -> None:
    def refused(case: Case, _: Any) -> None:
        if status == 403 and case.method == "GET":
            return
        response = case.call(headers=headers)
        case.validate_response(response, checks=[not_a_server_error, *AS_DESCRIBED])
        assert response.status_code == status

    fuzz(create_app(MadeUpBackend(), hosts=["testserver"]), GenerationMode.POSITIVE, 1, refused)
