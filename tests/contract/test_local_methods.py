"""The contract of local methods: they build, learn, are deterministic, and train with silos that lack something."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash import seeds
from silohash.exchange.message import Message
from silohash.federated.base import FederatedMethod
from silohash.local import LOCAL_METHODS
from silohash.local.base import SiloData, SiloState
from silohash.models.parameters import params_of
from silohash.runtime.silo import SiloTask, make_context, train_silo
from tests.runs import loop_config, model_spec, same_arrays, silo_data

BITS = 16
METHODS = [(name, preset) for name in LOCAL_METHODS.names() for preset in LOCAL_METHODS.resolve(name).presets]
MODALITIES = {"both": (True, True), "image only": (True, False), "text only": (False, True)}

each_method = pytest.mark.parametrize(("name", "preset"), METHODS, ids=["-".join(method) for method in METHODS])
each_input = pytest.mark.parametrize("modalities", MODALITIES)
each_label = pytest.mark.parametrize("single", [True, False], ids=["single-label", "multi-label"])


def method_of(name: str, preset: str):
    kind = LOCAL_METHODS.resolve(name)
    return kind(kind.Params(**kind.presets[preset]))


def train(method, data: SiloData, *, epochs: int = 1, modalities: str = "both", rate: float = 0.01, seed: int = 0):
    image, text = MODALITIES[modalities]
    with seeds.torch_globally(seed, "weights"):
        model = method.build(model_spec(image=image, text=text, dropout=0.1), BITS)
    config = loop_config(seed=seed, epochs=epochs, rounds=1, batch=16, learning_rate=rate)
    task = SiloTask("train", 0, Message("broadcast", "server", 0, params=params_of(model)))
    context = make_context(task, config, model=model, local=method, data=data)
    return train_silo(context, FederatedMethod(None), config), context


@each_method
@each_input
@each_label
def test_learns(name: str, preset: str, modalities: str, single: bool) -> None:
    image, text = MODALITIES[modalities]
    data = silo_data(64, single=single, image=image, text=text)
    method = method_of(name, preset)
    first, _ = train(method, data, modalities=modalities)
    last, _ = train(method, data, epochs=12, modalities=modalities)
    assert np.isfinite(first.loss)
    assert last.loss < first.loss
    assert first.terms
    assert all(np.isfinite(array).all() for array in last.update.params.values())


@each_method
def test_is_deterministic(name: str, preset: str) -> None:
    first, second = (train(method_of(name, preset), silo_data(40), epochs=2)[0] for _ in range(2))
    assert same_arrays(first.update.params, second.update.params)
    assert first.terms == second.terms
    other, _ = train(method_of(name, preset), silo_data(40), epochs=2, seed=1)
    assert not same_arrays(first.update.params, other.update.params)


def lacking(case: str) -> SiloData:
    data = silo_data(20, single=True)
    some = torch.arange(20) % 3 > 0
    none = torch.zeros(20, dtype=torch.bool)
    return {
        "one item": lambda: silo_data(1),
        "one class": lambda: replace(data, labels=torch.eye(6)[torch.zeros(20, dtype=torch.long)]),
        "no labels": lambda: replace(data, labels=torch.zeros_like(data.labels)),
        "some without a picture": lambda: replace(data, has_image=some, image=data.image * some.unsqueeze(1)),
        "some without a text": lambda: replace(data, has_text=some, text=data.text * some.unsqueeze(1)),
        "no texts": lambda: replace(data, has_text=none, text=data.text * 0),
        "no pictures": lambda: replace(data, has_image=none, image=data.image * 0),
        "disjoint": lambda: replace(
            data,
            has_image=some,
            image=data.image * some.unsqueeze(1),
            has_text=~some,
            text=data.text * ~some.unsqueeze(1),
        ),
    }[case]()


CASES = ("one item", "one class", "no labels", "some without a picture", "some without a text", "no texts", "no pictures",
         "disjoint")  # fmt: skip


@each_method
@pytest.mark.parametrize("case", CASES)
def test_stays_finite(name: str, preset: str, case: str) -> None:
    result, context = train(method_of(name, preset), lacking(case), epochs=2)
    assert all(np.isfinite(array).all() for array in result.update.params.values())
    assert all(np.isfinite(value) for value in result.terms.values())
    gradients = [p.grad for p in context.model.parameters() if p.grad is not None]
    assert gradients
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@each_method
@pytest.mark.parametrize("missing", ["image", "text"])
def test_tower_without_inputs_does_not_move(name: str, preset: str, missing: str) -> None:
    data = lacking("no pictures" if missing == "image" else "no texts")
    result, context = train(method_of(name, preset), data, rate=0.0 + 0.01)
    assert result.update.weights[missing] == 0
    moved = {n for n, array in result.update.params.items() if not np.array_equal(array, context.payload.params[n])}
    assert moved
    assert not any(n.startswith(f"{missing}.") for n in moved)


@each_method
def test_state_is_reset_at_the_start_of_a_phase_and_finite(name: str, preset: str) -> None:
    method, data = method_of(name, preset), silo_data(12)
    with seeds.torch_globally(0, "weights"):
        model = method.build(model_spec(), BITS)
    states = []
    for _ in range(2):
        state = SiloState(kept={"own/x": torch.ones(1)})
        with seeds.torch_globally(0, "state"):
            method.init_state(model, data, state)
        states.append(state)
    assert states[0].buffers.keys() == states[1].buffers.keys()
    assert all(torch.equal(buffer, states[1].buffers[n]) for n, buffer in states[0].buffers.items())
    assert all(torch.isfinite(buffer.float()).all() for buffer in states[0].buffers.values())
    assert states[0].kept.keys() == {"own/x"}


@each_method
def test_terms_are_named_and_steps_move_what_they_say(name: str, preset: str) -> None:
    method, data = method_of(name, preset), silo_data(16)
    with seeds.torch_globally(0, "weights"):
        model = method.build(model_spec(), BITS)
    state = SiloState()
    method.init_state(model, data, state)
    steps = method.steps(model)
    assert len({step.name for step in steps}) == len(steps)
    names = [n for n, _ in model.named_parameters()]
    assert {n for step in steps for n in names if n.startswith(step.parameters)} == set(names)
    batch = data.batch(torch.arange(16))
    for step in steps:
        for term, (weight, value) in method.terms(step, model(batch, step.modalities), batch, state).items():
            assert term.isidentifier()
            assert weight >= 0
            assert value.shape == ()
