"""Limits of requests, and waits after wrong passwords, computed by hand."""

from __future__ import annotations

import pytest

from silohash.service.accounts import throttle
from silohash.service.accounts.throttle import BackOff, RateLimit


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


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
    for number in range(50):
        over_addresses.failed("ada", f"1.1.1.{number}")
        over_accounts.failed(f"a{number}", "1.1.1.1")
    assert over_addresses.wait_seconds("ada", "9.9.9.9") == over_accounts.wait_seconds("eve", "1.1.1.1") == 0
    over_addresses.failed("ada", "8.8.8.8")
    over_accounts.failed("bob", "1.1.1.1")
    assert over_addresses.wait_seconds("ada", "9.9.9.9") == over_accounts.wait_seconds("eve", "1.1.1.1") == 1


def test_memory_is_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "MOST_KEYS", 10)
    limit, back_off = RateLimit(per_minute=1, burst=1, clock=clock), BackOff(clock=clock)
    for number in range(100):
        limit.wait_seconds(number)
        back_off.failed(f"a{number}", f"1.{number}")
    assert len(limit._buckets) == len(back_off._failures) == 10
    assert limit.wait_seconds(99) == 60
    assert limit.wait_seconds(0) == 0
