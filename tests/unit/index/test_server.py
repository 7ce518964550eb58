"""What index servers share: time limits, and messages without the secrets of a URL."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from silohash.base.errors import ServerUnreachable
from silohash.index import server
from silohash.index.server import explaining_server_errors, seconds_left, time_limit, without_secrets


@pytest.mark.parametrize(
    ("url", "secrets"),
    [
        ("postgresql://me:s%40cret@db/x", ("s%40cret", "s@cret")),
        ("host=db user=me password='s3cret'", ("s3cret",)),
        ("postgresql://db/x?user=me&password=s3cret", ("s3cret",)),
        ("http://me:s3cret@[host", ("http://me:s3cret@[host",)),
    ],
)
def test_messages_do_not_hold_secrets(url: str, secrets: tuple[str, ...]) -> None:
    for secret in secrets:
        assert without_secrets(f"failed: {secret}!", url) == "failed: ***!"
        with (
            pytest.raises(ServerUnreachable, match=r"local.*here") as caught,
            explaining_server_errors("local", url, ValueError),
        ):
            raise ValueError(f"no {secret} here.")
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
    assert without_secrets("nothing", "postgresql://db/x") == "nothing"


def test_a_time_limit_replaces_the_one_around_it_and_ends_with_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50.0]
    monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert seconds_left(1e9) == 1e9
    with time_limit(1_000):
        now[0] += 400
        assert seconds_left(1e9) == 600
        assert seconds_left(3.0) == 3.0
        with time_limit(None):
            assert seconds_left(1e9) == 1e9
        with time_limit(5):
            assert seconds_left(1e9) == 5
            now[0] += 5
            with pytest.raises(ServerUnreachable):
                seconds_left(1.0)
        assert seconds_left(1e9) == 595
    assert seconds_left(1e9) == 1e9
