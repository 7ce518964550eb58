"""A run over real connections: a server and a silo as processes, with mutual TLS, on this machine.

In `make test`, tests/integration/test_nothing_reported.py trains over such connections, and
tests/unit/training/sites/test_training.py compares all methods without connections.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base.errors import UserError
from silohash.run.config.load import load_resolved
from silohash.run.folder import Run
from silohash.run.indexing import index_run
from silohash.training import experiment
from tests.runs import silohash, write_archive, write_config

pytest.importorskip("nvflare")

from tests.federation import Federation

pytestmark = pytest.mark.whole_run


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_personal_model_equals_that_of_one_machine_and_stays_at_its_silo(tmp_path: Path) -> None:
    pooled = write_archive(tmp_path / "pooled", count=36, places=1)
    config = write_config(
        tmp_path / "run.toml", pooled, partition={"kind": "column", "column": "place", "silos": 1},
        federated={"name": "fedproto", "rounds": 2, "local_epochs": 1, "min_count": 1},
    )  # fmt: skip
    folder = tmp_path / "out" / "first"
    with Federation.running(tmp_path, {"place-0": pooled}) as federation:
        done = silohash("train", config, "--on", federation.leader, "--out", folder, "--quorum", 1)
        assert done.code == 0, done.err
    assert done.out == f"Run: {folder}\n"
    assert "FLARE" not in done.err
    one, apart = experiment.train(load_resolved(config), tmp_path / "one"), Run.open(folder)
    assert [(record.loss, record.validation) for record in apart.rounds()] == [
        (record.loss, record.validation) for record in one.rounds()
    ]
    own = federation.stored("place-0", "first")
    assert own.model.digest("place-0") == one.model.digest("place-0")
    assert index_run(own) == {"place-0": 30}
    with pytest.raises(UserError, match=r"stored a personal model on its own machine\."):
        apart.model.encoder()
