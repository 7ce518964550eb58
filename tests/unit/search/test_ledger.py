"""The ledger of a silo: noise that stays, budgets of near queries, restarts, damage and permissions."""

from __future__ import annotations

import sqlite3
import stat
import threading

import numpy as np
import pytest

from silohash.base.errors import LimitReached, NotSearchable, UnreadableFile
from silohash.index.codes import pack, pack_bits, to_bytes
from silohash.search import ledger
from silohash.search.ledger import Ledger, noised
from silohash.search.policy import DAY_SECONDS, Policy
from tests.silos import query_of

BITS = 32
NEAR = Policy(max_near_queries=2, near_bits=3, near_days=5)


def code_with(*ones):
    """Returns the code whose bits at some places are 1."""
    bits = np.zeros((1, BITS), bool)
    bits[0, list(ones)] = True
    return pack_bits(bits)


def asked(opened, *ones, policy=NEAR, **options):
    """Returns whether a query is admitted."""
    try:
        opened.admit(query_of(code_with(*ones), BITS, **{"asker": "ann", **options}), policy)
    except LimitReached:
        return False
    return True


@pytest.mark.parametrize("bits", [12, 32, 160])
def test_noise_inverts_its_share_of_the_bits_and_the_same_ones_each_time(bits):
    signs = np.random.default_rng(0).choice([-1, 1], (3000, bits))
    packed = to_bytes(pack(signs), bits)
    found = noised(packed, bits, share=0.25, secret=b"secret")
    flipped = np.unpackbits(found ^ packed, axis=1, count=bits, bitorder="little")
    assert abs(flipped.mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / flipped.size)
    assert np.abs(flipped.mean(0) - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / 3000), (
        "every bit is as likely as the others"
    )
    assert (noised(packed[::-1], bits, share=0.25, secret=b"secret")[::-1] == found).all()
    assert (noised(packed, bits, share=0.25, secret=b"another") != found).any()
    if bits % 8:
        assert not (found[:, -1] >> bits % 8).any(), "bits beyond the code length stay zero"


def test_copies_of_an_item_do_not_average_the_noise_away():
    packed = np.repeat(to_bytes(code_with(1, 5), BITS), 50, axis=0)
    found = noised(packed, BITS, share=0.3, secret=b"secret")
    assert (found == found[0]).all()
    assert (found[0] != packed[0]).any()


def test_a_share_is_rounded_up_so_that_noise_is_never_lost():
    packed = to_bytes(pack(np.random.default_rng(0).choice([-1, 1], (4000, BITS))), BITS)
    flipped = noised(packed, BITS, share=1e-9, secret=b"s") ^ packed
    share = np.unpackbits(flipped, axis=1).mean()
    assert 0.5 / 256 < share < 2 / 256


def test_different_near_queries_are_limited_per_asker():
    opened = Ledger()
    assert [asked(opened, *ones) for ones in ((), (1,), (2,), (1, 2))] == [True, True, False, False]
    assert asked(opened, 1), "a query that is repeated does not count"
    assert asked(opened, *range(20)), "another topic"
    assert asked(opened, 2, asker="bob")
    assert not asked(opened, 2)


def test_a_refused_query_does_not_count():
    opened = Ledger()
    assert asked(opened)
    assert asked(opened, 1)
    for bit in range(2, 20):
        assert not asked(opened, bit)
    assert asked(opened, *range(10, 20)), "nothing near it was answered"


def test_the_same_code_with_another_label_or_target_is_another_query():
    opened = Ledger()
    assert asked(opened, 1, label="dog")
    assert asked(opened, 1, label="cat")
    assert not asked(opened, 1)
    assert asked(opened, 1, label="dog", k=99, offset=5), "a further page"


def test_the_same_code_with_other_words_is_another_query():
    opened = Ledger()
    assert asked(opened, 1, own_text="boats -a")
    assert asked(opened, 1, own_text="boats -b")
    assert asked(opened, 1, own_text="boats -a", offset=5)
    assert not asked(opened, 1, own_text="boats -c")
    assert asked(opened, 1, own_text="boats -b", text="words that are not accepted")


