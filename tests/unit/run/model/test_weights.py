"""The weights that a party deploys: their digest, their files, and what a run ends with."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from silohash.methods.federated.base import ServerState
from silohash.run.model.weights import GLOBAL, Weights, deployed_weights
from tests.runs import same_arrays


def weights(value: float = 1.0) -> Weights:
    return Weights({"image.hash.bias": np.full(3, value, np.float32)}, {"memory": np.ones((2, 3), np.float32)})


def test_the_digest_covers_parameters_extras_and_what_comes_before_them() -> None:
    digests = {
        weights().digest("towers"),
        weights(2.0).digest("towers"),
        weights().digest("other towers"),
        Weights(weights().params, {}).digest("towers"),
        Weights(weights().params, {"memory": np.zeros((2, 3), np.float32)}).digest("towers"),
        Weights(weights().extras, weights().params).digest("towers"),
    }
    assert len(digests) == 6
    assert weights().digest("towers") == weights().digest("towers")


def test_files_keep_parameters_and_extras_apart(tmp_path: Path) -> None:
    both = Weights({"memory": np.zeros(1, np.float32)}, {"memory": np.ones(1, np.float32)})
    both.write(tmp_path / "weights.safetensors")
    read = Weights.read(tmp_path / "weights.safetensors")
    assert same_arrays(read.params, both.params)
    assert same_arrays(read.extras, both.extras)
    assert read.digest("") == both.digest("")


def test_a_run_ends_with_global_and_personal_weights_and_only_the_extras_of_encoding() -> None:
    method = SimpleNamespace(encode_extras=("memory", "absent"))
    server = ServerState({"w": np.zeros(1)}, {"memory": np.ones(2), "other": np.ones(2)})
    found = deployed_weights(method, server, {"silo-1": {"w": np.ones(1)}})  # type: ignore[arg-type]
    assert list(found) == [GLOBAL, "silo-1"]
    assert found[GLOBAL].params["w"].tolist() == [0.0]
    assert found["silo-1"].params["w"].tolist() == [1.0]
    assert all(set(each.extras) == {"memory"} for each in found.values())
