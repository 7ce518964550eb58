"""FedRidge: the towers compute the solution, which does not depend on the partition; what it reveals must be allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from silohash.base.errors import ConflictingOptions, RevealsItems, UnsuitableMethod
from silohash.methods.federated.base import FederationInfo, ServerState
from silohash.methods.federated.closed_form.fedridge import (
    CARD,
    FedRidge,
    FedRidgeParams,
    Projection,
    blocks_of,
    label_weights,
    projection,
    solution_units,
    takes_vectors,
    tower_params,
)
from silohash.methods.federated.second_moments import PENALTIES, second_moments
from silohash.methods.local.base import outputs_of
from silohash.methods.local.class_codes import class_codes
from silohash.methods.local.supervised.dchmt import DCHMT, DCHMTParams
from silohash.methods.local.supervised.dlffh import DLFFH, DLFFHParams
from silohash.methods.local.supervised.dscmr import DSCMR, DSCMRParams
from silohash.models.parameters import install, params_of
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import HashNet
from silohash.testing.inputs import WIDTH
from silohash.training.prepared import Prepared
from tests.runs import Records, model_spec, prepared, run_loop, silo_data, train, write_archive
from tests.unit.methods.federated.helpers import BITS, CLASSES, INFO, accepts, context_of, fresh_server, traits_of

GIVEN = {"name": "fedridge", "reveal_items": True, "rounds": 1}


def solved(count: int = 40, *, solve: str = "first", **params: Any) -> tuple[FedRidge, ServerState, Any]:
    """Return the method, the server state after the first round of one silo, and the silo's context."""
    method = FedRidge(FedRidgeParams(solve=solve, **params))
    server = fresh_server(method)
    context = context_of(server, count=count)
    assert method.begin_round(context) == []
    return method, method.aggregate(server, [method.update(context)]), context


def expected_outputs(
    blocks: Sequence[np.ndarray], labels: np.ndarray, bits: int, penalty: float = 0.3
) -> np.ndarray:  # fmt: skip
    """Return the hash outputs by the definition, in float64: Z = (S + Lambda)^-1 B diag(w') P, scaled."""
    x, y = np.concatenate(blocks, axis=1).astype(np.float64), labels.astype(np.float64)
    x, centered = x - x.mean(0), y - y.mean(0)
    scatter = x.T @ x
    widths = [block.shape[1] for block in blocks]
    means = [part.mean() for part in np.split(np.diag(scatter), np.cumsum(widths)[:-1])]
    weights = np.linalg.inv(scatter + penalty * np.diag(np.repeat(means, widths))) @ x.T @ centered
    share = y.mean(0)
    codes = class_codes(y.shape[1], bits, exclusive=False, seed=INFO.seed)
    outputs = x @ weights @ np.diag((share * (1 - share) + 1e-4) ** -0.25) @ codes
    return outputs * 1.25 / outputs.std(0).mean()


@pytest.mark.parametrize("modality", ["image", "text"])
def test_towers_compute_the_regression_on_inputs_and_features(modality: str) -> None:
    _, server, context = solved(penalty=0.3)
    features = outputs_of(context.model, context.data, part="feature")[modality].numpy()
    install(context.model, server.params)
    found = outputs_of(context.model, context.data, part="logit")[modality].numpy()
    vectors = (context.data.image if modality == "image" else context.data.text).numpy()
    expected = expected_outputs([vectors, features[:, 2 * CLASSES :]], context.data.labels.numpy(), BITS)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    inputs_alone = expected_outputs([vectors], context.data.labels.numpy(), BITS)
    assert np.abs(expected - inputs_alone).max() > 0.01


