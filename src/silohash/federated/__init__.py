"""The federated methods, by name."""

from silohash.registry import Registry

FEDERATED_METHODS = Registry(
    family="federated method",
    group="silohash.federated",
    table={
        "local": "silohash.federated.methods.local:Local",
        "separate": "silohash.federated.methods.separate:Separate",
        "fedavg": "silohash.federated.methods.fedavg:FedAvg",
        "centralized": "silohash.federated.methods.centralized:Centralized",
        "fedprox": "silohash.federated.methods.fedprox:FedProx",
        "moon": "silohash.federated.methods.moon:MOON",
        "feduch": "silohash.federated.methods.feduch:FedUCH",
        "ptfuch": "silohash.federated.methods.ptfuch:PTFUCH",
        "fednova": "silohash.federated.methods.fednova:FedNova",
        "fedproto": "silohash.federated.methods.fedproto:FedProto",
        "fedproc": "silohash.federated.methods.fedproc:FedProc",
        "personal": "silohash.federated.personal:Personal",
        "fedala": "silohash.federated.methods.fedala:FedALA",
        "fedcmr": "silohash.federated.methods.fedcmr:FedCMR",
        "plfedcmh": "silohash.federated.methods.plfedcmh:PLFedCMH",
        "fedcafe": "silohash.federated.methods.fedcafe:FedCAFE",
        "fedhap": "silohash.federated.methods.fedhap:FedHAP",
        "fedbignns": "silohash.federated.methods.fedbignns:FedBiGNNs",
        "fedridge": "silohash.federated.methods.fedridge:FedRidge",
        "fedcca": "silohash.federated.closed_form.fedcca:FedCCA",
        "fedsums": "silohash.federated.methods.fedsums:FedSums",
        "compose": "silohash.federated.compose:Compose",
    },
)

DEFAULT_MEMBERS = ({"name": "fedprox"}, {"name": "moon"})
"""The members of a composition whose config does not name any."""
