"""The accounts of a service: names, passwords, sessions and tokens, in one SQLite file.

Passwords are stored as argon2id hashes. Of sessions and tokens, which are random, only SHA-256 digests are stored, so that a
copy of the file does not let anyone in. The file is readable only for the user who runs the service. It is in write-ahead
mode: whoever reads it does not wait for another program that changes it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from silohash.base.errors import (
    AlreadyExists,
    InUse,
    InvalidName,
    NotPermitted,
    OutOfRange,
    UnknownName,
    UnreadableFile,
    WrongKindOfFile,
)
from silohash.base.files import check_private, closed_on_error, open_private
from silohash.base.forms import check_version
from silohash.base.optional import require
from silohash.base.sqlite_files import connect, primary_code, transaction

if TYPE_CHECKING:
    from argon2 import PasswordHasher

FILE = "accounts.sqlite"
"""Name of the file, beside the config of the hub."""

APPLICATION_ID = 0x51105A43
FORMAT_VERSION = 1
SESSION_SECONDS = 12 * 3600
DAY_SECONDS = 86_400
TOKEN_START = "silohash_"  # noqa: S105  the public part of a token, by which scanners of secrets find it
WAIT_SECONDS = 10.0
"""How long a command waits for another program that changes the file."""

SERVICE_WAIT_SECONDS = 2.0
"""How long a request to a service waits for it."""

SCHEMA = Path(__file__).with_name("accounts.sql")

LOCKED = "Another program is changing the accounts. Try again in a few seconds."
PASSWORD_LENGTHS = range(10, 1001)
NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")

Run: TypeAlias = Callable[..., sqlite3.Cursor]

Scope = Literal["search", "items", "metrics", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""What a token permits: searches, the pages of single items, the metrics, or the administration of the service."""


@dataclass(frozen=True)
class Account:
    """An account of a person, and the time of its creation in seconds since 1970."""

    name: str
    admin: bool
    created: float


@dataclass(frozen=True)
class Token:
    """A token of a program without its secret. It has a public id, and is refused after ``expires`` (see `Account`)."""

    id: str
    account: str
    label: str
    scopes: frozenset[Scope]
    created: float
    expires: float | None


