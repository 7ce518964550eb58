"""What methods without gradient steps share: views, scales, hash layers, and the loop that calls them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.base.types import Step
from silohash.methods.federated.base import FederatedMethod
from silohash.methods.federated.general.centralized import Centralized, CentralizedParams
from silohash.methods.local.base import ClosedForm, SiloData, SiloState, linear_spec, outputs_of
from silohash.methods.local.closed_form import base
from silohash.methods.local.closed_form.base import (
    FromSums,
    Views,
    code_length,
    hash_layer,
    no_views,
    scale_sums,
    scaled,
    scales,
    there,
    total,
    views_of,
)
from silohash.methods.local.closed_form.scm import SCM, SCMParams
from silohash.methods.message import Message
from silohash.models.parameters import params_of
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import HashNet
from silohash.testing.inputs import loop_config
from silohash.training.engines.port import SiloTask
from silohash.training.silo import make_context, train_silo
from tests.runs import model_spec, silo_data


class Counting(ClosedForm):
    """Records the pairs that it is fitted to."""

    seen: list[SiloData]

    def fit(self, model: torch.nn.Module, data: SiloData) -> dict[str, float]:
        self.seen = [*getattr(self, "seen", []), data]
        return {"loss": 2.5, "rank": 3.0}


def some_views() -> Views:
    generator = np.random.default_rng(0)
    held = {"image": np.arange(7) != 2, "text": np.arange(7) < 5}
    vectors = {m: (generator.normal(size=(7, 3)) + 4.0) * held[m][:, None] for m in held}
    vectors["image"][:, 1] = 0.1 * held["image"]
    return Views(vectors, held, np.eye(7)[:, :2])


def test_the_loop_fits_in_place_of_the_epochs() -> None:
    local, data = Counting(None), silo_data(8)
    model = local.build(model_spec(), 8)
    context = make_context(
        SiloTask("train", 0, Message("broadcast", "server", 0, params=params_of(model))),
        loop_config(epochs=3, rounds=1), model=model, local=local, data=data,
    )  # fmt: skip
    done: list[tuple[int, int]] = []
    result = train_silo(context, FederatedMethod(None), loop_config(epochs=3), lambda *epochs: done.append(epochs))
    assert (local.seen, result.loss, result.terms, done) == ([data], 2.5, {"rank": 3.0}, [(3, 3)])
    context.data = silo_data(0)
    assert np.isnan(train_silo(replace(context, means={}), FederatedMethod(None), loop_config()).loss)
    assert len(local.seen) == 1, "a silo without items is not fitted"


def test_the_loop_passes_the_rows_of_the_phase() -> None:
    local, data = Counting(None), silo_data(10)
    model = local.build(model_spec(), 8)
    context = make_context(
        SiloTask("train", 0, Message("broadcast", "server", 0, params=params_of(model))),
        loop_config(), model=model, local=local, data=data,
    )  # fmt: skip
    train_silo(context, Centralized(CentralizedParams(parts=2)), loop_config())
    (seen,) = local.seen
    rows = [int((data.image == row).all(1).nonzero()) for row in seen.image]
    assert len(seen) == 5
    assert rows == sorted(rows)


def test_a_method_without_steps_has_no_terms() -> None:
    method = Counting(None)
    model, data, state = method.build(model_spec(), 8), silo_data(4), SiloState()
    batch = data.batch(torch.arange(4))
    assert isinstance(method, ClosedForm)
    assert not isinstance(method, FromSums)
    assert isinstance(SCM(SCMParams()), FromSums)
    assert (method.steps(model), method.warnings({}), method.remarks(model_spec(), 8)) == ([], [], [])
    method.init_state(model, data, state)
    step = Step("joint", (), ())
    assert method.terms(step, model(batch), batch, state) == {}
    method.record(step, model(batch), batch, state)
    method.end_epoch(model, data, state)
    assert state.buffers == state.kept == {}


def test_linear_towers_see_their_inputs() -> None:
    spec = ModelSpec({"image": TowerSpec("conv", (3, 4, 5), hidden=9, scale=2.0), "text": TowerSpec("mlp", (6,))}, 2)
    linear = linear_spec(spec)
    assert [(t.kind, t.hidden, t.scale, t.dropout) for t in linear.towers.values()] == [
        ("linear", 60, 1.0, 0.0),
        ("linear", 6, 1.0, 0.0),
    ]
    network = TowerSpec("network", (3, 32, 32), hidden=7, dropout=0.5, settings={"width": 11})
    kept = linear_spec(ModelSpec({"image": network}, 2)).towers["image"]
    assert (kept.kind, kept.hidden, kept.dropout) == ("network", 11, 0.0)


def test_views_are_the_inputs_with_zeros_for_what_is_missing() -> None:
    data = replace(silo_data(6), has_text=torch.arange(6) > 1)
    model = HashNet(linear_spec(model_spec()), 8)
    views = views_of(model, data)
    assert np.array_equal(views.vectors["image"], data.image.numpy())
    assert np.array_equal(views.vectors["text"][2:], data.text.numpy()[2:])
    assert not views.vectors["text"][:2].any()
    assert views.held["text"].tolist() == [False, False, True, True, True, True]
    assert np.array_equal(views.labels, data.labels.numpy())
    assert len(views) == 6
    empty = views_of(model, data.take(torch.arange(0)))
    assert (len(empty), empty.vectors["image"].shape) == (0, (0, 16))
    assert views_of(model, replace(data, labels=None)).labels.shape == (6, 0)
    none = no_views(params_of(model), empty.labels.shape[1])
    assert none.labels.shape == empty.labels.shape
    for modality, values in empty.vectors.items():
        assert (none.vectors[modality].shape, none.held[modality].shape) == (values.shape, (0,))
    assert set(none.vectors) == set(empty.vectors)


@pytest.mark.parametrize("rows", [1, 3, 7, 100])
def test_sums_do_not_depend_on_the_blocks(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "BLOCK_ROWS", rows)
    views = some_views()
    blocks = list(views.blocks())
    assert [len(block) for block in blocks[:-1]] == [rows] * (len(blocks) - 1)
    assert np.array_equal(np.concatenate([block.labels for block in blocks]), views.labels)
    found, expected = total(map(scale_sums, blocks)), scale_sums(views)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-14)
    (empty,) = views.take(slice(0, 0)).blocks()
    assert scale_sums(empty)["image/sum"].tolist() == [0.0] * 3


@pytest.mark.parametrize("standardize", [True, False])
def test_scales_are_means_and_deviations_of_the_rows_that_are_there(standardize: bool) -> None:
    views = some_views()
    found = scales(scale_sums(views), standardize=standardize)
    for modality, held in views.held.items():
        values = views.vectors[modality][held]
        np.testing.assert_allclose(found[f"{modality}/mean"], values.mean(0))
        deviation = values.std(0) if standardize else np.ones(3)
        expected = 1.0 / np.where(values.std(0) > 1e-9, deviation, 1.0) * (values.std(0) > 1e-9)
        np.testing.assert_allclose(found[f"{modality}/factor"], expected, rtol=1e-9)
        rows = scaled(views, found, modality)
        np.testing.assert_allclose(rows[held], (values - values.mean(0)) * expected)
        assert not rows[~held].any()
    assert found["image/factor"][1] == 0.0, "a constant dimension"
    nothing = scales(scale_sums(views.take(slice(0, 0))), standardize=standardize)
    assert all(not values.any() for values in nothing.values())


def test_the_hash_layer_projects_scaled_vectors() -> None:
    data, model = silo_data(6), HashNet(linear_spec(model_spec()), 8)
    views, params = views_of(model, data), params_of(model)
    found = scales(scale_sums(views), standardize=True)
    projection = np.random.default_rng(1).normal(size=(16, 8))
    layer = hash_layer(projection, found, "image", params)
    assert {name: array.dtype for name, array in layer.items()} == {"image.hash.weight": "f4", "image.hash.bias": "f4"}
    model.load_state_dict({n: torch.from_numpy(a) for n, a in {**params, **layer}.items()})
    expected = scaled(views, found, "image") @ projection
    np.testing.assert_allclose(outputs_of(model, data)["image"].numpy(), expected, atol=1e-5)
    assert code_length(params) == 8


def test_modalities_of_named_arrays() -> None:
    assert there({"text/mean": 0, "image/mean": 0, "other": 0}) == ("image", "text")
    assert there({"text": 0, "texts/mean": 0}) == ()
