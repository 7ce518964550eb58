"""Training over real connections: a server and three silos as processes, with mutual TLS, on this machine."""

from __future__ import annotations

import os
import signal
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from silohash.base.errors import JobFailed, UnknownName
from silohash.run.config.load import load_resolved
from silohash.run.events import read_rounds
from silohash.run.folder import Run
from silohash.training import experiment
from silohash.training.engines.port import Limits
from silohash.training.sites.kits import SERVER, Training
from silohash.training.sites.training import SETUP_SECONDS
from tests.runs import tiny, write_archive
from tests.sites import NAMES, site_archives

pytest.importorskip("nvflare")

from silohash.training.engines.flare.jobs import (
    Followed,
    follow,
    session,
    set_admission,
    train_in_federation,
    write_job,
)
from silohash.training.engines.flare.kits import EXECUTOR, write_kits
from tests.federation import Federation, Watch, until
from tests.moments import Moments

pytestmark = [pytest.mark.whole_run, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> Moments:
    return Moments(tmp_path_factory.mktemp("moments"))


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory, moments: Moments) -> Iterator[Federation]:
    root = tmp_path_factory.mktemp("federation")
    pooled = write_archive(root / "pooled", count=90, text="words")
    archives = dict(zip(NAMES, site_archives(pooled, root / "data"), strict=True))
    with Federation.running(root, archives, environment=moments.environment) as made:
        yield made


def resolved(federation: Federation, method: str = "fedavg", rounds: int = 2):
    return load_resolved(
        tiny(
            federation.root / "pooled", partition={"kind": "column", "column": "place"}, local=LOCAL.get(method, {}),
            federated={"name": method, "rounds": rounds, "local_epochs": 1, **FEDERATED[method]},
            evaluate={"validation_by": "labels"},
        )
    )  # fmt: skip


FEDERATED: dict[str, dict[str, object]] = {
    "fedavg": {},
    "fedcafe": {"memory": "class_mean", "min_count": 1},
    "moon": {"fraction": 0.67},
    "fedhap": {"min_count": 1},
    "feduch": {},
    "fedridge": {"reveal_items": True},
    "fedala": {},
    "fedproto": {"min_count": 1},
    "plfedcmh": {"min_count": 1},
}
LOCAL = {"fedridge": {"name": "centerap"}, "feduch": {"name": "ucch"}}
WHOLE = Limits(SETUP_SECONDS, 3)


def test_the_server_adds_up_what_only_silos_can_read(federation: Federation, tmp_path: Path) -> None:
    pytest.importorskip("tenseal")
    plain = resolved(federation, "fedhap")
    config = load_resolved({**plain.config.to_json(), "exchange": {"encryption": "ckks"}})
    folder = tmp_path / "encrypted"
    train_in_federation(federation.leader, config, folder, NAMES, limits=WHOLE)
    federation.check_encrypted(folder, config.config.digest(), experiment.train(plain, tmp_path / "one"))


@pytest.mark.parametrize("method", FEDERATED)
def test_result_equals_that_of_one_machine(federation: Federation, tmp_path: Path, method: str) -> None:
    config = resolved(federation, method)
    watch = Watch()
    folder = tmp_path / f"equal-{method}"
    train_in_federation(federation.leader, config, folder, NAMES, limits=WHOLE, observers=[watch])
    apart = Run.open(folder)
    assert [record.round for record in apart.rounds()] == [0, 1]
    assert apart.trained_elsewhere
    assert apart.model.names == ("global",)
    federation.check_equal(folder, watch, experiment.train(config, tmp_path / "one"))


