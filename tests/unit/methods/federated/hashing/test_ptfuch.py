"""PT-FUCH: clusters, similarities and agreements compared with explicit loops, and the two phases of a round."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor

from silohash.base.types import Phase
from silohash.methods.federated.base import ServerState, SiloContext
from silohash.methods.federated.clustering import cluster_sizes
from silohash.methods.federated.hashing.ptfuch import (
    CARD,
    PTFUCH,
    PTFUCHParams,
    agreement_loss,
    cluster_loss,
    common_prototypes,
    directions,
    random_clusters,
    relation_loss,
)
from silohash.methods.local.base import outputs_of
from silohash.methods.message import Message
from silohash.models.parameters import params_of
from tests.runs import Records, prepared, run_loop, same_arrays
from tests.unit.methods.federated.helpers import BITS, accepts, context_of, draw, fresh_server, traits_of

HAS = {"image": torch.tensor([True, True, False, True]), "text": torch.tensor([True, False, True, True])}


def logits(rows: int = 4, bits: int = 6) -> dict[Any, Tensor]:
    return {"image": draw(rows, bits, seed=1), "text": draw(rows, bits, seed=2)}


def unit(rows: int, bits: int = 6, seed: int = 0) -> Tensor:
    return F.normalize(draw(rows, bits, seed=seed), dim=1)


def direction(given: dict[Any, Tensor], i: int) -> Tensor:
    held = [given[m][i] for m in given if HAS[m][i]]
    mean = torch.stack(held).mean(0)
    return mean / mean.norm()


def softmax(values: list[float]) -> list[float]:
    total = sum(math.exp(value) for value in values)
    return [math.exp(value) / total for value in values]


def test_directions_are_means_over_the_modalities_of_an_item() -> None:
    given = logits()
    found = directions(given, HAS)
    for i in range(4):
        torch.testing.assert_close(found[i], direction(given, i))


def test_the_cluster_loss_is_the_cross_entropy_of_the_nearest_centroid() -> None:
    given, centroids = logits(), unit(3)
    expected = 0.0
    for modality in ("image", "text"):
        losses = []
        for i in range(4):
            if HAS[modality][i]:
                cosines = [float(direction(given, i) @ centroids[c]) for c in range(3)]
                shares = softmax([float(given[modality][i] @ centroids[c]) for c in range(3)])
                losses.append(-math.log(shares[cosines.index(max(cosines))]))
        expected += sum(losses) / len(losses)
    assert float(cluster_loss(given, HAS, centroids)) == pytest.approx(expected, rel=1e-10)


def test_the_relation_loss_compares_all_pairs_of_modalities() -> None:
    codes, teacher = ({"image": draw(3, 5, seed=s), "text": draw(4, 5, seed=s + 1)} for s in (1, 3))
    expected = 0.0
    for one in ("image", "text"):
        for other in ("image", "text"):
            gaps = []
            for i in range(len(codes[one])):
                for j in range(len(codes[other])):
                    made, wanted = (
                        float(torch.cosine_similarity(of[one][i], of[other][j], dim=0)) for of in (codes, teacher)
                    )
                    gaps.append((made - wanted) ** 2)
            expected += sum(gaps) / len(gaps)
    assert float(relation_loss(codes, teacher)) == pytest.approx(expected, rel=1e-10)
    assert float(relation_loss(codes, codes)) == 0.0


def test_the_agreement_is_the_divergence_from_the_mean_assignment() -> None:
    given, prototypes = logits(), 3.0 * unit(3)
    cosines = {
        m: [[float(torch.cosine_similarity(values[i], prototypes[c], dim=0)) for c in range(3)] for i in range(4)]
        for m, values in given.items()
    }
    expected = 0.0
    for modality in ("image", "text"):
        losses = []
        for i in range(4):
            if not HAS[modality][i]:
                continue
            held = [softmax([v / 0.81 for v in cosines[m][i]]) for m in given if HAS[m][i]]
            target = [sum(shares) / len(held) for shares in zip(*held, strict=True)]
            found = softmax([v / 0.26 for v in cosines[modality][i]])
            losses.append(sum(p * math.log(p / q) for p, q in zip(target, found, strict=True)))
        expected += 0.5 * sum(losses) / len(losses)
    options = {"temperature": 0.26, "target_temperature": 0.81}
    assert float(agreement_loss(given, HAS, prototypes, **options)) == pytest.approx(expected, rel=1e-10)
    order = torch.tensor([2, 0, 1])
    assert float(agreement_loss(given, HAS, prototypes[order], **options)) == pytest.approx(expected, rel=1e-10)


def test_the_target_of_the_agreement_has_no_gradient() -> None:
    given = {m: values.requires_grad_() for m, values in logits().items()}
    everywhere = {m: torch.ones(4, dtype=torch.bool) for m in given}
    agreement_loss(given, everywhere, unit(3), temperature=0.5, target_temperature=0.5).backward()
    found = given["image"].grad
    again = logits()["image"].requires_grad_()
    cosines = F.normalize(again, dim=1) @ unit(3).T
    others = F.normalize(logits()["text"], dim=1) @ unit(3).T
    target = 0.5 * (F.softmax(cosines / 0.5, dim=1) + F.softmax(others / 0.5, dim=1)).detach()
    (0.5 * -(target * F.log_softmax(cosines / 0.5, dim=1)).sum(1).mean()).backward()
    torch.testing.assert_close(found, again.grad)


def test_random_clusters_start_from_different_points() -> None:
    points = unit(30)
    found = random_clusters(points, 4, torch.Generator().manual_seed(0))
    assert found.shape == (4, 6)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(4, dtype=torch.float64))
    assert cluster_sizes(points, found).min() > 0
    torch.testing.assert_close(random_clusters(points[:3], 3, torch.Generator()).sum(0), points[:3].sum(0))


def test_common_prototypes_are_centroids_of_the_silos() -> None:
    groups = torch.eye(3, 6, dtype=torch.float64).repeat_interleave(4, dim=0)
    rows = F.normalize(groups + 0.05 * draw(12, 6), dim=1)
    found = common_prototypes(rows, 3)
    for group in range(3):
        mean = rows[4 * group : 4 * group + 4].sum(0)
        torch.testing.assert_close(found[group], mean / mean.norm())
    few = common_prototypes(rows[:2], 4)
    torch.testing.assert_close(few[:2], rows[:2])
    assert few[2:].abs().max() == 0


def phases_of(method: PTFUCH, context: SiloContext) -> tuple[Phase, Phase]:
    private, shared = method.begin_round(context)
    return private, shared


def started(method: PTFUCH, count: int = 20, **more: Any) -> SiloContext:
    """Return the context of a silo whose server has common prototypes."""
    server = fresh_server(method)
    prototypes = unit(method.params.prototypes, BITS, seed=7).float().numpy()
    return context_of(replace(server, extras={"prototypes": prototypes}), count=count, **more)


def test_the_private_phase_trains_a_copy_and_the_shared_phase_the_model() -> None:
    method = PTFUCH(PTFUCHParams())
    kept = {f"private/{n}": (a + 1).astype(a.dtype) for n, a in fresh_server(method).params.items()}
    for stored in ({}, kept):
        context = started(method, kept=stored)
        private, shared = phases_of(method, context)
        assert (private.name, shared.name) == ("private", "train")
        assert private.model is not context.model
        assert shared.model is context.model
        assert same_arrays(params_of(context.model), dict(context.payload.params))
        expected = {name.removeprefix("private/"): array for name, array in kept.items()} if stored else context.initial
        assert same_arrays(params_of(private.model), expected)


def test_terms_of_the_private_model() -> None:
    method = PTFUCH(PTFUCHParams(cluster_weight=0.7, relation_weight=0.3, min_count=2, prototypes=4))
    context = started(method)
    private, _ = phases_of(method, context)
    batch = context.data.batch(torch.arange(10))
    outputs = private.model(batch)
    terms = method.terms(context, batch, outputs)
    assert {name: weight for name, (weight, _) in terms.items()} == {"cluster": 0.7, "relation": 0.3}
    everywhere = {m: batch.has(m) for m in outputs.logit}
    queue = directions(outputs.logit, everywhere).detach()
    torch.testing.assert_close(context.kept_tensors("queue")["points"], queue)
    again = started(method)
    centroids = random_clusters(queue, 4, again.generator)
    cluster = cluster_loss(outputs.logit, everywhere, centroids)
    torch.testing.assert_close(terms["cluster"][1], cluster)
    teacher = context.global_model(batch)
    made, wanted = ({m: torch.tanh(v) for m, v in of.logit.items()} for of in (outputs, teacher))
    torch.testing.assert_close(terms["relation"][1], relation_loss(made, wanted) / cluster.detach())


def test_the_divisor_is_floored_and_a_single_cluster_does_not_divide(monkeypatch: pytest.MonkeyPatch) -> None:
    batch_rows = torch.arange(6)

    def relation(**params: Any) -> tuple[float, float]:
        method = PTFUCH(PTFUCHParams(**params))
        context = started(method)
        batch = context.data.batch(batch_rows)
        outputs = phases_of(method, context)[0].model(batch)
        teacher = context.global_model(batch)
        made, wanted = ({m: torch.tanh(v) for m, v in of.logit.items()} for of in (outputs, teacher))
        plain = float(relation_loss(made, wanted).detach())
        return float(method.terms(context, batch, outputs)["relation"][1].detach()), plain

    for params in ({"prototypes": 1}, {"min_count": 6}, {"cluster_weight": 0.0}):
        found, plain = relation(**params)
        assert found == pytest.approx(plain, rel=1e-6)
    monkeypatch.setattr("silohash.methods.federated.hashing.ptfuch.cluster_loss", lambda *given: torch.tensor(0.01))
    found, plain = relation(min_count=1)
    assert found == pytest.approx(plain / 0.1, rel=1e-5)


def test_the_queue_holds_the_last_items() -> None:
    method = PTFUCH(PTFUCHParams(queue=7, min_count=1))
    context = started(method)
    private, shared = phases_of(method, context)
    points = []
    for rows in (torch.arange(5), torch.arange(5, 10)):
        batch = context.data.batch(rows)
        outputs = private.model(batch)
        method.terms(context, batch, outputs)
        points.append(directions(outputs.logit, {m: batch.has(m) for m in outputs.logit}))
    torch.testing.assert_close(context.kept_tensors("queue")["points"], torch.cat(points)[-7:].detach())
    assert shared.begin is not None
    shared.begin()
    assert not context.kept_tensors("queue")


def test_prototypes_of_the_silo_are_those_of_the_private_model() -> None:
    method = PTFUCH(PTFUCHParams(min_count=4, prototypes=3))
    context = started(method)
    context.data = replace(context.data, has_text=torch.arange(20) > 3)
    private, shared = phases_of(method, context)
    assert shared.begin is not None
    shared.begin()
    logit = outputs_of(private.model, context.data, part="logit")
    points = directions(logit, {m: context.data.has(m) for m in logit})
    expected = random_clusters(points, 3, started(method).generator)
    kept = context.kept_tensors("prototypes")
    torch.testing.assert_close(kept["rows"], expected)
    assert kept["sizes"].tolist() == cluster_sizes(points, expected).tolist()
    assert same_arrays(context.kept("private"), params_of(private.model))
    update = method.update(context)
    released = kept["sizes"].numpy() >= 4
    assert update.records["mask"].tolist() == released.tolist()
    assert np.array_equal(update.records["prototypes"][released], expected.numpy()[released])
    assert not update.records["prototypes"][~released].any()
    assert not context.kept("prototypes")


def test_terms_of_the_shared_model_need_common_prototypes() -> None:
    method = PTFUCH(PTFUCHParams(global_weight=0.7, local_weight=0.3, target_temperature=0.81))
    for exist in (True, False):
        context = started(method) if exist else context_of(fresh_server(method))
        _, shared = phases_of(method, context)
        assert shared.begin is not None
        shared.begin()
        batch = context.data.batch(torch.arange(8))
        outputs = context.model(batch)
        terms = method.terms(context, batch, outputs)
        if not exist:
            assert terms == {}
            continue
        has = {m: batch.has(m) for m in outputs.logit}
        options = {"temperature": 0.26, "target_temperature": 0.81}
        common = torch.from_numpy(context.payload.extras["prototypes"])
        own = context.kept_tensors("prototypes")["rows"]
        assert {name: weight for name, (weight, _) in terms.items()} == {
            "global_prototypes": 0.7, "local_prototypes": 0.3,
        }  # fmt: skip
        expected = {"global_prototypes": common, "local_prototypes": own}
        for name, prototypes in expected.items():
            torch.testing.assert_close(terms[name][1], agreement_loss(outputs.logit, has, prototypes, **options))


def test_terms_of_weight_zero_are_left_out() -> None:
    method = PTFUCH(PTFUCHParams(local_weight=0.0, relation_weight=0.0, min_count=1))
    context = started(method)
    private, shared = phases_of(method, context)
    batch = context.data.batch(torch.arange(8))
    assert set(method.terms(context, batch, private.model(batch))) == {"cluster"}
    assert shared.begin is not None
    shared.begin()
    assert set(method.terms(context, batch, context.model(batch))) == {"global_prototypes"}


@pytest.mark.parametrize(
    ("items", "min_count", "expected"),
    [(0, 5, 0), (3, 5, 1), (10, 5, 2), (19, 5, 3), (500, 5, 24), (9, 1, 9), (40, 1, 24)],
)
def test_a_silo_seeks_at_most_one_cluster_per_minimum_of_items(items: int, min_count: int, expected: int) -> None:
    assert PTFUCH(PTFUCHParams(min_count=min_count))._clusters(items) == expected


def test_the_server_clusters_the_prototypes_of_all_silos() -> None:
    method = PTFUCH(PTFUCHParams(prototypes=3))
    server = fresh_server(method)
    assert server.extras["prototypes"].shape == (3, BITS)
    assert not server.extras["prototypes"].any()
    rows = unit(6, BITS).float().numpy()

    def sent(prototypes: np.ndarray, mask: list[bool]) -> Message:
        records = {"prototypes": prototypes * np.asarray(mask)[:, None], "mask": np.asarray(mask)}
        weights = {"image": 1.0, "text": 1.0}
        return Message("update", "silo", 0, params=server.params, weights=weights, records=records)

    after = method.aggregate(server, [sent(rows[:3], [True, False, True]), sent(rows[3:], [True, True, True])])
    expected = common_prototypes(torch.from_numpy(rows[[0, 2, 3, 4, 5]]), 3)
    assert np.allclose(after.extras["prototypes"], expected.numpy())
    none = method.aggregate(after, [sent(rows[:3], [False] * 3)])
    assert np.array_equal(none.extras["prototypes"], after.extras["prototypes"])


def test_silos_count_alike_or_by_their_items() -> None:
    for weighting, expected in (("uniform", [1.0, 0.0]), ("examples", [20.0, 0.0])):
        method = PTFUCH(PTFUCHParams(weighting=weighting))
        context = context_of(fresh_server(method))
        context.data = replace(context.data, has_text=torch.zeros(20, dtype=torch.bool))
        assert [method.weight(context, group) for group in ("image", "text")] == expected
        assert method.traits.weights_known == "before training"


def ended(name: str, local: str = "dcmh", **params: Any) -> tuple[ServerState, Any, Records]:
    records = Records()
    given = prepared(local={"name": local}, federated={"name": name, "rounds": 3, **params})
    state = run_loop(given, records)
    return state.server, state.silos, records


def test_without_prototypes_it_is_federated_averaging_bit_for_bit() -> None:
    server, silos, _ = ended("ptfuch", global_weight=0.0, local_weight=0.0)
    assert same_arrays(ended("fedavg")[0].params, server.params)
    assert not any(silos.values())
    assert not same_arrays(ended("ptfuch")[0].params, server.params)


@pytest.mark.parametrize("local", ["dcmh", "ucch"])
def test_terms_start_in_the_second_round_and_silos_keep_private_models_only(local: str) -> None:
    server, silos, records = ended("ptfuch", local)
    own = {"global_prototypes", "local_prototypes"}
    assert [own & set(record.terms) for record in records.records] == [set(), own, own]
    assert server.extras["prototypes"].any()
    for kept in silos.values():
        assert {name.split("/")[0] for name in kept} == {"private"}


def test_card_presets_and_traits() -> None:
    assert (CARD.year, CARD.supervised) == (2023, False)
    paper = {
        "min_count": 1,
        "global_weight": 1.0,
        "local_weight": 1.0,
        "target_temperature": 0.81,
        "weighting": "uniform",
    }
    assert PTFUCH.presets == {"recommended": {}, "paper": paper}
    assert traits_of(PTFUCH) == {
        "uplink": "records",
        "adds": {"weight": {"weighting": "examples"}, "update": {}, "aggregate": {}},
    }
    params = PTFUCHParams()
    assert (params.prototypes, params.min_count, params.queue, params.weighting) == (24, 5, 256, "examples")
    assert (params.temperature, params.target_temperature) == (0.26, 0.1)
    weights = (params.cluster_weight, params.relation_weight, params.global_weight, params.local_weight)
    assert weights == (1.0, 1.0, 0.1, 0.1)


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("prototypes", 1, True), ("prototypes", 0, False), ("min_count", 1, True), ("min_count", 0, False),
        ("queue", 1, True), ("queue", 0, False), ("cluster_weight", 0, True), ("cluster_weight", -0.1, False),
        ("relation_weight", 0, True), ("relation_weight", -0.1, False), ("global_weight", 0, True),
        ("global_weight", -0.1, False), ("local_weight", 0, True), ("local_weight", -0.1, False),
        ("temperature", 0, False), ("target_temperature", 0, False),
    ],
)  # fmt: skip
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(PTFUCHParams, name, value) == accepted
