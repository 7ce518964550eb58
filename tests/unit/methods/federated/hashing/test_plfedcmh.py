"""PLFedCMH: mixtures of the silos' layers, the prototype losses, its parameters and presets."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from silohash.methods.federated.base import FederationInfo, ServerState
from silohash.methods.federated.general.fedproto import prototype_distance
from silohash.methods.federated.hashing.plfedcmh import (
    CARD,
    Mixer,
    PLFedCMH,
    PLFedCMHParams,
    authors_scales,
    class_code_gap,
)
from silohash.methods.message import Message
from silohash.models.towers import HashNet
from tests.runs import (
    model_spec,
    same_arrays,
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
    server_of_trained_silos,
    traits_of,
)


class TestMixing:
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
                         silo=0)  # fmt: skip

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
            Message(kind="update", sender=str(silo), round=0, params=moved, weights=weights, silo=silo)
            for silo, weights in trained.items()
        ]
        after = method.aggregate(server, updates)
        assert after.private["trained/image"].tolist() == [True, True, False]
        assert after.private["trained/text"].tolist() == [True, False, False]
        for silo in range(3):
            mixture = method.broadcast(after, silo, round=1).params
            assert all(np.allclose(mixture[name], array, atol=1e-6) for name, array in moved.items())

    def test_all_that_have_trained_have_a_part(self) -> None:
        mixer = Mixer(4, 2, embeddings=4)
        everyone, two = torch.tensor([True] * 4), torch.tensor([True, False, True, False])
        whole, part = mixer(1, everyone).detach(), mixer(1, two).detach()
        assert bool((whole > 0).all())
        torch.testing.assert_close(whole.sum(1), torch.ones(2))
        torch.testing.assert_close(part[:, two], whole[:, two] / whole[:, two].sum(1, keepdim=True))
        assert float(part[:, ~two].abs().sum()) == 0.0

    @staticmethod
    def server(method: PLFedCMH) -> ServerState:
        model = HashNet(model_spec(), 8)
        return method.init_server(model, FederationInfo(silos=3, classes=6, bits=8, total_rounds=2))


class TestHypernetworks:
    """Four silos with models that differ, and updates of some of them."""

    rate = 0.1

    def ready(self, kind: str) -> tuple[PLFedCMH, ServerState]:
        method = PLFedCMH(PLFedCMHParams(hypernetworks=kind, hyper_rate=self.rate))
        return method, server_of_trained_silos(method)

    def update(self, server: ServerState, silo: int, **weights: float) -> Message:
        params = {n: a + draw(*a.shape, seed=10 + silo).float().numpy() for n, a in server.params.items()}
        given = {"image": 1.0, "text": 1.0, **weights}
        return Message("update", str(silo), 0, params=params, weights=given, silo=silo)

    @staticmethod
    def networks(state: ServerState, group: str, silo: int | None = None) -> dict[str, np.ndarray]:
        start = f"hyper/{group}/" + ("" if silo is None else f"{silo}/")
        return {name: array for name, array in state.private.items() if name.startswith(start)}

    def test_each_silo_has_its_own_or_all_share_one(self) -> None:
        (_, shared), (_, per_silo) = self.ready("shared"), self.ready("per_silo")
        shapes = {name: array.shape for name, array in self.networks(shared, "image").items()}
        assert shapes["hyper/image/embedding.weight"] == (4, 32)
        assert shapes["hyper/image/heads.0.weight"] == (4, 32)
        for silo in range(4):
            own = self.networks(per_silo, "text", silo)
            assert own[f"hyper/text/{silo}/embedding.weight"].shape == (1, 32)
            assert {array.shape for n, array in own.items() if ".heads." in n or "/heads." in n} == {(4, 32), (4,)}
            assert len(own) == len(self.networks(shared, "text"))
        assert len(self.networks(per_silo, "image")) == 4 * len(self.networks(shared, "image"))
        first, second = (self.networks(per_silo, "image", silo) for silo in (0, 1))
        pairs = zip(first.values(), second.values(), strict=True)
        assert not any(np.array_equal(one, other) for one, other in pairs)

    def test_a_silo_trains_its_own_only(self) -> None:
        method, server = self.ready("per_silo")
        after = method.aggregate(server, [self.update(server, 2, text=0.0)])
        for group, silo in product(("image", "text"), range(4)):
            same = same_arrays(self.networks(server, group, silo), self.networks(after, group, silo))
            assert same == ((group, silo) != ("image", 2)), (group, silo)
        method, server = self.ready("shared")
        after = method.aggregate(server, [self.update(server, 2, text=0.0)])
        assert same_arrays(self.networks(server, "text"), self.networks(after, "text"))
        assert not same_arrays(self.networks(server, "image"), self.networks(after, "image"))

    def test_other_silos_make_no_difference_to_it(self) -> None:
        method, server = self.ready("per_silo")
        updates = [self.update(server, silo) for silo in (0, 3)]
        together = method.aggregate(server, updates)
        for silo, update in zip((0, 3), updates, strict=True):
            alone = method.aggregate(server, [update])
            for group in ("image", "text"):
                assert same_arrays(self.networks(together, group, silo), self.networks(alone, group, silo))

    @pytest.mark.parametrize("kind", ["per_silo", "shared"])
    def test_the_step_of_a_bias_by_hand(self, kind: str) -> None:
        """With shares r_j / R, d(mixture) / d(bias j) = (theta_j - mixture) / R."""
        method, server = self.ready(kind)
        update = self.update(server, 1)
        after = method.aggregate(server, [update])
        start = "hyper/image/" + ("1/" if kind == "per_silo" else "")
        old = {n.removeprefix(start): a.astype(np.float64) for n, a in server.private.items() if n.startswith(start)}
        hidden = old["embedding.weight"][0 if kind == "per_silo" else 1]
        for block in range(3):
            hidden = np.maximum(old[f"body.{block}.0.weight"] @ hidden + old[f"body.{block}.0.bias"], 0)
        for layer, names in enumerate(method._groups(server.params)["image"].values()):
            raw = old[f"heads.{layer}.weight"] @ hidden + old[f"heads.{layer}.bias"]
            positive = np.maximum(raw, 0) + 1e-8
            gradient = np.zeros(4)
            for name in names:
                models = np.stack([server.private[f"bank/{j}/{name}"].astype(np.float64) for j in range(4)])
                mixture = np.tensordot(positive / positive.sum(), models, axes=1)
                change = update.params[name] - mixture
                gradient += [(change * (model - mixture)).sum() / positive.sum() for model in models]
            moved = after.private[f"{start}heads.{layer}.bias"] - old[f"heads.{layer}.bias"]
            np.testing.assert_allclose(moved, self.rate * gradient * (raw > 0), rtol=2e-3, atol=1e-6)

    def test_a_silo_that_joins_gets_its_own_mixture(self) -> None:
        method, server = self.ready("per_silo")
        sent = [method.broadcast(server, silo, round=1).params["image.hash.weight"] for silo in range(4)]
        assert not any(np.array_equal(sent[0], other) for other in sent[1:])
        again = method.broadcast(server, 3, round=1).params["image.hash.weight"]
        np.testing.assert_array_equal(again, sent[3])


class TestAuthorsCode:
    def test_in_sequence_a_silo_mixes_the_new_models_of_those_before(self) -> None:
        together, in_turn = (
            PLFedCMH(PLFedCMHParams(hyper_rate=0.1, sequential=sequential)) for sequential in (False, True)
        )
        server = together.init_server(HashNet(model_spec(), BITS), INFO)
        server.private.update({f"trained/{group}": np.ones(4, np.bool_) for group in ("image", "text")})
        updates = [
            Message(
                kind="update", sender=str(silo), round=0, weights={"image": 1.0, "text": 1.0},
                params={n: (a + draw(*a.shape, seed=silo).numpy()).astype(a.dtype) for n, a in server.params.items()},
                records={"silo": np.asarray(silo)},
            )
            for silo in range(4)
        ]  # fmt: skip
        one_by_one = server
        for update in updates:
            one_by_one = together.aggregate(one_by_one, [update])
        found = in_turn.aggregate(server, updates)
        assert same_arrays(found.private, one_by_one.private)
        parallel = together.aggregate(server, updates).private
        assert same_arrays(*({n: a for n, a in p.items() if n.startswith("bank/")} for p in (found.private, parallel)))
        # of the first models, all alike, nothing can be learnt in parallel; in turn there is something to mix
        assert not same_arrays(found.private, parallel)

    def test_the_scale_of_the_code_is_that_of_its_sums(self) -> None:
        values, prototypes, labels, items = draw(5, 3, seed=1), draw(6, 3, seed=2), hot(5, 6), 40
        mask = torch.tensor([True, True, False, True, True, True])
        gaps = [
            (3 * float(labels[i, c]) - float(values[i] @ prototypes[c])) ** 2
            for i in range(5) for c in range(6) if mask[c]
        ]  # fmt: skip
        distances = []
        for i in range(5):
            target = torch.stack([prototypes[c] for c in range(6) if mask[c] and labels[i, c]]).mean(0)
            distances += [float(values[i, k] - target[k]) ** 2 for k in range(3)]
        wide, narrow = authors_scales(3, 5, batch=5, items=items)
        gap = float(class_code_gap(values, labels, prototypes, mask).mean())
        distance = float(prototype_distance(values, labels, prototypes, mask).mean())
        assert wide * gap == pytest.approx(sum(gaps) / (5 * items))
        assert narrow * distance == pytest.approx(sum(distances) / len(distances) / (5 * items))

    def test_its_terms_have_that_scale(self) -> None:
        found = {}
        known = {f"prototypes/{m}": draw(CLASSES, BITS).float().numpy() for m in ("image", "text")}
        known |= {f"mask/{m}": np.arange(CLASSES) != 2 for m in ("image", "text")}
        context = context_of(ServerState(params={}, extras=known))
        batch = context.data.batch(torch.arange(8))
        for normalization in ("mean", "code"):
            method = PLFedCMH(PLFedCMHParams(normalization=normalization))
            terms = method.terms(context, batch, context.model(batch))
            found[normalization] = {name: float(value.detach()) for name, (_, value) in terms.items()}
        wide, narrow = authors_scales(BITS, CLASSES - 1, batch=8, items=20)
        assert found["code"]["class_code"] == pytest.approx(wide * found["mean"]["class_code"])
        assert found["code"]["prototype"] == pytest.approx(narrow * found["mean"]["prototype"])


def test_class_code_gap_is_that_of_a_double_loop() -> None:
    values, prototypes, labels = draw(4, 3, seed=1), draw(5, 3, seed=2), hot(4, 5)
    mask = torch.tensor([True, True, False, True, True])
    found = class_code_gap(values, labels, prototypes, mask)
    for i in range(4):
        gaps = [(float(values[i] @ prototypes[c]) / 3 - float(labels[i, c])) ** 2 for c in range(5) if mask[c]]
        assert float(found[i]) == pytest.approx(sum(gaps) / 4)


def test_terms_and_their_weights() -> None:
    known = {f"prototypes/{m}": draw(CLASSES, BITS, seed=5).float().numpy() for m in ("image", "text")}
    known |= {f"mask/{m}": np.arange(CLASSES) != 2 for m in ("image", "text")}
    context = context_of(ServerState(params={}, extras=known))
    batch = context.data.batch(torch.arange(12))
    outputs = context.model(batch)
    mask, prototypes = torch.arange(CLASSES) != 2, torch.from_numpy(known["prototypes/image"])
    rows = batch.labels[:, mask].sum(1) > 0
    expected = {"class_code": 0.0, "prototype": 0.0}
    for logit in outputs.logit.values():
        values, labels = torch.tanh(logit[rows]), batch.labels[rows]
        expected["class_code"] += float(class_code_gap(values, labels, prototypes, mask).mean())
        expected["prototype"] += float(prototype_distance(values, labels, prototypes, mask).mean())
    terms = PLFedCMH(PLFedCMHParams(class_code_weight=0.3, prototype_weight=0.7)).terms(context, batch, outputs)
    assert {name: weight for name, (weight, _) in terms.items()} == {"class_code": 0.3, "prototype": 0.7}
    assert {name: float(value) for name, (_, value) in terms.items()} == pytest.approx(expected, rel=1e-5)
    only = PLFedCMH(PLFedCMHParams(class_code_weight=0.0)).terms(context, batch, outputs)
    assert set(only) == {"prototype"}


def test_the_mixture_is_the_sum_of_all_silos_layers_by_their_shares() -> None:
    method = PLFedCMH(PLFedCMHParams())
    server = fresh_server(method)
    server.private.update({f"trained/{group}": np.asarray([True, True, False, True]) for group in ("image", "text")})
    for silo in range(4):
        for name, array in server.params.items():
            server.private[f"bank/{silo}/{name}"] = np.full_like(array, 10.0**silo)
    sent = method.broadcast(server, 1, round=0).params
    mixer = method._mixer(server, "image", 1)
    shares = mixer(1, torch.tensor([True, True, False, True])).detach().numpy()
    layers = list(method._groups(server.params)["image"].values())
    for share, names in zip(shares, layers, strict=True):
        for name in names:
            np.testing.assert_allclose(sent[name], share[0] + 10 * share[1] + 1000 * share[3], rtol=1e-4)
    assert server.private["trained/image"].shape == (4,)


def test_a_silo_sends_class_sums_and_does_not_say_who_it_is() -> None:
    method = PLFedCMH(PLFedCMHParams(min_count=1))
    update = method.update(context_of(fresh_server(method)))
    assert (update.records, update.silo) == ({}, -1)
    assert set(update.sums) == {f"prototype_{kind}/{m}" for kind in ("sum", "count") for m in ("image", "text")}


def test_presets() -> None:
    own = {"normalization": "code", "prototype_weight": 1e5, "min_count": 1, "max_labels": 1000}
    own |= {"hypernetworks": "per_silo"}
    assert PLFedCMH.presets == {
        "recommended": {}, "paper": own, "authors_code": {**own, "hyper_rate": -1e-3, "sequential": True},
    }  # fmt: skip
    params = PLFedCMHParams()
    assert params.hypernetworks == "shared"
    assert (params.class_code_weight, params.prototype_weight, params.hyper_rate) == (0.5, 1.0, 1e-3)
    assert (params.prototype_weighting, params.normalization, params.sequential, params.fuse) == (
        "uniform",
        "mean",
        False,
        False,
    )


def test_card_and_traits() -> None:
    assert (CARD.year, CARD.supervised) == (2023, True)
    assert traits_of(PLFedCMH) == {
        "needs_labels": True,
        "uniform_broadcast": False,
        "uplink": "records",
        "personalized": True,
        "codes_comparable": False,
        "averages": False,
    }


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("class_code_weight", 0, True),
        ("prototype_weight", 0, True),
        ("hyper_rate", -0.5, True),
        ("hyper_rate", 0, True),
        ("class_code_weight", -0.1, False),
        ("prototype_weight", -0.1, False),
    ],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(PLFedCMHParams, name, value) == accepted
