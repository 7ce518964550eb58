"""Training without labels: models do not depend on labels that their methods do not need."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.methods.local import LOCAL_METHODS
from silohash.training.checks import without_labels
from tests.runs import same_files, train, write_archive

pytestmark = pytest.mark.whole_run

WITH_CODES = [name for name in without_labels(LOCAL_METHODS) if not LOCAL_METHODS.resolve(name).traits.scores_pairs]


@pytest.mark.parametrize("federated", ["fedavg", "local"])
@pytest.mark.parametrize("local", WITH_CODES)
def test_models_are_bitwise_equal_without_labels(tmp_path: Path, local: str, federated: str) -> None:
    settings = {"local": {"name": local}, "federated": {"name": federated, "rounds": 2}, "evaluate": {"validation": 0}}
    runs = []
    for name, labeled in (("with", True), ("without", False)):
        archive = write_archive(tmp_path / "archive", count=60, labeled=labeled)
        runs.append(train(archive, tmp_path / name, **settings))
        assert (runs[-1].archive.labels is None) == (not labeled)
    assert same_files(runs[0].model_folder, runs[1].model_folder)
