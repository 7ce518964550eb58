"""Similarities of inputs with missing modalities, the codes of items that lack one, and the cache of a silo's values."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from silohash.base.errors import UnsuitableMethod
from silohash.base.types import MODALITIES, Outputs, PairBatch
from silohash.methods.local.base import SiloData, SiloState
from silohash.methods.local.losses import mean_where
from silohash.methods.local.unsupervised.base import (
    CodePair,
    Inputs,
    Part,
    SiloCache,
    affinity,
    code_pair,
    cosine_matrices,
    inputs_of,
    products_of_rows,
    refuse_networks,
    steepness,
    weighted_mean,
    with_inputs,
)
from silohash.methods.local.unsupervised.djsrh import DJSRH, DJSRHParams
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.testing.inputs import Held, lacking, silo_data
from tests.unit.methods.federated.helpers import draw
from tests.unit.methods.local.helpers import cosine, ready

ALL = torch.arange(20)


def mixed_batch() -> PairBatch:
    """Return six items in float64: two pairs, two images, one text, and an item without either."""
    has_image = torch.tensor([True, True, True, True, False, False])
    has_text = torch.tensor([True, True, False, False, True, False])
    image, text = draw(6, 5), draw(6, 3, seed=1)
    return PairBatch(
        row=torch.arange(6), image=image * has_image.unsqueeze(1), text=text * has_text.unsqueeze(1), labels=None,
        has_image=has_image, has_text=has_text,
    )  # fmt: skip


def test_inputs_have_length_1_and_those_of_a_missing_modality_are_zero() -> None:
    batch = mixed_batch()
    found = inputs_of(batch)
    for modality in MODALITIES:
        assert found.unit[modality].norm(dim=1).tolist() == pytest.approx(batch.has(modality).double().tolist())
        assert found.has is not None
        assert found.has[modality] is batch.has(modality)
    shifted = replace(batch, image=torch.ones(6, 1, 2, 2))  # standardized pixels of a missing image are not zero
    assert inputs_of(shifted).unit["image"].sum(1).tolist() == [2, 2, 2, 2, 0, 0]
    assert inputs_of(silo_data(20).batch(ALL)).has is None
    images = inputs_of(lacking("no texts").batch(ALL))
    assert list(images.unit) == ["image"]
    assert images.has is None


def test_affinity_against_loops() -> None:
    batch, weight = mixed_batch(), 0.3
    inputs = inputs_of(batch)
    found, known = affinity(inputs, inputs, weight)
    assert known is not None
    assert batch.image is not None
    assert batch.text is not None
    for i in range(6):
        for j in range(6):
            parts = []
            if batch.has_image[i] and batch.has_image[j]:
                parts.append((1 - weight, cosine(batch.image[i], batch.image[j])))
            if batch.has_text[i] and batch.has_text[j]:
                parts.append((weight, cosine(batch.text[i], batch.text[j])))
            expected = sum(w * c for w, c in parts) / sum(w for w, _ in parts) if parts else 0.0
            assert float(found[i, j]) == pytest.approx(expected, abs=1e-12)
            assert float(known[i, j]) == bool(parts)


def test_affinity_between_complete_items_and_others() -> None:
    batch = mixed_batch()
    pairs, images, text = (
        inputs_of(with_inputs(replace(batch, has_image=i, has_text=t), {"image": batch.image, "text": batch.text})[0])  # type: ignore[dict-item]
        for i, t in (
            (torch.arange(6) < 2, torch.arange(6) < 2),
            (torch.arange(6) < 4, torch.zeros(6, dtype=torch.bool)),
            (torch.zeros(6, dtype=torch.bool), torch.arange(6) == 4),
        )
    )
    assert [inputs.has for inputs in (pairs, images, text)] == [None, None, None]
    everything = inputs_of(batch)
    whole = affinity(everything, everything, 0.3)
    assert torch.allclose(affinity(pairs, everything, 0.3).values, whole.values[:2])
    assert torch.allclose(affinity(pairs, images, 0.3).values, pairs.unit["image"] @ images.unit["image"].T)
    values, known = affinity(images, text, 0.3)
    assert known is not None
    assert not values.any()
    assert not known.any()
    assert values.shape == (4, 1)


def test_products_of_rows_by_blocks() -> None:
    values = draw(11, 3, seed=1)
    assert torch.allclose(products_of_rows(values, block=4), values @ values.T)
    assert torch.equal(products_of_rows(values), values @ values.T)


def test_a_weighted_mean_counts_matrices_where_they_are_defined() -> None:
    one, other = torch.tensor([[2.0, 4.0]]), torch.tensor([[6.0, 0.0]])
    values, known = weighted_mean([Part(1.0, one, None), Part(3.0, other, None)])
    assert values.tolist() == [[5.0, 1.0]]
    assert known is None
    values, known = weighted_mean([Part(1.0, one, torch.ones(1, 2)), Part(3.0, other, torch.tensor([[1.0, 0.0]]))])
    assert values.tolist() == [[5.0, 4.0]]
    assert known is not None
    assert known.tolist() == [[1.0, 1.0]]


def test_items_without_a_modality_have_the_code_of_the_other_one() -> None:
    batch = mixed_batch()
    codes = {"image": draw(6, 4), "text": draw(6, 4, seed=1)}
    rest, held = with_inputs(batch, codes)  # type: ignore[arg-type]
    assert rest.row.tolist() == [0, 1, 2, 3, 4]
    image, text = code_pair(held, rest)
    assert torch.equal(image[:4], codes["image"][:4])
    assert torch.equal(image[4], codes["text"][4])
    assert torch.equal(text[[0, 1, 4]], codes["text"][[0, 1, 4]])
    assert torch.equal(text[2:4], codes["image"][2:4])


def test_codes_of_modalities_that_no_item_has_are_left_out() -> None:
    batch = lacking("no texts").batch(ALL)
    codes = {"image": draw(20, 4), "text": draw(20, 4, seed=1)}
    same, held = with_inputs(batch, codes)  # type: ignore[arg-type]
    assert same is batch
    assert list(held) == ["image"]
    image, text = code_pair(held, batch)
    assert image is text is codes["image"]
    assert with_inputs(batch, {"text": codes["text"]}) == (batch, {})
    complete = silo_data(20).batch(ALL)
    image, text = code_pair(codes, complete)  # type: ignore[arg-type]
    assert image is codes["image"]
    assert text is codes["text"]


def test_the_inputs_of_published_networks_are_refused() -> None:
    vectors, pixels = TowerSpec("mlp", (5,)), TowerSpec("network", (3, 8, 8))
    refuse_networks(ModelSpec({"text": vectors}, classes=0), "dgcpn")
    with pytest.raises(UnsuitableMethod, match=r"dgcpn.*model\.image.*model\.image"):
        refuse_networks(ModelSpec({"image": pixels, "text": vectors}, classes=0), "dgcpn")


def made(cache: SiloCache, data: SiloData, value: Tensor) -> Tensor:
    return cache.get(data, lambda: value)


def test_a_value_is_computed_once_per_silo() -> None:
    cache, data = SiloCache(), silo_data(8)
    first = made(cache, data, torch.zeros(3))
    assert made(cache, data, torch.ones(3)) is first
    assert made(cache, replace(data, labels=None), torch.ones(3)) is first
    for other in (
        silo_data(8),
        data.take(torch.arange(8)),
        replace(data, text=None),
        silo_data(8, held=Held(text=False)),
    ):
        assert bool(made(cache, other, torch.ones(3)).all())


def test_a_value_is_forgotten_with_its_data_and_not_kept_beyond_the_limit() -> None:
    cache, data = SiloCache(most_bytes=20), silo_data(8)
    assert not made(cache, data, torch.zeros(4)).any()
    other = silo_data(8)
    for value in (torch.zeros(2), torch.ones(2)):  # 16 of 20 bytes are in use
        assert torch.equal(made(cache, other, value), value)
    del data
    gc.collect()
    first = made(cache, other, torch.zeros(2))
    assert made(cache, other, torch.ones(2)) is first


def test_inputs_without_items_of_a_modality_are_empty() -> None:
    nothing = replace(
        mixed_batch(), has_image=torch.zeros(6, dtype=torch.bool), has_text=torch.zeros(6, dtype=torch.bool)
    )
    assert inputs_of(nothing) == Inputs({}, None)


def test_cosines_of_a_batch_against_loops() -> None:
    pair = CodePair(draw(5, 4), draw(5, 4, seed=1))
    images, texts, between = cosine_matrices(pair)
    for i in range(5):
        for j in range(5):
            assert float(images[i, j]) == pytest.approx(cosine(pair.image[i], pair.image[j]))
            assert float(texts[i, j]) == pytest.approx(cosine(pair.text[i], pair.text[j]))
            assert float(between[i, j]) == pytest.approx(cosine(pair.image[i], pair.text[j]))


def test_means_over_the_pairs_that_can_be_compared() -> None:
    values = torch.tensor([[1.0, 3.0], [5.0, 7.0]])
    assert float(mean_where(values, None)) == 4.0
    assert float(mean_where(values, torch.tensor([[1.0, 0.0], [1.0, 0.0]]))) == 3.0
    assert float(mean_where(values, torch.zeros(2, 2))) == 0.0


def test_the_tanh_becomes_steeper_over_all_rounds() -> None:
    assert [steepness(epochs) for epochs in (0, 3, 8)] == [1.0, 2.0, 3.0]
    data, chosen = silo_data(12), DJSRH(DJSRHParams())
    model, _ = ready(chosen, data)
    batch, step = data.batch(torch.arange(12)), chosen.steps(model)[0]
    codes = {"image": draw(12, 6).float(), "text": draw(12, 6, seed=1).float()}
    found = []
    for epochs, factor in ((0, 1.0), (3, 2.0), (8, 3.0)):
        state = SiloState(epochs=epochs)
        chosen.init_state(model, data, state)
        terms = chosen.terms(step, Outputs(feature={}, logit={}, code=codes), batch, state)
        relaxed = CodePair(torch.tanh(factor * codes["image"]), torch.tanh(factor * codes["text"]))
        expected = chosen.losses(relaxed, batch, state.buffers)
        assert {name: float(value) for name, (_, value) in terms.items()} == {
            name: pytest.approx(float(value)) for name, (_, value) in expected.items()
        }
        found.append(float(terms["between"][1]))
    assert len(set(found)) == 3

    constant = DJSRH(DJSRHParams(anneal=False))
    state = SiloState(epochs=8)
    constant.init_state(model, data, state)
    terms = constant.terms(step, Outputs(feature={}, logit={}, code=codes), batch, state)
    assert float(terms["between"][1]) == found[0]


def test_a_batch_without_the_models_modality_has_no_terms() -> None:
    data, chosen = lacking("no texts"), DJSRH(DJSRHParams())
    model, state = ready(chosen, data)
    outputs = Outputs(feature={}, logit={}, code={"text": draw(20, 4)})
    assert chosen.terms(chosen.steps(model)[0], outputs, data.batch(torch.arange(20)), state) == {}


def test_published_networks_are_refused() -> None:
    spec = ModelSpec({"image": TowerSpec("network", (3, 8, 8))}, classes=0)
    with pytest.raises(UnsuitableMethod, match='"djsrh"'):
        DJSRH(DJSRHParams()).build(spec, 16)
