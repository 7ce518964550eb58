"""Archives and their partitions over silos."""

from __future__ import annotations

from pathlib import Path

from silohash.data.archive import Archive
from silohash.data.catalogue import named_or_folder
from silohash.data.partitions.base import Partition
from silohash.data.partitions.base import partition as partition_archive


def load_archive(archive: str | Path, **options: object) -> Archive:
    """Open a named archive, or an archive in a folder.

    Args:
        archive: A name, such as "glyphs" (`silohash list data` prints all names), or the path of a folder.
        options: Options of the archive, such as ``faces=1`` for "glyphs".

    Raises:
        UserError: If there is no such archive or option, or the files cannot be read.
    """
    return named_or_folder(str(archive), options)


def partition(
    archive: Archive, kind: str = "dirichlet", *, silos: int | None = 5, seed: int = 0, **parameters: object
) -> Partition:
    """Distribute the items of an archive over silos, in the same way as the ``[partition]`` table of a config.

    Args:
        archive: The items.
        kind: Kind of partition, such as "iid", "dirichlet" or "column" (`silohash list partition` prints all kinds).
        silos: Number of silos. None lets "column" and "nested" create one silo per value or fraction.
        seed: Seed of the random assignment. Equal seeds give equal partitions.
        parameters: Parameters of the kind, such as ``beta=0.5`` for "dirichlet".

    Raises:
        UserError: If a parameter is unknown or out of range, or the archive lacks what the kind needs.
    """
    return partition_archive(archive, kind, silos, seed, **parameters)
