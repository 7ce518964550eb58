"""The name of an archive that is indexed as an additional silo, and the note that tells which archive an index holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from silohash.base.errors import AlreadyExists, ArchiveUnsuitable, InvalidName, UserError
from silohash.base.files import read_json, write_json
from silohash.base.names import canonical
from silohash.data.archive import Archive
from silohash.run.folder import Run
from silohash.run.model.encoder import Encoder

NOTE = "archive.json"
"""Name of the file beside an additional silo's index that states the archive it was built from."""

MOST_CHARACTERS = 100
REFUSED = re.compile(r"[/\\\x00-\x1f\x7f]")
"""Characters that a folder of an index, and so the name of a silo, must not have."""


def check_added(run: Run, archive: Archive, name: str) -> None:
    """Check that an archive can be indexed under a name without replacing the index of another archive.

    An index of the same archive is replaced: one from the same folder, or with the same digest.

    Raises:
        UserError: If the name cannot be that of a silo, a silo of the run has it, or another archive was indexed under it.
    """
    _check_name(name)
    if canonical(name).casefold() in {canonical(silo).casefold() for silo in run.silo_names}:
        raise AlreadyExists(
            f'The archive has the name "{name}", which is also the name of a silo of the run. '
            "Give it another name with --name."
        )
    folder = _existing(run.index_folder, name)
    if folder is None or _holds(folder, archive):
        return
    origin = _origin(folder)
    before = f" ({origin['folder']})" if origin.get("folder") else ""
    of_which = f"of another archive{before}" if origin else "which does not state its archive"
    raise AlreadyExists(
        f'{run.folder} already has an index with the name "{folder.name}", {of_which}. '
        f"Give this archive another name with --name, or remove {folder} first."
    )


def check_labels(run: Run, archive: Archive, encoder: Encoder) -> None:
    """Check that an archive has the labels of the run's archive, if the model encodes items with their true labels.

    Raises:
        UserError: If it has others.
    """
    if encoder.label_sides and tuple(archive.label_names) != tuple(run.archive.label_names):
        raise ArchiveUnsuitable(
            f'The model encodes items with their true labels, and "{archive.card.name}" has other labels than '
            f'"{run.archive.card.name}". Train with local.labels = "label-free" to encode other archives.'
        )


def doubled_sentence(run: Run, archive: Archive) -> str:
    """Return a sentence if an archive comes from the folder that the run was trained on, or an empty string.

    It is also empty if no silo of the run is indexed, as in a copy of the run for a new silo.
    """
    trained_on = run.config.data.path
    if trained_on is None or archive.folder is None or trained_on.resolve() != archive.folder:
        return ""
    if not any((run.index_folder / silo).exists() for silo in run.silo_names):
        return ""
    return (
        f"The run was trained on {archive.folder}, so items that its silos hold are found twice. To index the silos alone, "
        f"remove this index and run: silohash index {run.folder}"
    )


def note_added(folder: Path, archive: Archive) -> None:
    """Note beside an index which archive it was built from."""
    origin = None if archive.folder is None else str(archive.folder)
    write_json(folder / NOTE, {"digest": archive.card.digest, "folder": origin})


def _check_name(name: str) -> None:
    if not name or name.startswith(".") or REFUSED.search(name) or len(name) > MOST_CHARACTERS:
        raise InvalidName(
            f"An index cannot have the name {name!r}: names must not be empty, begin with a dot, contain slashes or "
            f"control characters, or exceed {MOST_CHARACTERS} characters. Give the archive another name with --name."
        )


def _existing(indexes: Path, name: str) -> Path | None:
    """Return the folder of an index with this name, in any case, or None. An empty folder is not an index."""
    folders = indexes.iterdir() if indexes.is_dir() else ()
    same = canonical(name).casefold()
    found = (folder for folder in folders if canonical(folder.name).casefold() == same)
    return next((folder for folder in found if not folder.is_dir() or any(folder.iterdir())), None)


def _holds(folder: Path, archive: Archive) -> bool:
    origin = _origin(folder)
    same_folder = archive.folder is not None and origin.get("folder") == str(archive.folder)
    return same_folder or (bool(archive.card.digest) and origin.get("digest") == archive.card.digest)


def _origin(folder: Path) -> dict[str, Any]:
    """Return the note of an index; empty if there is none."""
    try:
        return read_json(folder / NOTE, dict[str, Any])
    except UserError:
        return {}
