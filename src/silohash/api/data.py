"""What a run is made of: archives, their partitions over silos, and methods."""

from pathlib import Path
from typing import Literal

from silohash.base.errors import UnknownName
from silohash.base.registry import suggestion
from silohash.base.types import MethodCard
from silohash.data.archive import Archive
from silohash.data.catalogue import named_or_folder
from silohash.data.partitions.base import Partition
from silohash.data.partitions.base import partition as partition_archive
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS

_FAMILIES = {"local": LOCAL_METHODS, "federated": FEDERATED_METHODS}


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


def list_methods(kind: Literal["local", "federated"] | None = None) -> list[MethodCard]:
    """Return the cards of the available methods: title, authors, venue, and what a silo sends and keeps.

    Silos train with "local" methods, and cooperate by "federated" methods. Without a kind, both are returned.

    Raises:
        UserError: If ``kind`` is unknown, or an installed package adds a method that cannot be described.

    Example:
        >>> [card.key for card in list_methods("federated")][:2]
        ['local', 'separate']
    """
    if kind is not None and kind not in _FAMILIES:
        raise UnknownName(
            f'There is no kind of method "{kind}"{suggestion(kind, _FAMILIES)}; choose one of: {", ".join(_FAMILIES)}.'
        )
    families = [family for name, family in _FAMILIES.items() if kind in {None, name}]
    return [family.card(name) for family in families for name in family.names()]
