"""FedCCA: the towers compute the solution, which does not depend on the partition; what it reveals must be allowed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from silohash.base.errors import ConflictingOptions, RevealsItems, UnsuitableMethod
from silohash.methods.federated.base import ServerState
from silohash.methods.federated.closed_form.fedcca import (
    CARD,
    FedCCA,
    FedCCAParams,
    filled,
    input_width,
    most_components,
    pair_moments,
    random_rotation,
    rotated,
    rotation_sums,
)
from silohash.methods.federated.closed_form.fedridge import Projection
from silohash.methods.federated.second_moments import mean_deviation
from silohash.methods.local.base import outputs_of
from silohash.methods.local.closed_form.itq import canonical_maps, rotation
from silohash.methods.local.supervised.dscmr import DSCMR, DSCMRParams
from silohash.models.parameters import install, params_of
from silohash.models.specs import ModelSpec, TowerKind, TowerSpec
from silohash.models.towers import HashNet
from silohash.testing.inputs import WIDTH
from tests.runs import Records, model_spec, prepared, run_loop, silo_data, train, write_archive
from tests.unit.methods.federated.helpers import BITS, INFO, accepts, context_of, fresh_server, traits_of

GIVEN = {"name": "fedcca", "reveal_items": True}
RANDOM = np.random.default_rng(0)
LATENT = RANDOM.normal(size=(200, 3)) * [3.0, 2.0, 1.0]
IMAGE = LATENT @ RANDOM.normal(size=(3, 6)) + 0.5 * RANDOM.normal(size=(200, 6)) + 4.0
TEXT = LATENT @ RANDOM.normal(size=(3, 5)) + 0.5 * RANDOM.normal(size=(200, 5)) - 1.0


def start(count: int = 40, **params: Any) -> tuple[FedCCA, ServerState, Any]:
    """Return the method, the server state after the first round of one silo, and the silo's context."""
    method = FedCCA(FedCCAParams(**params))
    context = context_of(fresh_server(method), count=count)
    assert method.begin_round(context) == []
    return method, method.aggregate(fresh_server(method), [method.update(context)]), context


def expected_outputs(image: np.ndarray, text: np.ndarray, bits: int, seed: int = INFO.seed) -> dict[str, np.ndarray]:
    """Return the hash outputs of the start by the definition, in float64."""
    moments = pair_moments(image, text)
    maps = canonical_maps(moments.scatter() / len(image), image.shape[1], components=bits, penalty=1.0, power=2.0)
    first = random_rotation(maps["image"].shape[1], bits, seed)
    found = {}
    for modality, values in (("image", image), ("text", text)):
        outputs = (values - values.mean(0)) @ maps[modality] @ first
        found[modality] = outputs / outputs.std(0).mean()
    return found


def test_towers_compute_the_canonical_variables_of_their_inputs() -> None:
    _, server, context = start()
    install(context.model, server.params)
    found = outputs_of(context.model, context.data, part="logit")
    expected = expected_outputs(context.data.image.double().numpy(), context.data.text.double().numpy(), BITS)
    for modality, outputs in expected.items():
        np.testing.assert_allclose(found[modality].numpy(), outputs, rtol=1e-3, atol=1e-4)


def test_other_hidden_units_keep_their_weights_and_do_not_count_at_first() -> None:
    method = FedCCA(FedCCAParams())
    net = HashNet(ModelSpec({m: replace(t, hidden=20) for m, t in model_spec().towers.items()}, classes=0), BITS)
    before = method.init_server(net, INFO)
    context = replace(context_of(before), model=net)
    method.begin_round(context)
    after = method.aggregate(before, [method.update(context)]).params
    for modality in ("image", "text"):
        for name in (f"{modality}.backbone.0.weight", f"{modality}.backbone.0.bias"):
            assert np.array_equal(after[name][2 * BITS :], before.params[name][2 * BITS :])
        assert not after[f"{modality}.hash.weight"][:, 2 * BITS :].any()


def test_the_deviation_scales_the_outputs_of_the_start() -> None:
    outputs = []
    for deviation in (1.0, 0.5):
        _, server, context = start(deviation=deviation)
        install(context.model, server.params)
        outputs.append(outputs_of(context.model, context.data, part="logit"))
    for modality in ("image", "text"):
        assert outputs[0][modality].std(0, correction=0).mean().item() == pytest.approx(1.0, abs=1e-3)
        np.testing.assert_allclose(outputs[1][modality], 0.5 * outputs[0][modality], atol=1e-4)


