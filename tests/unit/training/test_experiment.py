"""A run from config to model: its folder, what stops it, and what it leaves when it is stopped."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from silohash.base.errors import (
    AlreadyExists,
    DataChanged,
    DeviceUnavailable,
    ModalityNeeded,
    NotPermitted,
    TooFew,
    UnknownName,
    UnknownOption,
    UnsuitableFeatures,
    UserError,
    WrongValue,
)
from silohash.base.files import read_json
from silohash.measure.evaluation import evaluate_run
from silohash.methods.federated.base import SiloContext
from silohash.methods.federated.hashing.fedala import FedALA
from silohash.models.parameters import params_of
from silohash.run.config.load import load_config, resolve
from silohash.run.events import RoundProgress
from silohash.run.folder import Run
from silohash.run.indexing import index_run
from silohash.training import experiment
from tests.runs import Records, tiny_config, train, write_archive


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("data") / "archive", text="words")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> Run:
    return train(archive, tmp_path_factory.mktemp("runs") / "run")


@pytest.mark.parametrize(("local", "refused"), [("dcmh", True), ("mith", False)])
def test_tokens_need_a_local_method_that_takes_them(tmp_path: Path, local: str, refused: bool) -> None:
    resolved = resolve(tiny_config(tmp_path, local={"name": local}))
    vectors, tokens = SimpleNamespace(shape=(10,)), SimpleNamespace(shape=(4, 10))
    experiment.check_tokens({"image": vectors, "text": vectors}, resolved)
    if not refused:
        experiment.check_tokens({"image": vectors, "text": tokens}, resolved)
        return
    message = r'\[features\.text\] pooling = "tokens" gives .* the local method "dcmh" takes one per item'
    with pytest.raises(UnsuitableFeatures, match=message):
        experiment.check_tokens({"image": vectors, "text": tokens}, resolved)


@pytest.mark.whole_run
def test_folder_of_a_run(run: Run, archive: Path) -> None:
    names = {path.name for path in run.folder.iterdir()} - {".lock"}
    assert names == {
        "archive.safetensors",
        "config.toml",
        "environment.json",
        "partition.json",
        "rounds.jsonl",
        "checkpoint",
        "model",
    }
    config = load_config(run.config_path)
    assert config == tiny_config(archive)
    about = read_json(run.folder / "environment.json", dict[str, Any])
    assert about["config_digest"] == config.digest()
    assert about["packages"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert [record.round for record in run.rounds()] == [0, 1, 2]
    assert len(run.partition.silos) == 3
    best = [record.round for record in run.rounds() if record.best][-1]
    assert run.model.record.round == best
    assert run.name == "run"


@pytest.mark.whole_run
def test_silos_deploy_the_models_that_validation_chose(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FedALA mixes a silo's model from what it is sent with draws of its own: the same draws when it is deployed."""
    made: list[tuple[int, bytes]] = []
    personalize = FedALA.personalize

    def noted(self: FedALA, context: SiloContext) -> None:
        personalize(self, context)
        made.append((context.silo, params_of(context.model)["image.hash.weight"].tobytes()))

    monkeypatch.setattr(FedALA, "personalize", noted)
    federated = {"name": "fedala", "rounds": 2, "mixing_rate": 100.0, "layers": 1}
    config = tiny_config(archive, federated=federated, train={"learning_rate": 0.05})
    deployed = experiment.train(resolve(config), tmp_path / "run").partition.silos
    validated, at_the_end = made[: -len(deployed)], made[-len(deployed) :]
    assert [silo for silo, _ in at_the_end] == list(range(len(deployed)))
    assert set(at_the_end) <= set(validated)
    assert len({weights for _, weights in at_the_end}) == len(deployed)


