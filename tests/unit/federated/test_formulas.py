"""The formulas of the federated methods, against explicit loops and closed forms."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.exchange.message import Message
from silohash.federated.base import FederationInfo, ServerState
from silohash.federated.class_memory import memory_likelihood, self_weight, silo_weights
from silohash.federated.clustering import aligned, cluster_sizes, spherical_kmeans
from silohash.federated.contrastive_losses import cosine_gap, model_contrast
from silohash.federated.methods.fedala import updated_mix
from silohash.federated.methods.fedbignns import interpolated
from silohash.federated.methods.fedcafe import FedCAFE, FedCAFEParams, class_loss, enhanced
from silohash.federated.methods.fedcmr import data_share, loss_term
from silohash.federated.methods.fedhap import quantization, sampled_classes, signed_prototypes, straight_through
from silohash.federated.methods.fedproc import global_contrast
from silohash.federated.methods.fedproto import prototype_distance
from silohash.federated.methods.fedprox import proximal
from silohash.federated.methods.plfedcmh import Mixer, PLFedCMH, PLFedCMHParams, layers_of
from silohash.federated.statistics import ReleaseParams, class_shares, class_statistics, merged_prototypes
from silohash.local.supervised.triplet import triplet_loss
from silohash.models.discriminator import PairJudge
from silohash.models.towers import HashNet
from tests.runs import model_spec

double = torch.float64


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=double)


def hot(rows: int, classes: int, seed: int = 0) -> torch.Tensor:
    drawn = (torch.rand(rows, classes, generator=torch.Generator().manual_seed(seed)) < 0.4).to(double)
    drawn[torch.arange(rows), torch.arange(rows) % classes] = 1
    return drawn


def test_class_statistics_are_sums_a_class_with_bounded_shares() -> None:
    values, labels = draw(12, 4), hot(12, 5)
    release = ReleaseParams(min_count=4, max_labels=2)
    found = class_statistics(values, labels, release)
    for c in range(5):
        sums, count = torch.zeros(4, dtype=double), 0.0
        for i in range(12):
            if labels[i, c]:
                share = min(1.0, 2 / float(labels[i].sum()))
                sums, count = sums + share * values[i], count + share
        if labels[:, c].sum() < 4:
            sums, count = 0 * sums, 0.0
        torch.testing.assert_close(found.sums[c], sums)
        assert float(found.counts[c]) == pytest.approx(count)
    one = class_statistics(values[:1], torch.ones(1, 5, dtype=double), ReleaseParams(min_count=1, max_labels=2))
    assert float(one.counts.sum()) == pytest.approx(2.0)


def test_shares_of_classes_without_a_prototype_are_left_out() -> None:
    shares = class_shares(torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]]), torch.tensor([True, False, True]))
    assert shares.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


def test_merged_prototypes_of_identical_ones_are_those_and_absent_classes_keep_theirs() -> None:
    own = np.asarray([[1.0, -1.0], [0.5, 0.25], [0.0, 0.0]])
    counts = np.asarray([7.0, 3.0, 0.0])
    before = np.asarray([[9.0, 9.0], [9.0, 9.0], [4.0, 4.0]])
    merged, mask = merged_prototypes(2 * own * counts[:, None], 2 * counts, before)
    np.testing.assert_allclose(merged, [[1.0, -1.0], [0.5, 0.25], [4.0, 4.0]])
    assert mask.all()


def test_proximal_is_half_the_squared_distance() -> None:
    pairs = [(draw(3, 2, seed=1), draw(3, 2, seed=2)), (draw(4, seed=3), draw(4, seed=4))]
    expected = sum(float((a - b).square().sum()) for a, b in pairs) / 2
    assert float(proximal(pairs)) == pytest.approx(expected)


def test_model_contrast_is_the_cross_entropy_of_two_cosines() -> None:
    values, ahead, behind = draw(5, 4, seed=1), draw(5, 4, seed=2), draw(5, 4, seed=3)
    found = model_contrast(values, ahead, [behind], 0.5)
    for i in range(5):
        near, far = (
            math.exp(float(values[i] @ other[i] / values[i].norm() / other[i].norm()) / 0.5)
            for other in (ahead, behind)
        )
        assert float(found[i]) == pytest.approx(-math.log(near / (near + far)))
    assert float(model_contrast(values, ahead, [ahead], 0.5)[0]) == pytest.approx(math.log(2))
    assert float(model_contrast(values, ahead, [ahead] * 4, 0.5)[0]) == pytest.approx(math.log(5))


def test_global_contrast_and_prototype_distance_on_multi_labels() -> None:
    values, prototypes, labels = draw(4, 3, seed=1), draw(5, 3, seed=2), hot(4, 5)
    mask = torch.tensor([True, True, False, True, True])
    contrast = global_contrast(values, labels, prototypes, mask, 0.7)
    distance = prototype_distance(values, labels, prototypes, mask)
    for i in range(4):
        own = [c for c in range(5) if mask[c] and labels[i, c]]
        cosine = {c: float(values[i] @ prototypes[c] / values[i].norm() / prototypes[c].norm()) for c in range(5)}
        total = sum(math.exp(cosine[c] / 0.7) for c in range(5) if mask[c])
        expected = np.mean([-math.log(math.exp(cosine[c] / 0.7) / total) for c in own])
        assert float(contrast[i]) == pytest.approx(float(expected))
        target = torch.stack([prototypes[c] for c in own]).mean(0)
        assert float(distance[i]) == pytest.approx(float((values[i] - target).square().mean()))


def test_mixing_weights_follow_the_gradient_within_bounds() -> None:
    mix, gradient, common, own = torch.ones(3), torch.tensor([1.0, -1.0, 0.2]), torch.ones(3), torch.zeros(3)
    torch.testing.assert_close(updated_mix(mix, gradient, common, own, 1.0), torch.tensor([0.0, 1.0, 0.8]))


def test_mixed_starts_average_to_the_common_parameters() -> None:
    owns = [{"w": np.asarray([1.0, 5.0])}, {"w": np.asarray([4.0, -1.0])}]
    weights = (0.25, 0.75)
    common = {"w": sum(w * own["w"] for w, own in zip(weights, owns, strict=True))}
    for share in (-0.5, 0.0, 0.3):
        starts = [interpolated(common, own, share)["w"] for own in owns]
        np.testing.assert_allclose(sum(w * s for w, s in zip(weights, starts, strict=True)), common["w"])
    away = interpolated(common, owns[0], -0.5)["w"] - common["w"]
    assert float(away @ (owns[0]["w"] - common["w"])) < 0


def test_fedcmr_weights_fall_with_the_loss_and_rise_with_size() -> None:
    assert loss_term(0.5, 1.0) > loss_term(1.0, 1.0) > loss_term(2.0, 1.0) > 0
    assert loss_term(1.0, 1.0) == pytest.approx(math.exp(-math.e))
    assert data_share(30, 4, all_items=60, all_classes=16) == pytest.approx(0.125)


def test_triplets_are_those_of_a_triple_loop() -> None:
    distances, labels = draw(5, 6).abs(), hot(5, 6)
    near, far = labels > 0, labels == 0
    gaps = [
        float(distances[i, p] - distances[i, n]) + 0.3
        for i in range(5) for p in range(6) for n in range(6) if near[i, p] and far[i, n]
    ]  # fmt: skip
    violated = [gap for gap in gaps if gap > 0]
    assert float(triplet_loss(distances, near, far, 0.3)) == pytest.approx(sum(violated) / len(violated))
    assert float(triplet_loss(distances, near, torch.zeros_like(far), 0.3)) == 0.0


class TestFedHAP:
    def test_prototype_signs_do_not_depend_on_the_number_of_silos_and_absent_classes_keep_theirs(self) -> None:
        sums, holders = np.asarray([[0.6, -0.2, 0.0], [0.0, 0.0, 0.0]]), np.asarray([2.0, 0.0])
        before = np.asarray([[0, 0, 0], [1, -1, 1]], np.int8)
        for scale in (1.0, 0.1, 1 / 3):
            assert signed_prototypes(scale * sums, holders, before).tolist() == [[1, -1, 1], [1, -1, 1]]
        assert signed_prototypes(sums, holders, -np.ones((2, 3), np.int8))[0].tolist() == [1, -1, -1]

    def test_gradients_of_the_judgement_reach_the_codes(self) -> None:
        codes = draw(4, 6).float().requires_grad_()
        judge, classes = PairJudge(6 + 3, 8), torch.eye(3)[[0, 1, 2, 0]]
        seen = straight_through(codes)
        assert set(seen.detach().unique().tolist()) == {-1.0, 1.0}
        torch.nn.functional.softplus(-judge(seen, classes)).mean().backward()
        assert codes.grad is not None
        assert float(codes.grad.abs().sum()) > 0

    def test_quantization_is_zero_at_signs_only(self) -> None:
        assert float(quantization(torch.tensor([[1.0, -1.0]]))) == 0.0
        assert float(quantization(torch.tensor([[0.5, -1.0]]))) == pytest.approx(0.125)

    def test_drawn_classes_are_own_labels_with_a_prototype(self) -> None:
        labels = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
        mask = torch.tensor([True, False, True])
        drawn = [sampled_classes(labels, mask, torch.Generator().manual_seed(seed)).tolist() for seed in range(20)]
        assert {row[0] for row in drawn} == {0}
        assert {row[1] for row in drawn} == {-1}
        assert {row[2] for row in drawn} == {0, 2}


class TestFedCAFE:
    def test_enhancement_is_the_outputs_themselves_without_a_memory(self) -> None:
        logit, predicted, memory = draw(4, 6, seed=1), draw(4, 3, seed=2), draw(3, 6, seed=3)
        torch.testing.assert_close(enhanced(logit, predicted, torch.zeros(3, 6, dtype=double)), logit)
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

    def test_class_loss_is_the_divergence_but_for_a_constant(self) -> None:
        predicted, labels = draw(4, 5), hot(4, 5)
        shares = labels / labels.sum(1, keepdim=True)
        logs = torch.log_softmax(predicted, dim=1)
        divergence = torch.where(shares > 0, shares * (shares.clamp(min=1e-9).log() - logs), 0.0).sum(1)
        entropy = -torch.where(shares > 0, shares * shares.clamp(min=1e-9).log(), 0.0).sum(1)
        torch.testing.assert_close(class_loss(predicted, labels), (divergence + entropy) / 5)
        assert float(class_loss(predicted, torch.zeros(4, 5, dtype=double)).abs().sum()) == 0.0

    def test_likelihood_is_finite_for_many_classes_and_least_for_the_same_memory(self) -> None:
        rows = torch.nn.functional.normalize(draw(80, 128), dim=1)
        mask = torch.ones(80, dtype=torch.bool)
        same, other = memory_likelihood(rows, rows, mask), memory_likelihood(-rows, rows, mask)
        assert 0 < float(same) < float(other) < math.inf
        assert float(memory_likelihood(rows, rows, ~mask)) == pytest.approx(math.log(2))

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


def test_cosine_gap_is_zero_for_the_same_direction_and_two_for_the_opposite() -> None:
    values = draw(3, 4)
    torch.testing.assert_close(cosine_gap(values, 2 * values), torch.zeros(3, dtype=double), atol=1e-7, rtol=0)
    torch.testing.assert_close(cosine_gap(values, -values), torch.full((3,), 2.0, dtype=double))


def test_kmeans_keeps_rows_in_place_and_empty_clusters_at_their_seeds() -> None:
    centres = torch.eye(3)
    values = torch.cat([centres[c] + 0.05 * draw(8, 3, seed=c).float() for c in (0, 1)])
    seeds = torch.stack([centres[0] + 0.3, centres[1] + 0.2, torch.tensor([0.0, 0.0, -1.0]), torch.zeros(3)])
    found = spherical_kmeans(values, seeds)
    assert found[:2].argmax(1).tolist() == [0, 1]
    torch.testing.assert_close(found[2], torch.tensor([0.0, 0.0, -1.0]))
    assert float(found[3].abs().sum()) == 0.0


class TestPLFedCMH:
    def test_mixing_moves_towards_what_a_silo_learnt(self) -> None:
        method = PLFedCMH(PLFedCMHParams(hyper_rate=0.01))
        server = self.server(method)
        server.private.update({f"trained/{group}": np.ones(3, np.bool_) for group in ("image", "text")})
        for silo in range(3):  # silos differ, or mixing could not move
            for name, array in server.params.items():
                drift = 0.1 * draw(*array.shape, seed=silo).numpy()
                server.private[f"bank/{silo}/{name}"] = (array + drift).astype(array.dtype)
        target = {n: server.private[f"bank/2/{n}"] for n in server.params}
        update = Message(kind="update", sender="0", round=0, params=target, weights={"image": 1.0, "text": 1.0},
                         records={"silo": np.asarray(0)})  # fmt: skip

        def distance(state: ServerState) -> float:
            mixture = method.broadcast(replace(state, private={**state.private, **bank}), 0, round=0).params
            return sum(float(np.square(mixture[n] - target[n]).sum()) for n in target)

        bank = {n: a for n, a in server.private.items() if n.startswith("bank/")}
        assert distance(method.aggregate(server, [update])) < distance(server)

    def test_every_silo_starts_from_the_common_model(self) -> None:
        method = PLFedCMH(PLFedCMHParams())
        server = self.server(method)
        for silo in range(3):
            params = method.broadcast(server, silo, round=0).params
            assert all(np.allclose(params[name], array, atol=1e-6) for name, array in server.params.items())

    def test_nobody_gets_a_part_of_what_a_silo_has_not_trained(self) -> None:
        method = PLFedCMH(PLFedCMHParams())
        server = self.server(method)
        moved = {name: (array + 1).astype(array.dtype) for name, array in server.params.items()}
        trained = {0: {"image": 5.0, "text": 5.0}, 1: {"image": 5.0, "text": 0.0}}  # 1 has no texts, 2 takes no part
        updates = [
            Message(kind="update", sender=str(silo), round=0, params=moved, weights=weights,
                    records={"silo": np.asarray(silo)})
            for silo, weights in trained.items()
        ]  # fmt: skip
        after = method.aggregate(server, updates)
        assert after.private["trained/image"].tolist() == [True, True, False]
        assert after.private["trained/text"].tolist() == [True, False, False]
        for silo in range(3):
            mixture = method.broadcast(after, silo, round=1).params
            assert all(np.allclose(mixture[name], array, atol=1e-6) for name, array in moved.items())

    def test_all_that_have_trained_have_a_part(self) -> None:
        mixer = Mixer(4, 2)
        everyone, two = torch.tensor([True] * 4), torch.tensor([True, False, True, False])
        whole, part = mixer(1, everyone).detach(), mixer(1, two).detach()
        assert bool((whole > 0).all())
        torch.testing.assert_close(whole.sum(1), torch.ones(2))
        torch.testing.assert_close(part[:, two], whole[:, two] / whole[:, two].sum(1, keepdim=True))
        assert float(part[:, ~two].abs().sum()) == 0.0

    def test_layers_are_tensors_of_one_place(self) -> None:
        assert layers_of(["image.hash.weight", "image.hash.bias", "image.backbone.0.weight"]) == {
            "image.hash": ["image.hash.weight", "image.hash.bias"],
            "image.backbone.0": ["image.backbone.0.weight"],
        }

    @staticmethod
    def server(method: PLFedCMH) -> ServerState:
        model = HashNet(model_spec(), 8)
        return method.init_server(model, FederationInfo(silos=3, classes=6, bits=8, total_rounds=2))


def test_memory_weights_are_likelihoods_to_a_power_and_never_vanish() -> None:
    likelihoods = [0.5, 0.7, 0.6, 0.69]
    for sharpness in (1.0, 0.5, 2.0):
        powers = np.asarray(likelihoods) ** (1 / sharpness)
        np.testing.assert_allclose(silo_weights(likelihoods, sharpness=sharpness, cap=4.0), powers / powers.sum())
        own = np.asarray([self_weight(value, sharpness=sharpness, cap=1e9) for value in likelihoods])
        np.testing.assert_allclose(own / own.sum(), powers / powers.sum())
    sharp = silo_weights(likelihoods, sharpness=1e-4, cap=4.0)
    assert sharp.sum() == pytest.approx(1.0)
    assert sharp.argmax() == 1
    assert (sharp > 0).all() or sharp[1] == pytest.approx(1.0)
    assert silo_weights(likelihoods, sharpness=1e-4, cap=1.5).max() == pytest.approx(1.5 / 4)
    assert self_weight(0.7, sharpness=1e-4, cap=3.0) == 3.0


def test_class_loss_by_the_batch_is_that_by_the_class_times_the_classes() -> None:
    logit, labels = draw(6, 5), hot(6, 5)
    by_class, by_batch = (class_loss(logit, labels, reduction=way) for way in ("mean", "batchmean"))
    torch.testing.assert_close(by_batch, 5 * by_class)


def test_cluster_sizes_count_the_nearest_and_leave_zero_rows_out() -> None:
    centres = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    values = torch.tensor([[2.0, 0.1], [0.1, 3.0], [-1.0, 0.2], [0.3, 0.2]])
    assert cluster_sizes(values, centres).tolist() == [2, 0, 2]
    assert cluster_sizes(values[:0], centres).tolist() == [0, 0, 0]
