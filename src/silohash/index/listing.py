"""The list of indexed silos, ``silos.json`` beside the silos' folders. A search compares it with the files that exist.

Without this list, an index that was deleted or not copied would make a silo disappear from all answers without a word.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from pydantic import BaseModel

from silohash.base.files import PART, read_json, write_json
from silohash.base.forms import check_version
from silohash.base.types import MODALITIES, Modality

LISTING = "silos.json"
FORMAT_VERSION = 1
INDEX_AGAIN = "Remove it, and index the run again."

Listing: TypeAlias = dict[str, tuple[Modality, ...] | None]
"""Maps the name of a silo to the modalities that were indexed, or to None if the silo is not indexed yet."""


class _Stored(BaseModel):
    """The form of ``silos.json``."""

    format_version: int
    silos: dict[str, tuple[Modality, ...] | None]


def index_files(folder: Path) -> Iterator[tuple[str, Modality, Path]]:
    """Yield the silo, the modality and the path of each index in an index folder, in the order of the silos' names."""
    for silo in sorted(folder.glob("*")):
        for modality in MODALITIES:
            path = silo / f"{modality}.sqlite"
            if path.exists() and not PART.fullmatch(silo.name):
                yield silo.name, modality, path


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
    check_version(path, stored.format_version, FORMAT_VERSION, INDEX_AGAIN)
    return stored.silos


def note_indexed(folder: Path, silo: str, modalities: Iterable[Modality], all_silos: Iterable[str]) -> None:
    """Enter a silo and the modalities that were indexed into the list of an index folder, after its index was built.

    ``all_silos`` are those that a complete index of the run holds. Those that are not listed are entered as not indexed.

    Raises:
        UserError: If the list is damaged or cannot be written.
    """
    known: Listing = {**dict.fromkeys(all_silos), **(read_listing(folder) or {}), silo: tuple(modalities)}
    write_json(folder / LISTING, _Stored(format_version=FORMAT_VERSION, silos=known).model_dump(mode="json"))