def test_a_tower_whose_units_are_all_needed_has_no_features_in_the_regression() -> None:
    spec = ModelSpec({"image": TowerSpec("mlp", (WIDTH,), hidden=2 * CLASSES)}, classes=CLASSES)
    method, net = FedRidge(FedRidgeParams(penalty=0.3)), HashNet(spec, BITS)
    server = method.init_server(net, replace(INFO, total_rounds=1))
    assert blocks_of(server.params, "image", CLASSES) == (WIDTH, 0)
    context = replace(context_of(server, count=40), model=net, total_rounds=1)
    install(net, method.aggregate(server, [method.update(context)]).params)
    found = outputs_of(net, context.data, part="logit")["image"].numpy()
    expected = expected_outputs([context.data.image.numpy()], context.data.labels.numpy(), BITS)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_by_default_the_penalty_is_chosen() -> None:
    _, chosen, _ = solved()
    fixed = [solved(penalty=penalty)[1] for penalty in PENALTIES]
    for modality in ("image", "text"):
        names = [name for name in chosen.params if name.startswith(modality)]
        assert sum(all(np.array_equal(chosen.params[n], one.params[n]) for n in names) for one in fixed) == 1


def test_scaled_inputs_are_the_vectors_of_the_regression() -> None:
    method = FedRidge(FedRidgeParams(solve="first"))
    server = fresh_server(method)
    plain, scaled = context_of(server, count=30), context_of(server, count=30)
    scaled.model.get_submodule("text").scale = 3.0
    first, second = (method.update(context).sums for context in (plain, scaled))
    np.testing.assert_allclose(second["text/vector_sum"][:WIDTH], 3.0 * first["text/vector_sum"][:WIDTH], rtol=1e-6)
    np.testing.assert_array_equal(second["image/vector_sum"], first["image/vector_sum"])


def ended(sizes: tuple[int, ...], *, rounds: int = 1, **federated: Any) -> tuple[ServerState, Records, Prepared]:
    inputs = prepared(sizes, validation=0, federated={**GIVEN, "rounds": rounds, **federated})
    listener = Records()
    return run_loop(inputs, listener, validate=False).server, listener, inputs


@pytest.mark.whole_run
@pytest.mark.parametrize("penalty", [0.0, 0.3])
def test_the_solution_does_not_depend_on_the_partition(penalty: float) -> None:
    first, _, inputs = ended((30, 20, 10), penalty=penalty)
    for sizes in ((60,), (1, 59), (0, 30, 0, 30), (2,) * 30):
        silos = [(f"silo-{number}", size, 0) for number, size in enumerate(sizes)]
        total = replace(inputs, silos=silos)
        other = run_loop(total, validate=False).server
        for name, array in first.params.items():
            limit = 1e-5 * float(np.abs(array).max())
            assert float(np.abs(array - other.params[name]).max()) <= limit, (sizes, name)


@pytest.mark.parametrize(
    ("solve", "solving"), [("first", [0]), ("last", [2]), ("both", [0, 2])]
)  # fmt: skip
def test_rounds_that_solve_send_sums_and_the_others_are_federated_averaging(solve: str, solving: list[int]) -> None:
    method = FedRidge(FedRidgeParams(solve=solve))
    server = fresh_server(method)
    for number in range(3):
        context = context_of(server, round=number)
        phases = [phase.name for phase in method.begin_round(context)]
        update = method.update(context)
        assert (phases, bool(update.sums), bool(update.params)) == (
            ([], True, False) if number in solving else (["train"], False, True)
        )
    only = replace(context_of(server), total_rounds=1)
    assert method.begin_round(only) == []


