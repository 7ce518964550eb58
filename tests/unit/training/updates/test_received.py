"""The updates of the last round are kept as the server received them, if the config asks for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silohash.methods.message import Message
from silohash.training.updates.received import FOLDER, ReceivedUpdates
from tests import runs


def update(value: float, number: int = 0) -> Message:
    return Message(kind="update", sender="a", round=number, params={"image.w": np.full(3, value)}, counts={"items": 2})


def test_only_the_last_round_is_kept(tmp_path: Path) -> None:
    kept = ReceivedUpdates(tmp_path / FOLDER)
    assert not kept.kept
    for number, silos in enumerate([(0, 1, 2), (10, 2)]):
        kept.begin(number, {"image.w": np.zeros(3)}, {"memory": np.ones(2)})
        for silo in silos:
            kept.add(silo, update(silo + number, number))
    assert kept.kept
    assert kept.origin().round == 1
    assert kept.origin().extras["memory"].tolist() == [1.0, 1.0]
    assert [(silo, message.params["image.w"][0]) for silo, message in kept.updates()] == [(2, 3.0), (10, 11.0)]


@pytest.mark.whole_run
def test_a_run_keeps_updates_only_if_asked_and_gives_the_same_model(tmp_path: Path) -> None:
    archive = runs.write_archive(tmp_path / "archive")
    plain = runs.train(archive, tmp_path / "plain")
    keeping = runs.train(archive, tmp_path / "keeping", exchange={"keep_updates": True})
    assert not (plain.folder / FOLDER).exists()
    received = ReceivedUpdates(keeping.folder / FOLDER)
    assert [silo for silo, _ in received.updates()] == [0, 1, 2]
    assert received.origin().round == 2
    assert plain.config.digest() == keeping.config.digest()
    assert runs.same_files(plain.checkpoint, keeping.checkpoint)
