"""Large models cross the connections of a federation, and slow links, and the result is that of one machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silohash.run.config.load import ResolvedConfig, load_resolved
from silohash.run.folder import Run
from silohash.training import experiment
from silohash.training.engines.port import Limits
from silohash.training.sites.kits import Training
from silohash.training.sites.training import SETUP_SECONDS
from tests.runs import tiny, write_archive

pytest.importorskip("nvflare")

from silohash.training.engines.flare import kits
from silohash.training.engines.flare.jobs import train_in_federation
from tests.federation import Federation, Watch
from tests.slow_link import SlowLink

pytestmark = [pytest.mark.whole_run, pytest.mark.slow, pytest.mark.timeout(1500)]

BYTES_PER_SECOND = 1_000_000


def model_of_width(root: Path, width: int) -> ResolvedConfig:
    """Write the archive of a silo, and return the config of a round with a model of 8 times the squared width in bytes."""
    archive = write_archive(root / "archive", count=12, places=1)
    for name in ("image", "text"):
        values = np.random.default_rng(len(name)).normal(size=(12, width)).astype(np.float32)
        np.save(archive / f"{name}.npy", values)
    return load_resolved(
        tiny(
            archive, partition={"kind": "column", "column": "place", "silos": 1}, model={"hidden": width},
            federated={"name": "fedavg", "rounds": 1, "local_epochs": 1}, evaluate={"validation": 0.0},
            train={"optimizer": "sgd", "learning_rate": 0.01},
        )
    )  # fmt: skip


def check_trained(federation: Federation, config: ResolvedConfig, payload_bytes: int, said: list[str]) -> None:
    """Train the model in the federation, and check that it is that of one machine, and how much was sent."""
    watch, folder = Watch(), federation.root / "large"
    train_in_federation(
        federation.leader, config, folder, ["place-0"], limits=Limits(SETUP_SECONDS, 1), observers=[watch],
        notify=said.append,
    )  # fmt: skip
    (record,) = watch.records
    assert min(record.uplink_bytes, record.downlink_bytes) > payload_bytes
    one = experiment.train(config, federation.root / "one")
    assert Run.open(folder).model.digest("global") == one.model.digest("global")


def test_large_models_arrive_whole(tmp_path: Path) -> None:
    config = model_of_width(tmp_path, 8192)
    with Federation.running(tmp_path, {"place-0": tmp_path / "archive"}) as federation:
        check_trained(federation, config, 500_000_000, [])


def test_models_cross_a_slow_link_in_the_first_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links, described, said = list[SlowLink](), kits._project, list[str]()

    def through_the_link(silos: Sequence[str], training: Training) -> dict[str, Any]:
        links.append(SlowLink(training.port, BYTES_PER_SECOND))
        project = described(silos, training)
        for member in project["participants"]:
            if member["type"] == "client":
                member["connect_to"] = {"host": training.host, "port": links[0].port}
        return project

    monkeypatch.setattr(kits, "_project", through_the_link)
    config, payload_bytes = model_of_width(tmp_path, 3072), 75_000_000
    made = Federation.made(tmp_path, {"place-0": tmp_path / "archive"})
    with links[0].running() as link, made.started() as federation:
        check_trained(federation, config, payload_bytes, said)
        assert payload_bytes < link.up.passed < 2 * payload_bytes
        assert payload_bytes < link.down.passed < 3 * payload_bytes
    assert said == []
