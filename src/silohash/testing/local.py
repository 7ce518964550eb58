"""The contract of local methods: they build towers, learn, repeat exactly, and train with silos that lack something."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from silohash.base import seeds
from silohash.features.device import autocast
from silohash.methods.federated.base import FederatedMethod, SiloContext
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.local.base import ClosedForm, LocalMethod, SiloData, SiloState
from silohash.methods.message import Message
from silohash.models.parameters import params_of
from silohash.testing.check import Check, require, require_finite, same_arrays
from silohash.testing.closed_form import closed_form_checks
from silohash.testing.federated import federated_method_checks
from silohash.testing.inputs import (
    BITS,
    BOTH,
    LACKING,
    MODALITIES,
    Held,
    lacking,
    loop_config,
    model_spec,
    prepared_inputs,
    silo_data,
)
from silohash.testing.matching import matching_checks
from silohash.training.engines.port import SiloResult, SiloTask
from silohash.training.silo import make_context, train_silo
from silohash.training.worker import Worker

Made = Callable[[], LocalMethod]


def local_method_checks(name: str, *, federated: str | None = "fedavg") -> list[Check]:
    """Return the checks of a local method.

    Those of a method without gradient steps are `closed_form_checks`, and those of one that scores pairs `matching_checks`.

    Args:
        name: Name of the method, from the table of silohash or from an entry point of an installed package.
        federated: A federated method to train it with as well, or None to leave these checks out.

    Raises:
        UserError: If there is no such method, or it cannot be imported.
    """
    kind = LOCAL_METHODS.resolve(name)
    if issubclass(kind, ClosedForm):
        return closed_form_checks(name)
    if kind.traits.scores_pairs:
        return matching_checks(name)
    checks = []
    for preset, values in kind.presets.items():
        made = partial(_make, kind, dict(values))
        found: dict[str, Callable[[], None]] = {
            **{
                f"learns-{held}-{'single' if single else 'multi'}": partial(_learns, made, held, single=single)
                for held in MODALITIES
                for single in (True, False)
            },
            "is-deterministic": partial(_is_deterministic, made),
            **{f"stays-finite-{case.replace(' ', '-')}": partial(_stays_finite, made, case) for case in LACKING},
            **{f"leaves-the-{m}-tower-without-{m}s": partial(_leaves_tower, made, m) for m in ("image", "text")},
            "resets-its-state": partial(_resets_state, made),
            "names-its-terms-and-moves-every-parameter": partial(_names_terms, made),
        }
        checks += [Check(f"{name}-{preset}-{check}", run) for check, run in found.items()]
    checks.append(Check(f"{name}-returns-float32", partial(_returns_float32, name)))
    return [*checks, *(federated_method_checks(federated, local=name) if federated is not None else ())]


def _make(kind: Any, values: dict[str, Any]) -> LocalMethod:  # noqa: ANN401  a class of the family
    method: LocalMethod = kind(kind.Params(**values))
    return method


def _train(
    made: Made, data: SiloData, *, epochs: int = 1, held: Held = BOTH, seed: int = 0
) -> tuple[SiloResult, SiloContext]:
    """Train one silo for one round."""
    method = made()
    with seeds.torch_globally(seed, "weights"):
        model = method.build(model_spec(held=held, dropout=0.1), BITS)
    config = loop_config(seed=seed, epochs=epochs, rounds=1, batch=16, learning_rate=0.01)
    task = SiloTask("train", 0, Message("broadcast", "server", 0, params=params_of(model)))
    context = make_context(task, config, model=model, local=method, data=data)
    return train_silo(context, FederatedMethod(None), config), context


def _learns(made: Made, held: Held, *, single: bool) -> None:
    data = silo_data(64, single=single, held=held)
    first, _ = _train(made, data, held=held)
    last, _ = _train(made, data, epochs=12, held=held)
    require_finite({"loss": first.loss, **last.update.params}, "After the training,")
    require(bool(first.terms), "The method does not return any terms.")
    require(
        last.loss < first.loss,
        f"The loss is {first.loss:.4f} after one epoch and {last.loss:.4f} after twelve; it should fall.",
    )


def _is_deterministic(made: Made) -> None:
    first, second = (_train(made, silo_data(40), epochs=2)[0] for _ in range(2))
    require(
        same_arrays(first.update.params, second.update.params), "Two trainings with one seed give other parameters."
    )
    require(first.terms == second.terms, "Two trainings with one seed give other terms.")
    other, _ = _train(made, silo_data(40), epochs=2, seed=1)
    require(not same_arrays(first.update.params, other.update.params), "The parameters do not depend on the seed.")


def _stays_finite(made: Made, case: str) -> None:
    result, context = _train(made, lacking(case), epochs=2)
    require_finite(result.update.params, "The parameter")
    require_finite(result.terms, "The term")
    gradients = {name: p.grad for name, p in context.model.named_parameters() if p.grad is not None}
    require(bool(gradients), "No parameter has a gradient.")
    require_finite(gradients, "The gradient of")


def _leaves_tower(made: Made, missing: str) -> None:
    result, context = _train(made, lacking("no pictures" if missing == "image" else "no texts"))
    require(result.update.weights[missing] == 0, f"The weight of a {missing} tower without inputs should be 0.")
    sent = context.payload.params
    moved = {name for name, array in result.update.params.items() if not np.array_equal(array, sent[name])}
    require(bool(moved), "No parameter moves.")
    astray = sorted(name for name in moved if name.startswith(f"{missing}."))
    require(not astray, f"{', '.join(astray)} moved, although the silo has no {missing} inputs.")


def _resets_state(made: Made) -> None:
    method, data = made(), silo_data(12)
    with seeds.torch_globally(0, "weights"):
        model = method.build(model_spec(), BITS)
    states = []
    for _ in range(2):
        state = SiloState(kept={"own/x": torch.ones(1)})
        with seeds.torch_globally(0, "state"):
            method.init_state(model, data, state)
        states.append(state)
    first, second = ({name: buffer.numpy() for name, buffer in state.buffers.items()} for state in states)
    require(same_arrays(first, second), "init_state gives other buffers when it is called again.")
    require_finite(first, "The buffer")
    require(states[0].kept.keys() == {"own/x"}, "init_state changes what the federated method keeps.")


def _names_terms(made: Made) -> None:
    method, data = made(), silo_data(16)
    with seeds.torch_globally(0, "weights"):
        model = method.build(model_spec(), BITS)
    state = SiloState()
    method.init_state(model, data, state)
    steps = method.steps(model)
    require(len({step.name for step in steps}) == len(steps), "Two steps have the same name.")
    idle = [n for n, _ in model.named_parameters() if not any(n.startswith(step.parameters) for step in steps)]
    require(not idle, f"No step moves {', '.join(idle)}.")
    batch = data.batch(torch.arange(16))
    for step in steps:
        for term, (weight, value) in method.terms(step, model(batch, step.modalities), batch, state).items():
            require(term.isidentifier(), f'The name "{term}" of a term is not an identifier.')
            require(weight >= 0, f"The weight of the term {term} is {weight}; it should be at least 0.")
            require(value.shape == (), f"The term {term} has the shape {tuple(value.shape)}; it should be a scalar.")


def _returns_float32(name: str) -> None:
    """Check that outputs are float32 where the towers compute in bfloat16."""
    worker = Worker(prepared_inputs(name, "fedcafe", (30, 20, 10)), torch.device("cpu"))
    batch = silo_data(8).batch(torch.arange(8))
    with autocast("bfloat16", torch.device("cpu")):
        outputs = worker.model(batch)
    for part in ("feature", "logit", "code", "class_logit"):
        for modality, values in getattr(outputs, part).items():
            require(values.dtype == torch.float32, f"{part} of {modality} is {values.dtype}; it should be float32.")