def test_trainer_that_is_killed_misses_a_round_and_is_back_in_the_next(federation: Federation, tmp_path: Path) -> None:
    def kill(number: int) -> None:
        if number == 0:
            for process in federation.children("silohash.training.sites.trainer", "place-1"):
                os.kill(process, signal.SIGKILL)

    watch = Watch(kill)
    config = resolved(federation, rounds=12)
    limits = Limits(SETUP_SECONDS, 2)
    train_in_federation(federation.leader, config, tmp_path / "killed-trainer", NAMES, limits=limits, observers=[watch])
    missed = [record.round for record in watch.records if record.silos[1].rejected]
    assert len(missed) <= 1
    assert watch.records[-1].silos[1].rejected is None
    assert [record.round for record in watch.records] == list(range(12))


KILLED = {
    "server": (signal.SIGKILL, ("nvflare", f"/{SERVER}")),
    "server that may end in order": (signal.SIGTERM, ("server.server_train",)),
    "job of the server": (signal.SIGKILL, ("server.runner_process",)),
    "job of a site": (signal.SIGKILL, ("client.worker_process", "/place-2")),
}


def killed_at(federation: Federation, moments: Moments, victim: str, run: str) -> list[int]:
    """Kills processes once one of them waits, and returns the rounds that the server had finished by then."""
    number, words = KILLED[victim]
    try:
        until(lambda: moments.reached)
        done = [record.round for record in read_rounds(federation.kits / SERVER / "runs" / run / "rounds.jsonl")]
        victims = federation.children(*words)
        assert victims
        for process in victims:
            os.kill(process, number)
        return done
    finally:
        moments.release()


BEFORE, INSIDE = "before round 2", "inside round 2"


@pytest.mark.parametrize(
    ("victim", "moment"),
    [
        ("server", BEFORE), ("server", INSIDE),
        ("server that may end in order", BEFORE), ("server that may end in order", INSIDE),
        ("job of the server", INSIDE), ("job of a site", INSIDE),
    ],
)  # fmt: skip
def test_run_continues_by_itself_after_its_last_round(
    federation: Federation, moments: Moments, tmp_path: Path, victim: str, moment: str
) -> None:
    config = resolved(federation, rounds=4)
    folder = tmp_path / f"{victim} {moment}".replace(" ", "-")
    watch, said = Watch(), []
    with moments.held(moment), ThreadPoolExecutor(1) as pool:
        killed = pool.submit(killed_at, federation, moments, victim, folder.name)
        train_in_federation(
            federation.leader, config, folder, NAMES, limits=WHOLE, observers=[watch], notify=said.append
        )  # fmt: skip
        assert killed.result() == [0, 1]
    assert any("continues the run" in line for line in said)
    numbers = [record.round for record in watch.records]
    assert numbers == sorted(set(numbers))
    assert [record.round for record in Run.open(folder).rounds()] == list(range(4))
    again = [number for number, times in Counter(moments.trained).items() if times > 1]
    assert set(moments.trained) == {0, 1, 2, 3}
    if KILLED[victim][0] == signal.SIGKILL and moment == INSIDE:
        assert again == [2]
    else:
        assert again in ([], [2])
    one = experiment.train(config, tmp_path / "one")
    assert Run.open(folder).model.digest("global") == one.model.digest("global")


