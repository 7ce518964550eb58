"""The choice of an index backend for the silos of a run.

The file ``RUN/index.toml`` holds it, and whether indexes keep the real outputs of items::

    engine = "pgvector"
    url_env = "SILOHASH_PGVECTOR_URL"
    outputs = false

The URL of a server can contain a password. It is read from an environment variable or a file of its own, and is never
written to another file.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from silohash.base.errors import DependencyMissing, InvalidFile, SettingNeeded
from silohash.base.files import read_text, read_toml, write_text
from silohash.base.optional import installed
from silohash.base.registry import suggestion
from silohash.index import IN_MEMORY, SERVERS

CONFIG = "index.toml"

COMPILED = ("flat", "trie")
"""Backends with loops that numba compiles."""


class IndexConfig(BaseModel):
    """``[index]``: where the codes of a silo are searched."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, serialize_by_alias=True, validate_by_name=True
    )

    backend: str = Field(default="flat", validation_alias="engine", serialization_alias="engine")
    """Index backend: `flat`, `trie` or `faiss` in memory, or a server such as `pgvector`, which is PostgreSQL with that
    extension."""
    url_env: str | None = None
    """Environment variable that holds the URL of the server. By default SILOHASH_PGVECTOR_URL for `pgvector`, and so on."""
    url_file: Path | None = None
    """File that holds the URL of the server, in place of an environment variable."""
    approximate: bool = False
    """Let the server build an approximate index, such as HNSW in PostgreSQL. A search is then faster, and can miss items. If
    false, the server compares a query with every code."""

    outputs: bool = True
    """Keep the real outputs of the items beside their codes, one byte per bit, in indexes that are built or created from now
    on. Searches order the nearest items by them. An index of more than 256 MiB of them keeps none."""

    @field_validator("backend")
    @classmethod
    def _exists(cls, name: str) -> str:
        known = [*IN_MEMORY.names(), *SERVERS.names()]
        if name not in known:
            raise ValueError(f'there is no index backend "{name}"{suggestion(name, known)}. Choose {", ".join(known)}')
        return name

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.in_memory and (self.url_env or self.url_file or self.approximate):
            raise ValueError(
                f'the backend "{self.backend}" has neither a server nor an approximate index. Remove url_env, url_file and '
                f"approximate, or choose {' or '.join(SERVERS.names())}"
            )
        if self.url_env and self.url_file:
            raise ValueError("url_env and url_file both name the place of the URL. Keep one of them")
        return self

    @classmethod
    def checked(cls, values: Mapping[str, Any], place: str) -> Self:
        """Return the choice that some values by key describe. Messages say that they are from ``place``.

        Raises:
            UserError: If a key is unknown, or a value is not allowed.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"])) or "engine"
            reason = first["msg"].removeprefix("Value error, ")
            raise InvalidFile(f'{place}: "{key}" is not valid: {reason}.') from error

    @property
    def in_memory(self) -> bool:
        """Whether the backend searches in the memory of this process."""
        return self.backend in IN_MEMORY.targets()

    def url(self) -> str:
        """Return the URL of the server.

        Raises:
            UserError: If it is not set, or its file cannot be read.
        """
        if self.url_file is not None:
            url = read_text(self.url_file, remedy="Write the URL of the server to it.").strip()
            place = f"The file {self.url_file}"
        else:
            name = self.url_env or f"SILOHASH_{self.backend.upper()}_URL"
            url = os.environ.get(name, "").strip()
            place = f"The environment variable {name}"
        if not url:
            raise SettingNeeded(
                f"{place} does not hold the URL of the {self.backend} server. Set it, or choose another place."
            )
        return url

    def check_installed(self) -> None:
        """Check that the packages of the backend, or of its replacement, are installed.

        Raises:
            UserError: If one is missing.
        """
        if self.backend in COMPILED:
            installed_backend(self.backend)
        else:
            (IN_MEMORY if self.in_memory else SERVERS).resolve(self.backend)


def installed_backend(name: str) -> str:
    """Return the backend in memory to use: the given one, or "faiss" in place of `COMPILED` if there is no numba.

    Raises:
        UserError: If the backend is unknown or not installed.
    """
    IN_MEMORY.target(name)
    found = "faiss" if name in COMPILED and not installed("numba") else name
    if found == "faiss" and not installed("faiss"):
        raise DependencyMissing(f'The index backend "{name}" is not installed. Install numba or faiss-cpu.')
    return found


def read_index_config(folder: Path) -> IndexConfig:
    """Return the choice for the silos of a run; the backend "flat" without a file.

    Raises:
        UserError: If the file is not valid.
    """
    path = folder / CONFIG
    if not path.exists():
        return IndexConfig()
    return IndexConfig.checked(read_toml(path, remedy="Correct the choice of the index backend."), str(path))


def write_index_config(folder: Path, config: IndexConfig) -> None:
    """Write the choice for the silos of a run."""
    import tomlkit

    values = config.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    write_text(folder / CONFIG, tomlkit.dumps({"engine": config.backend, **values}))
