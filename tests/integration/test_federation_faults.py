"""Faults of members of a federation, with a server and three silos as processes on this machine.

Each run must end with the model of a run on one machine in which the same silos were absent from the same rounds.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from silohash.run.config.load import load_resolved
from silohash.run.events import RoundRecord
from silohash.run.folder import Run
from silohash.training.engines.port import Limits, SiloResult, SiloTask
from silohash.training.sites.training import SETUP_SECONDS, train_at_sites
from tests.runs import tiny, write_archive
from tests.sites import NAMES, Missing, Sites, site_archives

pytest.importorskip("nvflare")

from silohash.training.engines.flare.engine import MISSES, NOT_IN_JOB, SILENT
from silohash.training.engines.flare.jobs import set_admission, train_in_federation
from silohash.training.engines.flare.kits import ADMIN
from silohash.training.sites.kits import SERVER
from tests.federation import Federation, Watch, until

pytestmark = [pytest.mark.whole_run, pytest.mark.slow, pytest.mark.timeout(1500)]

DEADLINE_SECONDS = 40.0
MOST = Limits(DEADLINE_SECONDS, 2)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    root = tmp_path_factory.mktemp("faults")
    pooled = write_archive(root / "pooled", count=90, text="words")
    with Federation.running(root, dict(zip(NAMES, site_archives(pooled, root / "data"), strict=True))) as made:
        yield made


class Trained:
    """A run in the federation, with what was told about it."""

    def __init__(
        self, federation: Federation, folder: Path, act: Callable[[RoundRecord], None] = lambda record: None,
        *, rounds: int = 8, limits: Limits = MOST, method: str = "moon", **federated: float,
    ) -> None:  # fmt: skip
        self.federation, self.folder, self.said = federation, folder, []
        self.config = load_resolved(
            tiny(
                federation.root / "pooled", partition={"kind": "column", "column": "place"},
                federated={"name": method, "rounds": rounds, "local_epochs": 1, **federated}, evaluate={"validation": 0.0},
            )
        )  # fmt: skip
        watch = Watch(lambda number: act(watch.records[-1]))
        train_in_federation(
            federation.leader, self.config, folder, NAMES, limits=limits, observers=[watch], notify=self.said.append
        )
        self.records = watch.records
        assert [record.round for record in self.records] == list(range(rounds))

    @property
    def reasons(self) -> dict[tuple[int, int], str]:
        """Why silos did not take part in rounds, by the numbers of round and silo."""
        return {
            (record.round, number): silo.rejected
            for record in self.records
            for number, silo in enumerate(record.silos)
            if silo.rejected is not None
        }

    def check_model(self, scratch: Path) -> None:
        """Checks that the model is that of a run on one machine with the same absences."""
        sites = Sites([self.federation.root / "data" / name for name in NAMES], scratch / "state")
        one = train_at_sites(self.config, scratch / "one", Missing(sites, set(self.reasons)), NAMES)
        assert Run.open(self.folder).model.digest("global") == one.model.digest("global")


def test_site_that_is_killed_and_started_again_is_taken_in_by_a_new_job(federation: Federation, tmp_path: Path) -> None:
    def kill(record: RoundRecord) -> None:
        if record.round == 1:
            federation.kill("place-2")
            federation.start("place-2")

    trained = Trained(federation, tmp_path / "killed-site", kill, rounds=100)
    reasons = [reason for (_, silo), reason in trained.reasons.items() if silo == 2]
    waited = [reason for reason in reasons if not reason.startswith((SILENT, NOT_IN_JOB))]
    assert reasons
    assert len(waited) <= MISSES
    assert {silo for _, silo in trained.reasons} == {2}
    assert trained.records[-1].silos[2].rejected is None
    assert any("place-2 can take part again" in line for line in trained.said)
    trained.check_model(tmp_path)


def test_late_answer_is_not_used(federation: Federation, tmp_path: Path) -> None:
    stopped = []

    def stop(record: RoundRecord) -> None:
        if record.round == 1:
            stopped.extend(federation.children("/place-1", "client.worker_process"))
            assert stopped
            for process in stopped:
                os.kill(process, signal.SIGSTOP)
        elif record.silos[1].rejected is not None:
            while stopped:
                os.kill(stopped.pop(), signal.SIGCONT)

    trained = Trained(federation, tmp_path / "late", stop, rounds=12)
    assert f"did not answer within {DEADLINE_SECONDS:g} seconds" in trained.reasons.values()
    assert {silo for _, silo in trained.reasons} == {1}
    assert trained.records[-1].silos[1].rejected is None
    trained.check_model(tmp_path)


SPOILED = """
import dataclasses, sys
import numpy as np

