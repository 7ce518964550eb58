"""The local methods, which define what one silo optimizes, by name."""

from silohash.registry import Registry

LOCAL_METHODS = Registry(
    family="local method",
    group="silohash.local",
    table={
        "triplet": "silohash.local.supervised.triplet:Triplet",
        "dcmh": "silohash.local.supervised.dcmh:DCMH",
        "mesdch": "silohash.local.supervised.mesdch:MESDCH",
        "ssah": "silohash.local.supervised.ssah:SSAH",
        "shdch": "silohash.local.supervised.shdch:SHDCH",
        "dlffh": "silohash.local.supervised.dlffh:DLFFH",
        "dscmr": "silohash.local.supervised.dscmr:DSCMR",
        "centerap": "silohash.local.supervised.centerap:CenterAP",
        "dpsh": "silohash.local.image.dpsh:DPSH",
        "dch": "silohash.local.image.dch:DCH",
        "hashnet": "silohash.local.image.hashnet:HashNetMethod",
        "greedyhash": "silohash.local.image.greedyhash:GreedyHash",
        "csq": "silohash.local.image.csq:CSQ",
        "cmfh": "silohash.local.closed_form.cmfh:CMFH",
        "seph": "silohash.local.closed_form.seph:SePH",
        "scm": "silohash.local.closed_form.scm:SCM",
        "dchmt": "silohash.local.supervised.dchmt:DCHMT",
        "dsph": "silohash.local.supervised.dsph:DSPH",
        "dcgh": "silohash.local.supervised.dcgh:DCGH",
    },
)
