"""What SECURITY.md promises: nothing is reported to anyone, and only listed files are written outside a run.

Commands, services and paths of optional packages run under a recorder, in an environment and a home folder of their own.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import Table
from pyarrow.parquet import write_table

from silohash.index import SERVERS
from silohash.run.config.toml import toml_value
from silohash.run.folder import Run
from silohash.service.clients.search import Client
from tests import backbones, museum_files, nats, recorder, servers
from tests.icon_packages import write_packages
from tests.integration.test_live_items import Member, Silo
from tests.pictures import small_config
from tests.ports import free_port
from tests.recorder import Recorder
from tests.runs import train, write_archive, write_config
from tests.served import drawn, png, write_pictures
from tests.split_icons import store_split
from tests.studies import tiny_study
from tests.unit.cli.test_demo import SMALL

pytestmark = [pytest.mark.whole_run, pytest.mark.timeout(900)]

MATLAB = """
import sys
from pathlib import Path
import numpy as np
from silohash.data.formats.matlab import open_mat
from tests.unit.data.formats.matlab_files import photographs, write_mat
pictures = photographs(5, height=8, width=6).transpose(1, 2, 3, 0)
print(write_mat("v7.3", Path("secret-name.mat"), {"IAll": pictures}).variable("IAll").pictures().digest())
"""
EXPORTS = """
import numpy as np, torch
from silohash.run.model import onnx_graph
exporter = torch.onnx.export
def newer(*arguments, dynamo, **options):
    if dynamo:
        return exporter(*arguments, dynamo=True, **options)
    raise TypeError("the older exporter does not know an operation")
torch.onnx.export = newer
assert onnx_graph.onnx_bytes(torch.nn.Linear(4, 2).eval(), np.zeros((2, 4), np.float32), {})
"""
CONNECTS = """
import ctypes, socket
native = ctypes.CDLL(None)
address = socket.AF_INET.to_bytes(2, "little") + (9).to_bytes(2, "big") + bytes([192, 0, 2, 1]) + bytes(8)
native.connect(native.socket(socket.AF_INET, socket.SOCK_DGRAM, 0), address, len(address))
"""
"""Chooses the peer of a datagram socket, without Python's knowledge and without sending anything."""
LOOKS_UP = """
import ctypes
ctypes.CDLL(None).getaddrinfo(b"example.invalid", None, None, ctypes.byref(ctypes.c_void_p()))
"""
WRITES = """
import ctypes, os, pathlib
name = os.fsencode(pathlib.Path.home() / ".other" / "file")
pathlib.Path.home().joinpath(".other").mkdir()
native = ctypes.CDLL(None)
native.close(native.open(name, os.O_WRONLY | os.O_CREAT, 0o600))
os.unlink(name)
"""
OFFLINE = ("unshare", "--map-root-user", "--net")
needs_strace = pytest.mark.skipif(
    not recorder.traces(), reason="strace is not installed (Debian: apt-get install strace)"
)
needs_offline = pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run([*OFFLINE, "true"], capture_output=True).returncode != 0,
    reason="the system does not permit a network namespace, and nothing must be sent to other machines",
)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    return Recorder(tmp_path_factory.mktemp("watched"), "red-square-0", "secret-name")


@pytest.fixture(scope="module")
def run(watched: Recorder) -> Path:
    """The run that most scenarios use. Its training, by two worker processes, is the first scenario."""
    write_pictures(watched.work / "shapes", each=6)
    (watched.work / "run.toml").write_text(small_config("shapes", rounds=2, local_epochs=4))
    changes = ("train.workers=2", "partition.kind=pseudo", "partition.clusters=4", "partition.beta=9.0")
    with watched.scenario("training"):
        settings = [word for change in changes for word in ("--set", change)]
        watched.silohash("train", "run.toml", "--out", "run", "--tensorboard", *settings)
    return watched.work / "run"


@pytest.fixture
def fresh(tmp_path: Path) -> Recorder:
    """A recorder of which nothing else knows."""
    return Recorder(tmp_path / "fresh")


def test_the_cache_holds_names_in_private_files(watched: Recorder, run: Path) -> None:
    tables = list(watched.home.glob(".cache/silohash/pictures/*.json"))
    assert tables
    assert all(b"red-square-0.png" in table.read_bytes() for table in tables)
    assert {path.stat().st_mode & 0o777 for path in tables} == {0o600}
    assert {path.parent.stat().st_mode & 0o777 for path in tables} == {0o700}


