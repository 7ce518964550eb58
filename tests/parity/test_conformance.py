"""Promises about the federated methods, and the tests that check each of them.

C is contract/test_federated_methods, P parity/test_federated_methods, T parity/test_reductions, and U the
method's or block's own file in unit/federated. Tests without a letter are in this file. Names are shortened.

====  =============================================  ====================================================================
item  promise                                        tests
====  =============================================  ====================================================================
1     with its terms off a method is FedAvg          P with_its_terms_off, fednova_with_equal_steps, fedcmr_that_shares;
                                                     T fedavg_with_one_silo; fedbignns_with_equal_scores
2     a server that sees only sums ends alike        P a_server_that_sees_only_sums
3     FedNova's lengths                              U lengths_that_the_specification_names, under_a_constant_gradient
4     MOON's first gradient is zero                  TestMOON; U model_contrast
5     FedHAP: gradients pass the signs; signs of     TestFedHAP, fedhap_keeps_the_first_prototype;
      prototypes; absent classes                     U gradients_of_the_judgement, prototype_signs
6     FedCAFE: L_P, weights, order of clusters, no   TestFedCAFE; U class_loss, likelihood_is_finite, enhancement;
      memory                                         U whole_labels, weights_follow_the_clusters
7     FedBi-GNNs' starts average to the global one   U mixed_starts
8     PLFedCMH's mixing moves toward the silo       U mixing_moves_towards; U in_sequence
9     equal prototypes stay what they are            U merged_prototypes; U are_the_mean_of_the_silos_means
10    a silo with one class, without text, fewer     C trains_with_a_silo_that_lacks (12 items in batches of 16; one of six
      items than a batch or than classes             classes)
10    a class nobody has, rows without labels        bears_labels_that_lack
10    a silo that is absent for three rounds         bears_a_silo_that_is_away
11    FedCAFE's codes need its memory                TestFedCAFE
all   one and two towers, one and several labels     C learns
====  =============================================  ====================================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from silohash.base.errors import UserError
from silohash.evaluate.validation import ValidationScore
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.federated.base import FederationInfo, ServerState
from silohash.methods.federated.general.moon import MOON, MOONParams
from silohash.methods.federated.hashing.fedcafe import FedCAFE, FedCAFEParams
from silohash.methods.federated.hashing.fedhap import FedHAP, FedHAPParams
from silohash.methods.local.supervised.dcmh import DCMH, DCMHParams
from silohash.methods.local.supervised.triplet import Triplet, TripletParams
from silohash.methods.message import Message
from silohash.models.parameters import Optimizer, params_of
from silohash.models.towers import HashNet
from silohash.training import rounds, silo
from silohash.training.engines.port import SiloTask
from silohash.training.prepared import Prepared
from silohash.training.silo import make_context
from tests.runs import (
    Records,
    loop_config,
    model_spec,
    prepared,
    run_loop,
    same_arrays,
    silo_data,
    train,
    write_archive,
)

SIZES = (12, 20, 20)
KINDS = {
    name: FEDERATED_METHODS.resolve(name) for name in FEDERATED_METHODS.names() if name not in {"compose", "fedsums"}
}
RECOMMENDED = [(name, "recommended") for name in KINDS]
FAITHFUL = [
    (name, preset) for name, kind in KINDS.items() for preset in ("paper", "authors_code") if kind.presets.get(preset)
]


def inputs(name: str, preset: str, count: int = 2) -> Prepared:
    params = {"min_count": 1} if "min_count" in KINDS[name].Params.model_fields else {}
    return prepared(
        (sum(SIZES),) if KINDS[name].traits.pooled else SIZES, train={"learning_rate": 0.01},
        federated={"name": name, "preset": preset, "rounds": count, "local_epochs": 1, **params},
    )  # fmt: skip


def all_finite(state: Any, listener: Records) -> bool:
    arrays = [*state.server.params.values(), *state.server.extras.values(), *state.server.private.values()]
    arrays += [array for kept in state.silos.values() for array in kept.values()]
    refused = [silo.rejected for record in listener.records for silo in record.silos]
    return all(np.isfinite(array).all() for array in arrays) and refused == [None] * len(refused)


def context_of(method: Any, server: ServerState, kept: dict | None = None) -> Any:
    broadcast = Message("broadcast", "server", 1, params=server.params, extras=server.extras)
    task = SiloTask("train", 0, broadcast, kept or {})
    model = HashNet(model_spec(), 16)
    return make_context(task, loop_config(), model=model, local=DCMH(DCMHParams()), data=silo_data(20))


def moves_by(term: torch.Tensor, context: Any) -> list[float]:
    """How strongly a term moves each parameter of the model."""
    found = torch.autograd.grad(term, list(context.model.parameters()), allow_unused=True)
    return [0.0 if move is None else float(move.abs().max()) for move in found]


@pytest.mark.whole_run
def test_fedbignns_with_equal_scores_is_federated_averaging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "silohash.training.worker.validation_score", lambda *given, **options: ValidationScore(0.5, 0.1)
    )
    plain, scored = (
        run_loop(prepared((30, 20, 10), federated={"name": name, "rounds": 3})).server.params
        for name in ("fedavg", "fedbignns")
    )
    assert all(np.allclose(plain[name], scored[name], atol=1e-6) for name in plain)


class TestMOON:
    @pytest.mark.parametrize("drift", [0.0, 0.3])
    def test_a_model_of_its_own_that_is_the_global_one_moves_nothing(self, drift: float) -> None:
        method, model = MOON(MOONParams(contrast_weight=1.0)), HashNet(model_spec(), 16)
        generator = torch.Generator().manual_seed(0)
        own = {f"model/{n}": t.numpy() + drift * torch.randn(t.shape, generator=generator).numpy()
               for n, t in model.state_dict().items()}  # fmt: skip
        context = context_of(method, ServerState(params=params_of(model)), own)
        method.begin_round(context)
        batch = context.data.batch(torch.arange(20))
        (_, contrast) = method.terms(context, batch, context.model(batch))["contrast"]
        if drift:
            assert max(moves_by(contrast, context)) > 1e-3
        else:
            assert float(contrast.detach()) == pytest.approx(2 * math.log(2), abs=1e-5)
            assert max(moves_by(contrast, context)) < 1e-6

    def test_has_no_term_in_a_first_round(self) -> None:
        method = MOON(MOONParams(contrast_weight=1.0))
        context = context_of(method, ServerState(params=params_of(HashNet(model_spec(), 16))))
        batch = context.data.batch(torch.arange(20))
        assert method.terms(context, batch, context.model(batch)) == {}


class TestFedHAP:
    @pytest.mark.parametrize(("local", "own"), [("triplet", False), ("dcmh", True)])
    def test_the_objective_pulls_to_signs_once(self, local: str, own: bool) -> None:
        method = FedHAP(FedHAPParams())
        context = context_of(method, ServerState(params=params_of(HashNet(model_spec(), 16))))
        context.local = Triplet(TripletParams()) if local == "triplet" else DCMH(DCMHParams())
        context.payload = replace(
            context.payload, extras={"prototypes": np.zeros((6, 16), np.int8), "mask": np.zeros(6, bool)}
        )
        batch = context.data.batch(torch.arange(20))
        assert ("sign" in method.terms(context, batch, context.model(batch))) == own

    def test_classes_of_items_that_are_not_held_have_no_prototype(self) -> None:
        method, model = FedHAP(FedHAPParams(min_count=1)), HashNet(model_spec(text=False), 16)
        data = silo_data(20, text=False)
        of_first = data.labels[:, 0] > 0
        context = context_of(method, ServerState(params=params_of(model)))
        context.model, context.data = model, replace(data, has_image=~of_first)
        context.payload = replace(context.payload, extras={"prototypes": np.zeros((6, 16), np.int8)})
        holders = method.update(context).sums["prototype_holders"]
        assert holders[0] == 0
        assert holders[1:].any()

    def test_its_discriminator_learns_by_adam_whatever_the_towers_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[tuple[Any, ...]] = []

        def record(parameters: Any, *given: Any, **more: Any) -> Optimizer:
            made.append((*given, more))
            return Optimizer(parameters, *given, **more)

        monkeypatch.setattr(silo, "Optimizer", record)
        run_loop(
            prepared(federated={"name": "fedhap", "rounds": 2, "local_epochs": 1, "min_count": 1},
                     train={"optimizer": "sgd", "weight_decay": 0.1})
        )  # fmt: skip
        towers = ("sgd", 5e-3, {"weight_decay": 0.1, "momentum": 0.9})
        assert [given for given in made if given != towers] == [("adam", 1e-3, {})] * 3

    def test_the_judgement_moves_both_towers_through_their_signs(self) -> None:
        method = FedHAP(FedHAPParams(triplet_weight=0.0, quantization_weight=0.0, first_prototypes="hadamard"))
        info = FederationInfo(silos=3, classes=6, bits=16, total_rounds=3)
        context = context_of(method, method.init_server(HashNet(model_spec(), 16), info))
        method.begin_round(context)
        batch = context.data.batch(torch.arange(20))
        terms = method.terms(context, batch, context.model(batch))
        assert set(terms) == {"adversarial"}
        assert min(moves_by(terms["adversarial"][1], context)) > 0


class TestFedCAFE:
    @pytest.mark.parametrize("relaxation", ["none", "tanh"])
    def test_a_model_that_is_the_global_one_is_consistent_with_it(self, relaxation: Any) -> None:
        spec = replace(model_spec(), class_head=True)
        model = HashNet(spec, 16) if relaxation == "none" else HashNet(spec, 16, relaxation=relaxation)
        with torch.no_grad():
            for tower in ("image", "text"):
                model.get_submodule(f"{tower}.hash").weight *= 8  # so that a tanh would bend what is compared
        method = FedCAFE(FedCAFEParams(consistency_weight=1.0))
        memory = np.random.default_rng(0).normal(size=(6, 16)).astype(np.float32)
        context = context_of(method, ServerState(params=params_of(model), extras={"memory": memory}))
        context.model = model.eval()
        data = context.data
        context.data = replace(data, text=data.image)
        for name in [n for n, _ in model.named_parameters() if n.startswith("text.")]:
            own = dict(model.named_parameters())[name]
            own.data.copy_(dict(model.named_parameters())[name.replace("text.", "image.")].data)
        context.payload = replace(context.payload, params=params_of(model))
        batch = context.data.batch(torch.arange(20))
        _, gap = method.terms(context, batch, model(batch))["consistency"]
        assert abs(float(gap.detach())) < 1e-5

    def test_sums_suffice_for_a_memory_of_class_means(self) -> None:
        assert FedCAFE(FedCAFEParams(memory="class_mean")).traits.uplink == "sum"
        assert FedCAFE(FedCAFEParams()).traits.uplink == "records"

    @staticmethod
    def updates(memories: Sequence[np.ndarray]) -> list[Message]:
        """Updates of which each moves one number alone: their average is the silos' weights."""
        return [
            Message(
                kind="update", sender=str(silo), round=0, weights={"image": 7.0 * (silo + 1)},
                params={"image.hash.bias": np.eye(len(memories), dtype=np.float32)[silo]},
                records={"memory": memory, "mask": memory.any(axis=1)},
            )
            for silo, memory in enumerate(memories)
        ]  # fmt: skip

    @staticmethod
    def directions(*shape: int, seed: int) -> np.ndarray:
        drawn = np.random.default_rng(seed).normal(size=shape)
        return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)

    @pytest.mark.parametrize("params", [{}, {"matching": "cluster", "memory": "reference"}, {"sharpness": 0.02}])
    def test_weights_are_positive_bounded_and_add_up_to_one(self, params: dict[str, Any]) -> None:
        memories = [self.directions(80, 128, seed=seed) for seed in range(10)]
        memories[3][5:] = 0
        memories[7] *= 100  # neither of unit length nor like any other: all the weight, were there no cap
        start = ServerState(params={"image.hash.bias": np.zeros(10, np.float32)},
                            extras={"memory": np.zeros((80, 128), np.float32)})  # fmt: skip
        shares = FedCAFE(FedCAFEParams(**params)).aggregate(start, self.updates(memories)).params["image.hash.bias"]
        assert shares.sum() == pytest.approx(1.0, abs=1e-5)
        assert shares.min() > 0
        assert shares.max() <= 0.3 + 1e-6

    def test_the_order_of_a_silos_clusters_does_not_matter(self) -> None:
        common = self.directions(6, 32, seed=0)
        memories = [common + 0.05 * self.directions(6, 32, seed=seed) for seed in (1, 2, 3)]
        method, before = FedCAFE(FedCAFEParams()), np.zeros((6, 32), np.float32)
        plain = method._merged(before, self.updates(memories))
        turned = method._merged(before, self.updates([memories[0], memories[1][[3, 1, 5, 0, 4, 2]], memories[2]]))
        np.testing.assert_allclose(turned, plain, atol=1e-6)

    @pytest.mark.parametrize("memory", ["kmeans", "reference"])
    def test_memory_stays_where_no_silo_sends_a_row(self, memory: Any) -> None:
        before = self.directions(6, 32, seed=0)
        start = ServerState(params={"image.hash.bias": np.zeros(2, np.float32)}, extras={"memory": before})
        after = FedCAFE(FedCAFEParams(memory=memory)).aggregate(
            start, self.updates([np.zeros((6, 32), np.float32)] * 2)
        )
        np.testing.assert_array_equal(after.extras["memory"], before)
        np.testing.assert_allclose(after.params["image.hash.bias"], 0.5)

    def test_codes_need_the_memory_that_the_model_was_trained_with(self, tmp_path: Path) -> None:
        archive = write_archive(tmp_path / "archive", count=60)
        model = train(
            archive, tmp_path / "run", federated={"name": "fedcafe", "rounds": 1, "min_count": 1}
        ).model.trained
        weights = model.weights["global"]
        assert weights.extras["memory"].any()
        with pytest.raises(UserError, match='The model "global" lacks memory'):
            replace(model, weights={"global": replace(weights, extras={})}).encoder()
        other = replace(weights, extras={"memory": -weights.extras["memory"]})
        assert replace(model, weights={"global": other}).encoder().digest != model.encoder().digest


