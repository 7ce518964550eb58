"""What one silo optimises: the local methods, by name."""

from silohash.registry import Registry

LOCAL_METHODS = Registry(
    family="local method",
    group="silohash.local",
    table={
        "triplet": "silohash.local.supervised.triplet:Triplet",
        "dcmh": "silohash.local.supervised.dcmh:DCMH",
    },
)
