"""Open the archives that `silohash data build` makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from silohash.base.errors import MissingFile
from silohash.data.archive import Archive
from silohash.data.benchmarks.dataset import folder_of
from silohash.data.catalogue import check_option
from silohash.data.formats.folder import read_folder

PROTOCOLS: Mapping[str, str] = {
    "default": "items to train on are searched as well",
    "unseen": "only items that are not trained on are searched",
}


@dataclass(frozen=True, kw_only=True)
class BuiltSet:
    """Facts of a data set that a builder of the same name makes. Calling it opens the archive."""

    name: str
    summary: str
    source: str
    license: str
    notes: Mapping[str, str] = field(default_factory=dict)

    def folder(self, root: str = "") -> Path:
        """Return the set's folder.

        Raises:
            UserError: If it is missing; says how to build the set.
        """
        folder = folder_of(self.name, root)
        if not (folder / "metadata.csv").is_file():
            raise MissingFile(
                f"{folder} does not hold {self.name}. Run: silohash data build {self.name}. If it is elsewhere, set "
                'root = "..." in [data.options], or SILOHASH_DATA to the folder above it.'
            )
        return folder

    def __call__(self, *, root: str = "", protocol: str = "default") -> Archive:
        """Open the archive in ``root``, by default ``$SILOHASH_DATA/<name>``, or else ``./data/<name>``.

        Raises:
            UserError: If the protocol is unknown, or the folder is missing or damaged.
        """
        check_option(f"{self.name}: protocol", protocol, tuple(PROTOCOLS))
        found = read_folder(self.folder(root), search_training=protocol != "unseen")
        notes = {"about the protocol": PROTOCOLS[protocol], **self.notes, **found.card.notes}
        facts = {"name": self.name, "source": self.source, "license": self.license}
        return replace(found, card=replace(found.card, **facts, protocol=f"{self.name}/{protocol}", notes=notes))