def lacking(given: Prepared, case: str) -> Prepared:
    labels = given.arrays["labels"].copy()
    if case == "a class":
        labels[:, 4] = 0
        labels[labels.sum(1) == 0, 0] = 1
    else:
        labels[::3] = 0
        labels[: SIZES[0]] *= np.eye(6, dtype=labels.dtype)[0]
    return replace(given, arrays={**given.arrays, "labels": labels})


WITH_STEPS = {"fedridge": slice(None, -1), "fedcca": slice(-1, None)}
"""The rounds with gradient steps, of methods that do not take any in the other rounds."""


@pytest.mark.whole_run
@pytest.mark.parametrize(("name", "preset"), RECOMMENDED + FAITHFUL, ids=map("-".join, RECOMMENDED + FAITHFUL))
@pytest.mark.parametrize("case", ["a class", "some labels"])
def test_bears_labels_that_lack(name: str, preset: str, case: str) -> None:
    """`a class`: nobody has it. `some labels`: a third of all rows have none, one silo's have one class or none."""
    listener = Records()
    state = run_loop(lacking(inputs(name, preset), case), listener)
    assert all_finite(state, listener)
    trained = listener.records[WITH_STEPS.get(name, slice(None))]
    assert trained
    assert all(np.isfinite(record.loss) for record in trained)
    if case == "a class" and KINDS[name].traits.needs_labels:  # without labels, prototypes are those of clusters
        for key in [key for key in state.server.extras if key.partition("/")[0] in {"mask", "prototypes", "memory"}]:
            given = FEDERATED_METHODS.resolve(name).presets[preset]
            if given.get("first_prototypes") != "hadamard" and given.get("memory") != "reference":
                assert not state.server.extras[key][4].any()
                assert state.server.extras[key][0].any()


