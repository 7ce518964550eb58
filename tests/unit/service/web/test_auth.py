"""Signing in through the application: cookies, other sites, tokens and their scopes, limits, and logs without secrets."""

from __future__ import annotations

import logging
import re
import sqlite3

import pytest
from starlette.testclient import TestClient

from silohash.service.accounts import Accounts
from silohash.service.web.auth import (
    COOKIE,
    DEVICE,
    BackOff,
    Gate,
    RateLimit,
    app_for,
    is_same_origin,
    local_path,
    scope_of,
)
from silohash.service.web.guard import address_of
from tests.accounts import PASSWORD, bearer, sign_in
from tests.served import MadeUpBackend, png

BASE = "https://silos.example.org"
ORIGIN = {"origin": BASE}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def client_of(gate: Gate, base: str = BASE) -> TestClient:
    app = app_for(MadeUpBackend(), gate, ["silos.example.org", "127.0.0.1"])
    return TestClient(app, base_url=base, follow_redirects=False)


@pytest.fixture
def client(accounts: Accounts) -> TestClient:
    return client_of(Gate(accounts))


def test_pages_lead_to_the_form_and_back(client: TestClient) -> None:
    answer = client.get("/?q=red+shape")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/sign-in?next=/%3Fq%3Dred%2Bshape"
    form = client.get(answer.headers["location"])
    assert form.status_code == 200
    assert 'name="next" value="/?q=red+shape"' in form.text
    assert 'autocomplete="current-password"' in form.text
    answer = sign_in(client, " Ada ", target="/?q=red+shape")
    assert (answer.status_code, answer.headers["location"]) == (303, "/?q=red+shape")
    assert client.get("/?q=red+shape").status_code == 200
    assert client.get("/sign-in?next=/federation").headers["location"] == "/federation"
    assert "Signed in as <strong>ada</strong>." in client.get("/account").text


def test_the_cookie_is_kept_from_scripts_and_other_sites(client: TestClient) -> None:
    cookie = sign_in(client).headers["set-cookie"]
    assert cookie.startswith("__Host-silohash-session=")
    assert {part.strip().lower() for part in cookie.split(";")[1:]} >= {"httponly", "secure", "samesite=lax", "path=/"}
    assert "domain" not in cookie.lower()


def test_signing_out_ends_the_session_itself(client: TestClient) -> None:
    sign_in(client)
    secret = client.cookies[COOKIE]
    answer = client.post("/sign-out", headers=ORIGIN)
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    assert COOKIE not in client.cookies
    client.cookies.set(COOKIE, secret)
    assert client.get("/").status_code == 303
    assert client.get("/account").headers["location"] == "/sign-in?next=/account"


def test_a_new_session_replaces_the_former_one(client: TestClient) -> None:
    sign_in(client)
    former = client.cookies[COOKIE]
    sign_in(client, "root")
    assert client.cookies[COOKIE] != former
    client.cookies.set(COOKIE, former, domain="silos.example.org")
    other = TestClient(client.app, base_url=BASE, cookies={COOKIE: former}, follow_redirects=False)
    assert other.get("/").status_code == 303


@pytest.mark.parametrize("header", ["Basic YWRhOng=", "TOKEN", "", "Token abc"])
def test_a_header_without_a_bearer_token_is_explained(client: TestClient, header: str) -> None:
    refused = client.get("/api/v1/status", headers={"authorization": header})
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert "is not of the form: Authorization: Bearer TOKEN." in refused.json()["error"]["message"]
    unknown = client.get("/api/v1/status", headers={"authorization": "bearer abc"})
    assert unknown.status_code == 401
    assert "unknown or has expired" in unknown.json()["error"]["message"]


@pytest.mark.parametrize("cookie", ["", "x", "x" * 3_000, "é"])
def test_unknown_sessions_are_refused(accounts: Accounts, cookie: str) -> None:
    client = client_of(Gate(accounts))
    headers = {"cookie": f"{COOKIE}={cookie}".encode()}
    assert client.get("/", headers=headers).status_code == 303
    assert client.get("/api/v1/status", headers=headers).status_code == 401


