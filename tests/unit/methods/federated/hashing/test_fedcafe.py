"""FedCAFE: enhanced outputs, the class loss, memories and weights."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from silohash.base.types import Outputs
from silohash.methods.federated.base import ServerState, SiloContext
from silohash.methods.federated.class_memory import (
    memory_likelihood,
    self_weight,
)
from silohash.methods.federated.clustering import aligned, cluster_sizes, kmeans
from silohash.methods.federated.hashing.fedcafe import CARD, FedCAFE, FedCAFEParams, class_loss, cosine_gap, enhanced
from silohash.methods.federated.shared_means import objection
from silohash.methods.message import Message
from silohash.models.towers import HashNet
from tests.runs import (
    model_spec,
)
from tests.unit.methods.federated.helpers import (
    BITS,
    CLASSES,
    INFO,
    accepts,
    context_of,
    draw,
    fresh_server,
    hot,
    traits_of,
)


class TestFormulas:
    def test_enhancement_is_the_outputs_themselves_without_a_memory(self) -> None:
        logit, predicted, memory = draw(4, 6, seed=1), draw(4, 3, seed=2), draw(3, 6, seed=3)
        torch.testing.assert_close(enhanced(logit, predicted, torch.zeros(3, 6, dtype=torch.float64)), logit)
        found = enhanced(logit, predicted, memory)
        shares = torch.softmax(predicted, dim=1)
        for i in range(4):
            drawn = sum(shares[i, c] * memory[c] for c in range(3))
            torch.testing.assert_close(found[i], logit[i] + torch.tanh(logit[i]) * drawn)

    def test_enhancement_by_unit_rows_changes_no_code(self) -> None:
        logit, predicted, memory = draw(400, 8, seed=1) / 10, 9 * draw(400, 5, seed=2), draw(5, 8, seed=3)
        found = enhanced(logit, predicted, torch.nn.functional.normalize(memory, dim=1))
        assert not torch.equal(found, logit)
        assert torch.equal(found.sign(), logit.sign())
        assert not torch.equal(enhanced(logit, predicted, 9 * memory).sign(), logit.sign())

    def test_enhancement_by_means_changes_a_code_by_hand(self) -> None:
        memory = torch.tensor([[-6.0], [2.0]])
        # the prediction gives class 0 three quarters: V_M = -4, and tanh(0.5) = 0.4621
        found = enhanced(torch.tensor([[0.5]]), torch.tensor([[math.log(3.0), 0.0]]), memory)
        assert float(found) == pytest.approx(0.5 + math.tanh(0.5) * -4.0)
        assert float(found) < 0

    def test_class_loss_is_the_divergence_but_for_a_constant(self) -> None:
        predicted, labels = draw(4, 5), hot(4, 5)
        shares = labels / labels.sum(1, keepdim=True)
        logs = torch.log_softmax(predicted, dim=1)
        divergence = torch.where(shares > 0, shares * (shares.clamp(min=1e-9).log() - logs), 0.0).sum(1)
        entropy = -torch.where(shares > 0, shares * shares.clamp(min=1e-9).log(), 0.0).sum(1)
        torch.testing.assert_close(class_loss(predicted, labels), (divergence + entropy) / 5)
        assert float(class_loss(predicted, torch.zeros(4, 5, dtype=torch.float64)).abs().sum()) == 0.0

    def test_the_order_of_silos_does_not_move_the_memory_nor_that_of_clusters_under_alignment(self) -> None:
        rows = [torch.nn.functional.normalize(draw(4, 6, seed=seed), dim=1).float() for seed in (1, 2, 3)]
        updates = [
            Message(kind="update", sender=str(n), round=0, params={}, weights={},
                    records={"memory": row.numpy(), "mask": np.ones(4, bool)})
            for n, row in enumerate(rows)
        ]  # fmt: skip
        method, before = FedCAFE(FedCAFEParams()), np.zeros((4, 6), np.float32)
        merged = method._merged(before, updates)
        np.testing.assert_allclose(merged, method._merged(before, updates[::-1]), atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(merged, axis=1), 1.0, atol=1e-6)
        shuffled = merged[[2, 0, 3, 1]]
        np.testing.assert_array_equal(aligned(shuffled, merged), merged)

    def test_classes_that_no_silo_shows_keep_their_row(self) -> None:
        row = torch.nn.functional.normalize(draw(2, 4), dim=1).float().numpy()
        update = Message(kind="update", sender="0", round=0, params={}, weights={},
                         records={"memory": row * np.float32([[1], [0]]), "mask": np.asarray([True, False])})  # fmt: skip
        before = np.full((2, 4), 0.5, np.float32)
        merged = FedCAFE(FedCAFEParams())._merged(before, [update])
        np.testing.assert_array_equal(merged[1], before[1])
        np.testing.assert_allclose(merged[0], row[0], atol=1e-6)


class TestAuthorsCode:
    def test_weights_follow_the_clusters_of_all_memories(self) -> None:
        rows = torch.nn.functional.normalize(draw(3, 4, seed=1), dim=1)
        masks = [torch.ones(3, dtype=torch.bool)] * 2
        method = FedCAFE(FedCAFEParams(matching="cluster"))
        memories = [rows[[2, 0, 1]], rows]  # the order of rows tells a cluster nothing
        first, second = method._likelihoods(rows, memories, masks)
        assert first == pytest.approx(second)
        by_class = FedCAFE(FedCAFEParams())._likelihoods(rows, memories, masks)
        assert by_class[0] > by_class[1] == pytest.approx(second)

    def test_whole_labels_count_one_each(self) -> None:
        predicted, labels = draw(4, 5), hot(4, 5)
        logs = torch.log_softmax(predicted, dim=1)
        found = class_loss(predicted, labels, shared=False)
        for i in range(4):
            expected = -sum(float(logs[i, c]) for c in range(5) if labels[i, c]) / 5
            assert float(found[i]) == pytest.approx(expected)

    def test_terms_weigh_as_many_times_as_there_are_silos(self) -> None:
        weights = {}
        for times in (False, True):
            method = FedCAFE(FedCAFEParams(times_silos=times))
            server = method.init_server(HashNet(replace(model_spec(), class_head=True), BITS), INFO)
            assert ("silos" in server.extras) == times
            memory = torch.nn.functional.normalize(draw(CLASSES, BITS), dim=1).float().numpy()
            context = context_of(replace(server, extras={**server.extras, "memory": memory}), class_head=True)
            batch = context.data.batch(torch.arange(20))
            terms = method.terms(context, batch, context.model(batch))
            weights[times] = {name: weight for name, (weight, _) in terms.items()}
        assert weights[False] == {"enhance": 0.1, "consistency": 0.1, "class": 1.0}
        assert weights[True] == {name: 4 * weight for name, weight in weights[False].items()}


def test_class_loss_by_the_batch_is_that_by_the_class_times_the_classes() -> None:
    logit, labels = draw(6, 5), hot(6, 5)
    by_class, by_batch = (class_loss(logit, labels, reduction=way) for way in ("mean", "batchmean"))
    torch.testing.assert_close(by_batch, 5 * by_class)


def test_presets() -> None:
    assert FedCAFE.presets == {
        "recommended": {},
        "paper": {
            "memory_rows": "mean", "reduction": "batchmean", "min_count": 1, "max_labels": 1000, "likelihood_cap": 1e9,
        },
        "authors_code": {
            "hash_on": "raw", "label_shares": False, "times_silos": True, "memory": "reference", "align": False,
            "matching": "cluster", "min_count": 1, "likelihood_cap": 1e9,
        },
    }  # fmt: skip
    params = FedCAFEParams()
    assert (params.enhance_weight, params.consistency_weight, params.class_weight) == (0.1, 0.1, 1.0)
    assert (params.sharpness, params.likelihood_cap, params.kmeans_steps) == (1.0, 3.0, 10)
    assert (params.memory, params.matching, params.weighting) == ("kmeans", "class", "memory")
    assert params.memory_rows == "unit"
    assert (params.hash_on, params.label_shares, params.reduction, params.enhance) == ("enhanced", True, "mean", True)
    assert not params.times_silos
    assert not params.detach_target


def ready(**params: Any) -> tuple[FedCAFE, SiloContext]:
    """A method, and a silo that was sent a memory and lacks some texts."""
    method = FedCAFE(FedCAFEParams(**{"min_count": 1, **params}))
    server = fresh_server(method, class_head=True)
    memory = torch.nn.functional.normalize(draw(CLASSES, BITS, seed=7), dim=1).float().numpy()
    context = context_of(replace(server, extras={**server.extras, "memory": memory}), class_head=True)
    has_text = torch.arange(20) % 4 > 0
    context.data = replace(context.data, has_text=has_text, text=context.data.text * has_text.unsqueeze(1))
    return method, context


@pytest.mark.parametrize("enhance", [True, False])
def test_terms_are_those_of_loops_over_modalities_and_items(enhance: bool) -> None:
    method, context = ready(enhance=enhance, enhance_weight=0.2, consistency_weight=0.3, class_weight=0.4)
    rows = torch.tensor([0, 3, 8, 5, 19])
    batch = context.data.batch(rows)
    outputs, frozen = context.model(batch), context.global_model(batch)
    memory = torch.from_numpy(context.payload.extras["memory"])

    def final(given: Outputs, modality: str, i: int) -> torch.Tensor:
        logit = given.logit[modality][i]
        drawn = torch.softmax(given.class_logit[modality][i], 0) @ memory
        return logit + torch.tanh(logit) * drawn if enhance else logit

    def gap(one: torch.Tensor, other: torch.Tensor) -> float:
        return 1 - float(torch.cosine_similarity(one, other, dim=0).detach())

    has = {"image": [True] * 5, "text": [bool(context.data.has_text[row]) for row in rows]}
    expected = {"enhance": 0.0, "consistency": 0.0, "class": 0.0}
    for m in ("image", "text"):
        own = [i for i in range(5) if has[m][i]]
        expected["enhance"] += np.mean([gap(final(outputs, m, i), outputs.logit[m][i]) for i in own])
        pairs = [[gap(final(outputs, m, i), final(frozen, n, i)) for i in own if has[n][i]] for n in ("image", "text")]
        expected["consistency"] += np.mean([np.mean(one) for one in pairs])
        expected["class"] += np.mean([
            -float((torch.log_softmax(outputs.class_logit[m][i].detach(), 0) * batch.labels[i]).sum())
            / float(batch.labels[i].sum()) / CLASSES
            for i in own
        ])  # fmt: skip
    terms = method.terms(context, batch, outputs)
    weights = {"enhance": 0.2, "consistency": 0.3, "class": 0.4}
    names = list(weights) if enhance else ["consistency", "class"]
    assert {name: weight for name, (weight, _) in terms.items()} == {name: weights[name] for name in names}
    found = {name: float(value.detach()) for name, (_, value) in terms.items()}
    assert found == pytest.approx({name: float(expected[name]) for name in names}, rel=1e-3, abs=1e-6)


def test_an_empty_memory_leaves_the_enhancement_term_out() -> None:
    method, context = ready()
    context.payload.extras["memory"] = np.zeros((CLASSES, BITS), np.float32)
    batch = context.data.batch(torch.arange(5))
    assert set(method.terms(context, batch, context.model(batch))) == {"consistency", "class"}
    start = fresh_server(method, class_head=True)
    assert start.extras["memory"].shape == (CLASSES, BITS)
    assert not start.extras["memory"].any()


def test_the_target_of_the_enhancement_term_may_stay() -> None:
    for detach in (False, True):
        method, context = ready(detach_target=detach)
        batch = context.data.batch(torch.arange(6))
        outputs = context.model(batch)
        value = method.terms(context, batch, outputs)["enhance"][1]
        logits = [outputs.logit[m] for m in ("image", "text")]
        found = torch.autograd.grad(value, logits, retain_graph=True)
        values = [
            enhanced(logit, outputs.class_logit[m], torch.from_numpy(context.payload.extras["memory"]))
            for m, logit in outputs.logit.items()
        ]
        keep = [batch.has(m) for m in ("image", "text")]
        targets = [logit.detach() if detach else logit for logit in logits]
        total = sum(
            (1 - torch.cosine_similarity(v[k], t[k])).mean() for v, t, k in zip(values, targets, keep, strict=True)
        )
        for one, other in zip(found, torch.autograd.grad(total, logits), strict=True):
            torch.testing.assert_close(one, other)


def test_codes_are_squashed_only_where_towers_end_in_a_tanh() -> None:
    method, context = ready()
    outputs = context.model(context.data.batch(torch.arange(4)))
    memory = torch.from_numpy(context.payload.extras["memory"])
    values = {m: enhanced(logit, outputs.class_logit[m], memory) for m, logit in outputs.logit.items()}
    plain = method.adapter.adapt_outputs(outputs, {"memory": memory})
    squashed = method.adapter.adapt_outputs(
        replace(outputs, code={m: torch.tanh(v) for m, v in outputs.logit.items()}), {"memory": memory}
    )
    for m, value in values.items():
        torch.testing.assert_close(plain.code[m], value)
        torch.testing.assert_close(squashed.code[m], torch.tanh(value))
    off = FedCAFE(FedCAFEParams(enhance=False))
    assert off.adapter.adapt_outputs(outputs, {"memory": memory}) is outputs
    assert (method.adapter.adapts_training, FedCAFE(FedCAFEParams(hash_on="raw")).adapter.adapts_training) == (
        True,
        False,
    )


def test_silos_far_from_the_common_memory_weigh_more() -> None:
    method = FedCAFE(FedCAFEParams(kmeans_steps=0))
    rows = np.eye(4, dtype=np.float32)
    memories = [rows, rows, -rows]
    updates = [
        Message("update", str(n), 0, params={"image.w": np.asarray([float(n)])}, weights={"image": 100.0 - n},
                records={"memory": memory, "mask": np.ones(4, bool)})
        for n, memory in enumerate(memories)
    ]  # fmt: skip
    server = ServerState(params={"image.w": np.asarray([0.0])}, extras={"memory": np.zeros((4, 4), np.float32)})
    after = method.aggregate(server, updates)
    same = (math.log1p(math.exp(0.5)) - 0.5 + 3 * math.log(2)) / 4
    opposite = (math.log1p(math.exp(-0.5)) + 0.5 + 3 * math.log(2)) / 4
    expected = (same + 2 * opposite) / (2 * same + opposite)
    assert after.params["image.w"][0] == pytest.approx(expected)
    np.testing.assert_allclose(after.extras["memory"], rows, atol=1e-6)
    by_size = FedCAFE(FedCAFEParams(kmeans_steps=0, weighting="examples")).aggregate(server, updates)
    assert by_size.params["image.w"][0] == pytest.approx((99 + 2 * 98) / 297)
    lacking = [replace(updates[0], weights={"image": 0.0}), *updates[1:]]
    without = method.aggregate(server, lacking).params["image.w"][0]
    assert without == pytest.approx((same + 2 * opposite) / (same + opposite))


@pytest.mark.parametrize(("steps", "scale"), [(0, "unit"), (10, "unit"), (0, "mean"), (10, "mean")])
def test_the_local_memory_grows_from_class_means(steps: int, scale: str) -> None:
    method, context = ready(kmeans_steps=steps, max_labels=9, memory_rows=scale)
    update = method.update(context)
    batch = context.data.batch(torch.arange(20))
    memory = torch.from_numpy(context.payload.extras["memory"])
    outputs = context.model.eval()(batch)
    both = {m: enhanced(logit, outputs.class_logit[m], memory).detach() for m, logit in outputs.logit.items()}
    means = torch.where(context.data.has_text.unsqueeze(1), (both["image"] + both["text"]) / 2, both["image"])
    points = torch.nn.functional.normalize(means, dim=1) if scale == "unit" else means
    seeds = torch.stack([points[batch.labels[:, c] > 0].mean(0) for c in range(CLASSES)])
    expected = kmeans(points, seeds, distance="cosine" if scale == "unit" else "euclidean", steps=steps)
    np.testing.assert_allclose(update.records["memory"], expected.numpy(), atol=1e-5)
    assert update.records["mask"].tolist() == [True] * CLASSES


def test_free_clusters_are_released_from_as_many_items_on() -> None:
    method, context = ready(memory="reference", min_count=4)
    memory, present = method._local_memory(context)
    directions, _ = method._points(context)
    sizes = cluster_sizes(directions, torch.nn.functional.normalize(memory, dim=1))
    assert present.any()
    assert not present.all()
    assert (memory[~present] == 0).all()
    assert (memory[present].norm(dim=1) - 1).abs().max() < 1e-5
    assert int(sizes.sum()) == 20


def test_class_means_of_outputs_are_not_scaled() -> None:
    method, context = ready(memory="class_mean", memory_rows="mean", max_labels=9)
    sums = method.statistics(context)
    server = ServerState(params={}, extras={"memory": np.zeros((CLASSES, BITS), np.float32)})
    merged = method.merge_statistics(server, {name: 2 * array for name, array in sums.items()})["memory"]
    np.testing.assert_allclose(merged, sums["sum"] / sums["count"][:, None], rtol=1e-5)
    context.payload.extras["memory"] = merged
    own, everything = torch.from_numpy(sums["sum"] / sums["count"][:, None]), torch.ones(CLASSES, dtype=torch.bool)
    likelihood = float(memory_likelihood(own, torch.from_numpy(merged), everything))
    expected = self_weight(likelihood, sharpness=1.0, cap=3.0)
    assert method.update(context).weights["image"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("memory", ["kmeans", "class_mean"])
def test_unit_rows_are_limited_and_means_are_not(memory: str) -> None:
    for scale, accepted in {"unit": False, "mean": True}.items():
        method = FedCAFE(FedCAFEParams(memory=memory, memory_rows=scale))
        values = {"memory": np.full((CLASSES, BITS), 3.0, np.float32), "mask": np.ones(CLASSES, np.bool_)}
        if memory == "class_mean":
            message = Message("update", "s", 0, sums={"sum": values["memory"], "count": np.ones(CLASSES)})
        else:
            message = Message("update", "s", 0, records=values)
        found = objection(message, method.traits.means, {"memory": np.zeros((CLASSES, BITS), np.float32)})
        assert (found is None) == accepted, found


def test_with_class_means_a_silo_weighs_itself() -> None:
    method, context = ready(memory="class_mean", sharpness=0.5)
    assert method.traits.uplink == "sum"
    assert FedCAFE(FedCAFEParams()).traits.uplink == "records"
    sums = method.statistics(context)
    server = ServerState(params={}, extras={"memory": np.zeros((CLASSES, BITS), np.float32)})
    merged = method.merge_statistics(server, {name: 2 * array for name, array in sums.items()})["memory"]
    own = sums["sum"] / np.linalg.norm(sums["sum"], axis=1, keepdims=True)
    np.testing.assert_allclose(merged, own, atol=1e-5)
    context.payload.extras["memory"] = merged
    update = method.update(context)
    likelihood = float(
        memory_likelihood(torch.from_numpy(own), torch.from_numpy(merged), torch.ones(CLASSES, dtype=torch.bool))
    )
    expected = self_weight(likelihood, sharpness=0.5, cap=3.0)
    assert update.weights == {"image": pytest.approx(expected, rel=1e-4), "text": pytest.approx(expected, rel=1e-4)}
    assert update.records == {}
    assert context.kept("class") == {}


def test_with_class_means_a_silo_that_releases_no_class_does_not_run_its_model() -> None:
    method, context = ready(memory="class_mean", min_count=21)  # of 20 items
    context.model.register_forward_pre_hook(lambda model, inputs: pytest.fail("the model is run"))
    sums = method.statistics(context)
    assert {name: (array.shape, array.any()) for name, array in sums.items()} == {
        "sum": ((CLASSES, BITS), False), "count": ((CLASSES,), False),
    }  # fmt: skip
    assert method.update(context).weights == {"image": pytest.approx(1.0), "text": pytest.approx(1.0)}


def test_card_and_traits() -> None:
    assert (CARD.year, CARD.supervised) == (2024, True)
    assert traits_of(FedCAFE) == {
        "needs_labels": True,
        "uplink": "records",
        "class_head": True,
        "encode_extras": ("memory",),
        "adds": {
            "weight": {"weighting": "examples"},
            "update": {"weighting": "examples"},
            "aggregate": {"weighting": "examples"},
        },
    }


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("enhance_weight", 0, True),
        ("consistency_weight", 0, True),
        ("class_weight", 0, True),
        ("sharpness", 0.1, True),
        ("likelihood_cap", 1, True),
        ("kmeans_steps", 0, True),
        ("enhance_weight", -0.1, False),
        ("consistency_weight", -0.1, False),
        ("class_weight", -0.1, False),
        ("sharpness", 0, False),
        ("likelihood_cap", 0.99, False),
        ("kmeans_steps", -1, False),
    ],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(FedCAFEParams, name, value) == accepted


def test_a_silo_without_texts_has_no_weight_for_their_tower() -> None:
    method, context = ready(memory="class_mean")
    context.data = replace(context.data, has_text=torch.zeros(20, dtype=torch.bool))
    method.statistics(context)
    weights = method.update(context).weights
    assert weights["text"] == 0 < weights["image"]


def test_cosine_gap_is_zero_for_the_same_direction_and_two_for_the_opposite() -> None:
    values = draw(3, 4)
    torch.testing.assert_close(cosine_gap(values, 2 * values), torch.zeros(3, dtype=torch.float64), atol=1e-7, rtol=0)
    torch.testing.assert_close(cosine_gap(values, -values), torch.full((3,), 2.0, dtype=torch.float64))