@pytest.mark.whole_run
def test_the_last_round_replaces_the_hash_layers_of_the_trained_model() -> None:
    trained, _, inputs = ended((20, 20), rounds=3, solve="first", penalty=0.3)
    after, listener, _ = ended((20, 20), rounds=3, solve="last", penalty=0.3)
    assert [bool(record.terms) for record in listener.records] == [True, True, False]
    before = run_loop(prepared((20, 20), validation=0, federated={"rounds": 3}), stop=2, validate=False).server
    units = slice(2 * CLASSES, None)
    for modality in ("image", "text"):
        for name in (f"{modality}.backbone.0.weight", f"{modality}.backbone.0.bias"):
            assert np.array_equal(after.params[name][units], before.params[name][units])
        assert not np.array_equal(after.params[f"{modality}.hash.weight"], before.params[f"{modality}.hash.weight"])
    data, _ = inputs.silo(0, torch.device("cpu"))
    other, _ = inputs.silo(1, torch.device("cpu"))
    model = HashNet(model_spec(), 16)
    features, outputs = [], []
    for server, part, found in ((before, "feature", features), (after, "logit", outputs)):
        install(model, server.params)
        found += [outputs_of(model, silo, part=part)["image"].numpy() for silo in (data, other)]
    vectors, labels = (
        np.concatenate([getattr(silo, name).numpy() for silo in (data, other)]) for name in ("image", "labels")
    )
    expected = expected_outputs([vectors, np.concatenate(features)[:, units]], labels, 16)
    np.testing.assert_allclose(np.concatenate(outputs), expected, rtol=1e-3, atol=1e-3)
    assert any(not np.array_equal(after.params[name], array) for name, array in trained.params.items())


def test_the_last_solution_is_deployed_if_labels_are_exclusive() -> None:
    for single, solve, rounds, final in (
        (True, "last", 2, True), (True, "both", 2, True), (True, "first", 2, False), (True, "first", 1, True),
        (False, "last", 2, False),
    ):  # fmt: skip
        method = FedRidge(FedRidgeParams(solve=solve))
        server = method.init_server(HashNet(model_spec(), BITS), replace(INFO, total_rounds=rounds, exclusive=single))
        assert not server.final
        for number in range(rounds):
            context = replace(context_of(server, round=number), data=silo_data(20, single=single), total_rounds=rounds)
            method.begin_round(context)
            server = method.aggregate(server, [method.update(context)])
            assert server.final == (final and number == rounds - 1), (single, solve, number)


@pytest.mark.whole_run
def test_the_codes_are_those_of_the_seed_of_the_run() -> None:
    method = FedRidge(FedRidgeParams())
    server = method.init_server(HashNet(model_spec(), BITS), replace(INFO, seed=5, total_rounds=4, exclusive=False))
    private = {name: int(array) for name, array in server.private.items()}
    assert private == {"class_code_seed": 5, "last_round": 3, "exclusive": 0, "classes": CLASSES}
    first, other = (run_loop(prepared((20,), seed=seed, federated=GIVEN), validate=False).server for seed in (0, 5))
    assert (int(first.private["class_code_seed"]), int(other.private["class_code_seed"])) == (0, 5)


def test_the_first_round_sends_sums_and_no_parameters() -> None:
    method, _, context = solved()
    update = method.update(context)
    assert update.params == {}
    assert update.weights == {}
    assert set(update.sums) == {
        f"{modality}/{name}" for modality in ("image", "text")
        for name in ("count", "vector_sum", "vector_products", "label_sum", "cross_products")
    }  # fmt: skip


def test_rows_without_the_modality_are_left_out() -> None:
    method = FedRidge(FedRidgeParams(solve="first"))
    context = context_of(fresh_server(method), count=20)
    context.data = replace(context.data, has_text=torch.arange(20) < 7)
    sums = method.update(context).sums
    assert (float(sums["image/count"]), float(sums["text/count"])) == (20.0, 7.0)
    np.testing.assert_allclose(sums["text/vector_sum"][:WIDTH], context.data.text[:7].double().sum(0), rtol=1e-6)
    features = outputs_of(context.model, context.data, part="feature")["text"][:7, 2 * CLASSES :]
    np.testing.assert_allclose(sums["text/vector_sum"][WIDTH:], features.double().sum(0), rtol=1e-6)
    context.data = replace(context.data, text=None)
    assert not any(name.startswith("text/") for name in method.update(context).sums)


def test_further_rounds_are_federated_averaging_from_the_solution() -> None:
    start, _, _ = ended((20, 20))
    after, listener, _ = ended((20, 20), rounds=3, solve="first")
    assert [bool(record.terms) for record in listener.records] == [False, True, True]
    assert any(not np.array_equal(after.params[name], array) for name, array in start.params.items())
    method, server, context = solved()
    context = context_of(server, round=1)
    assert [phase.name for phase in method.begin_round(context)] == ["train"]
    update = method.update(context)
    assert update.sums == {}
    averaged = method.aggregate(server, [update])
    assert all(np.array_equal(averaged.params[name], array) for name, array in update.params.items())


