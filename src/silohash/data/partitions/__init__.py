"""Spread the items of an archive over silos: kinds of partition, cuts, clusters, and how far silos lie apart."""

from silohash.base.registry import Registry

PARTITIONS = Registry(
    family="partition",
    group="silohash.partition",
    table={
        "iid": "silohash.data.partitions.kinds:IID",
        "dirichlet": "silohash.data.partitions.kinds:DIRICHLET",
        "shards": "silohash.data.partitions.kinds:SHARDS",
        "quantity": "silohash.data.partitions.kinds:QUANTITY",
        "column": "silohash.data.partitions.kinds:COLUMN",
        "pseudo": "silohash.data.partitions.kinds:PSEUDO",
        "nested": "silohash.data.partitions.kinds:NESTED",
    },
)
"""The kinds of partition. A name leads to a `Kind`, or to an `OverlappingKind`."""
