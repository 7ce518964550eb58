"""Archives and partitions by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silohash.api.data import list_methods, load_archive, partition
from silohash.base.errors import UnknownName, UnknownOption, WrongChoice
from silohash.data.partitions.base import partition as partition_archive
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS
from tests.runs import write_archive


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_archive(tmp_path / "archive", text="words")


def test_archives_by_name_and_by_folder(folder: Path) -> None:
    assert len(load_archive(folder)) == len(load_archive(str(folder))) == 120
    assert load_archive("glyphs", faces=1).card.name == "glyphs"
    with pytest.raises(UnknownName, match='did you mean "glyphs"'):
        load_archive("glyfs")
    with pytest.raises(UnknownOption, match='"face"'):
        load_archive("glyphs", face=1)


def test_a_partition_is_that_of_a_config(folder: Path) -> None:
    archive = load_archive(folder)
    made = partition(archive, "dirichlet", silos=3, seed=4, beta=0.5)
    expected = partition_archive(archive, "dirichlet", 3, 4, beta=0.5)
    assert made.digest() == expected.digest()
    rows = np.sort(np.concatenate([silo.rows for silo in partition(archive, "iid").silos]))
    assert rows.tolist() == list(range(120))
    assert len(partition(archive, "iid")) == 5
    assert len(partition(archive, "column", silos=None, column="place")) == 3
    with pytest.raises(WrongChoice, match="gamma"):
        partition(archive, "dirichlet", gamma=1)


def test_every_method_has_a_card() -> None:
    local, federated = list_methods("local"), list_methods("federated")
    assert [card.key for card in local] == LOCAL_METHODS.names()
    assert [card.key for card in federated] == FEDERATED_METHODS.names()
    assert list_methods() == [*local, *federated]
    assert "dcmh" in {card.key for card in local}
    with pytest.raises(UnknownName, match='did you mean "local"'):
        list_methods("lokal")  # type: ignore[arg-type]
