"""Codes of the ONNX files equal those of torch, for every method, kind of tower and code length.

`make test` tests one code length with all methods, and two kinds of towers with all methods; `make test-slow` the others.

The files are compared on random items and on items whose outputs are exactly zero. Two programs that add up the same
products in different orders get slightly different outputs, so a bit whose output is closer to 0 than `TOLERANCE` may
differ. No other bit may.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from silohash.base.types import Arrays, Modality
from silohash.features.given import GivenFeatures
from silohash.features.image import PixelFeatures
from silohash.index.codes import pack
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.federated.base import FederationInfo
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.local.base import ClosedForm
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.run.config.load import load_resolved
from silohash.run.model.encoder import OnnxTowers
from silohash.run.model.onnx_graph import TOLERANCE, onnx_files
from silohash.run.model.trained import GLOBAL, TrainedModel, Weights, onnx_file

CLASSES, WIDTH, ITEMS = 5, 12, 300
GENERATOR = np.random.default_rng(0)
TOWERS: dict[str, TowerSpec] = {
    "mlp": TowerSpec("mlp", (WIDTH,), hidden=24, dropout=0.5),
    "scaled mlp": TowerSpec("mlp", (WIDTH,), hidden=24, scale=3.5),
    "conv 16": TowerSpec("conv", (1, 16, 16), hidden=24, dropout=0.5),
    "conv 33": TowerSpec("conv", (3, 33, 33), hidden=24),
}

QUICK = ("mlp", "conv 16")
"""The towers that `make test` tests with every method."""


def given(modality: Modality) -> GivenFeatures:
    sums = {"count": np.full(WIDTH, 4.0), "sum": np.zeros(WIDTH), "sum_squares": np.full(WIDTH, 4.0)}
    return GivenFeatures(modality, WIDTH, sums)


def pixels(shape: tuple[int, ...]) -> PixelFeatures:
    channels, size, _ = shape
    mean, deviation = np.arange(1, channels + 1) * 40, 25
    count = np.full(channels, 100)
    return PixelFeatures(
        size, channels, {"count": count, "sum": count * mean, "sum_squares": count * (mean**2 + deviation**2)}, None
    )


def model_of(
    local: str, federated: Mapping[str, Any], image: TowerSpec, bits: int, preset: str = "recommended"
) -> TrainedModel:
    """Return a model with the initial parameters of a method, and with random arrays that encoding needs."""
    resolved = load_resolved(
        {
            "data": {"name": "glyphs"},
            "local": {"name": local, "bits": bits, "preset": preset},
            "federated": dict(federated),
        }
    )
    spec = ModelSpec({"image": image, "text": TOWERS["mlp"]}, CLASSES, class_head=resolved.federated.traits.class_head)
    network = resolved.local.build(spec, bits)
    info = FederationInfo(silos=2, classes=CLASSES, bits=bits, total_rounds=1)
    server = resolved.federated.init_server(network, info)
    params = {name: tensor.detach().numpy().copy() for name, tensor in network.state_dict().items()}
    extras: Arrays = {}
    for name in resolved.federated.traits.encode_extras:
        random = GENERATOR.normal(size=server.extras[name].shape)
        extras[name] = (random / np.linalg.norm(random, axis=-1, keepdims=True)).astype(server.extras[name].dtype)
    featurizer = given("image") if image.kind == "mlp" else pixels(image.shape)
    return TrainedModel(
        resolved, spec, {"image": featurizer, "text": given("text")}, {GLOBAL: Weights(params, extras)}, 0
    )


WITH_CODES = [name for name in LOCAL_METHODS.table if not LOCAL_METHODS.resolve(name).traits.scores_pairs]
TRAINED_BY_STEPS = [name for name in WITH_CODES if not issubclass(LOCAL_METHODS.resolve(name), ClosedForm)]


def items(model: TrainedModel, modality: Modality) -> np.ndarray:
    """Return vectors of random items, and last one that consists of zeros."""
    shape = (ITEMS, *model.featurizers[modality].shape)
    if isinstance(model.featurizers[modality], PixelFeatures):
        return GENERATOR.integers(0, 256, shape).astype(np.uint8)
    values = GENERATOR.normal(size=shape).astype(np.float32)
    values[-1] = 0
    return values


CHOOSING = ("mith",)
"""Methods that choose concepts by scores. A score at the limit may be above it in one library and below it in the other."""


def check(model: TrainedModel) -> None:
    for _ in range(4 if model.resolved.config.local.name in CHOOSING else 1):
        samples: dict[Modality, np.ndarray] = {modality: items(model, modality) for modality in model.featurizers}
        files = onnx_files(model, samples)
        if not files.reason:
            break
    assert files.reason == ""
    towers = OnnxTowers(lambda modality: files.contents[onnx_file(modality, 0)])
    encoder = model.encoder()
    for modality, values in samples.items():
        ours, theirs = encoder.outputs(values, modality), towers.outputs(values, modality)
        clear = np.abs(ours) >= TOLERANCE * max(1.0, np.abs(ours).max())
        assert clear.mean() > 0.9
        assert np.array_equal((ours >= 0)[clear], (theirs >= 0)[clear])
        whole = clear.all(axis=1)
        assert np.array_equal(pack(ours)[whole], pack(theirs)[whole])
        for rows in (1, 2, 7):
            np.testing.assert_allclose(towers.outputs(values[:rows], modality), theirs[:rows], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("local", "tower"),
    [
        pytest.param(local, tower, marks=() if tower in QUICK or local == "dcmh" else pytest.mark.slow)
        for local in WITH_CODES
        for tower in TOWERS
    ],
)
def test_every_local_method_with_every_tower(local: str, tower: str) -> None:
    check(model_of(local, {"name": "centralized", "rounds": 1}, TOWERS[tower], 32))


@pytest.mark.parametrize("local", ["ssah", "mesdch"])
def test_text_towers_that_average_over_windows_of_words(local: str) -> None:
    model = model_of(local, {"name": "centralized", "rounds": 1}, TOWERS["mlp"], 32, preset="paper")
    assert "text.backbone.0.factors" in model.weights[GLOBAL].params
    check(model)


@pytest.mark.parametrize("tower", ["mlp", "conv 16"])
@pytest.mark.parametrize("local", TRAINED_BY_STEPS)
@pytest.mark.parametrize(
    "bits", [pytest.param(8, marks=pytest.mark.slow), 13, pytest.param(128, marks=pytest.mark.slow)]
)
def test_outputs_that_a_shared_memory_adapts(local: str, tower: str, bits: int) -> None:
    adapting = [name for name in FEDERATED_METHODS.table if FEDERATED_METHODS.resolve(name).traits.encode_extras]
    assert adapting == ["fedcafe"], "add the methods whose codes need more than parameters"
    check(model_of(local, {"name": "fedcafe"}, TOWERS[tower], bits))


def test_outputs_that_a_member_of_a_composition_adapts() -> None:
    methods = [{"name": "moon"}, {"name": "fedcafe"}]
    model = model_of("dcmh", {"name": "compose", "methods": methods}, TOWERS["conv 16"], 16)
    assert set(model.weights[GLOBAL].extras) == {"fedcafe/memory"}
    check(model)


def test_outputs_of_exactly_zero_are_set_bits_in_both() -> None:
    model = model_of("dcmh", {"name": "fedavg"}, TOWERS["mlp"], 16)
    zero = {name: np.zeros_like(array) for name, array in model.weights[GLOBAL].params.items()}
    model = replace(model, weights={GLOBAL: Weights(zero, {})})
    samples: dict[Modality, np.ndarray] = {modality: items(model, modality) for modality in model.featurizers}
    files = onnx_files(model, samples)
    towers = OnnxTowers(lambda modality: files.contents[onnx_file(modality, 0)])
    for modality, values in samples.items():
        assert (pack(towers.outputs(values, modality)) == 2**16 - 1).all()
        assert (pack(model.encoder().outputs(values, modality)) == 2**16 - 1).all()
        assert files.record[GLOBAL][modality]["ties"] == 0
