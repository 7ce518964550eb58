"""Two worker processes give the bits that one process gives.

Each case starts two processes. `make test` compresses updates of FedAvg and adds noise per silo, `make test-slow` also sends
whole updates of FedAvg and adds noise per record. Those of Local, which are sent whole, are in `make test`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base.files import digest_file
from silohash.measure.evaluation import evaluate_run
from tests.runs import same_files, train, write_archive

pytestmark = pytest.mark.whole_run


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("data") / "archive", count=90)


@pytest.mark.parametrize(
    ("name", "exchange"),
    [
        pytest.param("fedavg", {}, marks=pytest.mark.slow),
        ("fedavg", {"compression": {"kind": "top_k"}}),
        ("local", {}),
    ],
)
def test_two_workers_equal_one(archive: Path, tmp_path: Path, name: str, exchange: dict[str, dict[str, str]]) -> None:
    federated = {"name": name, "rounds": 2}
    one = train(archive, tmp_path / "one", federated=federated, exchange=exchange)
    two = train(archive, tmp_path / "two", federated=federated, train={"workers": 2}, exchange=exchange)
    assert same_files(one.checkpoint, two.checkpoint)
    weights = [sorted(run.model_folder.glob("*.safetensors")) for run in (one, two)]
    assert [(path.name, digest_file(path)) for path in weights[0]] == [(p.name, digest_file(p)) for p in weights[1]]
    assert len(weights[0]) == (3 if name == "fedavg" else 6)
    assert [row.value for row in evaluate_run(one).rows] == [row.value for row in evaluate_run(two).rows]
    assert one.config.digest() == two.config.digest()
    assert not (two.folder / ".inputs").exists()


def test_encrypted_sums_in_worker_processes_give_the_figures_of_plain_ones(archive: Path, tmp_path: Path) -> None:
    """With encryption, a method of revealing sums does not ask for permission."""
    pytest.importorskip("tenseal")
    method = {"name": "fedridge", "rounds": 2}
    plain = train(archive, tmp_path / "plain", federated={**method, "reveal_items": True})
    run = train(archive, tmp_path / "run", federated=method, exchange={"encryption": "ckks"}, train={"workers": 2})
    found, expected = ([row.value for row in evaluate_run(one).rows] for one in (run, plain))
    assert found == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("unit", [pytest.param("record", marks=pytest.mark.slow), "silo"])
def test_two_workers_add_the_noise_of_one(archive: Path, tmp_path: Path, unit: str) -> None:
    sections = {
        "local": {"name": "csq"}, "evaluate": {"validation": 0.0}, "federated": {"rounds": 2},
        "features": {m: {"standardize": False, "equal_lengths": True} for m in ("image", "text")},
        "exchange": {"privacy": {"unit": unit, "repeatable": True}},
    }  # fmt: skip
    one, two = (train(archive, tmp_path / str(n), train={"workers": n}, **sections) for n in (1, 2))
    assert same_files(one.checkpoint, two.checkpoint)
