"""A run that is trained again without a silo or items equals one that never had them, and says what it leaves out."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silohash.base.errors import DataChanged, SettingNeeded, UnknownName, WrongValue
from silohash.run.folder import Run
from silohash.training import experiment
from silohash.training.retraining import config_without, staying
from tests.runs import silohash, train, write_archive, write_config, write_metadata

BY_PLACE = {"kind": "column", "column": "place"}
AVERAGE: dict[str, Any] = {}
RIDGE = {"federated": {"name": "fedridge", "rounds": 1, "reveal_items": True}, "model": {"hidden": 32}}
SUMS = {
    "local": {"name": "scm", "bits": 8},
    "federated": {"name": "fedsums", "rounds": 9, "reveal_items": True},
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("archive") / "items")


def lose(archive: Path, kept: Any, target: Path) -> Path:
    """Writes what an archive is without the rows of some items."""
    with (archive / "metadata.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    places = [number for number, row in enumerate(rows) if kept(row)]
    target.mkdir(exist_ok=True)
    for name in ("image.npy", "text.npy"):
        np.save(target / name, np.load(archive / name, allow_pickle=False)[places])
    write_metadata(target, [rows[number] for number in places])
    return target


def again(run: Run, folder: Path, *silos: str) -> Run:
    """Trains a run again without some silos and without the items that its archive has lost."""
    return experiment.train(config_without(run, silos), folder)


@pytest.mark.parametrize(
    "settings",
    [AVERAGE, RIDGE, pytest.param(SUMS, marks=pytest.mark.slow)],
    ids=["fedavg", "fedridge", "fedsums"],
)
def test_without_a_silo_a_run_equals_one_of_an_archive_without_its_items(
    archive: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    whole = train(archive, tmp_path / "whole", **settings, partition=BY_PLACE)
    without = again(whole, tmp_path / "without", "place-1")
    never = lose(archive, lambda row: row["place"] != "place-1", tmp_path / "never")
    scratch = train(never, tmp_path / "scratch", **settings, partition={**BY_PLACE, "silos": 2})
    one, other, former = (run.model.digest("global") for run in (without, scratch, whole))
    assert one == other != former
    assert [r.loss for r in without.rounds()] == [r.loss for r in scratch.rounds()]
    assert without.silo_names == ("place-0", "place-2")


@pytest.fixture
def apart(archive: Path, tmp_path: Path) -> tuple[Run, Path]:
    """A run by place and its archive, which a test may change."""
    own = lose(archive, lambda row: True, tmp_path / "own")
    return train(own, tmp_path / "run", partition=BY_PLACE, federated={"rounds": 1, "local_epochs": 1}), own


def test_items_that_the_archive_has_lost_are_left_out(apart: tuple[Run, Path], tmp_path: Path) -> None:
    run, own = apart
    notes: list[str] = []
    with pytest.raises(SettingNeeded):
        config_without(run, (), notes.append)
    lose(own, lambda row: row["id"] not in {"item-001", "item-002"}, own)
    resolved = config_without(run, (), notes.append)
    assert "2 items missing (item-001, item-002)" in notes[-1]
    assert resolved.config.partition.parameters()["without_items"] == 2
    assert resolved.config.digest() != run.config.digest(), "the training server must not continue the former run"
    new = experiment.train(resolved, tmp_path / "new")
    assert "item-001" not in new.archive.ids
    lose(own, lambda row: row["id"] != "item-003", own)
    assert config_without(Run(new.folder), (), notes.append).config.partition.parameters()["without_items"] == 3


def test_a_silo_whose_items_are_all_gone_is_left_out_by_itself(apart: tuple[Run, Path], tmp_path: Path) -> None:
    run, own = apart
    lose(own, lambda row: row["place"] != "place-1", own)
    resolved = config_without(run, ())
    assert resolved.config.partition.parameters()["without"] == ["place-1"]
    assert experiment.train(resolved, tmp_path / "new").silo_names == ("place-0", "place-2")


def test_a_silo_that_was_left_out_before_its_items_went_stays_left_out(apart: tuple[Run, Path], tmp_path: Path) -> None:
    run, own = apart
    first = again(run, tmp_path / "first", "place-1")
    lose(own, lambda row: row["place"] != "place-1", own)
    second = again(Run(first.folder), tmp_path / "second")
    assert second.silo_names == ("place-0", "place-2")
    assert second.model.digest("global") == first.model.digest("global")
    assert second.config.partition.parameters()["without"] == ["place-1"]


def test_what_does_not_fit_fewer_silos_can_be_set(archive: Path, tmp_path: Path) -> None:
    settings = {"rounds": 1, "local_epochs": 1, "weight_cap": 0.4}
    capped = train(archive, tmp_path / "capped", partition=BY_PLACE, federated=settings)
    with pytest.raises(WrongValue, match="weight_cap"):
        experiment.train(config_without(capped, ("place-1",)), tmp_path / "two")
    resolved = config_without(capped, ("place-1",), overrides=["federated.weight_cap=0.6"])
    assert resolved.config == capped.config.model_copy(
        update={
            "federated": capped.config.federated.model_copy(update={"weight_cap": 0.6}),
            "partition": capped.config.partition.model_copy(update={"without": ["place-1"]}),
        }
    )
    assert experiment.train(resolved, tmp_path / "two").silo_names == ("place-0", "place-2")


def test_what_cannot_be_left_out_is_refused(apart: tuple[Run, Path], archive: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match='"place-9"'):
        staying(apart[0], ("place-9",))
    assert staying(apart[0], ("place-1",)) == ["place-0", "place-2"]
    resolved = config_without(apart[0], apart[0].silo_names)
    with pytest.raises(UnknownName):  # no silo is left
        experiment.train(resolved, tmp_path / "empty")
    own = lose(archive, lambda row: True, tmp_path / "drawn")
    drawn = train(own, tmp_path / "iid", federated={"rounds": 1, "local_epochs": 1})
    lose(own, lambda row: row["id"] != "item-001", own)
    with pytest.raises(DataChanged):  # the silos would be drawn anew, with items of the one that leaves
        config_without(drawn, ("silo-2",))


@pytest.mark.slow
def test_the_command_trains_says_what_is_left_out_and_keeps_policies(archive: Path, tmp_path: Path) -> None:
    settings = {"partition": BY_PLACE, "federated": {"rounds": 1, "local_epochs": 1}}
    config = write_config(tmp_path / "run.toml", archive, **settings)
    run, new = tmp_path / "run", tmp_path / "new"
    assert silohash("train", config, "--out", run, "--no-index").code == 0
    (run / "policies").mkdir()
    for silo in ("place-0", "place-1"):
        (run / "policies" / f"{silo}.toml").write_text("fields = []\n")
    said = silohash("retrain", run, "--out", new, "--without", "place-1")
    assert said.code == 0, said.err
    assert "Trained again without place-1." in (new / "model" / "card.md").read_text()
    assert "80 in the database" not in (new / "report.html").read_text()
    assert [path.name for path in (new / "policies").iterdir()] == ["place-0.toml"]
    assert sorted(path.name for path in (new / "index").iterdir()) == ["place-0", "place-2", "silos.json"]
    for arguments, key in (
        (("--out", tmp_path / "other", "--without", "nobody"), "unknown-name"),
        (("--out", tmp_path / "other"), "setting-needed"),
        (("--out", new, "--without", "place-2"), "already-exists"),
        (("--out", tmp_path / "other", "--on", tmp_path), "not-supported"),
    ):
        said = silohash("retrain", run, *arguments)
        assert (said.code, said.err.splitlines()[-1].strip()) == (2, f"[{key}]")
        assert not (tmp_path / "other").exists()
