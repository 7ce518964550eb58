"""What one silo optimises: the local methods, by name."""

from silohash.registry import Registry

LOCAL_METHODS = Registry(
    family="local method",
    group="silohash.local",
    table={
        "triplet": "silohash.local.triplet:Triplet",
        "dcmh": "silohash.local.dcmh:DCMH",
    },
)
