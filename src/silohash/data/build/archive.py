"""Open the archives that `silohash data build` makes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from silohash.base.errors import MissingFile
from silohash.data.archive import Archive, ArchiveCard
from silohash.data.benchmarks.dataset import folder_of
from silohash.data.catalogue import check_option
from silohash.data.formats.folder import read_folder

DEFAULT, UNSEEN = "default", "unseen"


@dataclass(frozen=True, kw_only=True)
class BuiltSet:
    """Facts of a data set that a builder of the same name makes. Calling it opens the archive.

    Items to train on are searched as well, unless the protocol is ``unseen``.
    """

    name: str
    summary: str
    source: str
    license: str
    notes: Mapping[str, str] = field(default_factory=dict)
    protocols: tuple[str, ...] = (DEFAULT, UNSEEN)

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

    def protocol(self, name: str = DEFAULT) -> ArchiveCard:
        """Return what is known of the set under a protocol before it is built.

        Raises:
            UserError: If there is no such protocol.
        """
        check_option(f"{self.name}: protocol", name, self.protocols)
        return ArchiveCard(self.name, self.source, self.license, f"{self.name}/{name}", notes=self.notes)

    def __call__(self, *, root: str = "", protocol: str = DEFAULT) -> Archive:
        """Open the archive in ``root``, by default ``$SILOHASH_DATA/<name>``, or else ``./data/<name>``.

        Raises:
            UserError: If the protocol is unknown, or the folder is missing or damaged.
        """
        known, found = self.protocol(protocol), read_folder(self.folder(root), search_training=protocol != UNSEEN)
        was = found.card
        card = replace(known, digest=was.digest, skipped=was.skipped, warnings=was.warnings)
        return replace(found, card=replace(card, notes={**known.notes, **was.notes}))
