"""Methods with their terms off are what they claim to reduce to, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.measure.evaluation import evaluate_run
from tests.runs import prepared, run_loop, same_arrays, train, write_archive

pytestmark = pytest.mark.whole_run


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("data") / "archive", count=90)


def weights_of(run) -> dict:
    return dict(run.model.trained.weights["global"].params)


def test_fedavg_with_one_silo_is_centralized(archive: Path, tmp_path: Path) -> None:
    alone = {"partition": {"silos": 1}}
    fedavg = train(archive, tmp_path / "fedavg", **alone)
    centralized = train(archive, tmp_path / "centralized", federated={"name": "centralized"}, **alone)
    assert same_arrays(weights_of(fedavg), weights_of(centralized))
    assert fedavg.model.encoder().digest == centralized.model.encoder().digest
    assert [row.value for row in evaluate_run(fedavg).rows] == [row.value for row in evaluate_run(centralized).rows]


def test_centralized_over_three_silos_is_one_silo_that_holds_everything(archive: Path, tmp_path: Path) -> None:
    without = {"evaluate": {"validation": 0}}
    pooled = train(archive, tmp_path / "pooled", federated={"name": "centralized"}, **without)
    single = train(archive, tmp_path / "single", partition={"silos": 1}, **without)
    assert same_arrays(weights_of(pooled), weights_of(single))
    assert len(pooled.partition.silos) == 3


def test_silos_of_equal_size_weigh_alike_under_either_weighting() -> None:
    examples, uniform = (
        run_loop(prepared((20, 20, 20), federated={"weighting": weighting})) for weighting in ("examples", "uniform")
    )
    assert same_arrays(examples.server.params, uniform.server.params)
    unequal = [
        run_loop(prepared((30, 20, 10), federated={"weighting": weighting})) for weighting in ("examples", "uniform")
    ]
    assert not same_arrays(unequal[0].server.params, unequal[1].server.params)


def test_fedavg_is_not_what_silos_do_alone_or_pooled() -> None:
    states = {name: run_loop(prepared(federated={"name": name})) for name in ("fedavg", "local")}
    pooled = run_loop(prepared((60,), federated={"name": "centralized"}))
    assert not same_arrays(states["fedavg"].server.params, states["local"].server.params)
    assert not same_arrays(states["fedavg"].server.params, pooled.server.params)
