"""DGCPN: the similarity and each loss against explicit loops in float64, and the two steps of a batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from silohash.base.errors import UnsuitableMethod
from silohash.base.types import MODALITIES, Outputs
from silohash.methods.local.base import SiloData, signs
from silohash.methods.local.unsupervised.base import affinity, inputs_of, with_inputs
from silohash.methods.local.unsupervised.dgcpn import (
    CARD,
    DGCPN,
    MOST_STORED,
    DGCPNParams,
    batch_similarity,
    candidate_rows,
    comparable_items,
    losses,
    neighbor_count,
    neighbor_graph,
    neighbor_weights,
)
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.testing.inputs import lacking, silo_data
from tests.unit.methods.federated.helpers import draw
from tests.unit.methods.local.helpers import cosine, ready, trained

WEIGHT, GRAPH, SHARE = 0.2, 0.3, 0.4


def dense(data: SiloData, share: float = SHARE) -> np.ndarray[Any, Any]:
    """Return the similarity S of all items of a complete silo, entry by entry in float64."""
    assert data.image is not None
    assert data.text is not None
    image, text, count = data.image.double(), data.text.double(), len(data)
    similar = np.array(
        [
            [(1 - WEIGHT) * cosine(image[i], image[j]) + WEIGHT * cosine(text[i], text[j]) for j in range(count)]
            for i in range(count)
        ]
    )
    near = max(1, min(round(share * count), count - 1))
    weights = np.zeros((count, count))
    for i in range(count):
        others = sorted((j for j in range(count) if j != i), key=lambda j: -similar[i, j])[:near]
        for j in others:
            weights[i, j] = max(similar[i, j], 0.0)
        if weights[i].sum() > 0:
            weights[i] /= weights[i].sum()
    shared = np.array([[sum(weights[i] * weights[j]) for j in range(count)] for i in range(count)])
    return 2.0 * ((1 - GRAPH) * similar + GRAPH * 2 * near * shared) - 1.0


def dense_affinity(data: SiloData) -> Tensor:
    """Return the similarity P of the inputs of all items of a complete silo."""
    inputs = inputs_of(data.batch(torch.arange(len(data))))
    return affinity(inputs, inputs, WEIGHT).values


def method(**params: Any) -> DGCPN:
    return DGCPN(DGCPNParams(text_weight=WEIGHT, graph_weight=GRAPH, neighbors=SHARE, **params))


def similarities(chosen: DGCPN, data: SiloData, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the similarity of some items and the pairs that count."""
    _, state = ready(chosen, data)
    return chosen._similarity(data.batch(rows), state)


@pytest.mark.parametrize("items", [2, 3, 11, 40])
def test_the_similarity_of_a_batch_is_that_of_the_dense_form(items: int) -> None:
    data, rows = silo_data(items), torch.randperm(items, generator=torch.Generator().manual_seed(0))[:7]
    found, counted = similarities(method(), data, rows)
    assert found.numpy() == pytest.approx(dense(data)[np.ix_(rows, rows)], abs=2e-5)
    assert torch.equal(counted, 1 - torch.eye(len(rows)))
    assert torch.allclose(found, found.T, atol=1e-6)


def test_numbers_of_neighbors() -> None:
    assert [neighbor_count(items, 0.4) for items in (1, 2, 3, 4, 500, 5000)] == [1, 1, 1, 2, 200, 2000]
    assert neighbor_count(4, 0.99) == 3


@pytest.mark.parametrize("case", ["no pictures", "no texts", "no pairs", "some without a text", "one item"])
def test_items_are_compared_if_they_have_a_modality_in_common(case: str) -> None:
    data, chosen = lacking(case), torch.arange(0, len(lacking(case)), 2)
    image, text = data.has_image.tolist(), data.has_text.tolist()
    counts = [
        sum((image[i] and image[j]) or (text[i] and text[j]) for j in chosen.tolist())
        for i in range(len(data))
        if image[i] or text[i]
    ]
    assert comparable_items(data, chosen) == int(np.mean(counts) + 0.5)