command = " ".join(sys.orig_argv)
if "silohash.training.sites.trainer" in command:
    from silohash.training.engines import wire

    def changed(result, **changes):
        return encode(dataclasses.replace(result, update=dataclasses.replace(result.update, **changes)))

    def params(result, change):
        name = next(name for name in result.update.params if name.endswith("weight"))
        array = np.array(result.update.params[name])
        return changed(result, params={**result.update.params, name: change(array)})

    SPOILS = {
        1: lambda result: params(result, lambda array: array * np.nan),
        2: lambda result: params(result, lambda array: array + np.inf),
        3: lambda result: params(result, lambda array: array[:-1]),
        4: lambda result: changed(result, counts={}),
        5: lambda result: encode(result)[:-9],
        6: lambda result: changed(result, sender="place-0"),
        7: lambda result: changed(result, round=5),
        8: lambda result: changed(result, params={**result.update.params, "more": np.ones(3)}),
    }

    def spoiled(result):
        spoil = SPOILS.get(result.update.round) if result.update.kind == "update" else None
        return encode(result) if spoil is None else spoil(result)

    encode, wire.encode_result = wire.encode_result, spoiled
elif "client.worker_process" in command:
    from nvflare.private.fed.client.client_run_manager import ClientRunManager

    def twice(self, result, fl_ctx, timeout=None):
        return send(self, result, fl_ctx, timeout) and send(self, result, fl_ctx, timeout)

    send, ClientRunManager.send_task_result = ClientRunManager.send_task_result, twice
"""


def test_spoiled_updates_are_left_out_and_repeated_ones_count_once(federation: Federation, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SPOILED)
    federation.restart("place-2", {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"})
    try:
        trained = Trained(federation, tmp_path / "spoiled", rounds=11, limits=Limits(SETUP_SECONDS, 2))
    finally:
        federation.restart("place-2")
    assert {silo for _, silo in trained.reasons} == {2}
    assert [trained.reasons[number, 2].partition(" ")[2] for number in range(1, 9)] == [
        "holds NaN or infinite values",
        "holds NaN or infinite values",
        trained.reasons[3, 2].partition(" ")[2],
        "out items in its counts",
        "a damaged message",
        "another task (silo 2, round 6)",
        "another task (silo 2, round 5)",
        "is not a parameter of the global model",
    ]
    assert "has shape" in trained.reasons[3, 2]
    assert len(trained.reasons) == 8
    trained.check_model(tmp_path)


def test_site_whose_policy_refuses_the_job_makes_the_run_partial(federation: Federation, tmp_path: Path) -> None:
    file = federation.kits / "place-2" / "local" / "authorization.json"
    before = file.read_text()
    rights = json.loads(before)
    rights["permissions"]["lead"]["submit_job"] = "none"
    file.write_text(json.dumps(rights))
    federation.restart("place-2")
    try:
        trained = Trained(federation, tmp_path / "refused", rounds=3, limits=Limits(SETUP_SECONDS, 2, start=2))
    finally:
        file.write_text(before)
        federation.restart("place-2")
    assert trained.reasons == dict.fromkeys([(number, 2) for number in range(3)], NOT_IN_JOB)
    (line,) = [line for line in trained.said if "partial" in line]
    assert line.startswith("The run is partial: place-2 had no part in 3 of 3 rounds (it refuses the job: ")


REFUSED = ("disabled", "error:client_quit")
"""What a site that is locked out logs, depending on whether it registers or sends a sign of life."""


def test_site_that_is_disabled_stays_away_after_the_server_was_started_again(federation: Federation) -> None:
    others = [name for name in NAMES if name != "place-2"]
    set_admission(federation.leader, "place-2", admitted=False)
    try:
        until(lambda: federation.connected(others))
        federation.stop(SERVER)
        federation.start(SERVER)
        until(lambda: federation.connected(others))
        log = federation.kits / "place-2" / "log.txt"
        size = log.stat().st_size
        until(lambda: any(word in log.read_text()[size:] for word in REFUSED))
        assert federation.connected(others)
    finally:
        set_admission(federation.leader, "place-2", admitted=True)
    until(federation.connected)


HALVED = """
from dataclasses import replace
import numpy as np
from nvflare.apis.filter import Filter
from silohash.methods.message import Message
from silohash.training.engines.flare.engine import MESSAGE


