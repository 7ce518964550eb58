"""One silo's round: the only module that computes gradients of a training loss and takes optimizer steps.

The levels of training are round > silo > phase > epoch > batch > step. The methods define what each level contains.
This module iterates over them.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from silohash.base import seeds
from silohash.base.types import MODALITIES, Arrays, Outputs, PairBatch, Phase, ReadArrays, Step, Terms
from silohash.features.device import autocast
from silohash.methods.federated.base import FederatedMethod, SiloContext, sums_alone
from silohash.methods.federated.server_values import with_sums
from silohash.methods.local.base import ClosedForm, LocalMethod, SiloData, SiloState
from silohash.methods.stored import copy_into
from silohash.models.parameters import Optimizer, OptimizerPool, params_of, shared_arrays, to_array, trained_by
from silohash.models.towers import Adapted
from silohash.run.config.sections import RunConfig, TrainConfig
from silohash.training.engines.port import SiloResult, SiloTask
from silohash.training.privacy.budget import sampling
from silohash.training.privacy.training import PrivateRound, PrivateSteps

EpochDone: TypeAlias = Callable[[int, int], None]
"""A callback that receives the number of finished epochs of a silo's round, and that of all its epochs."""

TRAINED = "trained"
"""Prefix of the arrays that a silo stores only while it waits for the merged statistics."""

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
    """Return the optimizers of a phase, each once: those of its steps, by name, and that of the auxiliary networks."""
    found: KeptOptimizers = {}
    for step in {step.parameters: step for step in reversed(steps)}.values():
        found[f"{PREFIX}/{phase.name}/{step.name}"] = optimizers[step.name], trained_by(phase.model, step)
    if auxiliary is not None:
        of_networks = {f"{n}.{name}": p for n, net in context.auxiliary.items() for name, p in net.named_parameters()}
        found[f"{PREFIX}/{phase.name}/auxiliary networks"] = auxiliary, of_networks
    return found


def restore_optimizers(kept: KeptOptimizers, context: SiloContext) -> None:
    """Give optimizers the state that the silo keeps of them."""
    for prefix, (optimizer, parameters) in kept.items():
        states: dict[str, list[Tensor]] = {}
        for key, value in sorted(context.kept_tensors(prefix).items()):
            states.setdefault(key.rpartition("/")[0], []).append(value)
        optimizer.state.update((parameters[name], state) for name, state in states.items())