def test_a_silo_of_another_version_or_config_is_named_and_refused(federation: Federation, tmp_path: Path) -> None:
    changes = {
        "version": "import silohash\n\nsilohash.__version__ = '9.8.7'\n",
        "digest": "from silohash.run.config.sections import RunConfig\n\nRunConfig.shared_digest = lambda self: 'd1f'\n",
    }
    try:
        for name, line in changes.items():
            hook = tmp_path / name / "sitecustomize.py"
            hook.parent.mkdir()
            hook.write_text(line)
            federation.restart(
                "place-1", {"PYTHONPATH": f"{hook.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
            )
            with pytest.raises(JobFailed, match=r"place-1 .*(9\.8\.7|d1f)"):
                train_in_federation(
                    federation.leader, resolved(federation), tmp_path / f"whole-{name}", NAMES, limits=WHOLE
                )
            said: list[str] = []
            train_in_federation(
                federation.leader, resolved(federation), tmp_path / f"partial-{name}", NAMES, notify=said.append,
                limits=Limits(SETUP_SECONDS, 2, 2),
            )  # fmt: skip
            assert any("place-1 does not take part yet: it" in line for line in said)
            assert all(silo.rejected for record in Run.open(tmp_path / f"partial-{name}").rounds()
                       for silo in record.silos if silo.silo == "place-1")  # fmt: skip
    finally:
        federation.restart("place-1")


def test_a_silo_that_is_killed_leaves_no_process(federation: Federation, moments: Moments, tmp_path: Path) -> None:
    """All of its processes are there when `silohash silo` is killed: that of the kit, that of the job, and the trainer."""
    with moments.held(INSIDE), ThreadPoolExecutor(1) as pool:
        trained = pool.submit(
            train_in_federation, federation.leader, resolved(federation, rounds=3), tmp_path / "left", NAMES,
            limits=Limits(20.0, 2, 3),
        )  # fmt: skip
        try:
            until(lambda: moments.reached)
            left = set(federation.children(str(federation.kits / "place-2")))
            assert len(left) == 4
            federation.processes.pop("place-2").kill()
            until(lambda: not federation.children(str(federation.kits / "place-2")), 30.0)
        finally:
            moments.release()
            federation.start("place-2")
        trained.result()


def test_a_silo_that_does_not_exist_is_not_locked_out(federation: Federation) -> None:
    with pytest.raises(UnknownName, match="place-0, place-1, place-2"):
        set_admission(federation.leader, "place-7", admitted=False)


def is_refused(folder: Path, federation: Federation, change: Callable[[Path], None]) -> bool:
    """Return whether a job of which something was changed does not train any round."""
    write_job(folder, "refused", resolved(federation), NAMES, WHOLE)
    change(folder / "app")
    with (
        session(federation.leader) as opened,
        pytest.raises(Exception, match=r"FLARE ended the job|BYOC|byoc|ustom"),
    ):
        follow(opened, opened.submit_job(str(folder)), Followed([]))
    return not (federation.kits / SERVER / "runs" / "refused" / "rounds.jsonl").exists()


def test_classes_that_are_not_ours_are_refused(federation: Federation, tmp_path: Path) -> None:
    def change(app: Path) -> None:
        file = app / "config" / "config_fed_client.json"
        text = file.read_text(encoding="utf-8")
        assert EXECUTOR in text
        file.write_text(text.replace(EXECUTOR, "nvflare.app_common.np.np_trainer.NPTrainer"), encoding="utf-8")

    assert is_refused(tmp_path / "job", federation, change)


def test_code_that_a_job_brings_is_refused(federation: Federation, tmp_path: Path) -> None:
    def change(app: Path) -> None:
        (app / "custom").mkdir()
        (app / "custom" / "brought.py").write_text("print('here')\n", encoding="utf-8")

    assert is_refused(tmp_path / "job", federation, change)


def test_connections_without_a_certificate_of_the_federation_are_refused(
    federation: Federation, tmp_path: Path
) -> None:
    write_kits(tmp_path / "foreign", ["place-0"], Training(port=federation.port))
    for kit in (None, tmp_path / "foreign" / "place-0", federation.kits / "place-0"):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if kit is not None:
            context.load_cert_chain(kit / "startup" / "client.crt", kit / "startup" / "client.key")
        accepted = True
        with socket.create_connection(("127.0.0.1", federation.port), 10) as plain:
            try:
                with context.wrap_socket(plain) as secure:
                    secure.settimeout(3.0 if kit is not None and kit.parent == federation.kits else 60.0)
                    accepted = secure.recv(1) != b""
            except TimeoutError:
                accepted = True  # the server waits for a request
            except (ssl.SSLError, ConnectionError):
                accepted = False
        assert accepted == (kit is not None and kit.parent == federation.kits)