def test_a_wrong_password_and_an_unknown_name_look_the_same(client: TestClient) -> None:
    answers = [sign_in(client, name, password) for name, password in (("ada", "wrong"), ("eve", PASSWORD), ("", ""))]
    assert {answer.status_code for answer in answers} == {401}
    pages = {re.sub(r"<input id=.*?>", "", answer.text) for answer in answers}
    assert len(pages) == 1
    assert "The name or the password is wrong." in pages.pop()
    assert client.get("/").status_code == 303


def test_what_someone_types_is_not_markup(client: TestClient) -> None:
    answer = sign_in(client, '"><b>x', "y", target='"><i>')
    assert "<b>" not in answer.text
    assert "<i>" not in answer.text
    assert 'name="next" value="/"' in answer.text


def test_wrong_passwords_make_the_next_try_wait(accounts: Accounts) -> None:
    clock = Clock()
    client = client_of(Gate(accounts, back_off=BackOff(clock=clock)))
    assert [sign_in(client, password="wrong").status_code for _ in range(6)] == [401] * 6  # noqa: S106
    refused = sign_in(client)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert "Try again in 1 s." in refused.text
    assert sign_in(client, "root").status_code == 303
    clock.now += 1
    assert sign_in(client).status_code == 303
    assert sign_in(client, password="wrong").status_code == 401  # noqa: S106  the right password has reset the count


def test_right_passwords_are_never_counted(accounts: Accounts) -> None:
    gate = Gate(accounts, back_off=BackOff(clock=Clock()))
    for number in range(60):
        assert sign_in(client_of(gate)).status_code == 303, number
    assert not gate.back_off._failures


def test_a_browser_that_is_known_does_not_wait_for_strangers(accounts: Accounts) -> None:
    gate = Gate(accounts, back_off=BackOff(clock=Clock()))
    known = client_of(gate)
    sign_in(known)
    device = DEVICE
    assert {"httponly", "secure", "samesite=lax"} <= {
        part.strip().lower() for part in sign_in(known).headers.get_list("set-cookie")[1].split(";")
    }
    for _ in range(6):
        sign_in(client_of(gate), password="wrong")  # noqa: S106
    assert sign_in(client_of(gate)).status_code == 429
    gate.back_off._known.clear()
    assert sign_in(known).status_code == 303
    stolen = client_of(gate)
    stolen.cookies.set(device, known.cookies[device], domain="silos.example.org")
    assert sign_in(stolen, "root").status_code == 303
    stolen.cookies.set(device, known.cookies[device], domain="silos.example.org")
    assert [sign_in(stolen, password="wrong").status_code for _ in range(7)] == [401] * 6 + [429]  # noqa: S106