def state_of(optimizer: Optimizer, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Return the state of an optimizer as tensors ``parameter/number``. A parameter without steps does not have any."""
    return {
        f"{parameter}/{number}": value
        for parameter, trained in parameters.items()
        for number, value in enumerate(optimizer.state.get(trained, ()))
    }


@dataclass
class _Means:
    """Running sums of the loss terms of an epoch. They stay on the device, because reading a value would block the loop."""

    sums: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, value: Tensor) -> None:
        """Add one value of a term."""
        value = value.detach()
        self.sums[name] = self.sums[name] + value if name in self.sums else value
        self.counts[name] = self.counts.get(name, 0) + 1

    def values(self) -> dict[str, float]:
        """Return the mean of each term."""
        return {name: float(total) / self.counts[name] for name, total in self.sums.items()}


def train_silo(
    context: SiloContext,
    federated: FederatedMethod,
    config: RunConfig,
    epoch_done: EpochDone = lambda epoch, epochs: None,
    optimizers: OptimizerPool | None = None,
    gradients: PrivateRound | None = None,
) -> SiloResult:
    """Train one silo for one round, and return the update for the server and the figures of the round.

    The model and the state of the context are changed in place. After each epoch, ``epoch_done`` is called with the number
    of finished epochs and that of all. Noisy ``gradients`` of random samples take the place of those of batches.
    """
    started = time.perf_counter()
    with seeds.torch_globally(config.seed, "training", silo=context.silo, round=context.round):
        means: dict[str, float] = {}
        phases = federated.begin_round(context)
        epochs, finished = sum(phase.epochs for phase in phases), 0
        for phase in phases if len(context.data) else []:
            if phase.begin is not None:
                phase.begin()
            counted = partial(lambda before, epoch: epoch_done(before + epoch, epochs), finished)
            if gradients is not None:
                _run_private_epochs(phase, context, federated, config, counted, gradients)
            elif isinstance(context.local, ClosedForm):
                means = context.local.fit(phase.model, rows_of(phase, context.data))
                counted(phase.epochs)
            else:
                means = _run_epochs(phase, context, federated, config, counted, optimizers or OptimizerPool())
            finished += phase.epochs
            context.means["loss"] = means.pop("loss", float("nan"))
        statistics = federated.statistics(context)
        if statistics:
            update = sums_alone(context, statistics, kind="statistics")
        else:
            update = with_sums(federated.update(context), federated, context)
    kept = {name: tensor.cpu().numpy() for name, tensor in context.state.kept.items()}
    return SiloResult(
        silo=context.silo,
        update=update,
        kept=kept | _trained(context) if statistics else kept,
        loss=context.mean_loss,
        terms=means,
        seconds=time.perf_counter() - started,
        warnings=tuple(context.local.warnings(means)) if means else (),
    )


def finish_silo(context: SiloContext, stored: ReadArrays, federated: FederatedMethod, config: RunConfig) -> SiloResult:
    """Finish a round after the silos' statistics were merged. The extras of the broadcast hold the merged statistics.

    ``stored`` is what the silo stored when it sent its statistics. Terms and warnings are those of the first result.
    """
    started = time.perf_counter()
    for name, tensor in context.model.state_dict().items():
        copy_into(stored, f"{TRAINED}/model/{name}", array := to_array(tensor))
        if tensor.device.type != "cpu":  # the array does not share its memory
            tensor.copy_(torch.from_numpy(array))
    steps = f"{TRAINED}/steps/"
    context.steps_taken = {name.removeprefix(steps): int(stored[name]) for name in stored if name.startswith(steps)}
    context.means["loss"] = float(stored[f"{TRAINED}/loss"])
    with seeds.torch_globally(config.seed, "finishing", silo=context.silo, round=context.round):
        update = with_sums(federated.update(context), federated, context)
    kept = {name: tensor.cpu().numpy() for name, tensor in context.state.kept.items()}
    return SiloResult(context.silo, update, kept, context.mean_loss, terms={}, seconds=time.perf_counter() - started)


def _trained(context: SiloContext) -> Arrays:
    """Return the results of the training that `finish_silo` needs, as arrays that the silo stores until then."""
    trained = {f"model/{name}": array for name, array in shared_arrays(context.model).items()}
    trained |= {f"steps/{name}": np.asarray(count) for name, count in context.steps_taken.items()}
    trained["loss"] = np.asarray(context.mean_loss if math.isfinite(context.mean_loss) else 0.0)
    return {f"{TRAINED}/{name}": array for name, array in trained.items()}


def _run_epochs(
    phase: Phase,
    context: SiloContext,
    federated: FederatedMethod,
    config: RunConfig,
    epoch_done: Callable[[int], None],
    pool: OptimizerPool,
) -> dict[str, float]:
    """Train the epochs of a phase, and return the means of the loss and its terms in the last one."""
    settings = config.train
    model = phase.model.train()
    steps = steps_of(context, federated, model)
    rate = learning_rate(settings, context.round, context.total_rounds, context.epochs)
    new_optimizers = partial(_optimizers, model, steps, pool, settings, rate)
    optimizers = new_optimizers()
    auxiliary_optimizer = _auxiliary_optimizer(context, federated.adapter.learning_rate or rate)
    kept: KeptOptimizers = {}
    if settings.optimizer_state == "keep":
        restore_optimizers(kept := kept_optimizers(phase, context, steps, optimizers, auxiliary_optimizer), context)
    adapted = Adapted(model, federated.adapter, context.payload.extras)
    data, renumbered = local_view(phase, context.data)
    context.local.init_state(adapted, data, context.state)
    means = _Means()
    rules = context.local.traits.epochs
    for epoch in range(phase.epochs):
        context.state.epochs = context.round * context.epochs + epoch
        means = _Means()
        if epoch and rules.fresh_optimizers:
            optimizers = new_optimizers()
        for rows in batches(context, phase, config, epoch):
            batch = context.data.batch(rows)
            for step in steps:
                with autocast(settings.precision, rows.device):
                    outputs = adapted(batch, step.modalities)
                own = renumbered(batch)
                terms = _terms(step, context, federated, batch, own, outputs)
                if terms:
                    _step(terms, optimizers[step.name], settings, means)
                    context.steps_taken[step.name] = context.steps_taken.get(step.name, 0) + 1
                    if step.own_terms:
                        context.local.record(step, outputs, own, context.state)
                if auxiliary_optimizer is not None and step.own_terms:
                    judged = federated.adapter.auxiliary_step(context, batch, outputs)
                    _step(judged, auxiliary_optimizer, settings, _Means())
        context.local.end_epoch(adapted, data, context.state)
        epoch_done(epoch + 1)
    for prefix, (optimizer, parameters) in kept.items():
        context.keep(prefix, state_of(optimizer, parameters))
    return means.values()


def _terms(
    step: Step, context: SiloContext, federated: FederatedMethod, batch: PairBatch, own: PairBatch, outputs: Outputs
) -> Terms:
    """Return the terms of a step on a batch, which the local method sees with rows of its ``own``."""
    terms = context.local.terms(step, outputs, own, context.state) if step.own_terms else {}
    return {**terms, **federated.terms(context, batch, outputs)} if step.regularize else terms


def steps_of(context: SiloContext, federated: FederatedMethod, model: nn.Module) -> Sequence[Step]:
    """Return the optimizer steps of a batch: those of the local method, and those that the federated method adds."""
    steps = context.local.steps(model)
    return with_separate_terms(steps) if federated.traits.separate_steps else steps


def with_separate_terms(steps: Sequence[Step]) -> list[Step]:
    """Return local steps without the terms of a federated method, and after them one step per tower on these terms alone.

    Such a step has the optimizer of the local step that trains its tower. It moves only what the outputs of the tower
    depend on, because optimizers skip parameters without a gradient.
    """
    trained = {modality: step for step in reversed(steps) if step.regularize for modality in step.modalities}
    alone = [
        replace(trained[modality], name=f"{modality} terms", modalities=(modality,), own_terms=False)
        for modality in MODALITIES
        if modality in trained
    ]
    return [*(replace(step, regularize=False) for step in steps), *alone]


def _run_private_epochs(
    phase: Phase,
    context: SiloContext,
    federated: FederatedMethod,
    config: RunConfig,
    epoch_done: Callable[[int], None],
    private: PrivateRound,
) -> None:
    """Train the epochs of a phase on noisy gradients, with one step for all of the method's (`Traits.record_terms`)."""
    settings, model, data = config.train, phase.model.train(), context.data
    adapted = Adapted(model, federated.adapter, context.payload.extras)
    context.local.init_state(adapted, data, context.state)
    rate = learning_rate(settings, context.round, context.total_rounds, context.epochs)
    optimizer = make_optimizer([p for p in model.parameters() if p.requires_grad], settings, rate)
    expected = sampling(len(data), settings.batch)[0] * len(data)
    steps = context.local.steps(model)
    gradients = PrivateSteps(context, federated, model, adapted, steps, private.settings, expected)
    for epoch in range(phase.epochs):
        noise = private.generator(f"gradients/{epoch}")
        for rows in private.samples(len(data), settings.batch, epoch):
            gradients.set_gradients(rows, noise)
            optimizer.step()
        epoch_done(epoch + 1)


def rows_of(phase: Phase, data: SiloData) -> SiloData:
    """Return the pairs that a phase trains on, in ascending order."""
    return data if phase.rows is None else data.take(torch.from_numpy(np.sort(phase.rows)).to(data.has_image.device))


def _optimizers(
    model: nn.Module, steps: Sequence[Step], pool: OptimizerPool, settings: TrainConfig, rate: float
) -> dict[str, Optimizer]:
    """Return the optimizer of each step, by its name, like a new one. Steps that train the same parameters share it."""
    make = partial(make_optimizer, settings=settings, rate=rate)
    made: dict[tuple[str, ...], Optimizer] = {}
    for step in steps:
        if step.parameters not in made:
            made[step.parameters] = pool.optimizer(model, trained_by(model, step), make, rate)
    return {step.name: made[step.parameters] for step in steps}


def _auxiliary_optimizer(context: SiloContext, rate: float) -> Optimizer | None:
    """Move the federated method's networks to the device of the silo's items, and return their optimizer, or None."""
    device = context.data.has_image.device
    parameters = [p for network in context.auxiliary.values() for p in network.to(device).parameters()]
    return Optimizer(parameters, "adam", rate) if parameters else None


def local_view(phase: Phase, data: SiloData) -> tuple[SiloData, Callable[[PairBatch], PairBatch]]:
    """Return the pairs that the local method sees in a phase, and a function that renumbers the rows of a batch to match.

    They are a silo's training pairs, or only the phase's rows, in ascending order, if the phase hides the others.
    """
    if phase.rows is None or not phase.hides_other_rows:
        return data, lambda batch: batch
    rows = torch.from_numpy(np.sort(phase.rows)).to(data.has_image.device)
    return rows_of(phase, data), lambda batch: replace(batch, row=torch.searchsorted(rows, batch.row))


def _step(terms: Terms, optimizer: Optimizer, settings: TrainConfig, means: _Means) -> None:
    """Take one optimizer step on the weighted sum of the terms, if there are any, and add the values to ``means``."""
    if not terms:
        return
    loss = reduce(torch.add, [value if weight == 1.0 else weight * value for weight, value in terms.values()])
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    if settings.clip_norm:
        nn.utils.clip_grad_norm_(optimizer.parameters, settings.clip_norm)
    optimizer.step()
    means.add("loss", loss)
    for name, (_, value) in terms.items():
        means.add(name, value)


def batches(context: SiloContext, phase: Phase, config: RunConfig, epoch: int) -> Iterator[Tensor]:
    """Yield the rows of each batch of one epoch, in random order.

    If at most a quarter of a batch is left over, those rows are added to the last full batch. If the local method wants
    independent batches, each is a random subset of all rows.
    """
    size = config.train.batch
    generator = seeds.numpy_generator(
        config.seed, f"batches/{phase.name}/{epoch}", silo=context.silo, round=context.round
    )
    rows = np.arange(len(context.data)) if phase.rows is None else np.asarray(phase.rows)
    if context.local.traits.epochs.independent_batches:
        for _ in range(max(1, len(rows) // size) if len(rows) else 0):
            yield torch.from_numpy(generator.permutation(rows)[:size]).to(context.data.has_image.device)
        return
    order = torch.from_numpy(generator.permutation(rows)).to(context.data.has_image.device)
    whole = max(1, math.ceil(len(order) / size - 0.25)) if len(order) else 0
    for number in range(whole):
        last = number == whole - 1
        yield order[number * size : None if last else (number + 1) * size]


def learning_rate(settings: TrainConfig, round: int, total_rounds: int, local_epochs: int = 1) -> float:  # noqa: A002
    """Return the learning rate of a round, which `silohash.run.config.sections.TrainConfig.decay` determines.

    Example:
        >>> learning_rate(TrainConfig(learning_rate=1.0, decay="cosine"), 0, 10)
        1.0
        >>> round(learning_rate(TrainConfig(learning_rate=1.0, decay="cosine"), 9, 10), 6)
        0.1
        >>> [round(learning_rate(TrainConfig(learning_rate=1.0, decay="steps"), r, 4, 5), 6) for r in range(4)]
        [1.0, 1.0, 0.1, 0.1]
    """
    first, share = settings.learning_rate, round / max(total_rounds - 1, 1)
    if settings.decay == "steps":
        return float(first * settings.decay_factor ** (round * local_epochs // settings.decay_epochs))
    if settings.decay == "none" or total_rounds < 2:
        return first
    if settings.decay == "geometric":
        return float(first * (settings.final_learning_rate / first) ** share)
    return first * (0.1 + 0.9 * 0.5 * (1.0 + math.cos(math.pi * share)))


def make_optimizer(parameters: list[nn.Parameter], settings: TrainConfig, rate: float) -> Optimizer:
    """Return an optimizer for the parameters."""
    decay, momentum = settings.weight_decay, settings.momentum
    return Optimizer(parameters, settings.optimizer, rate, weight_decay=decay, momentum=momentum)


def step_norm(settings: TrainConfig, steps: int, pull: float = 0.0, restarts: int = 1) -> float:
    """Return how far optimizer steps move a parameter under a constant gradient of 1, in units of the learning rate.

    The value is measured by running the optimizer on a single number. Each step of plain SGD counts 1. With momentum,
    later steps count more; with a proximal term, they count less. Adam's step length depends on how the gradients vary.
    Each of its steps counts 1, as under a constant gradient.

    The ``pull`` is the learning rate times the weight of a proximal term, which is the share of the distance that each step
    moves back. ``restarts`` is how often the optimizer starts with a new state, evenly over the steps.

    Source: Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", the norm
        of a_i.

    Example:
        >>> round(step_norm(TrainConfig(optimizer="sgd"), 7), 4)
        23.0467
        >>> round(step_norm(TrainConfig(optimizer="sgd", momentum=0.0), 7, pull=0.1 * 0.5), 5)
        6.03325
    """
    if settings.optimizer != "sgd":
        return float(steps)
    number = nn.Parameter(torch.zeros((), dtype=torch.float64))
    make = partial(make_optimizer, [number], settings.model_copy(update={"weight_decay": 0.0}), 1.0)
    optimizer = make()
    for taken in range(steps):
        if taken % math.ceil(steps / restarts) == 0:
            optimizer = make()
        number.grad = 1.0 + pull * number.detach()
        optimizer.step()
    return -number.item()


def lasting(stored: ReadArrays) -> Arrays:
    """Return what a silo stores for its next round, without what it stores only until the statistics are merged."""
    return {name: stored[name] for name in stored if not name.startswith(f"{TRAINED}/")}


def make_context(
    task: SiloTask,
    config: RunConfig,
    *,
    model: nn.Module,
    local: LocalMethod,
    data: SiloData,
    initial: Arrays | None = None,
) -> SiloContext:
    """Return the context that the method's hooks receive for one silo in one round."""
    broadcast, total_rounds = task.broadcast, config.federated.rounds
    rate = learning_rate(config.train, broadcast.round, total_rounds, config.federated.local_epochs)
    restarts = config.federated.local_epochs if local.traits.epochs.fresh_optimizers else 1
    kept = {name: torch.from_numpy(np.array(a)).to(data.has_image.device) for name, a in lasting(task.kept).items()}
    return SiloContext(
        silo=task.silo, round=broadcast.round, total_rounds=total_rounds, epochs=config.federated.local_epochs,
        model=model, local=local, data=data,
        state=SiloState(kept=kept, epochs=broadcast.round * config.federated.local_epochs), payload=broadcast,
        generator=seeds.torch_generator(config.seed, "method", silo=task.silo, round=broadcast.round),
        step_norm=lambda steps, weight: step_norm(config.train, steps, pull=rate * weight, restarts=restarts),
        initial=params_of(model) if initial is None else initial,
    )  # fmt: skip