def test_pictures_without_pairs_have_the_neighbors_that_they_have_alone() -> None:
    """The share of neighbors and the factor on the coherence are those of a silo that holds the pictures alone."""
    whole, none = silo_data(10), torch.zeros(10, dtype=torch.bool)
    assert whole.image is not None
    assert whole.text is not None
    unpaired = replace(
        whole,
        image=torch.cat([whole.image, torch.zeros_like(whole.image)]),
        text=torch.cat([torch.zeros_like(whole.text), whole.text]),
        labels=None,
        has_image=torch.cat([~none, none]),
        has_text=torch.cat([none, ~none]),
    )
    rows = torch.arange(10)
    pictures = replace(whole, text=torch.zeros_like(whole.text), has_text=none)
    texts = replace(whole, image=torch.zeros_like(whole.image), has_image=none)
    both, counted = similarities(method(), unpaired, torch.arange(20))
    for alone, place in ((pictures, rows), (texts, rows + 10)):
        found, expected = both[place][:, place], similarities(method(), alone, rows)[0]
        assert torch.allclose(found, expected, atol=1e-6)
    assert not counted[:10, 10:].any()
    assert bool((counted[:10, :10] + torch.eye(10)).all())


@pytest.mark.parametrize("items", [1, 2, 9])
def test_duplicates_and_single_items_are_safe(items: int) -> None:
    data = silo_data(9).take(torch.zeros(items, dtype=torch.long))
    graph = neighbor_graph(data, 100, SHARE, WEIGHT)
    assert not graph.diagonal().any()
    assert graph.sum(1).tolist() == pytest.approx([float(items > 1)] * items)
    found, _ = similarities(method(), data, torch.arange(items))
    assert bool(found.isfinite().all())


def test_only_items_with_a_positive_similarity_are_neighbors() -> None:
    similar = torch.tensor([[1.0, 0.3, 0.1, -0.2], [0.5, 1.0, -0.1, -0.2]])
    found = neighbor_weights(similar, torch.tensor([[True, False, False, False], [False, True, False, False]]), 3)
    assert found.flatten().tolist() == pytest.approx([0.0, 0.75, 0.25, 0.0, 1.0, 0.0, 0.0, 0.0])
    alone = neighbor_weights(torch.tensor([[1.0, -0.5]]), torch.tensor([[True, False]]), 1)
    assert alone.tolist() == [[0.0, 0.0]]


def test_blocks_do_not_change_the_graph() -> None:
    data = lacking("no pairs")
    whole = neighbor_graph(data, 100, SHARE, WEIGHT)
    assert torch.allclose(whole, neighbor_graph(data, 100, SHARE, WEIGHT, block=3), atol=1e-6)
    assert not whole[data.has_image.unsqueeze(1) != data.has_image].any()


def test_a_large_silo_has_neighbors_among_a_fixed_sample() -> None:
    data, chosen = silo_data(30), candidate_rows(30, 12)
    assert len(set(chosen.tolist())) == 12
    assert chosen.tolist() == sorted(chosen.tolist())
    assert torch.equal(chosen, candidate_rows(30, 12))
    assert candidate_rows(5, 12).tolist() == [0, 1, 2, 3, 4]
    graph = neighbor_graph(data, 12, SHARE, WEIGHT, block=7)
    assert graph.shape == (30, 12)
    assert not graph[chosen].diagonal().any()
    assert int((graph > 0).sum(1).max()) == 5
    assert torch.allclose(graph[chosen], neighbor_graph(data.take(chosen), 100, SHARE, WEIGHT), atol=1e-6)
    _, state = ready(method(candidates=12), data)
    expected = batch_similarity(dense_affinity(data), 2.0 * 5 * graph @ graph.T, GRAPH)
    assert torch.allclose(state.buffers["similarities"], expected, atol=1e-5)


