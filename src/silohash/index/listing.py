"""The list of indexed silos, ``silos.json`` beside the silos' folders. A search compares it with the files that exist.

Without this list, an index that was deleted or not copied would make a silo disappear from all answers without a word.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from pydantic import BaseModel

from silohash.base.errors import OtherVersion
from silohash.base.files import read_json, write_json
from silohash.base.types import MODALITIES, Modality

LISTING = "silos.json"
FORMAT_VERSION = 1
INDEX_AGAIN = "Remove it, and index the run again."

Listing: TypeAlias = "dict[str, tuple[Modality, ...] | None]"
"""Maps the name of a silo to the modalities that were indexed, or to None if the silo is not indexed yet."""


class _Stored(BaseModel):
    """The form of ``silos.json``."""

    format_version: int
    silos: dict[str, tuple[Modality, ...] | None]


def is_indexed(folder: Path, silo: str) -> bool:
    """Return whether an index folder holds an index of a silo."""
    return any((folder / silo / f"{modality}.sqlite").exists() for modality in MODALITIES)


def read_listing(folder: Path) -> Listing | None:
    """Return the list of silos of an index folder; None if there is none.

    Raises:
        UserError: If the list is damaged, or has another version.
    """
    path = folder / LISTING
    if not path.exists():
        return None
    stored = read_json(path, _Stored, remedy=INDEX_AGAIN)
    if stored.format_version != FORMAT_VERSION:
        raise OtherVersion(
            f"{path} has format version {stored.format_version}, but this silohash reads version {FORMAT_VERSION}. "
            f"{INDEX_AGAIN}"
        )
    return stored.silos


def note_indexed(folder: Path, silo: str, modalities: Iterable[Modality], all_silos: Iterable[str]) -> None:
    """Enter a silo into the list, after its index was built.

    Args:
        folder: The index folder of a run.
        silo: Name of the silo.
        modalities: The modalities that were indexed. A silo without items to index has none.
        all_silos: Names of the silos that a complete index of the run holds. Those that are not in the list are entered as
            not indexed.

    Raises:
        UserError: If the list is damaged or cannot be written.
    """
    known: Listing = {**dict.fromkeys(all_silos), **(read_listing(folder) or {}), silo: tuple(modalities)}
    write_json(folder / LISTING, _Stored(format_version=FORMAT_VERSION, silos=known).model_dump(mode="json"))
