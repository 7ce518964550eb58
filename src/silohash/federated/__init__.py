"""How silos cooperate: the federated methods, by name."""

from silohash.registry import Registry

FEDERATED_METHODS = Registry(
    family="federated method",
    group="silohash.federated",
    table={
        "local": "silohash.federated.local:Local",
        "fedavg": "silohash.federated.fedavg:FedAvg",
        "centralized": "silohash.federated.centralized:Centralized",
    },
)