def test_near_is_a_quarter_of_the_code_unless_it_is_set():
    opened, policy = Ledger(), Policy(max_near_queries=1)
    assert asked(opened, policy=policy)
    assert not asked(opened, *range(8), policy=policy)
    assert asked(opened, *range(9), policy=policy)


def test_without_a_limit_nothing_is_remembered(tmp_path):
    opened = Ledger(tmp_path / "a.sqlite")
    for bit in range(BITS):
        assert asked(opened, bit, policy=Policy(rank_only=True))
    assert opened._connection.execute("SELECT count(*) FROM asked").fetchone() == (0,)


def test_queries_are_forgotten_after_some_days():
    now = [100.5 * DAY_SECONDS]
    opened = Ledger(clock=lambda: now[0])
    assert asked(opened)
    assert asked(opened, 1)
    now[0] += 4 * DAY_SECONDS
    assert not asked(opened, 2)
    now[0] += DAY_SECONDS
    assert asked(opened, 2)


def test_a_restart_keeps_the_secret_and_the_counts(tmp_path):
    path = tmp_path / "ledger" / "north.sqlite"
    first = Ledger(path)
    assert asked(first)
    assert asked(first, 1)
    first.close()
    again, other = Ledger(path), Ledger(path)
    assert again.secret == first.secret
    assert len(again.secret) == 32
    assert not asked(again, 2)
    assert not asked(other, 2), "processes of a silo share the counts"
    assert Ledger(tmp_path / "ledger" / "south.sqlite").secret != first.secret


def test_the_file_is_readable_for_its_owner_alone(tmp_path):
    path = tmp_path / "ledger" / "north.sqlite"
    assert asked(Ledger(path))
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert b"ann" not in b"".join(file.read_bytes() for file in path.parent.iterdir())


def test_an_asker_cannot_fill_the_ledger(monkeypatch):
    monkeypatch.setattr(ledger, "MOST_QUERIES", 3)
    opened, policy = Ledger(), Policy(max_near_queries=1, near_bits=0)
    assert [asked(opened, bit, policy=policy) for bit in range(5)] == [True, True, True, False, False]
    assert asked(opened, 4, policy=policy, asker="bob")


def test_a_full_ledger_refuses(monkeypatch, tmp_path):
    monkeypatch.setattr(ledger, "MOST_PAGES", 8)
    opened, policy = Ledger(tmp_path / "a.sqlite"), Policy(max_near_queries=1, near_bits=0)
    numbers = iter(range(2000))
    with pytest.raises(UnreadableFile, match="full"):
        all(asked(opened, policy=policy, asker=f"asker {number}") for number in numbers)
    assert next(numbers) > 10


def test_what_cannot_be_read_is_said(tmp_path):
    path = tmp_path / "north.sqlite"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(UnreadableFile, match=r"north\.sqlite"):
        Ledger(path)


def test_another_program_that_holds_the_file_is_waited_for(tmp_path):
    path = tmp_path / "north.sqlite"
    opened = Ledger(path)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.1, lambda: other.execute("COMMIT"))
    timer.start()
    assert asked(opened)
    timer.join()
    other.close()


def test_codes_on_a_server_cannot_have_noise():
    opened = Ledger()
    assert opened.noise(BITS, Policy(rank_only=True), in_memory=False) is None
    with pytest.raises(NotSearchable, match="code_noise"):
        opened.noise(BITS, Policy(code_noise=0.1), in_memory=False)


def test_the_order_among_equals_depends_on_the_secret_and_the_code():
    opened = Ledger()
    query = query_of(code_with(1), BITS)
    assert opened.key_of(query) == opened.key_of(query_of(code_with(1), BITS, k=3, asker="bob"))
    assert len({opened.key_of(query), opened.key_of(query_of(code_with(2), BITS)), Ledger().key_of(query)}) == 3
