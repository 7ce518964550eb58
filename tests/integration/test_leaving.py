"""A silo leaves a federation of processes: neither the hub nor the training asks it any more, and no server lets it in."""

from __future__ import annotations

import csv
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import UserError
from silohash.run.config.load import load_resolved
from silohash.run.folder import Run
from silohash.service.clients.search import Client
from silohash.service.new_federation import write_federation
from silohash.training import experiment
from tests.docs.test_two_silos import started
from tests.nats import needs_nats
from tests.ports import free_port
from tests.processes import STARTED_SECONDS
from tests.runs import silohash, write_archive, write_config, write_metadata
from tests.served import served_run
from tests.sites import NAMES, site_archives

pytestmark = [pytest.mark.whole_run, pytest.mark.slow, pytest.mark.timeout(900)]


@needs_nats
def test_a_silo_that_leaves_is_neither_asked_nor_let_in(tmp_path: Path) -> None:
    run, folder = served_run(tmp_path / "trained"), tmp_path / "museums"
    server, port = f"tls://127.0.0.1:{free_port()}", free_port()
    assert silohash("federation", "init", run, folder, "--server", server).code == 0
    client, hub, log = Client(f"http://127.0.0.1:{port}"), folder / "hub" / "hub.toml", tmp_path / "silo-2.log"

    def asked() -> dict[str, str] | None:
        """Return the silos that did not answer; None if the hub does not answer yet."""
        try:
            return dict(client.search("red square", k=40).missing_silos)
        except UserError:
            return None

    with ExitStack() as processes:
        nats = processes.enter_context(
            started(["cd", str(folder / "nats"), "&&", "nats-server", "-c", "nats.conf"], tmp_path / "nats.log")
        )
        for silo in ("silo-1", "silo-2"):
            file = folder / silo / "silo.toml"
            processes.enter_context(started(["silohash", "silo", str(file)], tmp_path / f"{silo}.log"))
        serving = processes.enter_context(
            started(["silohash", "hub", str(hub), "--port", str(port)], tmp_path / "hub.log")
        )
        wait(lambda: asked() == {})
        said = silohash("federation", "leave", hub, "silo-2")
        assert said.code == 0, said.err
        nats.send_signal(signal.SIGHUP)
        wait(lambda: "uthorization" in log.read_text())
        wait(lambda: set(asked() or ()) == {"silo-2"})
        serving.send_signal(signal.SIGHUP)
        wait(lambda: asked() == {})
        hits = client.search("red square", k=40)
        assert set(hits.silos) == {"silo-1"}
        wait(lambda: [silo["name"] for silo in client.status()["silos"]] == ["silo-1"])
        with pytest.raises(UserError):
            client.search("red square", silos=["silo-2"])
        assert log.read_text().count("connected to the bus") == 1, log.read_text()


def test_a_silo_leaves_training_and_the_model_of_the_others_is_one_without_it(tmp_path: Path) -> None:
    pytest.importorskip("nvflare")
    from tests.federation import Federation, until

    pooled = write_archive(tmp_path / "pooled", count=90, text="words")
    archives = dict(zip(NAMES, site_archives(pooled, tmp_path / "data"), strict=True))
    settings = {"local": {"name": "centerap"}, "partition": {"kind": "column", "column": "place", "silos": 2}}
    ridge = {"federated": {"name": "fedridge", "rounds": 1, "reveal_items": True}, "model": {"hidden": 32}}
    config = write_config(tmp_path / "run.toml", pooled, **settings, **ridge)
    first, second, search = tmp_path / "first", tmp_path / "second", tmp_path / "museums"
    with Federation.running(tmp_path, archives) as federation:
        assert silohash("train", config, "--on", federation.leader, "--out", first).code == 0
        write_federation(Run.open(first), search, silos=NAMES)
        hub = search / "hub" / "hub.toml"
        said = silohash("federation", "leave", hub, "place-1", "--kit", federation.leader)
        assert said.code == 0, said.err
        until(lambda: federation.connected(["place-0", "place-2"]))
        for arguments in (("--out", tmp_path / "other" / "first"), ("--out", second, "--without", "place-9")):
            assert silohash("retrain", first, "--on", federation.leader, *arguments).code == 2
        said = silohash("retrain", first, "--on", federation.leader, "--without", "place-1", "--out", second)
        assert said.code == 0, said.err
    with (pooled / "metadata.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    kept = [number for number, row in enumerate(rows) if row["place"] != "place-1"]
    write_metadata(pooled, [rows[number] for number in kept])
    np.save(pooled / "image.npy", np.load(pooled / "image.npy")[kept])
    scratch = experiment.train(load_resolved(config), tmp_path / "scratch")
    apart = Run.open(second)
    assert apart.model.digest("global") == scratch.model.digest("global") != Run.open(first).model.digest("global")
    assert {silo.silo for record in apart.rounds() for silo in record.silos} == {"place-0", "place-2"}


def wait(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + STARTED_SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
