"""The choice of an index engine, and the address of the engine's server.

An index in memory ("flat", "faiss") is built from the index file each time. A server ("pgvector", "milvus") holds a copy of
the codes, for silos that outgrow one machine. The file ``RUN/index.toml`` holds the choice for the silos of a run::

    engine = "pgvector"
    url_env = "SILOHASH_PGVECTOR_URL"

The URL of a server can contain a password. It is read from an environment variable or a file of its own, and is never
written to another file, logged, or shown in a message.
"""

from __future__ import annotations

import importlib.util
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from silohash.base.files import read_text, read_toml, write_text
from silohash.base.optional import require
from silohash.base.types import UserError

EngineName = Literal["flat", "faiss", "pgvector", "milvus"]
IN_MEMORY: tuple[EngineName, ...] = ("flat", "faiss")
SERVERS: tuple[EngineName, ...] = ("pgvector", "milvus")
ALL_ENGINES = (*IN_MEMORY, *SERVERS)
CONFIG = "index.toml"
PACKAGES = {"pgvector": "psycopg", "milvus": "pymilvus"}
HIDDEN = "***"

_END: ContextVar[float] = ContextVar("end of the time limit", default=math.inf)
"""Value of the monotonic clock after which nobody waits for a search any more."""


class IndexConfig(BaseModel):
    """``[index]``: where the codes of a silo are searched."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    engine: EngineName = "flat"
    """Index engine: `flat` or `faiss` in memory, `pgvector` for a PostgreSQL server with the extension pgvector, or `milvus`
    for a Milvus server."""
    url_env: str | None = None
    """Environment variable that holds the URL of the server. By default SILOHASH_PGVECTOR_URL or SILOHASH_MILVUS_URL."""
    url_file: Path | None = None
    """File that holds the URL of the server, in place of an environment variable."""
    approximate: bool = False
    """Let the server build an approximate index (HNSW in PostgreSQL, IVF in Milvus). A search is then faster, and can miss
    items. If false, the server compares a query with every code."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.in_memory and (self.url_env or self.url_file or self.approximate):
            raise ValueError(
                f'the engine "{self.engine}" has neither a server nor an approximate index. Remove url_env, url_file and '
                "approximate, or choose pgvector or milvus"
            )
        if self.url_env and self.url_file:
            raise ValueError("url_env and url_file both name the place of the URL. Keep one of them")
        return self

    @classmethod
    def checked(cls, values: Mapping[str, Any], place: str) -> Self:
        """Return the choice that some values describe.

        Args:
            values: The values by the names of their keys.
            place: Where they come from, for a message.

        Raises:
            UserError: If a key is unknown, or a value is not allowed.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"])) or "engine"
            reason = first["msg"].removeprefix("Value error, ")
            raise UserError(f'{place}: "{key}" is not valid: {reason}.') from error

    @property
    def in_memory(self) -> bool:
        """Whether the engine searches in the memory of this process."""
        return self.engine in IN_MEMORY

    def url(self) -> str:
        """Return the URL of the server.

        Raises:
            UserError: If it is not set, or its file cannot be read.
        """
        if self.url_file is not None:
            url = read_text(self.url_file, remedy="Write the URL of the server to it.").strip()
            place = f"The file {self.url_file}"
        else:
            name = self.url_env or f"SILOHASH_{self.engine.upper()}_URL"
            url = os.environ.get(name, "").strip()
            place = f"The environment variable {name}"
        if not url:
            raise UserError(
                f"{place} does not hold the URL of the {self.engine} server. Set it, or choose another place."
            )
        return url

    def check_installed(self) -> None:
        """Check that the packages of the engine are installed.

        Raises:
            UserError: If one is missing.
        """
        if not self.in_memory:
            require(PACKAGES[self.engine], f"The index engine {self.engine}")
        elif self.engine == "faiss" and importlib.util.find_spec("faiss") is None:
            require("faiss", "The index engine faiss")


def read_index_config(folder: Path) -> IndexConfig:
    """Return the choice for the silos of a run; the engine "flat" without a file.

    Args:
        folder: The folder of the run.

    Raises:
        UserError: If the file is not valid.
    """
    path = folder / CONFIG
    if not path.exists():
        return IndexConfig()
    return IndexConfig.checked(read_toml(path, remedy="Correct the choice of the index engine."), str(path))


def write_index_config(folder: Path, config: IndexConfig) -> None:
    """Write the choice for the silos of a run."""
    import tomlkit

    values = config.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    write_text(folder / CONFIG, tomlkit.dumps({"engine": config.engine, **values}))


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Limit the time that the searches on servers in a block take together, in place of any limit around it.

    Args:
        seconds: Time from now; None for no limit.
    """
    token = _END.set(math.inf if seconds is None else time.monotonic() + seconds)
    try:
        yield
    finally:
        _END.reset(token)


def seconds_left(most: float) -> float:
    """Return the time that a search on a server may take: at most ``most`` seconds.

    Raises:
        UserError: If the limit around it has passed, see `time_limit`.
    """
    left = min(most, _END.get() - time.monotonic())
    if left <= 0:
        raise UserError("The time limit of the search has passed. Search again, or allow more time.")
    return left


@contextmanager
def explaining_server_errors(engine: str, url: str, *kinds: type[Exception]) -> Iterator[None]:
    """Translate errors of a server into a message without the secrets of its URL.

    Args:
        engine: Name of the engine.
        url: URL of the server.
        kinds: The types of errors to translate.

    Raises:
        UserError: In place of such an error.
    """
    try:
        yield
    except kinds as error:
        reason = " ".join(without_secrets(str(error), url).split())[:300].rstrip(".")
        raise UserError(
            f"The {engine} server of the index could not be used ({reason}). Check that it runs, and the URL that it has."
        ) from None


def without_secrets(text: str, url: str) -> str:
    """Return a text in which the password of a URL, and the URL itself, are hidden.

    Example:
        >>> without_secrets("no route to db with word 'geheim'", "postgresql://me:geheim@db/silo")
        "no route to db with word '***'"
    """
    hidden = text.replace(url, HIDDEN)
    for secret in _secrets(url):
        hidden = hidden.replace(secret, HIDDEN)
    return hidden


def _secrets(url: str) -> list[str]:
    """Return the password of a URL as it is written and as it is sent, or nothing if there is none."""
    try:
        password = urlsplit(url).password or ""
    except ValueError:
        password = ""
    settings = (part.partition("=") for part in url.replace("?", " ").replace("&", " ").split())
    found: list[Any] = [password, *(value.strip("'") for name, _, value in settings if name in {"password", "token"})]
    return sorted({form for value in found for form in (value, unquote(value)) if form}, key=len, reverse=True)
