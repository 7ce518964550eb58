"""The federated methods, by name."""

from silohash.base.registry import Registry

FEDERATED_METHODS = Registry(
    family="federated method",
    group="silohash.federated",
    table={
        "local": "silohash.methods.federated.general.local:Local",
        "separate": "silohash.methods.federated.general.separate:Separate",
        "fedavg": "silohash.methods.federated.general.fedavg:FedAvg",
        "centralized": "silohash.methods.federated.general.centralized:Centralized",
        "fedprox": "silohash.methods.federated.general.fedprox:FedProx",
        "moon": "silohash.methods.federated.general.moon:MOON",
        "feduch": "silohash.methods.federated.hashing.feduch:FedUCH",
        "ptfuch": "silohash.methods.federated.hashing.ptfuch:PTFUCH",
        "fednova": "silohash.methods.federated.general.fednova:FedNova",
        "fedproto": "silohash.methods.federated.general.fedproto:FedProto",
        "fedproc": "silohash.methods.federated.general.fedproc:FedProc",
        "personal": "silohash.methods.federated.personal:Personal",
        "fedala": "silohash.methods.federated.hashing.fedala:FedALA",
        "fedcmr": "silohash.methods.federated.hashing.fedcmr:FedCMR",
        "plfedcmh": "silohash.methods.federated.hashing.plfedcmh:PLFedCMH",
        "pepfch": "silohash.methods.federated.hashing.pepfch:PEPFCH",
        "fedcafe": "silohash.methods.federated.hashing.fedcafe:FedCAFE",
        "fedhap": "silohash.methods.federated.hashing.fedhap:FedHAP",
        "fedbignns": "silohash.methods.federated.hashing.fedbignns:FedBiGNNs",
        "fedridge": "silohash.methods.federated.closed_form.fedridge:FedRidge",
        "fedcca": "silohash.methods.federated.closed_form.fedcca:FedCCA",
        "fedsums": "silohash.methods.federated.closed_form.fedsums:FedSums",
        "compose": "silohash.methods.federated.compose:Compose",
    },
)

DEFAULT_MEMBERS = ({"name": "fedprox"}, {"name": "moon"})
"""The members of a composition whose config does not name any."""