def test_searches_by_words_and_by_a_picture(watched: Recorder, run: Path) -> None:
    with watched.scenario("searches"):
        for words in (("red square",), ("--image", "shapes/red-square-0.png"), ("red square", "--engine", "faiss")):
            assert "red" in watched.commands(("search", run, *words))
        table = f"import silohash; print(silohash.open({str(run)!r}).search('red square').to_pandas())"
        assert "red" in watched.run("-c", table).stdout
    assert "torch" not in watched.imported()


def test_search_by_a_heic_picture(watched: Recorder, run: Path) -> None:
    package = pytest.importorskip("pillow_heif", reason="pillow-heif is not installed, whose wheel is under GPLv2")
    package.from_pillow(drawn("red", "square")).save(watched.work / "square.heic")
    with watched.scenario("heic"):
        assert "square" in watched.silohash("search", run, "--image", "square.heic")


BUILDS = """
from pathlib import Path
from silohash.data.build.icons import concepts
from silohash.data.build.icons.builder import build_icons
concepts.LEAST_ITEMS = 9
build_icons(Path("icons"), source=Path("packages"), registry="", cap=0, said=print, tables=Path("tables"))
"""
"""Builds the icons from small packages, of which too few items have each label."""


def test_build_of_the_icons(watched: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path))
    monkeypatch.setattr("silohash.data.build.icons.concepts.LEAST_ITEMS", 9)
    write_packages(watched.work / "packages", watched.work / "tables")
    store_split(watched.work / "packages", watched.work / "tables")
    with watched.scenario("build"):
        done = watched.run("-c", BUILDS)
    assert done.returncode == 0, done.stderr
    assert (watched.work / "icons" / "metadata.csv").is_file()


BUILDS_MUSEUMS = """
from pathlib import Path
from silohash.data.build.fetching import Polite
from silohash.data.build.museums import builder
builder.LEAST_ITEMS = 6
polite = Polite(lambda: 0.0, lambda seconds: None)
source, tables = Path("museums/files"), Path("museums/tables")
builder.build_museums(Path("built"), source=source, registry="", cap=3, said=print, tables=tables, polite=polite)
"""
"""Builds the museums from small files, with pictures from a server on this machine."""


def test_build_of_the_museums_asks_only_the_hosts_of_its_table(watched: Recorder) -> None:
    with museum_files.serving() as server, watched.scenario("museums"):
        museum_files.write_museums(watched.work / "museums", server.address)
        done = watched.run("-c", BUILDS_MUSEUMS)
    assert done.returncode == 0, done.stderr
    assert (watched.work / "built" / "metadata.csv").is_file()
    assert len(server.asked) >= 15
    assert list(watched.home.glob(".cache/silohash/museums/*/*.jpg"))


Commands = list[tuple[int, tuple[object, ...]]]
"""Exit codes and commands."""


def of_a_finished_run(watched: Recorder, run: Path) -> Commands:
    (watched.work / "table").mkdir()
    write_table(Table.from_pylist([{"id": "a", "text": "red"}]), watched.work / "table" / "metadata.parquet")
    commands: list[tuple[object, ...]] = [
        ("export", run, "--onnx"),
        ("encode", run, "shapes", "--modality", "image", "--out", "codes.npz"),
        ("evaluate", run),
        ("report", run),
        ("data", "list"),
        ("data", "check", "shapes"),
        ("data", "check", "table"),
        ("doctor",),
    ]
    return [(0, words) for words in commands]


def of_published_networks(watched: Recorder) -> Commands:
    model = backbones.clip(watched.work / "clip")
    write_pictures(watched.work / "few", each=2)
    features = {modality: {"kind": "huggingface", "model": str(model)} for modality in ("image", "text")}
    write_config(
        watched.work / "clip.toml", watched.work / "few", features=features,
        partition={"silos": 2}, federated={"rounds": 1, "local_epochs": 1}, evaluate={"validation": 0.0},
    )  # fmt: skip
    return [
        (2, ("train", "clip.toml", "--out", "refused", "--set", "features.text.model=nobody/clip")),
        (0, ("train", "clip.toml", "--out", "published")),
        (0, ("search", "published", "two parrots")),
        (0, ("export", "published", "--onnx")),
    ]


def of_encrypted_and_private_training(watched: Recorder) -> Commands:
    archive = write_archive(watched.work / "vectors-to-hide", count=36)
    settings: dict[str, object] = {"encryption": "ckks", "privacy": {"unit": "silo", "repeatable": True}}
    for name, value in settings.items():
        write_config(
            watched.work / f"{name}.toml", archive, exchange={name: value}, local={"name": "csq"},
            federated={"rounds": 1, "local_epochs": 1}, evaluate={"validation": 0.0},
            features={m: {"standardize": False, "equal_lengths": True} for m in ("image", "text")},
        )  # fmt: skip
    return [(0, ("train", f"{name}.toml", "--out", name)) for name in settings]


