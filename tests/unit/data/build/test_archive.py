"""A built set is opened where it was built, with or without the items that were trained on."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base.errors import MissingFile, WrongChoice
from silohash.data.build.archive import BuiltSet
from tests.runs import write_archive

TOY = BuiltSet(name="toy", summary="A toy.", source="Made up.", license="CC0", notes={"relevant": "by label"})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SILOHASH_DATA", str(tmp_path))
    write_archive(tmp_path / "toy")
    metadata = tmp_path / "toy" / "metadata.csv"
    lines = metadata.read_text("utf-8").splitlines()
    lines[::2] = [line.replace(",train,", ",database,") for line in lines[::2]]
    metadata.write_text("\n".join(lines), "utf-8")
    return tmp_path / "toy"


def test_both_protocols_train_on_the_same(folder: Path) -> None:
    whole, unseen = TOY(), TOY(protocol="unseen", root=str(folder))
    assert set(whole.split("train")) < set(whole.split("database"))
    assert not set(unseen.split("train")) & set(unseen.split("database"))
    assert {*unseen.split("train"), *unseen.split("database")} == set(whole.split("database"))
    assert (whole.card.protocol, unseen.card.protocol) == ("toy/default", "toy/unseen")
    assert (whole.card.license, whole.card.notes["relevant"]) == ("CC0", "by label")
    assert whole.card.digest != unseen.card.digest


def test_mistakes_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(WrongChoice):
        TOY(protocol="usual")
    with pytest.raises(MissingFile, match="silohash data build toy"):
        TOY(root=str(tmp_path / "elsewhere"))