class Halved(Filter):
    def process(self, shareable, fl_ctx):
        sent = Message.decode(shareable[MESSAGE])
        if sent.kind == "update":
            halved = {name: (array / 2).astype(array.dtype) for name, array in sent.params.items()}
            shareable[MESSAGE] = replace(sent, params=halved).encode()
        return shareable
"""


class Halving(Sites):
    """Sites of which the last one sends half of its parameters."""

    def do(self, task: SiloTask) -> SiloResult:
        result = super().do(task)
        if task.silo != 2 or result.update.kind != "update":
            return result
        halved = {name: (array / 2).astype(array.dtype) for name, array in result.update.params.items()}
        return replace(result, update=replace(result.update, params=halved))


def lines_of(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def test_filter_of_a_site_is_applied_to_what_it_sends_and_logs_say_what_was_done(
    federation: Federation, tmp_path: Path
) -> None:
    (tmp_path / "site_filter.py").write_text(HALVED)
    local = federation.kits / "place-2" / "local"
    before = (local / "resources.json").read_text()
    resources = json.loads(before)
    resources["class_allow_list"].append("site_filter.Halved")
    scope = {"name": "own", "properties": {}, "task_result_filters": [{"path": "site_filter.Halved", "args": {}}]}
    (local / "resources.json").write_text(json.dumps(resources))
    (local / "privacy.json").write_text(json.dumps({"scopes": [scope], "default_scope": "own"}))
    logs = [federation.kits / name / "audit.log" for name in (SERVER, "place-2")]
    sizes = [len(lines_of(log)) for log in logs]
    federation.restart("place-2", {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"})
    try:
        # Half of the parameters is far from those of the others, and would be refused for its length.
        trained = Trained(
            federation, tmp_path / "filtered", rounds=2, limits=Limits(SETUP_SECONDS, 3), method="fedavg", norm_limit=0
        )
    finally:
        (local / "resources.json").write_text(before)
        (local / "privacy.json").unlink()
        federation.restart("place-2")
    assert trained.reasons == {}
    digests = []
    for kind in (Halving, Sites):
        sites = kind([federation.root / "data" / name for name in NAMES], tmp_path / kind.__name__)
        one = train_at_sites(trained.config, tmp_path / f"one-{kind.__name__}", Missing(sites, set()), NAMES)
        digests.append(one.model.digest("global"))
    assert Run.open(trained.folder).model.digest("global") == digests[0] != digests[1]
    server, site = (lines_of(log)[size:] for log, size in zip(logs, sizes, strict=True))
    assert any(f"[U:{ADMIN}]" in line and "submit_job" in line for line in server)
    assert any(f"[U:{ADMIN}]" in line for line in site)


NETWORKLESS = """
import fcntl, socket, struct, sys
import pytest

LOOPBACK_UP = struct.pack("16sh", b"lo", 1 | 64)  # IFF_UP, IFF_RUNNING
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    fcntl.ioctl(control, 0x8914, LOOPBACK_UP)  # SIOCSIFFLAGS
assert [name for _, name in socket.if_nameindex()] == ["lo"]
sys.exit(pytest.main([*sys.argv[1:], "-q", "-p", "no:cacheprovider"]))
"""


def test_no_connection_to_the_outside_is_needed(repository: Path, tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rn", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine does not permit network namespaces (unshare -rn)")
    test = repository / "tests" / "integration" / "test_federation_round.py"
    done = subprocess.run(
        [unshare, "-rn", sys.executable, "-c", NETWORKLESS, str(test), "-m", "slow", "--timeout=900",
         f"--basetemp={tmp_path / 'apart'}"],
        cwd=repository, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