class Follower(Records):
    """Also keeps the progress within the rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.shares: list[tuple[int, float]] = []

    def within_round(self, progress: RoundProgress) -> None:
        self.shares.append((progress.round, round(progress.share, 3)))


@pytest.mark.whole_run
@pytest.mark.parametrize("workers", [1, 2])
def test_progress_moves_within_a_round(archive: Path, tmp_path: Path, workers: int) -> None:
    follower = Follower()
    sections = {"federated": {"rounds": 2, "local_epochs": 3}, "train": {"workers": workers}}
    experiment.train(resolve(tiny_config(archive, **sections)), tmp_path / "run", observers=[follower])
    ends = [round(silo / 3, 3) for silo in (1, 2, 3)]
    epochs = [share for silo in range(3) for share in (*(round((silo + e / 3) / 3, 3) for e in (1, 2, 3)), ends[silo])]
    assert follower.shares == [(number, share) for number in (0, 1) for share in (epochs if workers == 1 else ends)]


@pytest.mark.whole_run
def test_observers_hear_of_every_round_and_of_the_end(archive: Path, tmp_path: Path) -> None:
    listener, said = Records(), []
    config = tiny_config(archive, federated={"rounds": 2})
    experiment.train(resolve(config), tmp_path / "run", observers=[listener], notify=said.append)
    assert (listener.first_round, len(listener.records), listener.finished) == (0, 2, True)
    assert [line[:32] for line in said] == ['Columns that are not used: "plac']
    again = Records()
    experiment.resume(Run.open(tmp_path / "run"), observers=[again])
    assert (again.first_round, again.records) == (2, [])


@pytest.mark.whole_run
def test_folder_that_holds_a_run_is_left_alone(run: Run, archive: Path) -> None:
    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    with pytest.raises(AlreadyExists):
        train(archive, run.folder)
    assert {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()} == before


@pytest.mark.whole_run
@pytest.mark.parametrize(
    ("sections", "kind", "part"),
    [
        ({"data": {"options": {"lables": "x"}}}, UnknownOption, r"lables.*labels"),
        ({"partition": {"kind": "dirichlett"}}, WrongValue, "dirichlet"),
        ({"partition": {"beta": 0.5}}, WrongValue, "beta"),
        ({"partition": {"silos": 5000}}, TooFew, "5,?000"),
        ({"features": {"image": {"kind": "pixels"}}}, UnsuitableFeatures, "image"),
        ({"features": {"text": {"bukets": 3}}}, UnknownOption, "buckets"),
        ({"evaluate": {"ignore_labels": ["parot"]}}, UnknownName, 'no label "parot" \\(did you mean "parrot"'),
        ({"train": {"device": "cuda:77"}}, DeviceUnavailable, r"train\.device.*cuda:77"),
    ],
)
def test_what_must_be_put_right_first_leaves_no_run(
    archive: Path, tmp_path: Path, sections, kind: type[UserError], part: str
) -> None:
    with pytest.raises(kind, match=part):
        train(archive, tmp_path / "run", **sections)
    assert not (tmp_path / "run").exists()


@pytest.mark.whole_run
def test_archive_that_has_changed_since(archive: Path, tmp_path: Path) -> None:
    own = write_archive(tmp_path / "archive", count=60)
    run = train(own, tmp_path / "run", federated={"rounds": 1})
    with (own / "metadata.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    rows[3]["id"] = "another"
    from tests.runs import write_metadata

    write_metadata(own, rows)
    with pytest.raises(DataChanged, match=r"1.*another.*1.*item-003"):
        experiment.resume(Run.open(run.folder))


@pytest.mark.whole_run
@pytest.mark.parametrize(("there", "task"), [("image", "i2i"), ("text", "t2t")])
def test_one_modality_alone(tmp_path: Path, there: str, task: str) -> None:
    own = write_archive(tmp_path / "archive", count=60, **{"image": None, "text": None, there: "given"})
    with pytest.raises(ModalityNeeded, match=f"{there}.*i2t.*t2i"):
        train(own, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run = train(own, tmp_path / "run", evaluate={"tasks": [task, "i2t"]})
    assert {row.task for row in evaluate_run(run).rows} == {task}
    assert index_run(run)
    assert {path.name for path in run.index_folder.glob("*/*.sqlite")} == {f"{there}.sqlite"}


@pytest.mark.whole_run
def test_skipped_rows_are_said(tmp_path: Path) -> None:
    own = write_archive(tmp_path / "archive", count=60)
    values = np.load(own / "image.npy")
    values[7, 2] = np.nan
    np.save(own / "image.npy", values)
    said: list[str] = []
    experiment.train(resolve(tiny_config(own, federated={"rounds": 1})), tmp_path / "run", notify=said.append)
    assert [line[:47] for line in said] == [
        "skipped: metadata.csv, row 9: image.npy holds N",
        'Columns that are not used: "place". A partition',
    ]
    said.clear()
    by_place = tiny_config(own, federated={"rounds": 1}, partition={"kind": "column", "column": "place"})
    experiment.train(resolve(by_place), tmp_path / "by-place", notify=said.append)
    assert len(said) == 1


@pytest.mark.whole_run
def test_an_archive_without_queries_is_trained_and_this_is_stated(tmp_path: Path) -> None:
    own = write_archive(tmp_path / "archive", count=48)
    table = (own / "metadata.csv").read_text(encoding="utf-8")
    (own / "metadata.csv").write_text(table.replace(",query,", ",train,"), encoding="utf-8")
    said: list[str] = []
    settings = {"federated": {"rounds": 2}, "evaluate": {"validation": 0}}
    run = experiment.train(resolve(tiny_config(own, **settings)), tmp_path / "run", notify=said.append)
    assert said[-1].startswith('Archive "archive" does not have items in the split "query"')
    assert run.model.record.round == 1


@pytest.mark.whole_run
@pytest.mark.parametrize("follow", [False, True])
def test_links_out_of_the_archive_are_followed_by_the_config(tmp_path: Path, follow: bool) -> None:
    own = write_archive(tmp_path / "archive", count=48)
    (own / "image.npy").rename(tmp_path / "image.npy")
    (own / "image.npy").symlink_to(tmp_path / "image.npy")
    config = resolve(tiny_config(own, data={"follow_links": follow}, federated={"rounds": 1}))
    if follow:
        assert experiment.train(config, tmp_path / "run").archive.image is not None
        return
    with pytest.raises(NotPermitted, match="follow_links"):
        experiment.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.whole_run
def test_checkpoint_tells_the_round(run: Run) -> None:
    assert json.loads((run.checkpoint / "state.json").read_text())["round"] == 3
