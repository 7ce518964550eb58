"""A model of half a gigabyte crosses the connections of a federation, and the result is that of one machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silohash.config.load import load_resolved
from silohash.runtime import experiment
from silohash.runtime.engine.port import Limits
from silohash.runtime.run import Run
from silohash.runtime.sites.training import SETUP_SECONDS
from tests.runs import tiny, write_archive

pytest.importorskip("nvflare")

from silohash.runtime.engine.flare.jobs import train_in_federation
from tests.federation import Federation
from tests.members import Watch

WIDTH = 8192
PAYLOAD_BYTES = 500_000_000


@pytest.mark.slow
@pytest.mark.whole_run
@pytest.mark.timeout(1500)
def test_large_models_arrive_whole(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", count=12, places=1)
    for name in ("image", "text"):
        values = np.random.default_rng(len(name)).normal(size=(12, WIDTH)).astype(np.float32)
        np.save(archive / f"{name}.npy", values)
    config = load_resolved(
        tiny(
            archive, partition={"kind": "column", "column": "place", "silos": 1}, model={"hidden": WIDTH},
            federated={"name": "fedavg", "rounds": 1, "local_epochs": 1}, evaluate={"validation": 0.0},
            train={"optimizer": "sgd", "learning_rate": 0.01},
        )
    )  # fmt: skip
    watch = Watch()
    with Federation.running(tmp_path, {"place-0": archive}) as federation:
        limits = Limits(SETUP_SECONDS, 1)
        train_in_federation(
            federation.leader, config, tmp_path / "large", ["place-0"], limits=limits, observers=[watch]
        )
    (record,) = watch.records
    assert min(record.uplink_bytes, record.downlink_bytes) > PAYLOAD_BYTES
    one = experiment.train(config, tmp_path / "one")
    assert Run.open(tmp_path / "large").model.digest("global") == one.model.digest("global")
