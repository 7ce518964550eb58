"""The run that a silo stores on its own disk after the last round: the model that it deploys, and which items are its own.

Its index is built from it, without a copy of the run of the server. A personal model is only there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from silohash.encode.trained import TrainedModel
from silohash.encode.weights import deployed_weights
from silohash.exchange.message import Message
from silohash.features.base import Featuriser
from silohash.federated.base import ServerState
from silohash.files import digest_arrays
from silohash.partitions.base import Partition, SiloRows
from silohash.runtime.experiment import environment, save_model
from silohash.runtime.prepared import Prepared
from silohash.runtime.run import Run, archive_of
from silohash.types import Modality, Notify

SITES = "sites"
"""Kind of the partition of items that silos on other machines hold."""


def store_own_run(
    folder: Path,
    prepared: Prepared,
    featurisers: Mapping[Modality, Featuriser],
    *,
    broadcast: Message,
    model: Message,
    notify: Notify,
) -> None:
    """Store the run of a silo, with the model that it deploys. An earlier model is replaced.

    Args:
        folder: the folder of the run.
        prepared: the inputs of the silo.
        featurisers: the fitted featurizers.
        broadcast: the server's message of the round after the best one.
        model: the parameters that the silo deploys, and its name.
        notify: called with a line if there are no ONNX files.

    Raises:
        UserError: if another process writes to the folder, or the disk is full.
    """
    resolved, silo = prepared.resolved, model.sender
    personal = {silo: dict(model.params)} if resolved.federated.personalized else {}
    server = ServerState(params={} if personal else dict(broadcast.params), extras=dict(broadcast.extras))
    trained = TrainedModel(
        resolved=resolved,
        spec=prepared.spec,
        featurisers=featurisers,
        weights=deployed_weights(resolved.federated, server, personal),
        round=broadcast.round - 1,
    )
    archive = archive_of(resolved.config)
    own = Partition(
        kind=SITES, params={}, seed=resolved.config.seed, silos=(SiloRows(silo, np.arange(len(archive))),),
        archive=digest_arrays({"ids": archive.ids}),
    )  # fmt: skip
    run = Run(folder, resolved)
    with run.writing():
        run.describe(own, environment(resolved.config), archive)
        save_model(run, trained, prepared, notify)
