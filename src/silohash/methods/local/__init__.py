"""The local methods, which define what one silo optimizes, by name."""

from silohash.base.registry import Registry

LOCAL_METHODS = Registry(
    family="local method",
    group="silohash.local",
    table={
        # images and texts
        "centerap": "silohash.methods.local.supervised.centerap:CenterAP",
        "dcmh": "silohash.methods.local.supervised.dcmh:DCMH",
        "shdch": "silohash.methods.local.supervised.shdch:SHDCH",
        "ssah": "silohash.methods.local.supervised.ssah:SSAH",
        "mesdch": "silohash.methods.local.supervised.mesdch:MESDCH",
        "dlffh": "silohash.methods.local.supervised.dlffh:DLFFH",
        "dscmr": "silohash.methods.local.supervised.dscmr:DSCMR",
        "dsph": "silohash.methods.local.supervised.dsph:DSPH",
        "dcgh": "silohash.methods.local.supervised.dcgh:DCGH",
        "dchmt": "silohash.methods.local.supervised.dchmt:DCHMT",
        "mith": "silohash.methods.local.supervised.mith:MITH",
        "triplet": "silohash.methods.local.supervised.triplet:Triplet",
        # images
        "dpsh": "silohash.methods.local.image.dpsh:DPSH",
        "dch": "silohash.methods.local.image.dch:DCH",
        "hashnet": "silohash.methods.local.image.hashnet:HashNetMethod",
        "greedyhash": "silohash.methods.local.image.greedyhash:GreedyHash",
        "csq": "silohash.methods.local.image.csq:CSQ",
        # without labels
        "dgcpn": "silohash.methods.local.unsupervised.dgcpn:DGCPN",
        "djsrh": "silohash.methods.local.unsupervised.djsrh:DJSRH",
        "jdsh": "silohash.methods.local.unsupervised.jdsh:JDSH",
        "ucch": "silohash.methods.local.unsupervised.ucch:UCCH",
        # scores of pairs
        "vsepp": "silohash.methods.local.matching.vsepp:VSEpp",
        "scan": "silohash.methods.local.matching.scan:SCAN",
        "gsmn": "silohash.methods.local.matching.gsmn:GSMN",
        "sgraf": "silohash.methods.local.matching.sgraf:SGRAF",
        "pfan": "silohash.methods.local.matching.pfan:PFAN",
        "saem": "silohash.methods.local.matching.saem:SAEM",
        "vsrn": "silohash.methods.local.matching.vsrn:VSRN",
        "shan": "silohash.methods.local.matching.shan:SHAN",
        "sgm": "silohash.methods.local.matching.sgm:SGM",
        "joint_attention": "silohash.methods.local.matching.joint:JointAttention",
        # without gradient steps
        "scm": "silohash.methods.local.closed_form.scm:SCM",
        "itq": "silohash.methods.local.closed_form.itq:ITQ",
        "hyperplanes": "silohash.methods.local.closed_form.hyperplanes:Hyperplanes",
        "cmfh": "silohash.methods.local.closed_form.cmfh:CMFH",
        "seph": "silohash.methods.local.closed_form.seph:SePH",
    },
)
