"""Hash centers and average precision: each formula against explicit loops in float64, and the terms of a batch."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from silohash.base.errors import SettingNeeded
from silohash.base.types import Outputs, PairBatch
from silohash.evaluate.relevance import Relevance
from silohash.evaluate.ties import TieValues, histogram
from silohash.evaluate.ties import average_precision as evaluated
from silohash.index.codes import pack
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.local.base import SiloData, SiloState
from silohash.methods.local.class_codes import class_codes
from silohash.methods.local.label_counts import FederationLabels
from silohash.methods.local.losses import similarity
from silohash.methods.local.supervised.centerap import (
    BINS,
    CARD,
    CenterAP,
    CenterAPParams,
    average_precision,
    batch_precision,
    bin_shares,
    class_loss,
    class_targets,
    label_weights,
    logit_shift,
    mean_over,
    pair_loss,
    similarities,
)
from silohash.models.towers import HashNet
from silohash.testing.inputs import BITS, CLASSES, Held, model_spec, silo_data
from tests.unit.methods.federated.helpers import accepts, draw, hot


def federation(counts: list[float], items: int, *, exclusive: bool, seed: int = 0) -> FederationLabels:
    return FederationLabels(items, torch.tensor(counts, dtype=torch.float64), exclusive, seed)


def codes_of(rows: int, bits: int = 6, seed: int = 0) -> Tensor:
    return torch.tanh(draw(rows, bits, seed=seed))


def test_rare_labels_have_larger_weights_unless_labels_are_exclusive() -> None:
    several = federation([100, 97, 50, 1, 0], 100, exclusive=False)
    expected = [0.05, 0.05, math.log(2), math.log(100), math.log(100)]
    assert label_weights(several).tolist() == pytest.approx(expected)
    assert label_weights(replace(several, exclusive=True)).tolist() == [1.0] * 5


def test_targets_are_distributions_and_zero_without_labels() -> None:
    labels = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    found = class_targets(labels, torch.tensor([0.5, 2.0, 1.5]))
    assert found.tolist() == [[0.25, 0.0, 0.75], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]


def test_shift_of_exclusive_labels_by_hand() -> None:
    known = federation([30, 10, 0], 40, exclusive=True)
    found = logit_shift(torch.tensor([0.0, 5.0, 0.0], dtype=torch.float64), 5, known)
    expected = [0.7 * math.log(0.02 * 0.75 + 1e-4), 0.7 * math.log(1 + 0.02 * 0.25 + 1e-4), 0.7 * math.log(1e-4)]
    assert found.tolist() == pytest.approx(expected)


def test_shift_of_several_labels_by_hand() -> None:
    known = federation([20, 10, 4, 0], 40, exclusive=False)
    found = logit_shift(torch.tensor([4.0, 1.0, 0.0, 0.0], dtype=torch.float64), 8, known)
    expected = [0.0, 0.5 * math.log((0.125 + 0.05 * 0.25) / (1.05 * 0.25)), 0.5 * math.log(0.05 / 1.05), 0.0]
    assert found.tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("exclusive", [False, True])
def test_shift_of_a_silo_without_items_is_finite(exclusive: bool) -> None:
    found = logit_shift(torch.zeros(3), 0, federation([3, 1, 0], 4, exclusive=exclusive))
    assert found.isfinite().all()
    nothing = federation([0, 0, 0], 0, exclusive=exclusive)
    assert logit_shift(torch.zeros(3), 0, nothing).isfinite().all()


def test_class_loss_against_loops() -> None:
    codes, centers, shift = codes_of(5), codes_of(4, seed=1).sign(), draw(4, seed=2)
    targets = class_targets(hot(5, 4), torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64))
    targets[3] = 0  # an item without labels
    losses = []
    for i in (0, 1, 2, 4):
        logits = [8.0 / 6 * float(codes[i] @ centers[c]) + float(shift[c]) for c in range(4)]
        normalizer = math.log(sum(math.exp(value) for value in logits))
        losses.append(sum(float(targets[i, c]) * (normalizer - logits[c]) for c in range(4)))
    assert float(class_loss(codes, targets, centers, shift, 8.0)) == pytest.approx(np.mean(losses))
    assert float(class_loss(codes, torch.zeros_like(targets), centers, shift, 8.0)) == 0.0


def test_similarities_by_hand() -> None:
    codes = torch.tensor([[1.0, -1.0], [0.5, 0.5]])
    assert similarities(codes, codes).tolist() == [[1.0, 0.0], [0.0, 0.25]]
    assert similarities(codes_of(3), codes_of(5)).shape == (3, 5)


def test_shares_of_bins_by_hand() -> None:
    found = bin_shares(torch.tensor([[1.0, 0.0, -1.0, 0.25]]), bins=3)  # distances 0, 1/2, 1 and 3/8
    assert found.shape == (1, 3, 4)
    assert found[0].T.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.25, 0.75, 0]]


def test_shares_of_a_distance_add_up_to_one_over_its_two_nearest_bins() -> None:
    similarity = similarities(codes_of(7), codes_of(9, seed=1))
    shares = bin_shares(similarity)
    assert shares.shape == (7, BINS, 9)
    torch.testing.assert_close(shares.sum(1), torch.ones(7, 9, dtype=torch.float64))
    assert ((shares > 0).sum(1) <= 2).all()
    distance = (torch.arange(BINS) / (BINS - 1) * shares.transpose(1, 2)).sum(2)
    torch.testing.assert_close(distance, (1 - similarity) / 2)


def precision_by_loops(shares: Tensor, relevant: Tensor) -> float:
    """Return the mean of AP over rankings with a relevant item, by its definition."""
    values = []
    for i in range(len(shares)):
        total, ranked, found, value = float(relevant[i].sum()), 0.0, 0.0, 0.0
        for b in range(shares.shape[1]):
            n = sum(float(share) for share in shares[i, b])
            r = sum(float(share * flag) for share, flag in zip(shares[i, b], relevant[i], strict=True))
            ranked, found = ranked + n, found + r
            value += r * (found - r / 2 + 0.5) / (ranked - n / 2 + 0.5)
        if total:
            values.append(value / total)
    return float(np.mean(values))


def test_average_precision_against_loops() -> None:
    shares = bin_shares(similarities(codes_of(6), codes_of(11, seed=1)))
    relevant = (draw(6, 11, seed=3) > 0.3).double()
    relevant[2] = 0  # a ranking without relevant items is left out
    assert float(average_precision(shares, relevant)) == pytest.approx(precision_by_loops(shares, relevant))
    assert float(average_precision(shares, torch.zeros_like(relevant))) == 1.0


def signs_at(distances: list[int]) -> Tensor:
    """Return codes of 16 bits at Hamming distances from a code of ones."""
    codes = torch.ones(len(distances), 16)
    for row, distance in enumerate(distances):
        codes[row, :distance] = -1
    return codes


def evaluated_precision(database: Tensor, flags: list[int]) -> TieValues:
    """Return the AP of one query with a code of ones, as `silohash.evaluate` computes it."""
    relevance = Relevance(
        query_labels=np.ones((1, 1), np.uint8), database_labels=np.asarray(flags, np.uint8)[:, None]
    )  # fmt: skip
    return evaluated(histogram(pack(np.ones((1, 16), np.float32)), pack(database.numpy()), relevance, 16))


def relaxed_precision(database: Tensor, flags: list[int]) -> float:
    shares = bin_shares(similarities(torch.ones(1, 16), database))
    return float(average_precision(shares, torch.tensor([flags], dtype=torch.float32)))


@pytest.mark.parametrize("flags", [[1, 0, 1, 1, 0, 0, 1], [0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0, 1]])
def test_without_ties_it_is_the_average_precision_of_the_evaluation(flags: list[int]) -> None:
    database = signs_at([0, 2, 3, 7, 8, 15, 16])
    found = evaluated_precision(database, flags)
    assert relaxed_precision(database, flags) == pytest.approx(float(found.expected[0]), abs=1e-6)


def test_with_ties_it_is_close_to_the_expectation_over_their_order() -> None:
    flags = [1, 0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 1]
    database = signs_at([2, 2, 2, 5, 5, 5, 5, 5, 9, 9, 9, 9])
    found, exact = relaxed_precision(database, flags), evaluated_precision(database, flags)
    assert float(exact.worst[0]) < found < float(exact.best[0])
    assert found == pytest.approx(float(exact.expected[0]), abs=0.04)


def test_pair_loss_against_loops() -> None:
    codes, partners = codes_of(4), codes_of(4, seed=1)
    losses = []
    for first, second in ((codes, partners), (partners, codes)):
        for i in range(4):
            cosines = [
                float(first[i] @ second[j]) / (float(first[i].norm()) * float(second[j].norm())) / 0.3 for j in range(4)
            ]
            losses.append(math.log(sum(math.exp(value) for value in cosines)) - cosines[i])
    assert float(pair_loss(codes, partners, 0.3)) == pytest.approx(np.mean(losses))


def test_items_that_share_a_label() -> None:
    labels = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    others = torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert similarity(labels, others, graded=False).tolist() == [[1, 0, 1], [1, 0, 0]]


def test_two_modalities_rank_each_other_in_both_directions() -> None:
    codes = {"image": codes_of(5), "text": codes_of(7, seed=1)}
    labels = {"image": hot(5, 3), "text": hot(7, 3, seed=1)}
    expected = []
    for query, item in (("image", "text"), ("text", "image")):
        relevant = similarity(labels[query], labels[item], graded=False)
        expected.append(precision_by_loops(bin_shares(similarities(codes[query], codes[item])), relevant))
    assert float(batch_precision(codes, labels)) == pytest.approx(np.mean(expected))


def test_one_modality_ranks_the_other_items_of_the_batch() -> None:
    codes, labels = codes_of(6).float(), hot(6, 3).float()
    values = []
    for i in range(6):
        others = [j for j in range(6) if j != i]
        shares = bin_shares(similarities(codes[i : i + 1], codes[others])).double()
        relevant = similarity(labels[i : i + 1], labels[others], graded=False).double()
        if relevant.any():
            values.append(precision_by_loops(shares, relevant))
    assert float(batch_precision({"text": codes}, {"text": labels})) == pytest.approx(np.mean(values), rel=1e-5)
    assert float(batch_precision({"text": codes[:1]}, {"text": labels[:1]})) == 1.0


def test_mean_over_modalities() -> None:
    codes = {"image": torch.full((2, 3), 1.0), "text": torch.full((4, 3), 4.0)}
    assert float(mean_over(codes, torch.mean)) == 2.5


def state_of(method: CenterAP, data: SiloData) -> tuple[HashNet, SiloState]:
    torch.manual_seed(0)
    model = method.build(model_spec(), BITS)
    assert isinstance(model, HashNet)
    state = SiloState()
    method.init_state(model, data, state)
    return model, state


def test_a_silo_stores_constants_of_the_federation_and_its_own_shift() -> None:
    data = silo_data(30)
    assert data.federation is not None
    everywhere = replace(
        data.federation, items=90, counts=data.federation.counts * torch.arange(1, CLASSES + 1), seed=7
    )
    _, state = state_of(CenterAP(CenterAPParams(adjustment=0.5)), replace(data, federation=everywhere))
    expected = class_codes(CLASSES, BITS, exclusive=False, seed=7)
    assert state.buffers["codes"].dtype == torch.float32
    assert np.array_equal(state.buffers["codes"].numpy(), expected)
    assert torch.equal(state.buffers["weights"], label_weights(everywhere))
    assert torch.equal(state.buffers["shift"], 0.5 * logit_shift(data.labels.sum(0), 30, everywhere))
    assert state.buffers["shift"].abs().max() > 0.1
    _, plain = state_of(CenterAP(CenterAPParams(adjustment=0.0)), replace(data, federation=everywhere))
    assert not plain.buffers["shift"].any()


def test_exclusive_labels_use_the_codes_of_exclusive_classes() -> None:
    data = silo_data(30, single=True)
    _, state = state_of(CenterAP(CenterAPParams()), data)
    assert np.array_equal(state.buffers["codes"].numpy(), class_codes(CLASSES, BITS, exclusive=True, seed=0))
    assert state.buffers["weights"].tolist() == [1.0] * CLASSES


def test_counts_of_the_federation_are_required() -> None:
    data = replace(silo_data(8), federation=None)
    with pytest.raises(SettingNeeded):
        state_of(CenterAP(CenterAPParams()), data)


def terms_of(data: SiloData, **params: Any) -> tuple[dict[str, tuple[float, Tensor]], Outputs, PairBatch, SiloState]:
    method = CenterAP(CenterAPParams(**params))
    model, state = state_of(method, data)
    batch = data.batch(torch.arange(len(data)))
    (step,) = method.steps(model)
    outputs = model(batch, step.modalities)
    return method.terms(step, outputs, batch, state), outputs, batch, state


def test_terms_of_a_batch() -> None:
    terms, outputs, batch, state = terms_of(silo_data(12), pair_weight=0.3, balance_weight=0.05)
    weights = {"class": 1.0, "precision": 2.0, "quantization": 0.2, "balance": 0.1, "pair": 0.3}
    assert {name: weight for name, (weight, _) in terms.items()} == pytest.approx(weights)
    codes, labels = outputs.code, batch.labels
    targets = class_targets(labels, state.buffers["weights"])
    each = {
        "class": [class_loss(c, targets, state.buffers["codes"], state.buffers["shift"], 8.0) for c in codes.values()],
        "precision": [1.0 - batch_precision(codes, dict.fromkeys(codes, labels))],
        "quantization": [(c.abs() - 1).square().mean() for c in codes.values()],
        "balance": [c.mean(0).square().mean() for c in codes.values()],
        "pair": [pair_loss(codes["image"], codes["text"], 0.2)],
    }
    for name, values in each.items():
        expected = float(torch.stack(values).mean().detach())
        assert float(terms[name][1].detach()) == pytest.approx(expected, rel=1e-6), name
    assert all(value.requires_grad for _, value in terms.values())


def test_bits_of_items_are_trained_by_the_pair_term_alone() -> None:
    terms, outputs, batch, state = terms_of(silo_data(12), item_bits=3)
    codes, labels = outputs.code, batch.labels
    first = {modality: values[:, : BITS - 3] for modality, values in codes.items()}
    assert state.buffers["codes"].shape == (CLASSES, BITS - 3)
    assert float(terms["precision"][1].detach()) == pytest.approx(
        1.0 - float(batch_precision(first, dict.fromkeys(first, labels)).detach()), rel=1e-6
    )
    partners = pair_loss(codes["image"][:, BITS - 3 :], codes["text"][:, BITS - 3 :], 0.2)
    assert float(terms["pair"][1].detach()) == pytest.approx(float(partners.detach()), rel=1e-6)
    for name, bits in {
        "class": slice(BITS - 3, None),
        "precision": slice(BITS - 3, None),
        "pair": slice(BITS - 3),
    }.items():
        for gradient in torch.autograd.grad(terms[name][1], list(codes.values()), retain_graph=True):
            assert not gradient[:, bits].any(), name
            assert gradient.any(), name
    balance = torch.stack([values.mean(0).square().mean() for values in codes.values()]).mean()
    assert float(terms["balance"][1].detach()) == pytest.approx(float(balance.detach()), rel=1e-6)  # all bits


def test_rows_without_a_modality_are_left_out_of_its_terms() -> None:
    data = silo_data(12)
    lacking = replace(data, has_text=torch.arange(12) < 5)
    terms, outputs, _, state = terms_of(lacking)
    codes = {"image": outputs.code["image"], "text": outputs.code["text"][:5]}
    labels = {"image": data.labels, "text": data.labels[:5]}
    assert float(terms["precision"][1].detach()) == pytest.approx(
        1.0 - float(batch_precision(codes, labels).detach()), rel=1e-6
    )
    assert float(terms["pair"][1]) == pytest.approx(float(pair_loss(codes["image"][:5], codes["text"], 0.2)), rel=1e-6)
    shift, centers, weights = (state.buffers[name] for name in ("shift", "codes", "weights"))
    losses = [class_loss(codes[m], class_targets(labels[m], weights), centers, shift, 8.0) for m in codes]
    assert float(terms["class"][1]) == pytest.approx(float(torch.stack(losses).mean()), rel=1e-6)


@pytest.mark.parametrize("case", ["no texts", "no pairs", "one pair", "weight 0"])
def test_without_two_pairs_there_is_no_pair_term(case: str) -> None:
    data, rows = silo_data(12), torch.arange(12)
    texts = {"no texts": rows < 0, "no pairs": rows >= 6, "one pair": rows >= 5}.get(case, data.has_text)
    images = rows < 6 if case in {"no pairs", "one pair"} else data.has_image
    terms, _, _, _ = terms_of(
        replace(data, has_image=images, has_text=texts), pair_weight=0.0 if case == "weight 0" else 0.1
    )
    assert set(terms) == {"class", "precision", "quantization", "balance"}
    one = case == "no texts"
    assert terms["balance"][0] == pytest.approx(0.1 if one else 0.2)


def test_a_batch_without_modalities_has_no_terms() -> None:
    data = silo_data(3)
    none = torch.zeros(3, dtype=torch.bool)
    assert terms_of(replace(data, has_image=none, has_text=none))[0] == {}


def test_items_without_labels_move_nothing_by_class_and_precision() -> None:
    data = silo_data(6)
    terms, _, _, _ = terms_of(replace(data, labels=torch.zeros_like(data.labels)))
    assert float(terms["class"][1].detach()) == float(terms["precision"][1].detach()) == 0.0


def test_precision_term_moves_similar_items_together() -> None:
    codes = codes_of(8, bits=8).requires_grad_()
    labels = torch.eye(2, dtype=torch.float64).repeat_interleave(4, dim=0)
    before = batch_precision({"image": codes}, {"image": labels})
    (gradient,) = torch.autograd.grad(before, codes)
    after = batch_precision({"image": (codes + 0.05 * gradient / gradient.norm()).detach()}, {"image": labels})
    assert gradient.isfinite().all()
    assert float(after) > float(before)


@pytest.mark.parametrize(
    ("balance", "precision", "warned"),
    [(0.99, 0.5, True), (0.98, 0.06, True), (0.97, 0.5, False), (0.99, 0.04, False)],
)
def test_collapse_is_reported_unless_all_items_share_a_label(balance: float, precision: float, warned: bool) -> None:
    found = CenterAP(CenterAPParams()).warnings({"balance": balance, "precision": precision})
    assert len(found) == warned
    assert all("collapsed" in line and "balance_weight" in line for line in found)
    assert CenterAP(CenterAPParams()).warnings({}) == []


@pytest.mark.parametrize("held", [Held(), Held(text=False)], ids=str)
def test_one_step_trains_all_towers(held: Held) -> None:
    method = CenterAP(CenterAPParams())
    model = method.build(model_spec(held=held), BITS)
    (step,) = method.steps(model)
    assert step.modalities == tuple(model.modalities)
    assert all(name.startswith(step.parameters) for name, _ in model.named_parameters())
    outputs = model(silo_data(4, held=held).batch(torch.arange(4)))
    assert all(torch.equal(outputs.code[m], outputs.logit[m].tanh()) for m in outputs.code)


def test_parameters() -> None:
    defaults = CenterAPParams()
    assert defaults.model_dump() == {
        "class_weight": 1.0, "precision_weight": 2.0, "pair_weight": 0.1, "pair_temperature": 0.2,
        "quantization_weight": 0.1, "balance_weight": 0.1, "class_scale": 8.0, "adjustment": 1.0, "item_bits": 0,
    }  # fmt: skip
    for name in (
        "class_weight",
        "precision_weight",
        "pair_weight",
        "quantization_weight",
        "balance_weight",
        "adjustment",
    ):
        assert [accepts(CenterAPParams, name, value) for value in (-0.1, 0.0)] == [False, True], name
    for name in ("pair_temperature", "class_scale"):
        assert [accepts(CenterAPParams, name, value) for value in (0.0, 0.1)] == [False, True], name
    assert LOCAL_METHODS.resolve("centerap") is CenterAP
    assert CARD.supervised
    assert CenterAP.traits.needs_labels