def test_the_demo_and_commands_that_compute(watched: Recorder, run: Path) -> None:
    """One process runs them all, because it takes seconds to import what they need."""
    for package in ("transformers", "tenseal", "dp_accounting"):
        pytest.importorskip(package)
    commands = [
        (0, ("demo", "--out", "demo", *SMALL)),
        *of_a_finished_run(watched, run),
        *of_published_networks(watched),
        *of_encrypted_and_private_training(watched),
    ]
    with watched.scenario("commands", "networks", "exchange"):
        watched.commands(*(words for _, words in commands), codes=[code for code, _ in commands])
    assert (watched.work / "demo" / "report.html").is_file()
    assert {path.name for path in watched.home.glob(".cache/silohash/*")} > {"vectors", "onnx", "files"}
    assert [len(Run.open(watched.work / name).rounds()) for name in ("encryption", "privacy")] == [1, 1]


def test_search_page(watched: Recorder, run: Path) -> None:
    with watched.scenario("page"):
        command = [watched.python, "-m", "silohash", "serve", str(run), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                client = Client(process.stdout.readline().split()[-1])
                assert client.search("red square").answered
                assert client.search(image=png(drawn("red", "square"))).answered
            finally:
                process.send_signal(signal.SIGINT)


@nats.needs_nats
def test_silo_with_an_items_folder_and_hub(watched: Recorder, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", watched.python)
    monkeypatch.setattr(nats, "SERVER", watched.program("nats-server", nats.SERVER))
    folder, port = watched.work / "federation", free_port()
    copy = shutil.copytree(run, watched.work / "served")
    with (
        watched.scenario("federation"),
        nats.Federation(folder, "silo-1", run=copy) as federation,
    ):
        silo, hub = Silo(federation.folder, "silo-1"), Member(federation.folder, "hub", "--port", str(port))
        client = Client(f"http://127.0.0.1:{port}")
        try:
            silo.start()
            hub.start()
            hub.until(lambda: not client.search("red square").missing_silos)
            assert client.search(image=png(drawn("red", "square"))).answered
            assert silo.stop(signal.SIGTERM) == hub.stop(signal.SIGTERM) == 0
        finally:
            silo.kill()
            hub.kill()
        watched.silohash("account", "add", folder / "hub.toml", "ada", "--password-stdin", given="correct horse")


def test_study_with_workers_and_tuning(watched: Recorder) -> None:
    pytest.importorskip("optuna")
    tune = {"trials": 1, "of": ["method"], "parameters": {"train.learning_rate": {"low": 1e-3, "high": 1e-1}}}
    archive = write_archive(watched.work / "vectors", count=60)
    value = tiny_study(archive, tune=tune, seeds=[0])
    text = "".join(f"{name} = {toml_value(item)}\n" for name, item in value.items())
    (watched.work / "study.toml").write_text(text)
    chosen = ("--only", "method=FedAvg", "--only", "bits=16")
    with watched.scenario("study"):
        watched.silohash("study", "study.toml", "--out", "study", "--processes", "2", *chosen)
    assert list((watched.work / "study" / "tables").iterdir())


def test_flare(watched: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nvflare")
    from tests.federation import Federation

    monkeypatch.setattr(sys, "executable", watched.python)
    root = watched.work / "flare"
    pooled = write_archive(root / "pooled", count=36, places=1)
    sections: dict[str, dict[str, object]] = {
        "partition": {"kind": "column", "column": "place", "silos": 1},
        "federated": {"name": "fedavg", "rounds": 1, "local_epochs": 1},
    }
    config = write_config(root / "run.toml", pooled, **sections)
    with watched.scenario("flare"), Federation.running(root, {"place-0": pooled}) as federation:
        watched.silohash("train", config, "--on", federation.leader, "--out", root / "out", "--quorum", "1")
    alone, rounds = train(pooled, root / "one", **sections).rounds(), Run.open(root / "out").rounds()
    assert [(record.loss, record.validation) for record in rounds] == [
        (record.loss, record.validation) for record in alone
    ]


@pytest.mark.parametrize("backend", SERVERS.table)
def test_index_servers(watched: Recorder, run: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    copy = shutil.copytree(run, watched.work / backend)
    with servers.started(backend) as url, watched.scenario(backend):
        monkeypatch.setenv(f"SILOHASH_{backend.upper()}_URL", url)
        assert "red" in watched.commands(("index", "move", copy, "--to", backend), ("search", copy, "red square"))


@pytest.mark.parametrize(("name", "module", "program"), [("matlab", "h5py", MATLAB), ("export", "onnxscript", EXPORTS)])
def test_matlab_files_and_networks_that_the_older_exporter_does_not_know(
    watched: Recorder, name: str, module: str, program: str
) -> None:
    pytest.importorskip(module)
    with watched.scenario(name):
        done = watched.run("-c", program)
        assert done.returncode == 0, done.stderr
    assert name != "matlab" or list(watched.home.glob(".cache/silohash/matfiles/*.json"))


@needs_offline
@pytest.mark.parametrize("child", [False, True])
@pytest.mark.parametrize(
    ("program", "objection"),
    [
        ("import socket; socket.getaddrinfo('example.invalid', 443)", "look-up: example.invalid"),
        ("import socket; socket.gethostbyname('example.invalid')", "look-up: example.invalid"),
        ("import socket; socket.create_connection(('192.0.2.1', 9))", "look-up: 192.0.2.1"),
        ("import socket; socket.socket().connect(('192.0.2.1', 9))", "connection: 192.0.2.1:9"),
        (
            "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ('192.0.2.1', 9))",
            "connection: 192.0.2.1:9",
        ),
        pytest.param(CONNECTS, "connection: 192.0.2.1:9", marks=needs_strace),
        pytest.param(LOOKS_UP, "look-up: at ", marks=needs_strace),
    ],
)
def test_the_recorder_notices_a_socket_outward(fresh: Recorder, child: bool, program: str, objection: str) -> None:
    fresh.python = fresh.program("offline", *OFFLINE, sys.executable)
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}])"
    fresh.run("-c", parent if child else program)
    assert any(said.startswith(objection) for said in fresh.objections())


@pytest.mark.parametrize(
    ("program", "objections"),
    [
        ("import pathlib; pathlib.Path.home().joinpath('file').touch()", ["file: ~/file"]),
        ("import pathlib; pathlib.Path('file').touch()", []),
        ("import sqlite3; sqlite3.connect('../home/file').execute('create table t (x)')", ["file: ~/file"]),
        pytest.param(WRITES, ["file: ~/.other", "file: ~/.other/file"], marks=needs_strace),
    ],
)
def test_the_recorder_notices_a_file(fresh: Recorder, program: str, objections: list[str]) -> None:
    fresh.run("-c", program)
    assert [said for said in fresh.objections() if "journal" not in said] == objections


@needs_offline
def test_without_strace_python_and_the_home_folder_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "traces", lambda: False)
    found = Recorder(tmp_path / "untraced")
    found.python = found.program("offline", *OFFLINE, sys.executable)
    outside = tmp_path / "outside"
    found.run("-c", f"import pathlib; pathlib.Path({str(outside)!r}).mkdir()")
    found.run("-c", "import socket; socket.socket().connect(('192.0.2.1', 9))")
    found.run("-c", WRITES.replace("os.unlink(name)", ""))
    said = ["connection: 192.0.2.1:9", f"file: {outside}", "file: ~/.other", "file: ~/.other/file"]
    assert sorted(found.objections()) == sorted(said)


def test_the_recorder_notices_modes_and_names(fresh: Recorder) -> None:
    fresh.names = ("portrait.jpg",)
    for kind, mode in (("pictures", 0o644), ("pictures", 0o600), ("onnx", 0o644)):
        file = fresh.home / ".cache" / "silohash" / kind / f"{mode:o}.json"
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text("portrait.jpg")
        file.chmod(mode)
    there = "~/.cache/silohash"
    assert fresh.objections() == [f"name of a user's file: {there}/onnx/644.json", f"mode: {there}/pictures/644.json"]


@needs_offline
@pytest.mark.parametrize(("settings", "silent"), [({}, True), ({"ORT_DISABLE_TELEMETRY": "0"}, False)])
def test_onnxruntime_reports_only_if_the_user_asks_for_it(
    fresh: Recorder, run: Path, settings: dict[str, str], silent: bool
) -> None:
    fresh.python = fresh.program("offline", *OFFLINE, sys.executable, **settings)
    fresh.silohash("search", shutil.copytree(run, fresh.work / "run"), "red square")
    said = fresh.objections()
    assert any("deviceid" in line for line in said) is not silent
    assert not silent or said == []
