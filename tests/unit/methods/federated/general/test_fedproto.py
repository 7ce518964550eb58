"""FedProto: prototypes instead of parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from silohash.methods.federated.base import ServerState
from silohash.methods.federated.general.fedproto import CARD, FedProto, FedProtoParams, prototype_distance
from tests.unit.methods.federated.helpers import BITS, CLASSES, accepts, context_of, draw, fresh_server, hot, traits_of


def prototypes_for(fuse: bool) -> dict[str, np.ndarray]:
    names = ["fused"] if fuse else ["image", "text"]
    extras = {f"prototypes/{n}": draw(CLASSES, BITS, seed=seed).float().numpy() for seed, n in enumerate(names)}
    return extras | {f"mask/{n}": np.arange(CLASSES) != 2 for n in names}


def test_presets() -> None:
    every = {"fuse": False, "min_count": 1, "max_labels": 1000}
    assert FedProto.presets == {
        "recommended": {}, "paper": every, "authors_code": {**every, "prototype_weighting": "uniform"},
    }  # fmt: skip
    assert FedProtoParams().prototype_weight == 1.0


def test_prototypes_need_labels() -> None:
    assert FedProto.traits.needs_labels


def test_distance_is_the_mean_over_dimensions_to_the_mean_prototype_of_the_labels() -> None:
    values, prototypes, labels = draw(4, 3, seed=1), draw(5, 3, seed=2), hot(4, 5)
    mask = torch.tensor([True, True, False, True, True])
    found = prototype_distance(values, labels, prototypes, mask)
    for i in range(4):
        own = [c for c in range(5) if mask[c] and labels[i, c]]
        target = [sum(float(prototypes[c, k]) for c in own) / len(own) for k in range(3)]
        assert float(found[i]) == pytest.approx(sum((float(values[i, k]) - target[k]) ** 2 for k in range(3)) / 3)


@pytest.mark.parametrize("fuse", [True, False])
def test_the_term_sums_the_mean_distances_of_the_modalities(fuse: bool) -> None:
    method = FedProto(FedProtoParams(prototype_weight=0.4, fuse=fuse))
    context = context_of(ServerState(params={}, extras=prototypes_for(fuse)))
    batch = context.data.batch(torch.arange(12))
    outputs = context.model(batch)
    weight, value = method.terms(context, batch, outputs)["prototype"]
    expected = 0.0
    for m, logit in outputs.logit.items():
        prototypes = torch.from_numpy(context.payload.extras["prototypes/fused" if fuse else f"prototypes/{m}"])
        distances = []
        for i in range(12):
            own = [c for c in range(CLASSES) if c != 2 and batch.labels[i, c]]
            if own:
                distances.append(float((torch.tanh(logit[i]) - prototypes[own].mean(0)).square().mean()))
        expected += float(np.mean(distances))
    assert weight == 0.4
    assert float(value) == pytest.approx(expected, rel=1e-5)
    assert FedProto(FedProtoParams(prototype_weight=0.0)).terms(context, batch, outputs) == {}


def test_only_prototypes_travel() -> None:
    method = FedProto(FedProtoParams(min_count=1))
    server = fresh_server(method)
    message = method.broadcast(server, 0, round=1)
    assert message.params == {}
    assert set(message.extras) == {"prototypes/fused", "mask/fused"}
    context = context_of(server)
    update = method.update(context)
    assert update.params == {}
    assert set(update.sums) == {"prototype_sum/fused", "prototype_count/fused"}
    assert context.kept("model")
    after = method.aggregate(server, [update])
    counts = update.sums["prototype_count/fused"]
    np.testing.assert_allclose(
        after.extras["prototypes/fused"], update.sums["prototype_sum/fused"] / counts[:, None], rtol=1e-5
    )


def test_card_and_traits() -> None:
    assert (CARD.year, CARD.supervised) == (2022, True)
    assert traits_of(FedProto) == {
        "needs_labels": True,
        "shares": "none",
        "personalized": True,
        "codes_comparable": False,
        "averages": False,
        "keeps_model": True,
        "adds": {"update": {}},
    }


@pytest.mark.parametrize(
    ("name", "value", "accepted"), [("prototype_weight", 0, True), ("prototype_weight", -0.1, False)]
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(FedProtoParams, name, value) == accepted
