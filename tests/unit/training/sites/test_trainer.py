"""The process of a silo: what it refuses, and that it continues after it was killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import tomllib
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from silohash import __version__
from silohash.base.errors import (
    CannotEncode,
    DataChanged,
    Diverged,
    InvalidName,
    MissingFile,
    NotPermitted,
    NotSupported,
    OtherVersion,
    SilosDiffer,
    UserError,
)
from silohash.index.store import Store
from silohash.methods.message import Message
from silohash.models.parameters import params_of
from silohash.run.config.load import load_resolved
from silohash.run.config.toml import to_toml
from silohash.run.folder import Run, archive_of
from silohash.run.indexing import index_run
from silohash.training.engines.port import SiloTask
from silohash.training.engines.processes import ProcessEndedError, ProcessPool
from silohash.training.engines.wire import encode_task
from silohash.training.experiment import prepare_run
from silohash.training.sites.plan import rows_of_site
from silohash.training.sites.settings import read_site_settings
from silohash.training.sites.trainer import Announced, KeptArrays, Site, store_own_run
from silohash.training.worker import Worker
from tests.runs import same_arrays, tiny, write_archive
from tests.sites import NAMES, site_archives


@pytest.fixture
def file(tmp_path: Path) -> Path:
    archive = site_archives(write_archive(tmp_path / "pooled", count=90, text="words"), tmp_path / "sites")[0]
    path = tmp_path / "site.toml"
    path.write_text(f'silo = "place-0"\ndevice = "cpu"\nthreads = 1\n[data]\npath = "{archive}"\n')
    return path


def describe(config: dict[str, object], silo: int = 0) -> SiloTask:
    read = load_resolved(config).config
    notes = {"config": read.to_toml(), "silos": json.dumps(NAMES), "run": "first"}
    notes |= {"version": __version__, "digest": read.shared_digest()}
    return SiloTask("describe", silo, Message("broadcast", "server", 0, notes=notes))


def config(**sections: object) -> dict[str, object]:
    return {**tiny(Path("elsewhere")), "data": {"name": "glyphs"}, **sections}


def test_own_data_and_machine_replace_those_of_the_server(file: Path) -> None:
    settings = read_site_settings(file)
    found = Announced.of(describe(config()), settings)
    assert found.silos == list(NAMES)
    assert found.resolved.config.data.path == settings.data.path
    assert (found.resolved.config.train.device, found.resolved.config.train.threads) == ("cpu", 1)
    assert found.resolved.config.federated.name == "fedavg"


@pytest.mark.parametrize(("note", "kind"), [("version", OtherVersion), ("digest", SilosDiffer)])
@pytest.mark.parametrize("value", ["0.0.1", None])
def test_a_run_of_another_version_or_digest_is_refused(
    file: Path, note: str, kind: type[UserError], value: str | None
) -> None:
    asked = describe(config())
    notes = {name: text for name, text in asked.broadcast.notes.items() if name != note}
    asked = replace(asked, broadcast=replace(asked.broadcast, notes=notes | ({note: value} if value else {})))
    with pytest.raises(kind, match=value or "none"):
        Announced.of(asked, read_site_settings(file))


def test_downloads_need_the_permission_of_the_silo(file: Path) -> None:
    asked = config(features={"image": {"kind": "huggingface", "model": "a/b", "download": True}})
    with pytest.raises(NotPermitted, match=r"features\.image\.download"):
        Announced.of(describe(asked), read_site_settings(file))
    permitted = read_site_settings(file).model_copy(update={"downloads": True})
    assert Announced.of(describe(asked), permitted).silos == list(NAMES)


@pytest.mark.parametrize("option", ["vocabulary", "vectors", "parses", "weights", "model"])
def test_files_of_the_machine_need_the_permission_of_the_silo(file: Path, option: str) -> None:
    secret = file.parent / "secrets.txt"
    secret.write_text("names\nof\npatients\n")
    asked = describe(config())
    tables = tomllib.loads(asked.broadcast.notes["config"])
    tables["features"] = {"text": {"kind": "tfidf", option: str(secret)}}
    digest = load_resolved(tables).config.shared_digest()
    notes = {**asked.broadcast.notes, "config": to_toml(tables), "digest": digest}
    asked = replace(asked, broadcast=replace(asked.broadcast, notes=notes))
    settings = read_site_settings(file)
    with pytest.raises(NotPermitted, match=rf"features\.text\.{option}"):
        Site(settings).do("first", asked)
    if option == "vocabulary":
        described = Site(settings.model_copy(update={"files": True})).do("first", asked)
        assert "patients" in described.update.notes["features/text"]


def test_words_and_names_of_networks_in_a_config_are_not_files(file: Path) -> None:
    for text in ({"kind": "tfidf", "vocabulary": ["red"]}, {"kind": "huggingface", "model": "a/b"}):
        assert Announced.of(describe(config(features={"text": text})), read_site_settings(file)).silos == list(NAMES)


def test_task_of_another_silo_is_refused(file: Path) -> None:
    with pytest.raises(SilosDiffer, match=r"place-0.*2"):
        Announced.of(describe(config(), silo=1), read_site_settings(file))


def test_run_cannot_leave_the_folder_of_the_state(file: Path) -> None:
    site = Site(read_site_settings(file))
    with pytest.raises(InvalidName):
        site.do("../first", describe(config()))
    with pytest.raises(MissingFile):
        site.do("second", SiloTask("train", 0, Message("broadcast", "server", 0)))


@pytest.mark.whole_run
def test_process_answers_again_after_it_was_killed(file: Path) -> None:
    pool = ProcessPool([sys.executable, "-m", "silohash.training.sites.trainer", str(file)], 1, quiet=True)

    def ask(request: bytes) -> Future[Message]:
        return pool.submit(lambda exchange: Message.decode(exchange(request)))

    try:
        request = encode_task(describe(config()))
        first = ask(request).result(300)
        assert (first.kind, first.sender) == ("description", "place-0")
        os.kill(pool.children[0].process.pid, signal.SIGKILL)
        with pytest.raises(ProcessEndedError, match="-9"):
            ask(request).result(300)
        again = ask(request).result(300)
        assert {name: array.tobytes() for name, array in again.sums.items()} == {
            name: array.tobytes() for name, array in first.sums.items()
        }
        wrong = ask(encode_task(describe(config(), silo=2))).result(300)
        assert wrong.notes["failure"].startswith("The server takes this silo")
        assert ask(b"nothing").result(300).notes["failure"].startswith("A message of 7 bytes is truncated")
    finally:
        pool.close()


def stored(tmp_path: Path, method: str) -> tuple[Run, Path]:
    """Returns the run that the second of two silos stores, with initial parameters, and its archive."""
    data = write_archive(tmp_path / "data", count=40)
    resolved = load_resolved(tiny(data, federated={"name": method}))
    archive = archive_of(resolved.config.data)
    prepared, featurizers = prepare_run(archive, rows_of_site(archive, 1, ["north", "south"], 0), resolved)
    params = params_of(Worker(prepared, torch.device("cpu")).model)
    store_own_run(
        tmp_path / "first", prepared, featurizers, broadcast=Message("broadcast", "server", 4, params),
        model=Message("model", "south", 4, params), notify=lambda text: None,
    )  # fmt: skip
    return Run.open(tmp_path / "first"), data


@pytest.mark.parametrize("method", ["fedavg", "fedala"])
def test_index_is_built_with_the_model_that_the_silo_deploys(tmp_path: Path, method: str) -> None:
    run, _ = stored(tmp_path, method)
    assert run.model.record.round == 3
    assert index_run(run) == {"south": 33}
    name = "south" if method == "fedala" else "global"
    assert run.model.deployed_by("south") == name
    with Store(run.index_folder / "south" / "image.sqlite") as index:
        assert index.manifest.model_digest == run.model.digest(name)
    assert (run.model_folder / f"image-{run.model.names.index(name):03d}.onnx").exists()
    if method == "fedala":
        with pytest.raises(CannotEncode, match="south"):
            run.model.encoder("global", run_by="torch")


def test_items_that_have_changed_since_are_noticed(tmp_path: Path) -> None:
    run, data = stored(tmp_path, "fedavg")
    text = (data / "metadata.csv").read_text()
    (data / "metadata.csv").write_text(text.replace("number 3", "number three"))
    with pytest.raises(DataChanged):
        index_run(Run.open(run.folder))


def test_model_without_items_encodes_the_items_of_each_silo(tmp_path: Path) -> None:
    run, _ = stored(tmp_path, "fedavg")
    for name in ("partition.json", "archive.safetensors"):
        (run.folder / name).unlink()
    copied = Run.open(run.folder)
    assert copied.silo_names == ()
    with pytest.raises(NotSupported):
        index_run(copied)
    assert index_run(copied, archive_of(copied.config.data), name="north") == {"north": 33}


def test_a_reference_stands_for_the_arrays_of_its_round(tmp_path: Path) -> None:
    kept = KeptArrays(tmp_path / "kept")
    given = [{"own/w": np.full(3, number, np.float32), "n": np.array(number)} for number in range(3)]
    references = [kept.store(arrays, round=number, finishing=False) for number, arrays in enumerate(given)]
    later = kept.store({"own/w": np.zeros(2)}, round=1, finishing=True)
    for reference, arrays in zip(references, given, strict=True):
        assert same_arrays(kept.load(reference), arrays)
    assert same_arrays(kept.load(later), {"own/w": np.zeros(2)})
    assert sum(array.nbytes for array in references[2].values()) == 16


def test_nobody_else_reads_what_a_silo_keeps(tmp_path: Path) -> None:
    KeptArrays(tmp_path).store({"own/w": np.zeros(3, np.float32)}, round=0, finishing=False)
    assert [path.stat().st_mode & 0o077 for path in tmp_path.iterdir()] == [0]


def test_nothing_is_stored_for_no_arrays(tmp_path: Path) -> None:
    kept = KeptArrays(tmp_path / "kept")
    assert kept.store({}, round=4, finishing=False) == {}
    assert kept.load({}) == {}
    assert not (tmp_path / "kept").exists()


def test_arrays_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"stored.*own/w.*Lower.*train"):
        KeptArrays(tmp_path).store({"own/w": np.array([1.0, np.nan])}, round=0, finishing=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "reference",
    [
        {"stored": np.array([-1, 0])},
        {"stored": np.array([0, 1, 2])},
        {"stored": np.array([0.0, 1.0])},
        {"x": np.ones(2)},
    ],
)
def test_reference_of_a_server_cannot_name_another_file(tmp_path: Path, reference: dict[str, np.ndarray]) -> None:
    with pytest.raises(OtherVersion):
        KeptArrays(tmp_path).load(reference)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="00000003-0"):
        KeptArrays(tmp_path).load({"stored": np.array([3, 0])})


def test_only_the_files_of_references_remain(tmp_path: Path) -> None:
    kept = KeptArrays(tmp_path)
    given = {"own/w": np.ones(3, np.float32)}
    references = [kept.store(given, round=number, finishing=False) for number in range(5)]
    kept.remove_all_but(references[3], references[1])
    assert sorted(path.name[:10] for path in tmp_path.iterdir()) == ["00000001-0", "00000003-0"]
    kept.remove_all_but(references[3], {})
    assert sorted(path.name[:10] for path in tmp_path.iterdir()) == ["00000003-0"]
    assert same_arrays(kept.load(references[3]), given)
    kept.remove_all_but({}, {})
    assert list(tmp_path.iterdir()) == []
