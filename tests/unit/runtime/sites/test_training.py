"""Training with silos that hold their own data equals training with all data on one machine, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from silohash.config.load import load_resolved
from silohash.exchange.message import Message
from silohash.runtime import experiment
from silohash.runtime.checkpoint import load_checkpoint
from silohash.runtime.engine.in_process import InProcess
from silohash.runtime.engine.port import SiloResult, SiloTask
from silohash.runtime.engine.wire import decode_answer, decode_task, encode_distant_task, encode_result
from silohash.runtime.run import Run
from silohash.runtime.sites.settings import SiteSettings
from silohash.runtime.sites.trainer import Site
from silohash.runtime.sites.training import train_at_sites
from tests.runs import same_arrays, tiny, write_archive
from tests.sites import NAMES, site_archives

FEDCAFE = {"name": "fedcafe", "memory": "class_mean", "min_count": 1}
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"name": "fedavg"},
    "fedcafe": FEDCAFE,
    "fedhap": {"name": "fedhap", "min_count": 1},
    "moon": {"name": "moon"},
    "fednova": {"name": "fednova"},
}


class Sites:
    """A worker that passes each task to the site of its silo, as encoded messages."""

    def __init__(self, archives: list[Path], state: Path) -> None:
        self.archives, self.state = archives, state
        self.restart()

    def restart(self) -> None:
        self.sites = [
            Site(SiteSettings.model_validate(
                {"silo": name, "state": self.state / name, "device": "cpu", "threads": 1, "data": {"path": archive}}
            ))
            for name, archive in zip(NAMES, self.archives, strict=True)
        ]  # fmt: skip

    def do(self, task: SiloTask) -> SiloResult:
        read = decode_task(Message.decode(encode_distant_task(task)))
        answer = encode_result(self.sites[task.silo].do("first", read))
        result = decode_answer(task, NAMES[task.silo], answer)
        assert isinstance(result, SiloResult), result
        return result


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("data") / "pooled", count=90, text="words")


def tables(archive: Path, method: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return tiny(
        archive, partition={"kind": "column", "column": "place"},
        federated={"rounds": 7, "local_epochs": 1, **method}, **sections,
    )  # fmt: skip


@pytest.mark.whole_run
@pytest.mark.parametrize("method", METHODS)
def test_result_equals_that_of_one_machine(archive: Path, tmp_path: Path, method: str) -> None:
    resolved = load_resolved(tables(archive, METHODS[method]))
    one = experiment.train(resolved, tmp_path / "one")
    sites = Sites(site_archives(archive, tmp_path / "sites"), tmp_path / "state")
    apart = train_at_sites(resolved, tmp_path / "apart", InProcess(sites), NAMES)
    digest = resolved.config.digest()
    ours, theirs = (load_checkpoint(run.checkpoint, digest) for run in (apart, one))
    assert same_arrays(ours.server.params, theirs.server.params)
    assert same_arrays(ours.server.extras, theirs.server.extras)
    assert ours.best_round == theirs.best_round
    for silo, name in enumerate(NAMES):
        stored = {path.name for path in (tmp_path / "state" / name).rglob("kept/*.safetensors")}
        # Those of the best round and of the last two: what the last round began with is removed when another one begins.
        assert len(stored) <= 4
        if ours.silos.get(silo):
            assert stored
    for mine, other in zip(apart.rounds(), one.rounds(), strict=True):
        assert (mine.loss, mine.terms, mine.validation) == (other.loss, other.terms, other.validation)
        assert [(silo.silo, silo.items, silo.loss) for silo in mine.silos] == [
            (silo.silo, silo.items, silo.loss) for silo in other.silos
        ]
    assert Run.open(apart.folder).model.digest("global") == one.model.digest("global")
