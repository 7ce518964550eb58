"""Training without labels over silos that lack pictures, texts or pairs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.runs import train, write_archive

pytestmark = pytest.mark.whole_run

LACKING = {"missing_image": 0.25, "missing_text": 0.25, "unpaired": 0.25}


@pytest.mark.parametrize("federated", ["fedavg", "feduch"])
@pytest.mark.parametrize("local", ["dgcpn", "djsrh", "jdsh", "ucch"])
def test_every_local_method_trains_in_silos_of_all_kinds(tmp_path: Path, local: str, federated: str) -> None:
    run = train(
        write_archive(tmp_path / "archive"), tmp_path / "run",
        partition={"silos": 4, **LACKING}, local={"name": local}, federated={"name": federated, "rounds": 3},
    )  # fmt: skip
    assert sorted(silo.lacks for silo in run.partition.silos) == [(), ("pairs",), ("pictures",), ("texts",)]
    trained = {silo.name: len(silo.split(run.archive, "train")) for silo in run.partition.silos}
    unpaired = [silo.name for silo in run.partition.silos if not silo.paired]
    records = run.rounds()
    assert len(records) == 3
    for record in records:
        assert [silo.rejected for silo in record.silos] == [None] * 4
        assert all(silo.loss is not None and math.isfinite(silo.loss) for silo in record.silos)
        for silo in record.silos:
            assert silo.items <= trained[silo.silo] * (2 if silo.silo in unpaired else 1)
    assert [silo.items for silo in records[0].silos if silo.silo in unpaired] == [
        2 * trained[name] for name in unpaired
    ]
    assert set(run.model.featurizers) == {"image", "text"}