class Accounts:
    """An open file of accounts. Use it in a ``with`` block, or call `close`. Threads may share it.

    Its methods raise a `UserError` for a name or a password that is not allowed, and for an account or a token that does not
    exist.
    """

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.time, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        """Open a file of accounts, which is created if it does not exist. The clock returns seconds since 1970.

        Raises:
            UserError: If the file is not one of accounts, is in a newer format, can be read by others, or cannot be read or
                written.
        """
        self.path = path
        self._clock, self._wait_seconds = clock, wait_seconds
        self._readers: deque[sqlite3.Connection] = deque()
        with self._explained():
            # SQLite would create the file with the permissions of the umask, readable for others.
            if not path.exists():
                os.close(open_private(path, os.O_CREAT | os.O_WRONLY))
            with closed_on_error(connect(path, wait_seconds=wait_seconds)) as self._connection:
                self._prepare()
                check_private(path)

    def close(self) -> None:
        """Close the file."""
        for connection in (*self._readers, self._connection):
            connection.close()

    def __enter__(self) -> Accounts:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def add(self, name: str, password: str, *, admin: bool = False) -> None:
        """Add an account.

        Raises:
            UserError: If the name or the password is not allowed, or the account exists.
        """
        checked, hashed = check_name(name), self._hashed(password)
        with self._changing() as run:
            if self._listed(run, "WHERE name = ?", checked):
                raise AlreadyExists(f'The account "{checked}" already exists. Choose another name, or remove it first.')
            run("INSERT INTO accounts VALUES (?, ?, ?, ?)", checked, hashed, admin, self._clock())

    def set_password(self, name: str, password: str) -> None:
        """Change the password of an account, and end its sessions."""
        hashed = self._hashed(password)
        with self._changing() as run:
            self._account(run, name)
            run("UPDATE accounts SET password = ? WHERE name = ?", hashed, name)
            run("DELETE FROM sessions WHERE account = ?", name)

    def remove(self, name: str) -> None:
        """Remove an account with its sessions and tokens."""
        with self._changing() as run:
            self._account(run, name)
            run("DELETE FROM accounts WHERE name = ?", name)

    def all(self) -> list[Account]:
        """Return all accounts in the order of their names."""
        with self._reading() as run:
            return self._listed(run, "ORDER BY name")

    def verify(self, name: str, password: str) -> bool:
        """Return whether a password is that of an account. An unknown name takes the same time as a wrong password."""
        from argon2.exceptions import InvalidHashError, VerificationError

        found = self._stored(name)
        # An unknown name is compared too, or the time of the answer would tell which names exist.
        stored = found or self._unknown
        try:
            self._hasher.verify(stored, _bytes(password[: PASSWORD_LENGTHS.stop]))
        except (VerificationError, InvalidHashError):
            return False
        if found and self._hasher.check_needs_rehash(stored):
            renewed = self._hasher.hash(_bytes(password))
            # Not if the password was changed since it was read above. If the file is locked, the next sign-in does it.
            with suppress(InUse), self._changing() as run:
                run("UPDATE accounts SET password = ? WHERE name = ? AND password = ?", renewed, name, stored)
        return found is not None

    def device(self, name: str, former: str = "") -> str:
        """Return a new mark for a browser in which someone signed in to an account, or a former one; empty if it is invalid.

        A mark is valid for the account until its password changes.
        """
        stored, given = self._stored(name), former.partition(".")[0] or secrets.token_urlsafe(16)
        key = hashlib.sha256(_bytes(f"device {stored}")).digest()
        mark = f"{given}.{hmac.new(key, _bytes(given), 'sha256').hexdigest()}"
        return mark if stored and (not former or hmac.compare_digest(_bytes(former), _bytes(mark))) else ""

    def start_session(self, name: str) -> str:
        """Return the secret of a new session, which ends after `SESSION_SECONDS` without a request."""
        secret, now = secrets.token_urlsafe(32), self._clock()
        with self._changing() as run:
            self._account(run, name)
            run("DELETE FROM sessions WHERE expires <= ?", now)
            run("INSERT INTO sessions VALUES (?, ?, ?)", _digest(secret), name, now + SESSION_SECONDS)
        return secret

    def session(self, secret: str) -> Account | None:
        """Return the account of a session, or None if there is no such session or it has ended."""
        digest, now = _digest(secret), self._clock()
        valid = "SELECT name, admin, created, expires FROM sessions JOIN accounts ON name = account"
        with self._reading() as run:
            row = run(f"{valid} WHERE digest = ? AND expires > ?", digest, now).fetchone()
        if row is None:
            return None
        if row[3] < now + SESSION_SECONDS / 2:
            # A later request renews it if another program changes the file at the moment.
            with suppress(InUse), self._changing(0.0) as run:
                run("UPDATE sessions SET expires = ? WHERE digest = ?", now + SESSION_SECONDS, digest)
        return Account(row[0], bool(row[1]), row[2])

    def end_session(self, secret: str) -> None:
        """End a session if it exists."""
        with self._changing() as run:
            run("DELETE FROM sessions WHERE digest = ?", _digest(secret))

    def add_token(
        self, account: str, scopes: Collection[Scope], *, label: str = "", days: float | None = None
    ) -> tuple[Token, str]:
        """Add a token for a program, and return it with its text, which cannot be shown again.

        Args:
            account: Name of the account that it belongs to. Only that of an administrator may have the scope "admin".
            scopes: What the token permits.
            label: What the token is for.
            days: Number of days after which it expires; None if it does not expire.

        Raises:
            UserError: If the account does not exist, a scope is unknown or not allowed, or ``days`` is not positive.
        """
        chosen, now = check_scopes(scopes), self._clock()
        if days is not None and not days > 0:
            raise OutOfRange(f"A token cannot expire after {days} days. Use a positive number.")
        expires = None if days is None else now + days * DAY_SECONDS
        token = Token(secrets.token_hex(6), account, label, chosen, now, expires)
        secret = f"{TOKEN_START}{token.id}_{secrets.token_urlsafe(32)}"
        row = token.id, _digest(secret), account, label, " ".join(sorted(chosen)), now, expires
        with self._changing() as run:
            if not self._account(run, account).admin and "admin" in chosen:
                raise NotPermitted(f'"{account}" is not an administrator. Leave out "admin", or name another account.')
            run("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?)", *row)
        return token, secret

    def token(self, secret: str) -> Token | None:
        """Return the token with a text, or None if there is none or it has expired."""
        valid = "WHERE digest = ? AND (expires IS NULL OR expires > ?)"
        return next(iter(self._tokens(valid, _digest(secret), self._clock())), None)

    def tokens(self) -> list[Token]:
        """Return all tokens in the order of their accounts, also those that have expired."""
        return self._tokens("ORDER BY account, created, id")

    def remove_token(self, token_id: str) -> None:
        """Remove a token by its public part.

        Raises:
            UserError: If it does not exist.
        """
        with self._changing() as run:
            if not run("DELETE FROM tokens WHERE id = ?", token_id).rowcount:
                raise UnknownName(f'There is no token "{token_id}" in {self.path}. silohash account list prints them.')

    @cached_property
    def _hasher(self) -> PasswordHasher:
        require("argon2", "Signing in with a password")
        from argon2 import PasswordHasher

        return PasswordHasher()

    @cached_property
    def _unknown(self) -> str:
        """The hash of a password that nobody has."""
        return self._hasher.hash(secrets.token_urlsafe(32))

    def _hashed(self, password: str) -> str:
        check_password(password)
        return self._hasher.hash(_bytes(password))

    def _tokens(self, which: str, *values: object) -> list[Token]:
        query = f"SELECT id, account, label, scopes, created, expires FROM tokens {which}"  # noqa: S608  literals
        with self._reading() as run:
            rows = run(query, *values).fetchall()
        return [Token(*(*row[:3], check_scopes(row[3].split()), *row[4:])) for row in rows]

    def _stored(self, name: str) -> str | None:
        """Return the hash of an account's password, or None if there is no such account."""
        with self._reading() as run:
            row = run("SELECT password FROM accounts WHERE name = ?", name).fetchone()
        return None if row is None else str(row[0])

    def _listed(self, run: Run, which: str, *values: object) -> list[Account]:
        query = f"SELECT name, admin, created FROM accounts {which}"  # noqa: S608  literals
        return [Account(name, bool(admin), created) for name, admin, created in run(query, *values).fetchall()]

    def _account(self, run: Run, name: str) -> Account:
        if not (found := self._listed(run, "WHERE name = ?", name)):
            raise UnknownName(f'There is no account "{name}" in {self.path}. silohash account list prints all.')
        return found[0]

    def _prepare(self) -> None:
        """Create the tables of a new file, and check those of an existing one."""
        count = "SELECT count(*) FROM sqlite_master"
        pragmas = ("PRAGMA application_id", "PRAGMA user_version", count)
        kind, version, tables = (self._connection.execute(pragma).fetchone()[0] for pragma in pragmas)
        if (tables or kind) and kind != APPLICATION_ID:
            raise WrongKindOfFile(f"{self.path} is not a file of accounts. Choose another folder, or move it away.")
        if tables:
            check_version(self.path, version, FORMAT_VERSION)
        self._connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if not tables:
            with self._changing() as run:
                if not run(count).fetchone()[0]:  # another process may have been faster
                    for statement in filter(str.strip, SCHEMA.read_text(encoding="utf-8").split(";\n")):
                        run(statement)
                    run(f"PRAGMA application_id = {APPLICATION_ID}")
                    run(f"PRAGMA user_version = {FORMAT_VERSION}")
        self._connection.execute(count).fetchone()  # from now on SQLite keeps the files beside it, which readers need

    @contextmanager
    def _reading(self) -> Iterator[Run]:
        """Yield what runs a statement that only reads. It waits neither for another program nor for another thread."""
        with self._explained():
            try:
                connection = self._readers.pop()
            except IndexError:
                connection = connect(self.path, mode="ro", wait_seconds=self._wait_seconds)
            try:
                yield lambda statement, *values: connection.execute(statement, values)
            finally:
                self._readers.append(connection)

    @contextmanager
    def _changing(self, wait_seconds: float | None = None) -> Iterator[Run]:
        """Open a transaction, which is applied as a whole or not at all, and yield what runs a statement with its values."""
        wait = self._wait_seconds if wait_seconds is None else wait_seconds
        with self._explained(), closing(connect(self.path, wait_seconds=wait)) as connection:
            connection.execute("PRAGMA foreign_keys = ON")
            with transaction(connection):
                yield lambda statement, *values: connection.execute(statement, values)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:
            raise
        except (sqlite3.DatabaseError, OSError) as error:
            if isinstance(error, sqlite3.DatabaseError) and primary_code(error) == sqlite3.SQLITE_BUSY:
                raise InUse(LOCKED) from error
            raise UnreadableFile(
                f"The file of accounts {self.path} cannot be read or written ({error}). Check the file and its folder."
            ) from error