@pytest.mark.whole_run
def test_fedhap_keeps_the_first_prototype_of_a_class_that_nobody_has() -> None:
    given = lacking(inputs("fedhap", "paper"), "a class")
    first = run_loop(given, stop=1).server.extras["prototypes"]
    info = FederationInfo(silos=3, classes=6, bits=16, total_rounds=2)
    start = given.resolved.federated.init_server(HashNet(model_spec(), 16), info).extras["prototypes"]
    assert np.array_equal(first[4], start[4])
    assert not np.array_equal(first, start)


@pytest.mark.whole_run
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if not kind.traits.pooled])
def test_bears_a_silo_that_is_away_for_three_rounds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "participants", lambda settings, number, key: [1, 2] if 0 < number < 4 else [0, 1, 2])
    given, listener = inputs(name, "recommended", 5), Records()
    first = run_loop(given, listener, stop=1, validate=False)
    away = run_loop(given, listener, state=first, stop=4, validate=False)
    assert same_arrays(first.silos.get(0, {}), away.silos.get(0, {}))
    back = run_loop(given, listener, state=away, validate=False)
    assert [len(record.silos) for record in listener.records] == [3, 2, 2, 2, 3]
    assert all_finite(back, listener)
    if back.silos.get(0):
        assert not same_arrays(away.silos[0], back.silos[0])
