"""Runs in a federation that Flower connects, over letters that reach the sites in this process."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from silohash.config.load import load_resolved
from silohash.exchange.message import Message
from silohash.runtime import experiment
from silohash.runtime.engine.port import Limits
from silohash.runtime.engine.wire import decode_task, encode_result
from silohash.runtime.run import Run
from silohash.runtime.sites import attempts
from silohash.runtime.sites.attempts import LostJobError
from silohash.runtime.sites.kits import LEADER, Training
from silohash.types import UserError
from tests.runs import Records, tiny, write_archive
from tests.sites import NAMES, Sites, site_archives

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")

from silohash.runtime.engine.flower import runs
from silohash.runtime.engine.flower.kits import write_flower_kits
from silohash.runtime.engine.flower.runs import train_in_federation


class Local:
    """Letters to sites in this process.

    Args:
        sites: the sites.
        lost_after: number of letters after which the server is gone; None for never.
    """

    def __init__(self, sites: Sites, lost_after: int | None) -> None:
        self.sites, self.left = sites, lost_after
        self.replies: dict[str, bytes] = {}

    def connected(self) -> Collection[str]:
        return NAMES

    def send(self, silo: str, content: bytes, seconds: float | None) -> str:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise LostJobError("the server is gone")
        message = Message.decode(content)
        result = self.sites.sites[NAMES.index(silo)].do(message.notes["run"], decode_task(message))
        number = f"{silo} {len(self.replies)}"
        self.replies[number] = encode_result(result)
        return number

    def receive(self, messages: Collection[str]) -> Mapping[str, bytes | str]:
        return {number: self.replies[number] for number in messages}


@pytest.fixture
def leader(tmp_path: Path) -> Path:
    write_flower_kits(tmp_path / "kits", NAMES, Training())
    return tmp_path / "kits" / LEADER


@pytest.mark.whole_run
def test_run_that_loses_its_server_continues_and_equals_that_of_one_machine(
    leader: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = write_archive(tmp_path / "pooled", count=90, text="words")
    sites = Sites(site_archives(archive, tmp_path / "sites"), tmp_path / "state")
    resolved = load_resolved(
        tiny(
            archive, partition={"kind": "column", "column": "place"},
            federated={"name": "fedcafe", "rounds": 4, "local_epochs": 1, "memory": "class_mean", "min_count": 1},
            evaluate={"validation_by": "labels"},
        )
    )  # fmt: skip
    jobs = iter([16, None])

    @contextmanager
    def job(connection: object) -> Iterator[Local]:
        yield Local(sites, next(jobs))

    monkeypatch.setattr(runs, "job", job)
    monkeypatch.setattr(runs, "connected_silos", lambda connection: list(NAMES))
    monkeypatch.setattr(attempts, "POLL_SECONDS", 0.0)
    seen, said, folder = Records(), [], tmp_path / "out" / "first"
    train_in_federation(leader, resolved, folder, [], limits=Limits(), observers=[seen], notify=said.append)
    one, apart = experiment.train(resolved, tmp_path / "one"), Run.open(folder)
    assert len(said) == 1
    assert "the server is gone" in said[0]
    assert apart.model.digest("global") == one.model.digest("global")
    assert [(record.round, record.loss) for record in apart.rounds()] == [
        (record.round, record.loss) for record in one.rounds()
    ]
    assert apart.trained_elsewhere
    assert sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")) == [
        "config.toml", "environment.json", "model", "rounds.jsonl",
    ]  # fmt: skip


def test_training_without_silos_is_refused(leader: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = load_resolved({**tiny(Path("x")), "data": {"name": "glyphs"}})
    monkeypatch.setattr(runs, "connected_silos", lambda connection: [])
    with pytest.raises(UserError, match="No silo is connected"):
        train_in_federation(leader, resolved, tmp_path / "first", [], limits=Limits())
    with pytest.raises(UserError, match="cannot have the name"):
        train_in_federation(leader, resolved, tmp_path / "fi rst", [], limits=Limits())


def test_server_that_is_not_there_has_no_connected_silos(leader: Path, tmp_path: Path) -> None:
    resolved = load_resolved({**tiny(Path("x")), "data": {"name": "glyphs"}})
    with pytest.raises(UserError, match=r"cannot be reached \(.*Start it: silohash server KIT"):
        train_in_federation(leader, resolved, tmp_path / "first", [], limits=Limits())
