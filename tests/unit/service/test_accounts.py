"""Accounts, sessions and tokens in their file: what is let in, what expires, and that no secret is stored."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import argon2
import pytest

from silohash.base.errors import (
    AlreadyExists,
    DependencyMissing,
    InUse,
    InvalidName,
    NotPermitted,
    OtherVersion,
    OutOfRange,
    ReadableByOthers,
    UnknownName,
    UnreadableFile,
    WrongKindOfFile,
)
from silohash.service.accounts import (
    DAY_SECONDS,
    SCOPES,
    SESSION_SECONDS,
    Account,
    Accounts,
    accounts_beside,
    check_name,
    check_password,
    check_scopes,
)
from tests.accounts import PASSWORD, quick_accounts


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def accounts(tmp_path: Path, clock: Clock) -> Iterator[Accounts]:
    with quick_accounts(tmp_path, clock) as opened:
        yield opened


def test_accounts_are_added_listed_and_removed(accounts: Accounts, clock: Clock) -> None:
    accounts.add("  Ada@Example.org ", PASSWORD)
    accounts.add("root", PASSWORD, admin=True)
    assert accounts.all() == [Account("ada@example.org", False, 1_000.0), Account("root", True, 1_000.0)]
    with pytest.raises(AlreadyExists, match="root"):
        accounts.add("Root", PASSWORD)
    accounts.remove("root")
    assert [account.name for account in accounts.all()] == ["ada@example.org"]
    for use in (lambda: accounts.remove("root"), lambda: accounts.set_password("root", PASSWORD)):
        with pytest.raises(UnknownName, match="root"):
            use()


def test_only_the_right_password_is_accepted(accounts: Accounts) -> None:
    accounts.add("ada", PASSWORD)
    assert accounts.verify("ada", PASSWORD)
    for name, password in (
        ("ada", PASSWORD + " "),
        ("ada", ""),
        ("eve", PASSWORD),
        ("ada", "\ud800x"),
        ("ada", "x" * 5_000),
    ):
        assert not accounts.verify(name, password)
    accounts.set_password("ada", "another one!")
    assert not accounts.verify("ada", PASSWORD)
    assert accounts.verify("ada", "another one!")


def test_a_password_longer_than_allowed_is_not_cut_to_one_that_fits(accounts: Accounts) -> None:
    accounts.add("ada", "x" * 1_000)
    assert accounts.verify("ada", "x" * 1_000)
    assert not accounts.verify("ada", "x" * 1_001)


def test_hashes_with_former_settings_are_renewed(accounts: Accounts) -> None:
    accounts.add("ada", PASSWORD)
    before = accounts._connection.execute("SELECT password FROM accounts").fetchone()[0]
    accounts._hasher = argon2.PasswordHasher(time_cost=2, memory_cost=8, parallelism=1)
    assert accounts.verify("ada", PASSWORD)
    after = accounts._connection.execute("SELECT password FROM accounts").fetchone()[0]
    assert "t=1" in before
    assert "t=2" in after
    assert accounts.verify("ada", PASSWORD)


def test_sessions_end_by_themselves_or_on_request(accounts: Accounts, clock: Clock) -> None:
    accounts.add("ada", PASSWORD)
    one, other = accounts.start_session("ada"), accounts.start_session("ada")
    assert one != other
    assert accounts.session(one).name == accounts.session(other).name == "ada"
    assert accounts.session("unknown") is None
    accounts.end_session(one)
    assert accounts.session(one) is None
    clock.now += SESSION_SECONDS * 0.4
    assert accounts.session(other)
    clock.now += SESSION_SECONDS * 0.5
    assert accounts.session(other)  # past the half, the session is prolonged
    clock.now += SESSION_SECONDS * 0.9
    assert accounts.session(other)
    clock.now += SESSION_SECONDS
    assert accounts.session(other) is None
    accounts.start_session("ada")
    assert accounts._connection.execute("SELECT count(*) FROM sessions").fetchone() == (1,)
    with pytest.raises(UnknownName):
        accounts.start_session("eve")


def test_a_new_password_or_a_removal_ends_sessions(accounts: Accounts) -> None:
    accounts.add("ada", PASSWORD)
    session = accounts.start_session("ada")
    accounts.set_password("ada", "another one!")
    assert accounts.session(session) is None
    session = accounts.start_session("ada")
    _, token = accounts.add_token("ada", {"search"})
    accounts.remove("ada")
    assert accounts.session(session) is None
    assert accounts.token(token) is None
    assert accounts.tokens() == []


def test_tokens_have_scopes_and_expire(accounts: Accounts, clock: Clock) -> None:
    accounts.add("ada", PASSWORD)
    forever, text = accounts.add_token("ada", ["items", "search", "items"], label="nightly")
    short, other = accounts.add_token("ada", {"search"}, days=2)
    assert accounts.token(text) == forever
    assert (forever.scopes, forever.label, forever.expires) == (frozenset({"search", "items"}), "nightly", None)
    assert text.startswith(f"silohash_{forever.id}_")
    assert short.expires == 1_000.0 + 2 * DAY_SECONDS
    clock.now += 2 * DAY_SECONDS - 1
    assert accounts.token(other) == short
    clock.now += 1
    assert accounts.token(other) is None
    assert {token.id for token in accounts.tokens()} == {forever.id, short.id}
    accounts.remove_token(forever.id)
    assert accounts.token(text) is None
    with pytest.raises(UnknownName):
        accounts.remove_token(forever.id)


def test_mistakes_with_tokens_are_refused(accounts: Accounts) -> None:
    accounts.add("ada", PASSWORD)
    accounts.add("root", PASSWORD, admin=True)
    with pytest.raises(NotPermitted, match="ada"):
        accounts.add_token("ada", {"admin"})
    assert accounts.add_token("root", {"admin"})[0].scopes == {"admin"}
    with pytest.raises(UnknownName):
        accounts.add_token("eve", {"search"})
    for days in (0, -1, float("nan")):
        with pytest.raises(OutOfRange, match="positive"):
            accounts.add_token("ada", {"search"}, days=days)


def test_no_secret_is_in_the_file(accounts: Accounts) -> None:
    accounts.add("ada", PASSWORD)
    session = accounts.start_session("ada")
    _, token = accounts.add_token("ada", {"search"})
    files = [accounts.path, *accounts.path.parent.glob("accounts.sqlite-*")]
    content = b"".join(path.read_bytes() for path in files)
    assert b"ada" in content
    for secret in (PASSWORD, session, token, token.split("_", 2)[2]):
        assert secret.encode() not in content
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert len(files) == 3


def test_a_file_that_others_can_read_is_refused(tmp_path: Path, accounts: Accounts) -> None:
    accounts.path.chmod(0o640)
    with pytest.raises(ReadableByOthers, match=r"chmod 600 .*accounts\.sqlite"):
        Accounts(accounts.path)


def test_reading_does_not_wait_for_a_lock_and_writing_says_so(accounts: Accounts, clock: Clock) -> None:
    accounts.add("ada", PASSWORD)
    session, (_, token) = accounts.start_session("ada"), accounts.add_token("ada", {"search"})
    clock.now += SESSION_SECONDS * 0.6  # the session would be prolonged
    accounts._wait_seconds = 0.01
    other = sqlite3.connect(accounts.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        assert accounts.session(session).name == "ada"
        assert accounts.token(token).account == "ada"
        assert accounts.verify("ada", PASSWORD)
        assert accounts.all()
        for change in (lambda: accounts.start_session("ada"), lambda: accounts.end_session(session)):
            with pytest.raises(InUse):
                change()
        with Accounts(accounts.path) as second:  # a service that starts meanwhile
            assert second.all()
    finally:
        other.close()
    accounts.end_session(session)
    assert accounts.session(session) is None


def test_a_thread_that_waits_for_a_lock_does_not_stop_those_that_read(accounts: Accounts) -> None:
    accounts.add("ada", PASSWORD)
    accounts._wait_seconds = 0.01
    with accounts._changing(), ThreadPoolExecutor(1) as other:
        assert other.submit(accounts.verify, "ada", PASSWORD).result(60)
        with pytest.raises(InUse):
            other.submit(accounts.start_session, "ada").result(60)


def test_a_mark_of_a_browser_is_valid_for_its_account_until_the_password_changes(accounts: Accounts) -> None:
    for name in ("ada", "eve"):
        accounts.add(name, PASSWORD)
    mark = accounts.device("ada")
    assert accounts.device("ada", mark) == mark
    assert accounts.device("ada") != mark
    for name, former in (("eve", mark), ("bob", mark), ("ada", mark[:-1]), ("ada", "x.y"), ("ada", "."), ("ada", "é")):
        assert accounts.device(name, former) == ""
    assert accounts.device("bob") == ""
    accounts.set_password("ada", "another one!")
    assert accounts.device("ada", mark) == ""


def test_a_file_is_opened_again_and_others_are_refused(tmp_path: Path, accounts: Accounts) -> None:
    accounts.add("ada", PASSWORD)
    with Accounts(accounts.path) as again:
        assert [account.name for account in again.all()] == ["ada"]
        again._connection.execute("PRAGMA user_version = 99")
    with pytest.raises(OtherVersion, match="99"):
        Accounts(accounts.path)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE x (y)")
    connection.close()
    with pytest.raises(WrongKindOfFile):
        Accounts(other)
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(UnreadableFile):
        Accounts(tmp_path / "text")
    with pytest.raises(UnreadableFile):
        Accounts(tmp_path / "missing" / "accounts.sqlite")


def test_the_package_for_passwords_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silohash.base.optional.installed", lambda package: False)
    with Accounts(tmp_path / "a") as opened, pytest.raises(DependencyMissing, match=r"silohash\[service\]"):
        opened.add("ada", PASSWORD)


def test_accounts_are_found_beside_a_config(accounts: Accounts) -> None:
    config = accounts.path.with_name("hub.toml")
    assert accounts_beside(config.parent / "other" / "hub.toml") is None
    assert accounts_beside(config) is None
    accounts.add("ada", PASSWORD)
    with accounts_beside(config) as found:
        assert [account.name for account in found.all()] == ["ada"]


@pytest.mark.parametrize("name", ["", " ", "-a", "a b", "ä", "a/b", "a" * 65, "a\n"])
def test_names_that_are_not_allowed(name: str) -> None:
    if name == "a\n":
        assert check_name(name) == "a"
        return
    with pytest.raises(InvalidName):
        check_name(name)


def test_lengths_of_passwords() -> None:
    for password in ("x" * 10, "x" * 1_000):
        check_password(password)
    for password in ("x" * 9, "x" * 1_001):
        with pytest.raises(OutOfRange, match=f"{len(password)}.*10.*1000") as caught:
            check_password(password)
        assert password not in str(caught.value)


def test_scopes_of_tokens() -> None:
    assert SCOPES == ("search", "items", "metrics", "admin")
    assert check_scopes(["items", "search", "items"]) == {"search", "items"}
    for scopes in ((), ("find",)):
        with pytest.raises(UnknownName, match="admin"):
            check_scopes(scopes)
