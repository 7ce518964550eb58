"""One of three silos lies about its items, or sends a huge update: a server and silos as processes, with mutual TLS."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from silohash.base.files import read_arrays
from silohash.base.types import ReadArrays
from silohash.data.partitions.base import partition
from silohash.run.config.load import ResolvedConfig, load_resolved
from silohash.run.folder import Run, archive_of
from silohash.training.engines.port import Limits
from silohash.training.experiment import prepare_run
from silohash.training.sites.training import SETUP_SECONDS
from silohash.training.worker import Worker
from tests.runs import tiny, write_archive
from tests.sites import NAMES, site_archives

pytest.importorskip("nvflare")

from silohash.training.engines.flare.jobs import session, train_in_federation
from tests.federation import Federation, Watch

pytestmark = [pytest.mark.whole_run, pytest.mark.slow, pytest.mark.timeout(900)]

LIAR = "place-2"
HOOK = f"""
import sys
from dataclasses import replace
from pathlib import Path

if "silohash.training.sites.trainer" in " ".join(sys.orig_argv) and "/{LIAR}/" in " ".join(sys.orig_argv):
    from silohash.training.engines import wire

    received, lie = {{}}, Path(__file__).parent / "lie"

    def read(message):
        task = decode(message)
        received.update(task.broadcast.params)
        return task

    def sent(result):
        update, told = result.update, lie.read_text() if lie.exists() else ""
        if told and update.kind == "update":
            factor = {{"count": -1, "length": -1e6}}[told]
            params = {{
                name: (received[name] + factor * (array - received[name])).astype(array.dtype)
                for name, array in update.params.items()
            }}
            update = replace(update, params=params)
            if told == "count":
                weights = dict.fromkeys(update.weights, 1e9)
                update = replace(update, weights=weights, counts={{**update.counts, "items": 10**9}})
        return encode(replace(result, update=update))

    encode, decode = wire.encode_result, wire.decode_task
    wire.encode_result, wire.decode_task = sent, read
"""
"""Run by each Python process of the federation at its start. The liar turns its updates around."""


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hook")
    (folder / "sitecustomize.py").write_text(HOOK)
    return folder


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory, hook: Path) -> Iterator[Federation]:
    root = tmp_path_factory.mktemp("federation")
    pooled = write_archive(root / "pooled", count=90, text="words")
    archives = dict(zip(NAMES, site_archives(pooled, root / "data"), strict=True))
    environment = {"PYTHONPATH": f"{hook}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    with Federation.running(root, archives, environment=environment) as made:
        yield made


@pytest.fixture(scope="module")
def config(federation: Federation) -> ResolvedConfig:
    return load_resolved(
        tiny(
            federation.root / "pooled", partition={"kind": "column", "column": "place"},
            federated={"rounds": 2, "local_epochs": 2}, evaluate={"validation_by": "labels"},
        )
    )  # fmt: skip


def change(folder: Path, initial: ReadArrays) -> np.ndarray:
    """Returns what a run has changed in the parameters, as one vector."""
    found = read_arrays(Run.open(folder).model_folder / "weights-000.safetensors")[0]
    return np.concatenate([(found[f"params/{name}"] - initial[name]).ravel() for name in sorted(initial)])


@pytest.fixture(scope="module")
def initial(config: ResolvedConfig) -> ReadArrays:
    """The parameters before the first round, which follow from the config and the features."""
    archive, settings = archive_of(config.config.data), config.config.partition
    parts = partition(archive, settings.kind, settings.silos, config.config.seed, **settings.parameters())
    return Worker(prepare_run(archive, parts, config)[0], torch.device("cpu")).initial


@pytest.fixture(scope="module")
def honest(
    federation: Federation, config: ResolvedConfig, initial: ReadArrays, tmp_path_factory: pytest.TempPathFactory
) -> np.ndarray:
    """What the run changes if no silo lies."""
    folder, watch = tmp_path_factory.mktemp("runs") / "honest", Watch()
    limits = Limits(SETUP_SECONDS, 3)
    train_in_federation(federation.leader, config, folder, NAMES, limits=limits, observers=[watch])
    assert not [silo.rejected for record in watch.records for silo in record.silos if silo.rejected]
    return change(folder, initial)


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ("count", "it claims 1,000,000,000 items, but announced 24 before its first round"),
        ("length", "times as long as the median silo's, and federated.norm_limit is 5"),
    ],
)
def test_a_lie_costs_the_silo_its_own_place(
    federation: Federation, config: ResolvedConfig, initial: ReadArrays, honest: np.ndarray, hook: Path, tmp_path: Path,
    lie: str, reason: str,
) -> None:  # fmt: skip
    folder, watch, said = tmp_path / lie, Watch(), []
    (hook / "lie").write_text(lie)
    try:
        train_in_federation(
            federation.leader, config, folder, NAMES, limits=Limits(SETUP_SECONDS, 3), observers=[watch],
            notify=said.append,
        )  # fmt: skip
    finally:
        (hook / "lie").unlink()
    mine = change(folder, initial)
    assert mine @ honest > 0.8 * np.linalg.norm(mine) * np.linalg.norm(honest)
    assert 0.5 < np.linalg.norm(mine) / np.linalg.norm(honest) < 2
    for record in Run.open(folder).rounds():
        assert [silo.rejected for silo in record.silos[:2]] == [None, None]
        assert reason in str(record.silos[2].rejected)
    assert any(line.startswith(f"The run is partial: {LIAR} had no part in 2 of 2 rounds") for line in said)
    with session(federation.leader) as opened:
        logs = [opened.get_job_logs(job["job_id"])["logs"]["server"] for job in opened.list_jobs()]
    assert any(f"{LIAR} has no part in round 1: " in log and reason in log for log in logs)
