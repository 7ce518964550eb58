"""Training with silos that hold their own data equals training with all data on one machine, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silohash.base.errors import CannotEncode, RunChanged, TooFewSilos, UserError
from silohash.base.files import read_arrays
from silohash.base.types import Arrays
from silohash.models import cnnf
from silohash.models.nodes import word_tables
from silohash.run.config.load import load_resolved
from silohash.run.folder import Run
from silohash.training import experiment
from silohash.training.checkpoint import load_checkpoint
from silohash.training.engines.port import WAIT_FOR_ALL, Absence, InProcess, Limits
from silohash.training.sites.training import agree, copy_run, train_at_sites
from silohash.training.updates.encryption import KEY, SiloKey
from tests.runs import Records, same_arrays, tiny, write_archive
from tests.sites import NAMES, Sites, archives_with_pictures, site_archives
from tests.unit.models.test_cnnf import narrow_cnnf, small

FEDERATED: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedcafe": {"memory": "class_mean", "min_count": 1},
    "fedhap": {"min_count": 1},
    "feduch": {},
    "moon": {"fraction": 0.67},
    "fednova": {},
    "fedridge": {"reveal_items": True},
    "fedala": {"layers": 2},
    "fedproto": {"min_count": 1},
    "plfedcmh": {"min_count": 1},
    "fedcmr": {},
    "personal": {"private": "hash"},
    "local": {},
}
LOCAL = {"fedridge": {"name": "centerap"}}
EXCHANGE = {"feduch": {"compression": {"kind": "top_k", "share": 0.05}}}
TRAIN = {"fedhap": {"optimizer_state": "keep"}}
PERSONAL = ("fedala", "fedproto", "plfedcmh", "fedcmr", "personal", "local")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("data") / "pooled", count=90, text="words")


def tables(archive: Path, method: str) -> dict[str, Any]:
    return tiny(
        archive, partition={"kind": "column", "column": "place"}, local=LOCAL.get(method, {}),
        federated={"name": method, "rounds": 7, "local_epochs": 1, **FEDERATED[method]},
        exchange=EXCHANGE.get(method, {}), train=TRAIN.get(method, {}),
    )  # fmt: skip


@pytest.mark.whole_run
@pytest.mark.parametrize("method", FEDERATED)
def test_result_equals_that_of_one_machine(archive: Path, tmp_path: Path, method: str) -> None:
    resolved = load_resolved(tables(archive, method))
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
        assert (mine.uplink_bytes, mine.downlink_bytes) == (other.uplink_bytes, other.downlink_bytes)
        assert [(silo.silo, silo.items, silo.loss) for silo in mine.silos] == [
            (silo.silo, silo.items, silo.loss) for silo in other.silos
        ]
    assert resolved.federated.traits.personalized == (method in PERSONAL)
    own = [Run.open(tmp_path / "state" / name / "first") for name in NAMES]
    if method in PERSONAL:
        assert [run.model.digest(name) for run, name in zip(own, NAMES, strict=True)] == [
            one.model.digest(name) for name in NAMES
        ]
        assert apart.model.names == ("global",)
    else:
        assert {run.model.digest("global") for run in (*own, apart)} == {one.model.digest("global")}
    learned = one.model.record.calibration
    assert bool(learned) == bool(resolved.config.evaluate.validation)
    assert all(run.model.record.calibration == learned for run in (*own, apart))


@pytest.mark.slow
@pytest.mark.whole_run
@pytest.mark.parametrize("freeze", [False, True])
def test_published_networks_are_read_by_the_server_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, freeze: bool
) -> None:
    pooled, apart = archives_with_pictures(tmp_path, 24)
    weights, reads, read = narrow_cnnf(tmp_path, monkeypatch), [], cnnf.read_weights
    monkeypatch.setattr(cnnf, "read_weights", lambda *given: reads.append(given) or read(*given))
    image = {"backbone": "cnnf", "weights": str(weights), "freeze": freeze}
    resolved = load_resolved(tiny(
        pooled, partition={"kind": "column", "column": "place"}, federated={"rounds": 1, "local_epochs": 1},
        features={"image": {"kind": "pixels", "channels": 3, "size": 224}}, model={"image": image},
        train={"learning_rate": 1e-4},
    ))  # fmt: skip
    one = experiment.train(resolved, tmp_path / "one")
    assert len(reads) == 1
    trained = train_at_sites(resolved, tmp_path / "apart", InProcess(Sites(apart, tmp_path / "state")), NAMES)
    assert len(reads) == 2
    own = [Run.open(tmp_path / "state" / name / "first") for name in NAMES]
    assert {run.model.digest("global") for run in (*own, trained)} == {one.model.digest("global")}
    params = trained.model.trained.weights["global"].params
    start, published = "image.backbone.network.", small().state_dict()
    same = [np.array_equal(params[f"{start}{name}"], array.numpy()) for name, array in published.items()]
    assert all(same) if freeze else sum(same) < len(same) / 2


@pytest.mark.whole_run
def test_a_server_without_the_key_trains_a_model_that_only_silos_have(archive: Path, tmp_path: Path) -> None:
    pytest.importorskip("tenseal")
    plain = load_resolved(tables(archive, "fedhap"))
    one = experiment.train(plain, tmp_path / "one")
    resolved = load_resolved({**tables(archive, "fedhap"), "exchange": {"encryption": "ckks"}})
    sites = Sites(site_archives(archive, tmp_path / "sites"), tmp_path / "state")
    SiloKey.of_run(tmp_path)
    for site in sites.sites:
        site.settings = site.settings.model_copy(update={"key": tmp_path / KEY})
    apart = train_at_sites(resolved, tmp_path / "apart", InProcess(sites), NAMES)
    checkpoint = load_checkpoint(apart.checkpoint, resolved.config.digest())
    assert not checkpoint.server.params
    assert checkpoint.server.private.keys() == {"state", "final"}
    with pytest.raises(CannotEncode):
        apart.model.encoder()
    own = [Run.open(tmp_path / "state" / name / "first") for name in NAMES]
    assert len({run.model.digest("global") for run in own}) == 1
    found, expected = (read_arrays(run.model_folder / "weights-000.safetensors")[0] for run in (own[0], one))
    assert found.keys() == expected.keys()
    assert max(float(np.abs(found[name] - expected[name]).max()) for name in found) < 1e-3


@pytest.mark.whole_run
def test_parameters_of_the_beginning_are_not_the_model_of_a_run_without_a_common_one(
    archive: Path, tmp_path: Path
) -> None:
    resolved = load_resolved({**tables(archive, "local"), "federated": {"name": "local", "rounds": 1}})
    sites = Sites(site_archives(archive, tmp_path / "sites"), tmp_path / "state")
    apart = train_at_sites(resolved, tmp_path / "apart", InProcess(sites), NAMES)
    with pytest.raises(CannotEncode):
        apart.model.encoder()


class Lost(InProcess):
    """An engine that loses one silo before the models are stored."""

    def send(self, tasks, limits=WAIT_FOR_ALL):
        for task in tasks:
            lost = task.kind == "deploy" and task.silo == 1
            yield Absence(1, "did not answer within 5 seconds") if lost else self.worker.do(task)


@pytest.mark.whole_run
def test_silo_that_did_not_store_its_model_is_named_and_stores_it_when_the_run_is_started_again(
    archive: Path, tmp_path: Path
) -> None:
    resolved = load_resolved(tables(archive, "fedala"))
    sites, said = Sites(site_archives(archive, tmp_path / "sites"), tmp_path / "state"), []
    train_at_sites(resolved, tmp_path / "apart", Lost(sites), NAMES, notify=said.append)
    assert len(said) == 1
    assert said[0].startswith(
        "place-1 has not stored its model: it did not answer within 5 seconds. Start the run again"
    )
    stored = [Run(tmp_path / "state" / name / "first").model_folder.exists() for name in NAMES]
    assert stored == [True, False, True]
    rounds = (tmp_path / "apart" / "rounds.jsonl").read_text()
    train_at_sites(resolved, tmp_path / "apart", InProcess(sites), NAMES)
    assert (tmp_path / "apart" / "rounds.jsonl").read_text() == rounds
    one = experiment.train(resolved, tmp_path / "one")
    assert Run.open(tmp_path / "state" / "place-1" / "first").model.digest("place-1") == one.model.digest("place-1")


class Away(InProcess):
    """An engine to which some silos are not connected."""

    def __init__(self, sites: Sites, *away: int) -> None:
        super().__init__(sites)
        self.away = away

    def live(self, silos):
        return [silo for silo in silos if silo not in self.away]

    def status(self):
        return dict.fromkeys(self.away, "does not take part in the job")


class Nameless(Sites):
    """Sites of which the second one does not list its labels."""

    def do(self, task):
        result = super().do(task)
        return replace(result, update=replace(result.update, notes={})) if task.silo == 1 else result


@pytest.mark.whole_run
def test_silo_whose_description_cannot_be_used_is_left_out(archive: Path, tmp_path: Path) -> None:
    run, said = Run(tmp_path / "apart", load_resolved(tables(archive, "fedavg"))), []
    run.folder.mkdir()
    engine = InProcess(Nameless(site_archives(archive, tmp_path / "sites"), tmp_path / "state"))
    with pytest.raises(TooFewSilos, match="place-1"):
        agree(run, engine, NAMES, Limits(), said.append)
    plan = agree(run, engine, NAMES, Limits(quorum=2, start=2), said.append)
    reason = "it sent a description that cannot be used (it does not list the names of its labels)"
    assert said == [f"place-1 does not take part yet: {reason}."]
    assert [(name, items > 0) for name, items, _ in plan.sizes] == [
        ("place-0", True), ("place-1", False), ("place-2", True),
    ]  # fmt: skip


class Shouting(Sites):
    """Sites of which the second one writes its labels in uppercase."""

    def do(self, task):
        result = super().do(task)
        notes = result.update.notes
        if task.silo != 1 or task.kind != "describe":
            return result
        return replace(result, update=replace(result.update, notes={**notes, "labels": notes["labels"].upper()}))


@pytest.mark.whole_run
def test_labels_of_silos_that_look_similar_are_named_before_training(archive: Path, tmp_path: Path) -> None:
    run, said = Run(tmp_path / "apart", load_resolved(tables(archive, "fedavg"))), []
    run.folder.mkdir()
    engine = InProcess(Shouting(site_archives(archive, tmp_path / "sites"), tmp_path / "state"))
    plan = agree(run, engine, NAMES, Limits(), said.append)
    assert len(said) == 1
    assert said[0].startswith("These labels of the silos look similar but are different: ")
    assert {name.casefold() for name in plan.labels} < {*plan.labels}


class Interrupted(Records):
    """An observer that interrupts a run after its third round."""

    def round(self, record):
        if record.round == 3:
            raise KeyboardInterrupt
        super().round(record)


@pytest.mark.whole_run
def test_silo_that_was_away_joins_when_the_run_continues(archive: Path, tmp_path: Path) -> None:
    resolved, folder = load_resolved(tables(archive, "fedcafe")), tmp_path / "apart"
    sites, said = Sites(site_archives(archive, tmp_path / "sites"), tmp_path / "state"), []
    limits = Limits(quorum=2, start=2)
    with pytest.raises(TooFewSilos, match=r"2.*3.*3"):
        train_at_sites(resolved, folder, Away(sites, 2), NAMES)
    with pytest.raises(KeyboardInterrupt):
        train_at_sites(
            resolved, folder, Away(sites, 2), NAMES, limits=limits, observers=[Interrupted()], notify=said.append
        )
    assert said == ["place-2 does not take part yet: it does not take part in the job."]
    plan = (folder / "plan.safetensors").read_bytes()
    sites.restart()
    run = train_at_sites(resolved, folder, InProcess(sites), NAMES, limits=limits)
    assert (folder / "plan.safetensors").read_bytes() == plan
    assert [record.round for record in run.rounds()] == list(range(7))
    taken = [[silo.rejected is None for silo in record.silos] for record in run.rounds()]
    assert taken == [[True, True, False]] * 3 + [[True, True, True]] * 4
    stored = Run.open(tmp_path / "state" / "place-2" / "first")
    assert stored.model.digest("global") == run.model.digest("global")


def test_copy_of_a_run_has_the_model_and_the_records_and_replaces_an_earlier_one(tmp_path: Path) -> None:
    run, copy = tmp_path / "run", tmp_path / "copies" / "first"
    (run / "model").mkdir(parents=True)
    (run / "checkpoint").mkdir()
    for name in ("config.toml", "plan.safetensors", "model/weights", "checkpoint/state"):
        (run / name).write_text(name)
    for text in ("one", "two"):
        (run / "rounds.jsonl").write_text(text)
        copy_run(run, copy)
    found = {path.relative_to(copy).as_posix(): path.read_text() for path in copy.rglob("*") if path.is_file()}
    assert found == {"config.toml": "config.toml", "rounds.jsonl": "two", "model/weights": "model/weights"}


class Dying(InProcess):
    """An engine whose server dies when it has received the updates of a round."""

    def __init__(self, sites: Sites) -> None:
        super().__init__(sites)
        self.received: list[Arrays] = []

    def send(self, tasks, limits=WAIT_FOR_ALL):
        for task in tasks:
            result = self.worker.do(task)
            if task.kind == "train":
                self.received.append(dict(result.update.params))
            yield result
        if self.received:
            raise UserError("The server has died.")


@pytest.mark.whole_run
def test_noise_of_a_first_round_that_is_trained_again_is_the_same_for_the_same_items(
    archive: Path, tmp_path: Path
) -> None:
    pytest.importorskip("dp_accounting")
    resolved = load_resolved(
        tiny(
            archive, partition={"kind": "column", "column": "place"}, local={"name": "csq"},
            federated={"name": "fedavg", "rounds": 2, "local_epochs": 1}, evaluate={"validation": 0.0},
            features={"image": {"standardize": False, "equal_lengths": True}}, exchange={"privacy": {"unit": "record"}},
        )
    )  # fmt: skip
    archives = site_archives(archive, tmp_path / "sites")
    sites = Sites(archives, tmp_path / "state")
    received = []
    for attempt in range(3):
        if attempt == 2:
            images = np.load(archives[0] / "image.npy")
            np.save(archives[0] / "image.npy", images[::-1])
        engine = Dying(sites)
        with pytest.raises(UserError):
            train_at_sites(resolved, tmp_path / "apart", engine, NAMES)
        received.append(engine.received)
        sites.restart()
    first, again, changed = received
    assert len(first) == 3
    assert all(same_arrays(one, other) for one, other in zip(first, again, strict=True))
    assert [same_arrays(one, other) for one, other in zip(first, changed, strict=True)] == [False, True, True]
    modes = [path.stat().st_mode & 0o077 for path in (tmp_path / "state").rglob("noise.safetensors")]
    assert modes == [0, 0, 0]


@pytest.mark.whole_run
def test_run_of_the_same_name_with_another_config_leaves_the_earlier_one_as_it_is(
    archive: Path, tmp_path: Path
) -> None:
    sites, folder = Sites(site_archives(archive, tmp_path / "sites"), tmp_path / "state"), tmp_path / "apart"
    train_at_sites(load_resolved({**tables(archive, "fedavg"), "seed": 1}), folder, InProcess(sites), NAMES)
    stored = [path for root in (folder, tmp_path / "state") for path in root.rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in stored}
    with pytest.raises(RunChanged):
        train_at_sites(load_resolved({**tables(archive, "fedavg"), "seed": 2}), folder, InProcess(sites), NAMES)
    assert {path: path.read_bytes() for path in stored} == before


@pytest.mark.whole_run
def test_fixed_word_vectors_are_read_by_the_server_only(tmp_path: Path) -> None:
    pooled = write_archive(tmp_path / "pooled", count=24, text="words")
    np.save(pooled / "image.npy", np.random.default_rng(0).normal(size=(24, 3, 5)).astype(np.float32))
    sites = Sites(site_archives(pooled, tmp_path / "sites"), tmp_path / "state")
    (tmp_path / "glove.txt").write_text("parrot 1 1 1 1\nviolin 2 2 2 2\n")
    text = {"kind": "words", "vectors": str(tmp_path / "glove.txt"), "vectors_as": "beside"}
    config = tiny(pooled, partition={"kind": "column", "column": "place"}, features={"text": text})
    config |= {"local": {"name": "scan", "word_width": 4}, "federated": {"name": "fedavg", "rounds": 2}}
    config["evaluate"] = {"validation": 0.0, "measures": ["R@1[by=pairs]"]}
    resolved = load_resolved(config)
    one = experiment.train(resolved, tmp_path / "one")
    for site in sites.sites:
        site.settings = site.settings.model_copy(update={"files": True})
    apart = train_at_sites(resolved, tmp_path / "apart", InProcess(sites), NAMES)
    [table] = word_tables(apart.model.trained.network())
    assert int(table.given.sum()) == 12
    assert apart.model.digest("global") == one.model.digest("global")
    assert {Run.open(tmp_path / "state" / name / "first").model.digest("global") for name in NAMES} == {
        one.model.digest("global")
    }