def test_too_many_waiting_passwords_are_refused_except_of_known_browsers(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(accounts)
    known = client_of(gate)
    sign_in(known)
    monkeypatch.setattr("silohash.service.web.auth.MOST_WAITING", 0)
    refused = sign_in(client_of(gate))
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
    assert sign_in(known).status_code == 303


def test_a_locked_file_refuses_signing_in_alone(accounts: Accounts, client: TestClient) -> None:
    sign_in(client)
    token = bearer(accounts, "search")
    accounts._wait_seconds = 0.01
    other = sqlite3.connect(accounts.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        refused = sign_in(client_of(Gate(accounts)))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
        assert "sqlite" not in refused.text
        assert client.get("/").status_code == client.get("/api/v1/status", headers=token).status_code == 200
    finally:
        other.close()


def test_strangers_do_not_learn_paths_from_errors(
    accounts: Accounts, client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    sign_in(client)
    with sqlite3.connect(accounts.path) as other:
        other.execute("DROP TABLE sessions")
    for answer in (client.get("/api/v1/status"), client.get("/sign-in"), sign_in(client)):
        assert answer.status_code == 503
        assert str(accounts.path) not in answer.text
        assert "Its log has the reason." in answer.text
    assert str(accounts.path) in caplog.text
    assert client.get("/readyz").json() == {"status": "ready"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "null"},
    ],
)
def test_other_sites_cannot_send_forms(client: TestClient, headers: dict[str, str]) -> None:
    data = {"name": "ada", "password": PASSWORD}
    assert client.post("/sign-in", data=data, headers=headers).status_code == 403
    sign_in(client)
    assert client.post("/sign-out", headers=headers).status_code == 403
    files = {"picture_file": ("a.png", png(), "image/png")}
    assert client.post("/picture", files=files, headers=headers).status_code == 403
    assert client.post("/api/v1/search", json={"text": "red"}, headers=headers).status_code == 403
    assert client.get("/").status_code == 200


def test_the_pages_of_the_service_can_send_forms(client: TestClient) -> None:
    sign_in(client)
    files = {"picture_file": ("a.png", png(), "image/png")}
    assert client.post("/picture", files=files, headers=ORIGIN).status_code == 303
    fetched = {"sec-fetch-site": "same-origin"}
    assert client.post("/api/v1/search", json={"text": "red"}, headers=fetched).status_code == 200


def test_programs_send_tokens_with_scopes(accounts: Accounts, client: TestClient) -> None:
    search, items = bearer(accounts, "search"), bearer(accounts, "items")
    assert client.get("/api/v1/search?text=red", headers=search).status_code == 200
    assert client.post("/api/v1/search", json={"text": "red"}, headers=search).status_code == 200
    assert client.get("/api/v1/status", headers=search).status_code == 200
    assert client.get("/api/v1/item?silo=north&id=item-3", headers=items).status_code == 200
    refused = client.get("/api/v1/item?silo=north&id=item-3", headers=search)
    assert refused.status_code == 403
    assert 'does not have the scope "items"' in refused.json()["error"]["message"]
    assert client.get("/api/v1/search?text=red", headers=items).status_code == 403
    assert "does not open pages" in client.get("/", headers=search).text
    both = {**bearer(accounts, "search", "items")}
    assert client.get("/api/v1/item?silo=north&id=item-3", headers=both).status_code == 200


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer x", "Basic YWRhOng=", "Bearer " + "x" * 5_000])
def test_requests_without_a_valid_token_are_refused(client: TestClient, value: str) -> None:
    sign_in(client)  # a header with credentials decides, even beside a session
    answer = client.get("/api/v1/status", headers={"authorization": value})
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.json()["error"]["code"] == "unauthorized"


def test_without_credentials_the_api_answers_with_an_error(client: TestClient) -> None:
    answer = client.get("/api/v1/search?text=red")
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert client.get("/healthz").status_code == 200


def test_requests_above_a_rate_are_refused(accounts: Accounts) -> None:
    clock = Clock()
    limits = {
        "account_limit": RateLimit(per_minute=60, burst=2, clock=clock),
        "address_limit": RateLimit(per_minute=60, burst=5, clock=clock),
    }
    client = client_of(Gate(accounts, **limits))
    token = bearer(accounts, "search")
    answers = [client.get("/api/v1/status", headers=token) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[2].headers["retry-after"] == "1"
    other = bearer(accounts, "search", name="root")
    assert client.get("/api/v1/status", headers=other).status_code == 200
    assert [client.get("/api/v1/status").status_code for _ in range(5)] == [401] * 5
    assert [client.get(path).status_code for path in ("/api/v1/status", "/", "/sign-in", "/account")] == [429] * 4
    assert sign_in(client).status_code == 429
    assert client.get("/api/v1/status", headers=other).status_code == 200, "an address is no limit for an account"
    clock.now += 1
    assert client.get("/sign-in").status_code == 200


def test_a_removed_account_is_refused_at_once(accounts: Accounts, client: TestClient) -> None:
    token = bearer(accounts, "search")
    sign_in(client)
    accounts.remove("ada")
    assert client.get("/").status_code == 303
    assert client.get("/api/v1/status", headers=token).status_code == 401


def test_no_secret_is_logged(accounts: Accounts, client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sign_in(client, "my secret typed as a name", "wrong secret")
    sign_in(client)
    token = bearer(accounts, "search")
    client.get("/api/v1/status", headers=token)
    assert "ada signed in from testclient" in caplog.text
    assert "Sign-in from testclient failed" in caplog.text
    for secret in (
        "my secret",
        "wrong secret",
        PASSWORD,
        client.cookies[COOKIE],
        token["authorization"].split()[1],
    ):
        assert secret not in caplog.text


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/item?id=3", "/item?id=3"),
        ("//example.org", "/"),
        ("/\\example.org", "/"),
        ("https://example.org", "/"),
        ("/a\r\nset-cookie: x", "/"),
        ("", "/"),
        ("/sign-in?next=/", "/"),
    ],
)
def test_signing_in_does_not_lead_to_other_sites(client: TestClient, target: str, expected: str) -> None:
    assert local_path(target) == expected
    assert sign_in(client, target=target).headers["location"] == expected


def test_scopes_of_paths() -> None:
    paths = (
        "/api/v1/search",
        "/api/v1/similar",
        "/api/v1/status",
        "/api/v1/item",
        "/api/v1/other",
        "/api/v2",
        "/metrics",
        "/x",
    )
    assert [scope_of(path) for path in paths] == ["search"] * 3 + ["items"] + ["admin"] * 2 + ["metrics", None]


class Asked:
    def __init__(self, address: str | None, **headers: str) -> None:
        self.client = None if address is None else type("Client", (), {"host": address})
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def test_addresses_and_origins() -> None:
    assert address_of(Asked("10.0.0.1")) == "10.0.0.1"
    assert address_of(Asked("::ffff:10.0.0.1")) != address_of(Asked("::ffff:10.0.0.2"))
    assert address_of(Asked("2001:db8:1:2:3:4:5:6")) == address_of(Asked("2001:db8:1:2::7"))
    assert address_of(Asked("2001:db8::a:2:3:4")) == address_of(Asked("2001:db8::b:6:7:8"))
    assert address_of(Asked("2001:db8:0:1::")) != address_of(Asked("2001:db8::"))
    assert (address_of(Asked(None)), address_of(Asked("testclient"))) == ("", "testclient")
    assert is_same_origin(Asked("x", origin="https://a:1", host="a:1"))
    assert is_same_origin(Asked("x", sec_fetch_site="same-origin", host="a"))
    assert not is_same_origin(Asked("x", origin="https://a:1", host="a"))
    assert not is_same_origin(Asked("x", sec_fetch_site="none", host="a"))
    assert not is_same_origin(Asked("x", host="a"))


def test_a_service_with_accounts_asks_who_it_is_under_its_own_names(accounts: Accounts) -> None:
    token = bearer(accounts, "search")
    app = app_for(MadeUpBackend(), Gate(accounts), ["Search.example.org"])
    for base in ("https://search.example.org", "http://127.0.0.1:8765"):
        client = TestClient(app, base_url=base)
        assert client.get("/api/v1/status").status_code == 401
        assert client.get("/api/v1/status", headers=token).status_code == 200
    assert TestClient(app, base_url="https://other.example.org").get("/api/v1/status", headers=token).status_code == 400
    open_app = app_for(MadeUpBackend(), None, ["search.example.org"])
    assert TestClient(open_app, base_url="http://127.0.0.1").get("/").status_code == 200
    assert TestClient(open_app, base_url="https://search.example.org").get("/").status_code == 400


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_bucket_empties_and_fills(clock: Clock) -> None:
    limit = RateLimit(per_minute=30, burst=3, clock=clock)
    assert [limit.wait_seconds("a") for _ in range(4)] == [0, 0, 0, 2]
    assert limit.wait_seconds("b") == 0
    clock.now += 1
    assert limit.wait_seconds("a") == 1
    clock.now += 1
    assert limit.wait_seconds("a") == 0
    assert limit.wait_seconds("a") == 2
    clock.now += 1_000
    assert [limit.wait_seconds("a") for _ in range(4)] == [0, 0, 0, 2]


def test_waits_double_after_five_wrong_passwords(clock: Clock) -> None:
    back_off = BackOff(clock=clock)
    waits = []
    for _ in range(17):
        back_off.failed("ada", "1.1.1.1")
        waits.append(back_off.wait_seconds("ada", "1.1.1.1"))
    assert waits == [0] * 5 + [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]
    clock.now += 899
    assert back_off.wait_seconds("ada", "1.1.1.1") == 1
    clock.now += 1
    assert back_off.wait_seconds("ada", "1.1.1.1") == 0
    back_off.failed("ada", "1.1.1.1")
    assert back_off.wait_seconds("ada", "1.1.1.1") == 900


def test_another_address_and_another_account_do_not_wait(clock: Clock) -> None:
    back_off = BackOff(clock=clock)
    for _ in range(8):
        back_off.failed("ada", "1.1.1.1")
    assert back_off.wait_seconds("ada", "1.1.1.1") == 4
    assert back_off.wait_seconds("ada", "2.2.2.2") == 0
    assert back_off.wait_seconds("eve", "1.1.1.1") == 0


def test_the_right_password_and_time_forget_wrong_ones(clock: Clock) -> None:
    back_off = BackOff(clock=clock)
    for _ in range(7):
        back_off.failed("ada", "1.1.1.1")
    back_off.succeeded("ada", "1.1.1.1")
    assert back_off.wait_seconds("ada", "1.1.1.1") == 0
    back_off.succeeded("ada", "1.1.1.1")
    for _ in range(7):
        back_off.failed("ada", "1.1.1.1")
    clock.now += 3_601
    back_off.failed("ada", "1.1.1.1")
    assert back_off.wait_seconds("ada", "1.1.1.1") == 0


def test_attempts_that_are_spread_wait_too(clock: Clock) -> None:
    over_addresses, over_accounts = BackOff(clock=clock), BackOff(clock=clock)
    for number in range(200):
        assert over_addresses.wait_seconds("ada", "9.9.9.9") == 0
        over_addresses.failed("ada", f"1.1.1.{number}")
    assert over_addresses.wait_seconds("ada", "9.9.9.9") == 60
    assert over_addresses.wait_seconds("eve", "1.1.1.1") == 0
    for number in range(1_000):
        assert over_accounts.wait_seconds("eve", "1.1.1.1") == 0
        over_accounts.failed(f"a{number}", "1.1.1.1")
    assert over_accounts.wait_seconds("eve", "1.1.1.1") == 6
    assert over_accounts.wait_seconds("eve", "2.2.2.2") == 0
    clock.now += 6
    assert over_accounts.wait_seconds("eve", "1.1.1.1") == 0


def test_known_addresses_and_browsers_pass_the_weaker_limits(clock: Clock) -> None:
    back_off = BackOff(clock=clock)
    back_off.succeeded("ada", "1.1.1.1")
    for number in range(300):
        back_off.failed("ada", f"2.2.2.{number}")
    assert back_off.wait_seconds("ada", "9.9.9.9") == 60
    assert back_off.wait_seconds("ada", "1.1.1.1") == back_off.wait_seconds("ada", "9.9.9.9", "mark") == 0
    for _ in range(6):
        back_off.failed("ada", "1.1.1.1")
    assert back_off.wait_seconds("ada", "1.1.1.1") == 1
    assert back_off.wait_seconds("ada", "1.1.1.1", "mark") == 0, "a browser has a count of its own"
    for _ in range(6):
        back_off.failed("ada", "1.1.1.1", "mark")
    assert back_off.wait_seconds("ada", "1.1.1.1", "mark") == 1
    back_off.succeeded("ada", "1.1.1.1", "mark")
    assert (back_off.wait_seconds("ada", "1.1.1.1", "mark"), back_off.wait_seconds("ada", "1.1.1.1")) == (0, 1)


def test_memory_is_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silohash.service.web.auth.MOST_KEYS", 10)
    limit, back_off = RateLimit(per_minute=1, burst=1, clock=clock), BackOff(clock=clock)
    for number in range(100):
        limit.wait_seconds(number)
        back_off.failed(f"a{number}", f"1.{number}")
        back_off.succeeded(f"b{number}", f"1.{number}")
    assert len(limit._buckets) == len(back_off._failures) == len(back_off._known) == 10
    assert limit.wait_seconds(99) == 60
    assert limit.wait_seconds(0) == 0