def test_more_labels_than_bits_need_two_units_per_bit() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(50, 5)).astype(np.float32)
    moments = second_moments(vectors, np.eye(12, dtype=np.float32)[generator.integers(0, 12, 50)])
    for bits, units in ((8, 8), (12, 12), (16, 12)):
        codes = class_codes(12, bits, exclusive=True, seed=0)
        found = projection(moments, codes, blocks=(5,), exclusive=True, penalty=0.3, deviation=2.0)
        assert (found.scores.shape, found.codes.shape) == ((5, units), (units, bits))
        assert np.array_equal(found.codes, codes if bits >= 12 else np.eye(bits))
        outputs = (vectors - found.mean) @ found.scores @ found.codes
        assert outputs.std(0).mean() == pytest.approx(2.0, rel=1e-6)


def test_equal_vectors_give_zero_outputs() -> None:
    moments = second_moments(np.zeros((5, 3), np.float32), np.eye(5, dtype=np.float32))
    codes = class_codes(5, 8, exclusive=True, seed=0)
    assert not projection(moments, codes, blocks=(2, 1), exclusive=True, penalty=0.0, deviation=1.0).scores.any()


def test_rare_labels_count_more_if_items_may_have_several() -> None:
    labels = np.zeros((10, 3), np.float32)
    labels[:5, 0], labels[:1, 1] = 1, 1
    moments = second_moments(np.zeros((10, 2), np.float32), labels)
    expected = [(0.25 + 1e-4) ** -0.25, (0.09 + 1e-4) ** -0.25, 1e-4**-0.25]
    np.testing.assert_allclose(label_weights(moments, exclusive=False), expected)
    assert label_weights(moments, exclusive=True).tolist() == [1.0, 1.0, 1.0]


def test_other_units_keep_their_weights_and_are_read_by_the_solution() -> None:
    before = params_of(HashNet(model_spec(), BITS))
    scores = np.concatenate([np.full((WIDTH, 2), 0.5), np.arange(24.0).reshape(12, 2)])
    given = Projection(mean=np.ones(WIDTH + 12), scores=scores, codes=np.ones((2, BITS)))
    changed = tower_params(before, "image", given)
    assert np.array_equal(
        changed["image.backbone.0.weight"][:4], np.repeat([[0.5], [-0.5]], 2, axis=0) * np.ones((4, WIDTH))
    )
    assert changed["image.backbone.0.bias"][:4].tolist() == [-8.0, -8.0, 8.0, 8.0]
    assert np.array_equal(changed["image.backbone.0.weight"][4:], before["image.backbone.0.weight"][4:])
    assert np.array_equal(changed["image.backbone.0.bias"][4:], before["image.backbone.0.bias"][4:])
    assert np.array_equal(changed["image.hash.weight"][:, :4], [[1.0, 1.0, -1.0, -1.0]] * BITS)
    assert np.array_equal(changed["image.hash.weight"][:, 4:], [[4.0 * unit + 1.0 for unit in range(12)]] * BITS)
    assert changed["image.hash.bias"].tolist() == [-276.0] * BITS
    assert all(array.dtype == np.float32 for array in changed.values())


