"""Files are fetched slowly, from certain hosts only, and again if a host is busy; no real time passes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from silohash import __version__
from silohash.base.errors import ServerUnreachable
from silohash.data.build import fetching
from silohash.data.build.fetching import MOST_FAILURES, NotGivenError, Polite, content_of
from tests.museum_files import Clock, Server, picture_of, serving
from tests.ports import free_port

MOST = 1 << 20


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as served:
        yield served


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def polite(clock: Clock) -> Polite:
    return Polite(clock.now, clock.wait)


def test_a_host_is_asked_once_per_second_and_others_meanwhile(server: Server, polite: Polite, clock: Clock) -> None:
    with serving() as other:
        for place, path in ((server, "/a"), (other, "/b"), (server, "/c"), (other, "/d"), (server, "/e")):
            assert polite.fetch(place.address + path, MOST, [place.address]) == picture_of(path)
    assert clock.waits == [0, 0, 1, 0, 1]
    clock.time += 0.75
    polite.fetch(f"{server.address}/f", MOST, [server.address])
    assert clock.waits[-1] == 0.25
    assert server.asked == ["/a", "/c", "/e", "/f"]
    assert server.agents == {f"silohash/{__version__} (builder of research data sets)"}


def test_a_busy_host_is_left_alone_as_long_as_it_asks(server: Server, polite: Polite, clock: Clock) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    server.status["/a"] = [(503, {"Retry-After": "7"}), (429, {"Retry-After": date})]
    assert polite.fetch(f"{server.address}/a", MOST, [server.address]) == picture_of("/a")
    assert clock.waits[:2] == [0, 7]
    assert 60 < clock.waits[2] <= 90
    server.status["/b"] = [(500, {}), (502, {"Retry-After": "soon"}), (500, {})]
    with pytest.raises(NotGivenError, match="HTTP status 500"):
        polite.fetch(f"{server.address}/b", MOST, [server.address])
    assert clock.waits[3:] == [1, 1, 2]
    polite.fetch(f"{server.address}/c", MOST, [server.address])
    assert clock.waits[-1] == 4


def test_a_host_that_asks_for_a_long_time_ends_the_build(server: Server, polite: Polite) -> None:
    server.status["/a"] = [(429, {"Retry-After": "3600"})]
    with pytest.raises(ServerUnreachable, match="3,600 seconds"):
        polite.fetch(f"{server.address}/a", MOST, [server.address])
    assert server.asked == ["/a"]


def test_files_that_are_not_given_are_asked_for_once(server: Server, polite: Polite) -> None:
    server.status["/gone"] = [(404, {"Retry-After": "5"})]
    server.status["/moved"] = [(302, {"Location": f"{server.address}/elsewhere"})]
    server.content["/large"] = bytes(MOST + 1)
    for path, reason in (("/gone", "404"), ("/moved", "302"), ("/large", "more than")):
        with pytest.raises(NotGivenError, match=reason):
            polite.fetch(server.address + path, MOST, [server.address])
    server.content["/largest"] = bytes(MOST)
    assert len(polite.fetch(f"{server.address}/largest", MOST, [server.address])) == MOST
    assert server.asked == ["/gone", "/moved", "/large", "/largest"]


def test_other_addresses_are_not_asked(server: Server, polite: Polite) -> None:
    permitted = [f"{server.address}/pictures/"]
    for address in (f"{server.address}/other", "http://127.0.0.1:1/pictures/a", "file:///etc/hostname", ""):
        with pytest.raises(NotGivenError, match="no address"):
            polite.fetch(address, MOST, permitted)
    assert server.asked == []


def test_an_interrupted_transfer_is_repeated(server: Server, polite: Polite, clock: Clock) -> None:
    server.cut["/a"] = 2
    assert polite.fetch(f"{server.address}/a", MOST, [server.address]) == picture_of("/a")
    assert (server.asked, clock.waits) == (["/a"] * 3, [0, 1, 2])
    server.cut["/b"] = 3
    with pytest.raises(NotGivenError):
        polite.fetch(f"{server.address}/b", MOST, [server.address])


def test_a_host_that_gives_nothing_is_left_alone(
    server: Server, polite: Polite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MOST_FAILURES", 3)
    assert MOST_FAILURES > 3
    for path in ("/1", "/2", "/fine", "/3", "/4"):
        if path == "/fine":
            polite.fetch(server.address + path, MOST, [server.address])
            continue
        server.status[path] = [(403, {})]
        with pytest.raises(NotGivenError):
            polite.fetch(server.address + path, MOST, [server.address])
    server.status["/5"] = [(403, {})]
    with pytest.raises(ServerUnreachable, match="403"):
        polite.fetch(f"{server.address}/5", MOST, [server.address])


def test_without_a_server_the_reason_is_named(polite: Polite) -> None:
    address = f"http://127.0.0.1:{free_port()}/a"
    with pytest.raises(NotGivenError, match="refused") as caught:
        content_of(address, MOST)
    assert caught.value.status == 0
    with pytest.raises(NotGivenError):
        polite.fetch(address, MOST, [address])


def test_an_address_with_other_characters_is_encoded(server: Server, polite: Polite) -> None:
    polite.fetch(f"{server.address}/a b,ü.jpg?id=1&max=2%20", MOST, [server.address])
    assert server.asked == ["/a b,%C3%BC.jpg?id=1&max=2 "]