def test_stages_of_the_rounds() -> None:
    def stages(rotations: int, total: int) -> str:
        method = FedCCA(FedCCAParams(rotations=rotations))
        return "".join(method.stage(number, total)[0] for number in range(total))

    assert [stages(3, total) for total in (1, 2, 3, 4, 6)] == ["s", "st", "srt", "srrt", "srrrtt"]
    assert [stages(rotations, 4) for rotations in (0, 1, 9)] == ["sttt", "srtt", "srrt"]


def test_rounds_of_rotation_turn_the_outputs_towards_their_signs() -> None:
    method, server, context = start()
    context = replace(context, round=1, payload=replace(context.payload, params=server.params, round=1), total_rounds=4)
    assert method.begin_round(context) == []
    before = outputs_of(context.model, context.data, part="logit")
    update = method.update(context)
    assert (update.params, set(update.sums)) == ({}, {"rotation"})
    expected = rotation(rotation_sums({m: values.numpy() for m, values in before.items()}))
    install(context.model, method.aggregate(server, [update]).params)
    after = outputs_of(context.model, context.data, part="logit")
    for modality in ("image", "text"):
        np.testing.assert_allclose(after[modality].numpy(), before[modality].numpy() @ expected, rtol=1e-3, atol=1e-4)


def test_the_remaining_rounds_are_federated_averaging() -> None:
    method, server, context = start()
    context = replace(context_of(server, round=3), total_rounds=4)
    assert [phase.name for phase in method.begin_round(context)] == ["train"]
    update = method.update(context)
    assert update.sums == {}
    averaged = method.aggregate(server, [update])
    assert all(np.array_equal(averaged.params[name], array) for name, array in update.params.items())


def ended(sizes: tuple[int, ...], *, rounds: int, **federated: Any) -> tuple[ServerState, Records]:
    listener = Records()
    inputs = prepared(sizes, validation=0, federated={**GIVEN, "rounds": rounds, **federated})
    return run_loop(inputs, listener, validate=False).server, listener


@pytest.mark.whole_run
def test_the_start_does_not_depend_on_the_partition() -> None:
    inputs = prepared((30, 20, 10), validation=0, federated={**GIVEN, "rounds": 4})
    first = run_loop(inputs, stop=3, validate=False).server
    for sizes in ((60,), (1, 59), (0, 30, 0, 30)):
        silos = [(f"silo-{number}", size, 0) for number, size in enumerate(sizes)]
        other = run_loop(replace(inputs, silos=silos), stop=3, validate=False).server
        for name, array in first.params.items():
            limit = 1e-4 * float(np.abs(array).max())
            assert float(np.abs(array - other.params[name]).max()) <= limit, (sizes, name)


def test_silos_train_after_the_start() -> None:
    begun, listener = ended((20, 20), rounds=4)
    assert [bool(record.terms) for record in listener.records] == [False, False, False, True]
    assert [bool(record.terms) for record in ended((20, 20), rounds=3, rotations=0)[1].records] == [False, True, True]
    assert ended((20, 20), rounds=1)[0].params.keys() == begun.params.keys()


def test_only_trained_models_are_compared_with_the_rotated_start() -> None:
    method, server, context = start()
    assert server.final
    assert not fresh_server(method).final
    server = replace(server, private={**server.private, "rounds": np.asarray(4)})
    found = []
    for number in (1, 2, 3):
        context = replace(context_of(server, round=number), total_rounds=4)
        method.begin_round(context)
        server = method.aggregate(server, [method.update(context)])
        found.append(server.final)
    assert found == [True, True, False]
    assert int(server.private["seed"]) == INFO.seed


def test_only_pairs_count() -> None:
    method = FedCCA(FedCCAParams())
    context = context_of(fresh_server(method), count=20)
    context.data = replace(context.data, has_text=torch.arange(20) < 7)
    sums = method.update(context).sums
    assert float(sums["pairs/count"]) == 7.0
    both = np.concatenate([context.data.image[:7].double().numpy(), context.data.text[:7].double().numpy()], axis=1)
    np.testing.assert_allclose(sums["pairs/vector_sum"], both.sum(0), rtol=1e-6)
    context.data = replace(context.data, text=None, has_text=torch.zeros(20, dtype=torch.bool))
    lacking = method.update(context).sums
    assert not any(array.any() for array in lacking.values())
    assert {name: array.shape for name, array in lacking.items()} == {name: array.shape for name, array in sums.items()}


