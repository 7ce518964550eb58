"""Optimizers whose state, such as momentum, a silo keeps over rounds (``train.optimizer_state = "keep"``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from torch import Tensor, nn

from silohash.base.types import Phase, Step
from silohash.methods.federated.base import SiloContext
from silohash.models.parameters import Optimizer, trained_by

PREFIX = "optimizer"
"""Prefix of the tensors that a silo keeps of its optimizers."""

KeptOptimizers: TypeAlias = dict[str, tuple[Optimizer, Mapping[str, nn.Parameter]]]
"""Optimizers with their named parameters, by the prefix of what a silo keeps of each."""


def kept_optimizers(
    phase: Phase,
    context: SiloContext,
    steps: Sequence[Step],
    optimizers: Mapping[str, Optimizer],
    auxiliary: Optimizer | None,
) -> KeptOptimizers:
    """Return the optimizers of a phase, whose state is kept, each once.

    Args:
        phase: The phase, whose name is part of the prefixes.
        context: The silo, with the federated method's networks.
        steps: The steps of a batch.
        optimizers: The optimizer of each step, by the step's name.
        auxiliary: The optimizer of the federated method's networks, if there are any.
    """
    found: KeptOptimizers = {}
    for step in {step.parameters: step for step in reversed(steps)}.values():
        found[f"{PREFIX}/{phase.name}/{step.name}"] = optimizers[step.name], trained_by(phase.model, step)
    if auxiliary is not None:
        of_networks = {f"{n}.{name}": p for n, net in context.auxiliary.items() for name, p in net.named_parameters()}
        found[f"{PREFIX}/{phase.name}/auxiliary networks"] = auxiliary, of_networks
    return found


def restore(kept: KeptOptimizers, context: SiloContext) -> None:
    """Give optimizers the state that the silo keeps of them."""
    for prefix, (optimizer, parameters) in kept.items():
        states: dict[str, list[Tensor]] = {}
        for key, value in sorted(context.kept_tensors(prefix).items()):
            states.setdefault(key.rpartition("/")[0], []).append(value)
        optimizer.state.update((parameters[name], state) for name, state in states.items())


def keep(kept: KeptOptimizers, context: SiloContext) -> None:
    """Keep the state of optimizers for the silo's next round."""
    for prefix, (optimizer, parameters) in kept.items():
        context.keep(prefix, state_of(optimizer, parameters))


def state_of(optimizer: Optimizer, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Return the state of an optimizer as tensors ``parameter/number``. A parameter without steps does not have any."""
    return {
        f"{parameter}/{number}": value
        for parameter, trained in parameters.items()
        for number, value in enumerate(optimizer.state.get(trained, ()))
    }