def accounts_beside(config: Path) -> Accounts | None:
    """Return the accounts in the folder of a hub's config, or None if there are none."""
    path = config.parent / FILE
    if not path.exists():
        return None
    accounts = Accounts(path, wait_seconds=SERVICE_WAIT_SECONDS)
    if accounts.all():
        return accounts
    accounts.close()
    return None


def _digest(secret: str) -> bytes:
    return hashlib.sha256(_bytes(secret)).digest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def check_name(name: str) -> str:
    """Return the name of an account in lower case.

    Raises:
        UserError: If it is not allowed.
    """
    checked = name.strip().lower()
    if not NAME.fullmatch(checked):
        raise InvalidName(
            f'"{name}" cannot be the name of an account. Use up to 64 of the characters a-z, 0-9, ".", "_", "@" and "-", '
            "and begin with a letter or a digit."
        )
    return checked


def check_password(password: str) -> None:
    """Check that a password is neither too short nor too long.

    Raises:
        UserError: If it is. The message does not hold the password.
    """
    if len(password) not in PASSWORD_LENGTHS:
        raise OutOfRange(
            f"The password has {len(password)} characters. Use from {PASSWORD_LENGTHS.start} to {PASSWORD_LENGTHS.stop - 1}."
        )


def check_scopes(scopes: Collection[str]) -> frozenset[Scope]:
    """Return scopes without repetition.

    Raises:
        UserError: If there are none, or one is unknown.
    """
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise UnknownName(f"{', '.join(unknown) or 'None'} is not a scope. Choose from: {', '.join(SCOPES)}.")
    return frozenset(scope for scope in SCOPES if scope in scopes)
