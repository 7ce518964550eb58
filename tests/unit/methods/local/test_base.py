"""A silo's data and what is run over all of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from silohash.methods.local import LOCAL_METHODS
from silohash.methods.local.base import (
    LocalMethod,
    MethodParams,
    SiloState,
    class_group,
    joint_step,
    outputs_of,
    signs,
    tower_steps,
)
from silohash.models.towers import HashNet
from tests.runs import model_spec, silo_data


def test_batch_takes_rows_in_order() -> None:
    data = silo_data(10)
    batch = data.batch(torch.tensor([4, 1]))
    assert torch.equal(batch.image, data.image[[4, 1]])
    assert torch.equal(batch.text, data.text[[4, 1]])
    assert torch.equal(batch.labels, data.labels[[4, 1]])
    assert batch.row.tolist() == [4, 1]


def test_whole_number_pixels_are_centerd_and_divided() -> None:
    pixels = torch.randint(0, 256, (3, 1, 4, 4), dtype=torch.uint8)
    mean, deviation = torch.tensor([100.0]).reshape(1, 1, 1), torch.tensor([50.0]).reshape(1, 1, 1)
    data = replace(silo_data(3), image=pixels, pixel_mean=mean, pixel_deviation=deviation)
    assert torch.allclose(data.batch(torch.arange(3)).image, (pixels.float() - 100) / 50)
    assert data.image.dtype == torch.uint8


def test_counts() -> None:
    data = silo_data(10, text=False)
    assert (data.count("image"), data.count("text"), len(data)) == (10, 0, 10)
    assert torch.equal(data.class_counts(), data.labels.sum(0))
    assert len(replace(data, labels=None).class_counts()) == 0


def test_outputs_of_runs_in_evaluation_mode_in_any_block_and_restores_the_mode() -> None:
    torch.manual_seed(0)
    model = HashNet(model_spec(dropout=0.5), 8).train()
    data = replace(silo_data(10), has_text=torch.arange(10) < 6)
    whole, blocks = outputs_of(model, data), outputs_of(model, data, batch=3)
    assert model.training
    assert torch.allclose(whole["image"], blocks["image"], atol=1e-6)
    assert (whole["text"][6:] == 0).all()
    assert (whole["text"][:6] != 0).any()
    assert not whole["image"].requires_grad


def test_signs_of_zero_is_one_and_keeps_the_type() -> None:
    found = signs(torch.tensor([-0.0, 0.0, -1e-30], dtype=torch.float64))
    assert found.tolist() == [1.0, 1.0, -1.0]
    assert found.dtype == torch.float64


def test_parameters_refuse_unknown_names() -> None:
    with pytest.raises(ValueError, match="extra"):
        MethodParams(quantisation=1.0)


@pytest.mark.parametrize("name", LOCAL_METHODS.names())
def test_every_method_has_a_card_and_presets(name: str) -> None:
    kind, card = LOCAL_METHODS.resolve(name), LOCAL_METHODS.card(name)
    assert card.key == name
    assert card.summary
    assert "recommended" in kind.presets
    assert kind.traits.needs_labels == card.supervised
    for preset in kind.presets.values():
        kind(kind.Params(**preset))


@pytest.mark.parametrize("text", [True, False])
def test_some_rows_of_a_silo(text: bool) -> None:
    rows, whole = torch.tensor([4, 1, 1]), silo_data(6, text=text)
    whole = replace(whole, has_image=torch.arange(6) > 1, has_text=torch.arange(6) < 3)
    whole = replace(whole, coarse_labels=torch.eye(6) if text else None)
    some = whole.take(rows)
    assert torch.equal(some.image, whole.image[rows])
    assert torch.equal(some.labels, whole.labels[rows])
    assert (some.coarse_labels is None) == (not text)
    assert some.coarse_labels is None or torch.equal(some.coarse_labels, torch.eye(6)[rows])
    assert (some.text is None) == (not text)
    assert some.text is None or torch.equal(some.text, whole.text[rows])
    assert some.has_image.tolist() == [True, False, False]
    assert some.has_text.tolist() == [False, True, True]
    assert (len(some), some.name) == (3, whole.name)


def test_a_batch_holds_which_rows_have_a_modality() -> None:
    data = replace(silo_data(4, text=False), labels=None, has_image=torch.arange(4) > 1)
    batch = data.batch(torch.tensor([3, 0]))
    assert (batch.has_image.tolist(), batch.has_text.tolist()) == ([True, False], [False, False])
    assert batch.text is None
    assert batch.labels is None
    bare = replace(data, image=None, text=torch.ones(4, 2), has_text=torch.arange(4) < 1)
    assert bare.batch(torch.tensor([3, 0])).image is None
    assert [bare.count(modality) for modality in ("image", "text")] == [2, 1]


@pytest.mark.parametrize("part", ["feature", "logit", "code"])
def test_the_part_that_is_computed(part: str) -> None:
    model, data = HashNet(model_spec(), 8).eval(), silo_data(5)
    found = outputs_of(model, data, part=part)
    expected = getattr(model(data.batch(torch.arange(5))), part)
    for modality in ("image", "text"):
        torch.testing.assert_close(found[modality], expected[modality])


def test_a_joint_step_trains_the_towers_and_everything_beside_them() -> None:
    model = HashNet(model_spec(), 8)
    model.register_parameter(class_group(2), torch.nn.Parameter(torch.zeros(8)))
    model.add_module("labels", torch.nn.Linear(3, 8))
    step = joint_step(model)
    assert step.modalities == ("image", "text")
    assert step.parameters == ("image.", "text.", "class2", "labels.weight", "labels.bias")


def test_each_tower_has_a_step_of_its_own() -> None:
    model = HashNet(model_spec(), 8)
    assert [(s.name, s.parameters, s.modalities) for s in tower_steps(model)] == [
        ("image", ("image.",), ("image",)),
        ("text", ("text.",), ("text",)),
    ]


class Plain(LocalMethod):
    """Overrides nothing but what every method must."""

    def terms(self, step: Any, outputs: Any, batch: Any, state: Any) -> dict[str, Any]:
        return {}


def test_defaults_train_tanh_towers_on_one_loss_and_keep_nothing() -> None:
    method, data, state = Plain(None), silo_data(4), SiloState()
    model = method.build(model_spec(), 8)
    batch = data.batch(torch.arange(4))
    outputs = model(batch)
    assert torch.equal(outputs.code["image"], outputs.logit["image"].tanh())
    assert method.steps(model) == [joint_step(model)]
    method.init_state(model, data, state)
    method.record(method.steps(model)[0], outputs, batch, state)
    method.end_epoch(model, data, state)
    assert (state.buffers, state.kept, method.warnings({"loss": 1.0})) == ({}, {}, [])
    assert set(method.presets) == {"recommended", "paper"}
    with pytest.raises(TypeError, match="abstract"):
        LocalMethod(None)
