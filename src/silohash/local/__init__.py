"""The local methods, which define what one silo optimizes, by name."""

from silohash.registry import Registry

LOCAL_METHODS = Registry(
    family="local method",
    group="silohash.local",
    table={
        # images and texts
        "centerap": "silohash.local.supervised.centerap:CenterAP",
        "dcmh": "silohash.local.supervised.dcmh:DCMH",
        "shdch": "silohash.local.supervised.shdch:SHDCH",
        "ssah": "silohash.local.supervised.ssah:SSAH",
        "mesdch": "silohash.local.supervised.mesdch:MESDCH",
        "dlffh": "silohash.local.supervised.dlffh:DLFFH",
        "dscmr": "silohash.local.supervised.dscmr:DSCMR",
        "dsph": "silohash.local.supervised.dsph:DSPH",
        "dcgh": "silohash.local.supervised.dcgh:DCGH",
        "dchmt": "silohash.local.supervised.dchmt:DCHMT",
        "mith": "silohash.local.supervised.mith:MITH",
        "triplet": "silohash.local.supervised.triplet:Triplet",
        # images
        "dpsh": "silohash.local.image.dpsh:DPSH",
        "dch": "silohash.local.image.dch:DCH",
        "hashnet": "silohash.local.image.hashnet:HashNetMethod",
        "greedyhash": "silohash.local.image.greedyhash:GreedyHash",
        "csq": "silohash.local.image.csq:CSQ",
        # without labels
        "dgcpn": "silohash.local.unsupervised.dgcpn:DGCPN",
        "djsrh": "silohash.local.unsupervised.djsrh:DJSRH",
        "jdsh": "silohash.local.unsupervised.jdsh:JDSH",
        "ucch": "silohash.local.unsupervised.ucch:UCCH",
        # scores of pairs
        "vsepp": "silohash.local.matching.vsepp:VSEpp",
        "scan": "silohash.local.matching.scan:SCAN",
        "gsmn": "silohash.local.matching.gsmn:GSMN",
        "sgraf": "silohash.local.matching.sgraf:SGRAF",
        "pfan": "silohash.local.matching.pfan:PFAN",
        "saem": "silohash.local.matching.saem:SAEM",
        "vsrn": "silohash.local.matching.vsrn:VSRN",
        "shan": "silohash.local.matching.shan:SHAN",
        "sgm": "silohash.local.matching.sgm:SGM",
        "joint_attention": "silohash.local.matching.joint:JointAttention",
        # without gradient steps
        "scm": "silohash.local.closed_form.scm:SCM",
        "cmfh": "silohash.local.closed_form.cmfh:CMFH",
        "seph": "silohash.local.closed_form.seph:SePH",
    },
)