def test_without_two_pairs_the_initial_model_remains() -> None:
    for count, changes in ((0, False), (1, False), (2, True)):
        method, server, _ = start(count)
        first = fresh_server(method).params
        assert any(not np.array_equal(server.params[name], array) for name, array in first.items()) == changes


def test_scaled_inputs_are_the_vectors() -> None:
    method = FedCCA(FedCCAParams())
    plain, scaled = (context_of(fresh_server(method), count=30) for _ in range(2))
    scaled.model.get_submodule("text").scale = 3.0
    first, second = (method.update(context).sums["pairs/vector_sum"] for context in (plain, scaled))
    np.testing.assert_allclose(second, first * np.repeat([1.0, 3.0], [WIDTH, len(first) - WIDTH]), rtol=1e-6)


def test_towers_on_pictures_get_the_solution_for_their_features() -> None:
    towers = {"image": TowerSpec("conv", (1, 16, 16), hidden=24), "text": model_spec().towers["text"]}
    method, net = FedCCA(FedCCAParams()), HashNet(ModelSpec(towers, classes=0), BITS)
    server = method.init_server(net, INFO)
    assert (input_width(server.params, "image"), input_width(server.params, "text")) == (24, WIDTH)
    pictures = torch.rand(40, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    context = context_of(server)
    context = replace(context, model=net, data=replace(silo_data(40), image=pictures))
    install(net, server.params)
    features = outputs_of(net, context.data, part="feature")["image"].double().numpy()
    install(net, method.aggregate(server, [method.update(context)]).params)
    found = outputs_of(net, context.data, part="logit")
    expected = expected_outputs(features, context.data.text.double().numpy(), BITS)
    for modality, outputs in expected.items():
        np.testing.assert_allclose(found[modality].numpy(), outputs, rtol=1e-2, atol=1e-3)


def test_a_solution_is_filled_with_zeros_for_the_other_units() -> None:
    params = params_of(HashNet(model_spec(), BITS))
    others = params["text.hash.weight"].shape[1] - 2 * 3
    given = Projection(mean=np.ones(WIDTH), scores=np.ones((WIDTH, 3)), codes=np.ones((3, BITS)))
    found = filled(params, "text", given)
    assert found.mean.tolist() == [1.0] * WIDTH + [0.0] * others
    assert found.scores.sum(1).tolist() == [3.0] * WIDTH + [0.0] * others
    assert found.codes is given.codes


def test_narrow_towers_hold_fewer_variables() -> None:
    def most(image: int, text: int, kind: TowerKind = "mlp") -> int:
        towers = {"image": TowerSpec(kind, (1, 16, 16) if kind == "conv" else (WIDTH,), hidden=image)}
        towers["text"] = TowerSpec("mlp", (WIDTH,), hidden=text)
        return most_components(params_of(HashNet(ModelSpec(towers, classes=0), BITS)))

    assert [most(*hidden) for hidden in ((16, 16), (16, 40), (10, 40), (40, 7))] == [8, 8, 5, 3]
    assert (most(6, 40, "conv"), most(12, 40, "conv")) == (6, 8)
    net = HashNet(replace(model_spec(), towers={m: replace(t, hidden=6) for m, t in model_spec().towers.items()}), BITS)
    method = FedCCA(FedCCAParams())
    server = method.init_server(net, INFO)
    context = replace(context_of(server), model=net)
    install(net, method.aggregate(server, [method.update(context)]).params)
    outputs = outputs_of(net, context.data, part="logit")["image"]
    assert int(torch.linalg.matrix_rank(outputs - outputs.mean(0), rtol=1e-4)) == 3


def test_towers_that_cannot_hold_the_solution_are_refused() -> None:
    with pytest.raises(UnsuitableMethod, match=r"fedcca.*image"):
        FedCCA(FedCCAParams()).init_server(DSCMR(DSCMRParams()).build(model_spec(), BITS), INFO)


@pytest.mark.whole_run
def test_what_the_sums_reveal_must_be_allowed(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", count=60)
    with pytest.raises(RevealsItems, match="fedcca"):
        train(archive, tmp_path / "run", federated={"name": "fedcca"})
    with pytest.raises(ConflictingOptions, match=r"federated\.weight_cap.*federated\.weight_cap"):
        train(archive, tmp_path / "run", federated={**GIVEN, "weight_cap": 0.5})


def test_parameters_and_traits() -> None:
    defaults = FedCCAParams()
    assert (defaults.penalty, defaults.power, defaults.rotations, defaults.deviation) == (1.0, 2.0, 3, 1.0)
    assert defaults.reveal_items is False
    assert traits_of(FedCCA) == {"min_modalities": 2}
    assert not CARD.supervised
    assert [accepts(FedCCAParams, "penalty", value) for value in (0.0, 0.1)] == [False, True]
    assert [accepts(FedCCAParams, "power", value) for value in (-0.1, 0.0)] == [False, True]
    assert [accepts(FedCCAParams, "rotations", value) for value in (-1, 0)] == [False, True]
    assert [accepts(FedCCAParams, "deviation", value) for value in (0.0, 0.5)] == [False, True]


def test_moments_of_parts_add_up_to_those_of_all_pairs() -> None:
    whole = pair_moments(IMAGE, TEXT).to_sums("pairs")
    parts = [
        pair_moments(IMAGE[rows], TEXT[rows]).to_sums("pairs") for rows in (slice(0, 0), slice(0, 60), slice(60, 200))
    ]
    for name, array in whole.items():
        np.testing.assert_allclose(sum(part[name] for part in parts), array, rtol=1e-12)
    stacked = np.concatenate([IMAGE, TEXT], axis=1)
    moments = pair_moments(IMAGE, TEXT)
    np.testing.assert_allclose(moments.scatter() / 200, np.cov(stacked.T, bias=True), rtol=1e-9, atol=1e-12)
    assert moments.label_sum.shape == (0,)


def test_the_mean_deviation_of_projected_vectors() -> None:
    projection = RANDOM.normal(size=(6, 3))
    expected = (IMAGE @ projection).std(0).mean()
    assert mean_deviation(projection, np.cov(IMAGE.T, bias=True)) == pytest.approx(expected)


def test_the_first_rotation_is_that_of_the_seed() -> None:
    first = random_rotation(3, 8, 5)
    assert first.shape == (3, 8)
    np.testing.assert_allclose(first @ first.T, np.eye(3), atol=1e-12)
    assert np.array_equal(first, random_rotation(3, 8, 5))
    assert not np.allclose(first, random_rotation(3, 8, 6))


def test_sums_of_rotation_count_items_alike_and_leave_out_rows_of_zeros() -> None:
    image = np.array([[3.0, -4.0], [0.0, 0.0]], np.float32)
    text = np.array([[-2.0, 0.0]], np.float32)
    expected = np.outer([0.6, -0.8], [1, -1]) + np.outer([-1.0, 0.0], [-1, 1])
    np.testing.assert_allclose(rotation_sums({"image": image, "text": text}), expected, rtol=1e-7)
    assert not np.any(rotation_sums({}))


def test_a_rotation_brings_outputs_closest_to_their_signs() -> None:
    values = RANDOM.normal(size=(100, 4)) * [4.0, 1.0, 0.5, 0.1]
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    signs = np.where(values >= 0, 1.0, -1.0)
    found = rotation(rotation_sums({"image": values}))
    np.testing.assert_allclose(found.T @ found, np.eye(4), atol=1e-12)
    distance = ((unit @ found - signs) ** 2).sum()
    for seed in range(20):
        other = np.linalg.qr(found + 0.05 * np.random.default_rng(seed).normal(size=(4, 4)))[0]
        other *= np.sign(np.diag(other.T @ found))
        assert ((unit @ other - signs) ** 2).sum() > distance
    assert distance < ((unit - signs) ** 2).sum()


def test_a_rotated_hash_layer_gives_rotated_outputs() -> None:
    params = {
        "text.hash.weight": RANDOM.normal(size=(4, 7)).astype(np.float32),
        "text.hash.bias": RANDOM.normal(size=4).astype(np.float32),
    }
    turn, features = random_rotation(4, 4, 0), RANDOM.normal(size=(10, 7))
    changed = rotated(params, "text", turn)
    before = features @ params["text.hash.weight"].T + params["text.hash.bias"]
    after = features @ changed["text.hash.weight"].T + changed["text.hash.bias"]
    np.testing.assert_allclose(after, before @ turn, rtol=1e-4, atol=1e-5)
    assert {name: array.dtype for name, array in changed.items()} == dict.fromkeys(params, np.dtype("float32"))
