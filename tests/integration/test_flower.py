"""Training through Flower: a SuperLink and three SuperNodes as processes, with TLS and a key per silo, on this machine."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from silohash.config.load import load_resolved
from silohash.runtime import experiment
from silohash.runtime.engine.port import Limits
from silohash.runtime.run import Run
from silohash.runtime.sites.kits import LEADER, SERVER, STARTUP, Training
from silohash.runtime.sites.training import SETUP_SECONDS
from silohash.types import UserError
from tests.members import Members, Watch, until
from tests.runs import silohash, tiny, write_archive, write_config
from tests.sites import NAMES, site_archives

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")

from silohash.runtime.engine.flower import letters
from silohash.runtime.engine.flower.kits import SECRET, SILO_KEY, Connection, write_flower_kits
from silohash.runtime.engine.flower.letters import connected_silos
from silohash.runtime.engine.flower.runs import train_in_federation

pytestmark = [pytest.mark.whole_run, pytest.mark.slow, pytest.mark.timeout(1500)]

WHOLE = Limits(SETUP_SECONDS, 3)
FEDERATED: dict[str, dict[str, object]] = {
    "fedavg": {},
    "fedcafe": {"memory": "class_mean", "min_count": 1},
    "fedhap": {"min_count": 1},
    "fedproto": {"min_count": 1},
}


class Flower(Members):
    """A federation that Flower connects."""

    @property
    def connection(self) -> Connection:
        return Connection.of(self.leader)

    def listed(self) -> list[str]:
        try:
            return connected_silos(self.connection)
        except UserError:
            return []


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flower]:
    root = tmp_path_factory.mktemp("flower")
    pooled = write_archive(root / "pooled", count=90, text="words")
    with Flower.running(root, dict(zip(NAMES, site_archives(pooled, root / "data"), strict=True)), flower=True) as made:
        yield made


@pytest.fixture(autouse=True)
def _all_connected(federation: Flower) -> None:
    until(federation.connected)


def tables(federation: Flower, method: str = "fedavg", rounds: int = 2) -> dict[str, object]:
    return tiny(
        federation.root / "pooled", partition={"kind": "column", "column": "place"},
        federated={"name": method, "rounds": rounds, "local_epochs": 1, **FEDERATED[method]},
        evaluate={"validation_by": "labels"},
    )  # fmt: skip


@pytest.mark.parametrize("method", FEDERATED)
def test_result_equals_that_of_one_machine(federation: Flower, tmp_path: Path, method: str) -> None:
    config, watch = load_resolved(tables(federation, method)), Watch()
    folder = tmp_path / f"equal-{method}"
    train_in_federation(federation.leader, config, folder, NAMES, limits=WHOLE, observers=[watch])
    federation.check_equal(folder, watch, experiment.train(config, tmp_path / "one"))


def test_the_server_adds_up_what_only_silos_can_read(federation: Flower, tmp_path: Path) -> None:
    pytest.importorskip("tenseal")
    plain = load_resolved(tables(federation, "fedhap"))
    config = load_resolved({**plain.config.to_json(), "exchange": {"encryption": "ckks"}})
    folder = tmp_path / "encrypted"
    train_in_federation(federation.leader, config, folder, NAMES, limits=WHOLE)
    federation.check_encrypted(folder, config.config.digest(), experiment.train(plain, tmp_path / "one"), keeper=LEADER)


def test_commands(federation: Flower, tmp_path: Path) -> None:
    config = write_config(
        tmp_path / "run.toml", federation.root / "pooled", partition={"kind": "column", "column": "place"},
        federated={"name": "fedavg", "rounds": 1, "local_epochs": 1},
    )  # fmt: skip
    folder = tmp_path / "out" / "first"
    done = silohash("train", config, "--on", federation.leader, "--out", folder, "--quorum", 3)
    assert (done.code, done.out) == (0, f"Run: {folder}\n"), done.err
    assert len(Run.open(folder).rounds()) == 1
    checked = silohash("doctor", "--kit", federation.kits / "place-1")
    assert checked.code == 0, checked.out
    refused = silohash("federation", "disable", federation.leader, "place-1")
    assert "Move startup/silos/place-1.pub out of the kit of the server" in refused.err


def test_program_that_a_run_brings_is_neither_run_nor_installed(
    federation: Flower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "trace"
    code = f"open({str(trace)!r}, 'w').write('here')\napp = None\n".encode()
    app = letters.APP.replace(b'"silohash.runtime:none"', b'"brought:app"')
    original = letters.build_fab_from_files
    monkeypatch.setattr(
        letters, "build_fab_from_files", lambda files: original({"pyproject.toml": app, "brought.py": code})
    )
    config = load_resolved(tables(federation, rounds=1))
    train_in_federation(federation.leader, config, tmp_path / "brought", NAMES, limits=WHOLE)
    assert len(Run.open(tmp_path / "brought").rounds()) == 1
    assert not trace.exists()
    assert not list(federation.kits.rglob("brought.py"))


def test_silo_without_a_key_of_the_federation_cannot_connect(federation: Flower, tmp_path: Path) -> None:
    stranger = federation.kits / "stranger"
    shutil.copytree(federation.kits / "place-0", stranger)
    write_flower_kits(tmp_path / "foreign", ["place-0"], Training(port=federation.port))
    shutil.copyfile(tmp_path / "foreign/place-0" / STARTUP / SILO_KEY, stranger / STARTUP / SILO_KEY)
    federation.start("stranger")
    try:
        errors = federation.kits / SERVER / "errors.txt"
        until(lambda: "No SuperNode found with the given public key" in errors.read_text())
        assert federation.connected()
    finally:
        federation.stop("stranger")


def test_who_does_not_have_the_secret_starts_no_run(federation: Flower, tmp_path: Path) -> None:
    kit = tmp_path / "leader"
    shutil.copytree(federation.leader, kit)
    (kit / STARTUP / SECRET).write_text("0" * 64)
    with pytest.raises(UserError, match="401"):
        connected_silos(Connection.of(kit))
    foreign = replace(federation.connection, kit=tmp_path / "foreign" / "leader")
    write_flower_kits(tmp_path / "foreign", ["place-0"], Training(port=federation.port))
    with pytest.raises(UserError, match="CERTIFICATE_VERIFY_FAILED"):
        connected_silos(foreign)


def test_trainer_that_is_killed_misses_a_round_and_is_back_in_the_next(federation: Flower, tmp_path: Path) -> None:
    def kill(number: int) -> None:
        if number == 0:
            for process in federation.children("silohash.runtime.sites.trainer", "place-1"):
                os.kill(process, signal.SIGKILL)

    watch = Watch(kill)
    config = load_resolved(tables(federation, rounds=4))
    limits = Limits(SETUP_SECONDS, 2)
    train_in_federation(federation.leader, config, tmp_path / "killed", NAMES, limits=limits, observers=[watch])
    missed = [record.round for record in watch.records if record.silos[1].rejected]
    assert len(missed) <= 1
    assert watch.records[-1].silos[1].rejected is None
    assert [record.round for record in watch.records] == list(range(4))


def test_silo_that_loses_power_is_left_out_and_comes_back(federation: Flower, tmp_path: Path) -> None:
    def act(number: int) -> None:
        if number == 0:
            federation.kill("place-2")
            federation.start("place-2")
        if number == 1:
            until(federation.connected)

    watch, said = Watch(act), []
    config, limits = load_resolved(tables(federation, rounds=3)), Limits(SETUP_SECONDS, 2)
    folder = tmp_path / "power"
    train_in_federation(
        federation.leader, config, folder, NAMES, limits=limits, observers=[watch], notify=said.append
    )  # fmt: skip
    reasons = [record.silos[2].rejected for record in watch.records]
    assert reasons[0] is None
    assert reasons[1] is not None
    assert "connected" in reasons[1]
    assert reasons[2] is None
    assert said[-1].startswith("The run is partial: place-2 was absent from 1 of 3 rounds")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_run_whose_server_dies_continues_after_its_last_round(federation: Flower, tmp_path: Path, number: int) -> None:
    def kill(round_: int) -> None:
        if round_ == 1:
            for process in federation.children("silohash.runtime.engine.flower.superlink"):
                os.kill(process, number)

    watch, said = Watch(kill), []
    config = load_resolved(tables(federation, rounds=4))
    folder = tmp_path / f"server-{number}"
    train_in_federation(
        federation.leader, config, folder, NAMES, limits=WHOLE, observers=[watch], notify=said.append
    )  # fmt: skip
    assert any("A new one continues the run" in line for line in said)
    assert [record.round for record in watch.records] == list(range(4))
    one = experiment.train(config, tmp_path / "one")
    assert Run.open(folder).model.digest("global") == one.model.digest("global")
