"""PEPFCH: its parameters and presets, its losses against the sums of the authors' code, and what learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from silohash.methods.federated.base import ServerState
from silohash.methods.federated.hashing.pepfch import CARD, PEPFCH, PEPFCHParams
from silohash.methods.federated.hashing.plfedcmh import PLFedCMH
from silohash.methods.message import Message
from tests.unit.methods.federated.helpers import (
    BITS,
    CLASSES,
    accepts,
    context_of,
    draw,
    fresh_server,
    server_of_trained_silos,
    traits_of,
)


def method_of(preset: str, **changed: object) -> PEPFCH:
    return PEPFCH(PEPFCHParams(**{**PEPFCH.presets[preset], **changed}))


def ready(method: PEPFCH) -> tuple[ServerState, Message]:
    """A server whose silos have trained different models, and an update of silo 1."""
    server = server_of_trained_silos(method)
    params = {n: a + draw(*a.shape, seed=11).float().numpy() for n, a in server.params.items()}
    return server, Message("update", "1", 0, params=params, weights={"image": 1.0, "text": 1.0}, silo=1)


def test_presets_and_traits() -> None:
    published = {"normalization": "code", "prototype_weight": 1e5, "min_count": 1, "max_labels": 1000}
    assert PEPFCH.presets == {
        "recommended": {}, "paper": published,
        "authors_code": {**published, "learned": "embedding", "sequential": True},
    }  # fmt: skip
    params = PEPFCHParams()
    assert (params.class_code_weight, params.prototype_weight, params.hyper_rate) == (0.1, 1.0, 1e-3)
    assert (params.hypernetworks, params.learned, params.sequential) == ("per_silo", "all", False)
    assert (CARD.year, CARD.supervised) == (2024, True)
    assert traits_of(PEPFCH) == traits_of(PLFedCMH)


@pytest.mark.parametrize(("value", "accepted"), [(0, True), (-1e-3, False)])
def test_the_mixing_never_moves_away(value: float, accepted: bool) -> None:
    assert accepts(PEPFCHParams, "hyper_rate", value) == accepted


def test_losses_are_the_sums_of_the_authors_code() -> None:
    """With beta 0.1 and eta 1e5: (beta sum (r L - u P^T)^2 + eta MSE(u, P_y)) / (B n), summed over towers."""
    known = {
        f"prototypes/{m}": draw(CLASSES, BITS, seed=seed).float().numpy() for seed, m in enumerate(("image", "text"))
    }
    known |= {f"mask/{m}": np.ones(CLASSES, np.bool_) for m in ("image", "text")}
    context = context_of(ServerState(params={}, extras=known))
    batch = context.data.batch(torch.arange(8))
    batch.labels[:] = 0
    batch.labels[torch.arange(8), torch.arange(8) % CLASSES] = 1  # the authors' code knows one label per item
    outputs = context.model(batch)
    terms = method_of("paper").terms(context, batch, outputs)
    found = sum(weight * float(value.detach()) for weight, value in terms.values())
    expected = 0.0
    for modality, logit in outputs.logit.items():
        values, prototypes = torch.tanh(logit).double(), torch.from_numpy(known[f"prototypes/{modality}"]).double()
        gaps = (BITS * batch.labels.double() - values @ prototypes.T).square().sum()
        distance = torch.nn.functional.mse_loss(values, prototypes[batch.labels.argmax(1)])
        expected += float((0.1 * gaps + 1e5 * distance).detach()) / (8 * len(context.data))
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("preset", ["paper", "authors_code"])
def test_the_hypernetwork_moves_by_the_jacobian_toward_the_update(preset: str) -> None:
    """phi + rate J^T (trained - mixed), with J by finite differences of the mixture that is sent."""
    method = method_of(preset, hyper_rate=0.01)
    server, update = ready(method)
    after = method.aggregate(server, [update])
    before = method.broadcast(server, 1, round=0).params
    names = [name for name in before if name.startswith("image.")]

    def mixture(place: str, index: tuple[int, ...], change: float) -> np.ndarray:
        moved = server.private[place].copy()
        moved[index] += change
        state = ServerState(server.params, server.extras, {**server.private, place: moved})
        sent = method.broadcast(state, 1, round=0).params
        return np.concatenate([sent[name].astype(np.float64).ravel() for name in names])

    delta = np.concatenate([(update.params[name] - before[name]).astype(np.float64).ravel() for name in names])
    for place, learns in (
        ("hyper/image/1/embedding.weight", True),
        ("hyper/image/1/heads.0.weight", preset == "paper"),
    ):
        gradients = []
        for column in range(5):
            slope = (mixture(place, (0, column), 1e-3) - mixture(place, (0, column), -1e-3)) / 2e-3
            gradients.append(slope @ delta)
        moved = (after.private[place] - server.private[place])[0, :5]
        np.testing.assert_allclose(moved, 0.01 * np.array(gradients) * learns, rtol=0.05, atol=1e-4)
        assert bool(np.abs(after.private[place] - server.private[place]).max() > 1e-3) == learns


def test_only_the_embedding_learns_in_the_authors_code() -> None:
    method = method_of("authors_code", hyper_rate=0.1)
    server, update = ready(method)
    after = method.aggregate(server, [update])
    moved = {n for n, a in server.private.items() if n.startswith("hyper/") and not np.array_equal(a, after.private[n])}
    assert moved == {f"hyper/{group}/1/embedding.weight" for group in ("image", "text")}
    every = method_of("paper", hyper_rate=0.1)
    server, update = ready(every)
    after = every.aggregate(server, [update])
    moved = {n for n, a in server.private.items() if n.startswith("hyper/") and not np.array_equal(a, after.private[n])}
    assert {name.split("/")[3].split(".")[0] for name in moved} == {"embedding", "body", "heads"}
    assert all(name.split("/")[2] == "1" for name in moved)


def test_no_noise_is_added_to_class_sums() -> None:
    method = method_of("authors_code")
    context = context_of(fresh_server(method))
    first, second = (method.update(context).sums for _ in range(2))
    assert {name: array.tolist() for name, array in first.items()} == {n: a.tolist() for n, a in second.items()}
    means = first["prototype_sum/image"]
    assert np.abs(means).max() <= 1.0  # means of relaxed codes