def test_towers_on_pictures_get_the_solution_for_their_features() -> None:
    spec = ModelSpec({"image": TowerSpec("conv", (1, 16, 16), hidden=24)}, classes=CLASSES)
    method, net = FedRidge(FedRidgeParams(solve="first", penalty=0.3)), HashNet(spec, BITS)
    server = method.init_server(net, INFO)
    assert not takes_vectors(server.params, "image")
    assert blocks_of(server.params, "image", CLASSES) == (24,)
    data = silo_data(40)
    pictures = torch.rand(40, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    context = replace(
        context_of(server), model=net, data=replace(data, image=pictures, text=None, has_text=~data.has_image)
    )
    install(net, server.params)
    features = outputs_of(net, context.data, part="feature")["image"].numpy()
    after = method.aggregate(server, [method.update(context)])
    assert {n for n, a in after.params.items() if not np.array_equal(a, server.params[n])} == {
        "image.hash.weight", "image.hash.bias",
    }  # fmt: skip
    install(net, after.params)
    found = outputs_of(net, context.data, part="logit")["image"].numpy()
    np.testing.assert_allclose(found, expected_outputs([features], data.labels.numpy(), BITS), rtol=1e-3, atol=1e-3)
    empty = replace(context, data=context.data.take(torch.arange(0)))
    assert not any(array.any() for array in method.update(empty).sums.values())


def test_a_narrow_hidden_layer_is_refused() -> None:
    method = FedRidge(FedRidgeParams())
    model = HashNet(model_spec(), 32)
    method.init_server(model, FederationInfo(silos=2, classes=8, bits=32, total_rounds=1))
    with pytest.raises(UnsuitableMethod, match=r"image.*16.*18.*18"):
        method.init_server(model, FederationInfo(silos=2, classes=9, bits=32, total_rounds=1))


def test_a_hash_layer_that_is_not_linear_is_refused() -> None:
    model = DCHMT(DCHMTParams(rectified=True)).build(model_spec(), BITS)
    with pytest.raises(UnsuitableMethod, match=r"image\.hash\.units\.weight"):
        FedRidge(FedRidgeParams()).init_server(model, FederationInfo(silos=2, classes=6, bits=BITS, total_rounds=1))


@pytest.mark.parametrize("local", [DSCMR(DSCMRParams()), DLFFH(DLFFHParams())])
def test_codes_that_are_not_a_linear_map_of_the_hidden_layer_are_refused(local: DSCMR | DLFFH) -> None:
    model = local.build(model_spec(), BITS)
    with pytest.raises(UnsuitableMethod, match="image"):
        FedRidge(FedRidgeParams()).init_server(model, FederationInfo(silos=2, classes=6, bits=BITS, total_rounds=1))


@pytest.mark.whole_run
@pytest.mark.parametrize("composed", [False, True])
def test_what_the_sums_reveal_must_be_allowed(tmp_path: Path, composed: bool) -> None:
    def federated(**own: Any) -> dict[str, Any]:
        member = {"name": "fedridge", **own}
        return {**({"name": "compose", "methods": [{"name": "moon"}, member]} if composed else member), "rounds": 1}

    archive = write_archive(tmp_path / "archive", count=60)
    with pytest.raises(RevealsItems, match="reveal_items"):
        train(archive, tmp_path / "run", federated=federated())
    assert not (tmp_path / "run").exists()
    train(archive, tmp_path / "allowed", federated=federated(reveal_items=True))


@pytest.mark.whole_run
@pytest.mark.parametrize(
    ("key", "value"), [("robust", {"rule": "median"}), ("weight_cap", 0.5), ("server", {"optimizer": "fedavgm"})]
)
def test_rules_that_do_not_apply_to_sums_are_refused(tmp_path: Path, key: str, value: Any) -> None:
    archive = write_archive(tmp_path / "archive", count=60)
    with pytest.raises(ConflictingOptions, match=rf"federated\.{key}.*federated\.{key}"):
        train(archive, tmp_path / "run", federated={**GIVEN, key: value})


def test_parameters_and_traits() -> None:
    defaults = FedRidgeParams()
    assert (defaults.solve, defaults.penalty, defaults.deviation) == ("last", 0.0, 1.25)
    assert defaults.reveal_items is False
    assert traits_of(FedRidge) == {"needs_labels": True}
    assert CARD.supervised
    assert [accepts(FedRidgeParams, "penalty", value) for value in (-0.1, 0.0, 0.3)] == [False, True, True]
    assert [accepts(FedRidgeParams, "deviation", value) for value in (0.0, 0.5)] == [False, True]
    assert [solution_units(classes, bits) for classes, bits in ((6, 8), (8, 6), (8, 8))] == [12, 12, 16]