@pytest.mark.parametrize("data", [silo_data(30), lacking("no pairs"), lacking("no texts")])
@pytest.mark.parametrize("weight", [0.0, GRAPH])
def test_stored_similarities_equal_those_of_a_large_silo(
    data: SiloData, weight: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = DGCPNParams(text_weight=WEIGHT, graph_weight=weight, neighbors=SHARE)
    rows = torch.tensor([3, 17, 0, 8, 11])
    stored = similarities(DGCPN(params), data, rows)
    monkeypatch.setattr("silohash.methods.local.unsupervised.dgcpn.MOST_STORED", len(data) - 1)
    computed = similarities(DGCPN(params), data, rows)
    assert torch.allclose(stored[0], computed[0], atol=1e-5)
    assert torch.equal(stored[1], computed[1])


def test_which_silos_store_all_similarities(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_STORED == 5000
    data = silo_data(12)
    monkeypatch.setattr("silohash.methods.local.unsupervised.dgcpn.MOST_STORED", 12)
    assert set(ready(method(), data)[1].buffers) == {"similarities"}
    monkeypatch.setattr("silohash.methods.local.unsupervised.dgcpn.MOST_STORED", 11)
    assert set(ready(method(), data)[1].buffers) == {"graph"}
    assert ready(DGCPN(DGCPNParams(graph_weight=0.0)), data)[1].buffers == {}


def loops(
    image: Tensor, text: Tensor, similarity: Tensor, counted: Tensor, target: float
) -> tuple[float, float, float]:
    """Return the three losses, pair by pair."""
    count = len(image)
    pairs = [(i, j) for i in range(count) for j in range(count)]
    within_images = {(i, j): cosine(image[i], image[j]) for i, j in pairs}
    within_texts = {(i, j): cosine(text[i], text[j]) for i, j in pairs}
    between = {(i, j): cosine(image[i], text[j]) for i, j in pairs}
    coexistence = np.mean([(between[i, i] - target) ** 2 for i in range(count)])
    alike = sum(
        np.mean([float(counted[p]) * (values[p] - float(similarity[p])) ** 2 for p in pairs])
        for values in (within_images, within_texts, between)
    )
    consistency = np.mean(
        [
            (between[i, j] - within_images[i, j]) ** 2
            + (between[i, j] - within_texts[i, j]) ** 2
            + (within_images[i, j] - within_texts[i, j]) ** 2
            + (between[i, j] - between[j, i]) ** 2
            for i, j in pairs
        ]
    )
    return float(coexistence), float(alike), float(consistency)


def test_losses_against_loops() -> None:
    image, text, similarity = draw(6, 5), draw(6, 5, seed=1), draw(6, 6, seed=2)
    counted = 1.0 - torch.eye(6, dtype=torch.float64)
    counted[1, 4] = 0.0
    found = losses(image, text, similarity, counted, 1.5)
    expected = loops(image, text, similarity, counted, 1.5)
    assert [float(value) for value in found] == pytest.approx(expected)
    both = losses(torch.stack([image, text]), torch.stack([text, text]), similarity, counted, 1.5)
    more = loops(text, text, similarity, counted, 1.5)
    assert [float(value) for value in both] == pytest.approx([a + b for a, b in zip(expected, more, strict=True)])


@pytest.mark.parametrize("lead", [(), (2,)])
def test_gradients_of_the_losses_against_finite_differences(lead: tuple[int, ...]) -> None:
    image, text = (draw(*lead, 4, 3, seed=seed).requires_grad_() for seed in (0, 1))
    similarity, counted = draw(4, 4, seed=2), 1.0 - torch.eye(4, dtype=torch.float64)
    counted[1, 3] = 0.0
    assert torch.autograd.gradcheck(lambda *codes: tuple(losses(*codes, similarity, counted, 1.5)), (image, text))


def test_codes_of_length_zero_have_a_finite_gradient() -> None:
    image, text = torch.zeros(3, 2, requires_grad=True), torch.ones(3, 2)
    sum(losses(image, text, torch.zeros(3, 3), 1 - torch.eye(3), 1.5)).backward()  # type: ignore[union-attr]
    assert image.grad is not None
    assert bool(image.grad.isfinite().all())


def test_the_similarity_mixes_inputs_and_neighbors() -> None:
    found = batch_similarity(torch.tensor([[1.0, 0.5]]), torch.tensor([[2.0, 0.8]]), 0.25)
    assert found.flatten().tolist() == pytest.approx([1.5, 0.15])


def test_steps_of_a_batch() -> None:
    model, _ = ready(method(), silo_data(12))
    joint, half = method().steps(model)
    assert [joint.name, half.name] == ["joint", "half_binary"]
    assert half == replace(joint, name="half_binary", regularize=False)
    assert joint.regularize
    assert [step.name for step in method(half_binary=False).steps(model)] == ["joint"]


def test_terms_of_both_steps() -> None:
    data, chosen = silo_data(12), method(similarity_weight=0.5, consistency_weight=0.25)
    model, state = ready(chosen, data)
    batch = data.batch(torch.arange(12))
    joint, half = chosen.steps(model)
    codes = {"image": draw(12, 8).requires_grad_(), "text": draw(12, 8, seed=1).requires_grad_()}
    outputs = Outputs(feature={}, logit={}, code=codes)
    similarity, counted = (values.double() for values in similarities(chosen, data, batch.row))
    terms = chosen.terms(joint, outputs, batch, state)
    expected = losses(codes["image"], codes["text"], similarity, counted, 1.5)
    assert {name: weight for name, (weight, _) in terms.items()} == {
        "coexistence": 1.0, "similarity": 0.5, "consistency": 0.25
    }  # fmt: skip
    assert [value.item() for _, value in terms.values()] == pytest.approx([value.item() for value in expected])

    binary = {name: value for name, (_, value) in chosen.terms(half, outputs, batch, state).items()}
    image = losses(codes["image"], signs(codes["text"]), similarity, counted, 1.5)
    text = losses(signs(codes["image"]), codes["text"], similarity, counted, 1.5)
    for number, name in enumerate(("coexistence", "similarity", "consistency")):
        value = binary[f"binary_{name}"]
        assert value.item() == pytest.approx((image[number] + text[number]).item())
        # Each tower is trained by the loss in which the codes of the other one are binary.
        for modality, loss in (("image", image), ("text", text)):
            (found,) = torch.autograd.grad(value, codes[modality], retain_graph=True)
            (wanted,) = torch.autograd.grad(loss[number], codes[modality], retain_graph=True)
            assert torch.allclose(found, wanted)


def test_the_similarity_of_a_batch_is_computed_again_for_other_rows() -> None:
    data, chosen = silo_data(12), method()
    _, state = ready(chosen, data)
    first, _ = chosen._similarity(data.batch(torch.arange(6)), state)
    again, _ = chosen._similarity(data.batch(torch.arange(6)), state)
    other, _ = chosen._similarity(data.batch(torch.arange(6, 12)), state)
    assert again is first
    assert torch.equal(other, similarities(method(), data, torch.arange(6, 12))[0])


def test_items_without_a_common_modality_are_not_compared() -> None:
    data = lacking("no pairs")
    _, counted = similarities(method(), data, torch.arange(20))
    together = data.has_image.unsqueeze(1) == data.has_image
    assert torch.equal(counted, (together & ~torch.eye(20, dtype=torch.bool)).float())
    rest, codes = with_inputs(data.batch(torch.arange(20)), {"image": draw(20, 4)})
    assert rest.row.tolist() == data.has_image.nonzero().squeeze(1).tolist()
    assert len(codes["image"]) == len(rest.row)


def test_a_batch_without_the_models_modality_has_no_terms() -> None:
    data, chosen = lacking("no texts"), method()
    model, state = ready(chosen, data)
    outputs = Outputs(feature={}, logit={}, code={"text": draw(20, 4)})
    assert chosen.terms(chosen.steps(model)[0], outputs, data.batch(torch.arange(20)), state) == {}


def test_similarities_are_computed_once_per_silo_and_need_no_graph_without_weight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, chosen = silo_data(12), method()
    stored = [ready(chosen, data)[1].buffers["similarities"] for _ in range(2)]
    assert stored[0] is stored[1]
    monkeypatch.setattr("silohash.methods.local.unsupervised.dgcpn.neighbor_graph", pytest.fail)
    plain = DGCPN(DGCPNParams(text_weight=WEIGHT, graph_weight=0.0))
    found, _ = similarities(plain, data, torch.arange(12))
    assert torch.allclose(found, 2.0 * dense_affinity(data) - 1.0, atol=1e-6)


def test_labels_do_not_matter() -> None:
    data = silo_data(40)
    given, removed = (trained("dgcpn", part, epochs=2) for part in (data, replace(data, labels=None, federation=None)))
    assert given.terms == removed.terms
    assert all(np.array_equal(array, removed.update.params[name]) for name, array in given.update.params.items())


def test_the_hash_layer_of_texts_starts_with_larger_weights() -> None:
    spec = ModelSpec(dict.fromkeys(MODALITIES, TowerSpec("mlp", (5,), hidden=400)), classes=0)
    torch.manual_seed(0)
    model = method(initial_deviation=0.7).build(spec, 16)
    image, text = (model.get_parameter(f"{modality}.hash.weight") for modality in MODALITIES)
    assert text.std().item() == pytest.approx(0.7, rel=0.05)
    assert image.abs().max().item() <= 400**-0.5
    images = method().build(ModelSpec({"image": TowerSpec("mlp", (5,))}, classes=0), 16)
    assert not any(name.startswith("text") for name, _ in images.named_parameters())


def test_published_networks_are_refused() -> None:
    spec = ModelSpec({"image": TowerSpec("network", (3, 8, 8))}, classes=0)
    with pytest.raises(UnsuitableMethod, match="dgcpn"):
        method().build(spec, 16)


def test_the_card_names_the_paper() -> None:
    assert (CARD.key, CARD.year, CARD.supervised) == ("dgcpn", 2021, False)
    assert not DGCPN.traits.needs_labels
