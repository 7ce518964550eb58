"""Training under differential privacy: random samples of items, noisy sums of clipped gradients, and noisy messages.

Source: Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, for the unit ``record``; McMahan et al., "Learning
Differentially Private Recurrent Language Models", ICLR 2018, for the unit ``silo``.

Everything exact is left out of messages: weights are equal for all silos, because numbers of items per modality or class
would be exact, and losses stay in the silo.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor, nn

from silohash.base import seeds
from silohash.base.errors import NotPrivate
from silohash.base.files import digest_arrays, read_arrays, write_arrays
from silohash.base.optional import require
from silohash.base.types import Arrays, Modality, Outputs, PairBatch, ReadArrays, Step
from silohash.methods.federated.base import FederatedMethod, SiloContext
from silohash.methods.federated.shared_means import SharedMean
from silohash.methods.local.base import COLUMNS, rows_of
from silohash.methods.message import Message
from silohash.models.parameters import buffers_of, fixed_buffers
from silohash.models.specs import ModelSpec
from silohash.models.towers import Adapted
from silohash.run.config.load import ResolvedConfig
from silohash.run.config.sections import PrivacyConfig, RunConfig
from silohash.training.engines.port import SiloResult, SiloTask
from silohash.training.privacy.budget import KEY, sampling

FEWEST_DEVIATIONS = 3.0
"""A class whose noisy count is below this multiple of the noise's standard deviation is not released. The decision sees
nothing but noisy values, so it costs no privacy."""


def new_key(seed: int | None, *, silo: int = -1) -> np.ndarray:
    """Return a secret, ``(32,)`` uint8, of the operating system, or one that everyone can derive who knows the seed."""
    if seed is None:
        return np.frombuffer(seeds.secret(), np.uint8)
    return np.frombuffer(hashlib.blake2b(f"{seed}/privacy/{silo}".encode(), digest_size=32).digest(), np.uint8)


def stored_key(path: Path, purpose: str) -> np.ndarray:
    """Return the secret, ``(32,)`` uint8, in a file that only its owner can read, which is made when it is first needed.

    A silo that trains a round again after a failure must add the same noise, or the server sees two noisy versions where the
    accountant counts one. The same noise on other data or under another config would cancel out, so those get a new secret.
    """
    if path.exists():
        arrays, about = read_arrays(path)
        if about == {"purpose": purpose} and KEY in arrays:
            return arrays[KEY]
    key = new_key(None)
    write_arrays(path, {KEY: key}, {"purpose": purpose}, private=True)
    return key


@dataclass(frozen=True)
class PrivateRound:
    """The noise of one silo in one round.

    It depends on the silo's secret, the round and the server's message. A silo that repeats a round after a failure sends
    the same message again, and one that is sent something else draws other noise.

    Attributes:
        place: What else the noise depends on.
        drawn: Number of silos per round.
    """

    settings: PrivacyConfig
    key: np.ndarray
    place: str
    round: int
    drawn: int

    @classmethod
    def of(cls, task: SiloTask, config: RunConfig, settings: PrivacyConfig, silos: int) -> Self:
        """Return the noise for a task."""
        key = task.kept.get(KEY)
        if key is None or settings.repeatable:
            key = new_key(config.seed if settings.repeatable else None, silo=task.silo)
        received = digest_arrays(dict(task.broadcast.params) | dict(task.broadcast.extras))
        return cls(settings, np.array(key), received, task.broadcast.round, config.federated.participants(silos))

    @property
    def by_record(self) -> bool:
        """Whether the gradients of items are limited and noisy."""
        return self.settings.unit == "record"

    def generator(self, purpose: str) -> Generator:
        """Return a generator that nobody else can predict."""
        return seeds.secret_generator(self.key.tobytes(), f"{purpose}/{self.place}", round=self.round)

    def samples(self, items: int, batch: int, epoch: int) -> Iterator[Tensor]:
        """Yield the rows of each step of an epoch, ``(B,)`` int64: every item with the same probability, independently."""
        rate, steps = sampling(items, batch)
        generator = self.generator(f"samples/{epoch}")
        for _ in range(steps):
            yield torch.from_numpy(np.flatnonzero(generator.random(items) < rate))

    def protected(self, result: SiloResult, origin: ReadArrays, federated: FederatedMethod) -> SiloResult:
        """Return the result with a private update, without exact losses, and with the secret among what the silo keeps.

        With the unit ``record``, the parameters of the result are private already.
        """
        settings, update, traits = self.settings, result.update, federated.traits
        if self.by_record and update.sums:
            update = private_statistics(
                update, traits.means, max_labels=traits.release.max_labels if traits.release else 1,
                noise_multiplier=settings.statistics_noise_multiplier, generator=self.generator("statistics"),
            )  # fmt: skip
        elif self.by_record:
            update = replace(update, weights=public_weights(update, unit=settings.unit))
        else:
            deviation = noise_share(settings.clip_norm, settings.noise_multiplier, self.drawn)
            update = private_change(
                update, origin, clip_norm=settings.clip_norm, deviation=deviation, generator=self.generator("update")
            )
        kept = dict(result.kept) | ({} if settings.repeatable else {KEY: self.key})
        return replace(result, update=update, kept=kept, loss=float("nan"), terms={}, warnings=())


def private_change(
    update: Message, origin: ReadArrays, *, clip_norm: float, deviation: float, generator: Generator
) -> Message:
    """Return an update of parameters whose change from an origin is limited and noisy, and whose weights are all 1."""
    change = {name: np.asarray(array, np.float64) - origin[name] for name, array in update.params.items()}
    moved = noised(clipped(change, clip_norm), deviation, generator)
    params = {name: (origin[name] + moved[name]).astype(array.dtype) for name, array in update.params.items()}
    return replace(update, params=params, weights=public_weights(update, unit="silo"))


def noise_share(clip_norm: float, noise_multiplier: float, silos: int) -> float:
    """Return the standard deviation of the noise that each silo adds, so that the sum hides it from any other silo.

    Another silo knows its own noise. The noise of the other ``silos - 1``, at least one, has the standard deviation
    ``noise_multiplier * clip_norm``.
    """
    return noise_multiplier * clip_norm / math.sqrt(silos - 1)


def item_share(message: Message, means: Sequence[SharedMean], max_labels: int) -> float:
    """Return the largest norm that one item's share in all class sums and counts of a message can have.

    An item has a total weight of at most ``max_labels`` over its classes and at most 1 in each, and contributes a vector of
    values in [-1, 1]. The means are those per class that the method declares.
    """
    widths = [message.sums[name].shape[1] for mean in means for name in mean.pairs(message)]
    return math.sqrt(max_labels * sum(width + 1 for width in widths))


def private_statistics(
    update: Message, means: Sequence[SharedMean], *, max_labels: int, noise_multiplier: float, generator: Generator
) -> Message:
    """Return an update with noisy class sums and counts, and weights of 1.

    Rows of classes whose noisy count is small become zero, so that the server does not divide noise by noise. The others
    are brought back into the range that means of values in [-1, 1] can have. The method declares the means per class of all
    sums in the update, whose parameters are already private. The noise is a multiple of the largest `item_share`.
    """
    deviation = noise_multiplier * item_share(update, means, max_labels)
    noisy = noised(update.sums, deviation, generator)
    found: Arrays = {}
    for mean in means:
        for name, count_name in mean.pairs(update).items():
            counts = np.minimum(noisy[count_name], update.counts["items"])
            counts = np.where(noisy[count_name] >= FEWEST_DEVIATIONS * deviation, counts, 0.0)
            found[count_name] = counts
            found[name] = np.clip(noisy[name], mean.low * counts[:, None], mean.high * counts[:, None])
    sums = {name: found[name].astype(array.dtype) for name, array in update.sums.items()}
    return replace(update, sums=sums, weights=public_weights(update, unit="record"))


def public_weights(update: Message, *, unit: Literal["record", "silo"]) -> dict[str, float]:
    """Return the weights of a silo that do not depend on its numbers of items.

    With the unit ``silo`` they are all 1. With the unit ``record`` they are 0 for parameter groups that the silo does not
    train, because it has no pictures or no texts at all.
    """
    return {group: float(unit == "silo" or weight > 0) for group, weight in update.weights.items()}


def norm_of(arrays: ReadArrays) -> float:
    """Return the Euclidean norm of all values of some arrays together, computed in float64."""
    return math.sqrt(sum(float(np.square(array, dtype=np.float64).sum()) for array in arrays.values()))


def clipped(arrays: ReadArrays, limit: float) -> Arrays:
    """Return float64 arrays with the same direction and a norm of at most ``limit``.

    Arrays with values that are not finite become zero, because no factor limits them.

    Example:
        >>> clipped({"a": np.array([3.0, 4.0])}, 1.0)["a"].tolist()
        [0.6000000000000001, 0.8]
    """
    norm = norm_of(arrays)
    if not math.isfinite(norm):
        return {name: np.zeros(array.shape) for name, array in arrays.items()}
    factor = min(1.0, limit / norm) if norm > 0 else 1.0
    return {name: array.astype(np.float64) * factor for name, array in arrays.items()}


def noised(arrays: ReadArrays, deviation: float, generator: Generator) -> Arrays:
    """Return float64 arrays with independent Gaussian noise on every value, drawn in the order of the arrays."""
    return {name: array + generator.normal(scale=deviation, size=array.shape) for name, array in arrays.items()}


@dataclass(frozen=True)
class PrivateSteps:
    """The noisy gradients of a phase: sums divided by ``expected``, the expected number of items per step."""

    context: SiloContext
    federated: FederatedMethod
    model: nn.Module
    adapted: Adapted
    steps: Sequence[Step]
    settings: PrivacyConfig
    expected: float

    def set_gradients(self, rows: Tensor, generator: Generator) -> None:
        """Set the gradients of all trained parameters to the noisy mean of the clipped gradients of items, rows ``(B,)``."""
        sums = self._clipped(rows.to(self.context.data.has_image.device)) if len(rows) else {}
        deviation = self.settings.noise_multiplier * self.settings.clip_norm
        for parameter in self.model.parameters():
            if parameter.requires_grad:
                noise = torch.from_numpy(generator.normal(scale=deviation, size=tuple(parameter.shape)))
                total = noise.to(parameter.device, torch.float64) + sums.get(parameter, 0.0)
                parameter.grad = (total / self.expected).to(parameter.dtype)

    def _clipped(self, rows: Tensor) -> dict[Tensor, Tensor]:
        batch = self.context.data.batch(rows)
        with RecordGradients(self.model).watched() as passes:
            outputs = self.adapted(batch)
        losses = [loss for place in range(len(rows)) for loss in self._losses(one_of(batch, place), outputs, place)]
        return passes.clipped_sum(torch.stack(losses).sum(), self.settings.clip_norm) if losses else {}

    def _losses(self, item: PairBatch, outputs: Outputs, place: int) -> Iterator[Tensor]:
        """Yield the weighted terms of one item, as those of a batch of this item alone."""
        for step in self.steps:
            own = outputs_of_one(outputs, place, step)
            terms = self.context.local.terms(step, own, item, self.context.state)
            if step.regularize:
                terms = {**terms, **self.federated.terms(self.context, item, own)}
            yield from (weight * value for weight, value in terms.values())


def one_of(batch: PairBatch, place: int) -> PairBatch:
    """Return the batch that holds a single item of another one."""
    return rows_of(batch, COLUMNS, slice(place, place + 1))


def outputs_of_one(outputs: Outputs, place: int, step: Step) -> Outputs:
    """Return the outputs of a step's modalities for a single item."""

    def cut(part: Mapping[Modality, Tensor]) -> dict[Modality, Tensor]:
        """Return the row of the item, for the modalities of the step."""
        return {m: values[place : place + 1] for m, values in part.items() if m in step.modalities}

    return replace(
        outputs, feature=cut(outputs.feature), logit=cut(outputs.logit), code=cut(outputs.code),
        class_logit=cut(outputs.class_logit),
    )  # fmt: skip


def check_private_model(resolved: ResolvedConfig, spec: ModelSpec) -> None:
    """Check that differential privacy, if the config asks for it, holds for the model of a run, before that is created.

    Raises:
        UserError: If layers are not supported, silos would send buffers such as the statistics of batch normalization, or
            the package that counts epsilon is not installed.
    """
    settings = resolved.config.exchange.privacy
    if settings is None:
        return
    require("dp_accounting", "exchange.privacy")
    with seeds.torch_globally(resolved.config.seed, "initial weights"):
        model = resolved.local.build(spec, resolved.config.local.bits)
    if buffers := sorted(buffers_of(model) - fixed_buffers(model)):
        raise NotPrivate(
            f"exchange.privacy: the model has buffers that silos send exactly, such as {buffers[0]}. Choose a local method "
            "and towers without batch normalization, such as csq on feature vectors."
        )
    if settings.unit == "record":
        RecordGradients(model)


@dataclass
class Passes:
    """The uses of linear layers during one forward pass of a batch.

    Each has the layer, its input ``(B, D)`` without gradients, and its output ``(B, O)``, which belongs to the graph of the
    loss.
    """

    uses: list[tuple[nn.Linear, Tensor, Tensor]] = field(default_factory=list)

    def clipped_sum(self, loss: Tensor, limit: float) -> dict[Tensor, Tensor]:
        """Return per parameter the sum over the records of their gradients, each scaled to a norm of at most ``limit``.

        The loss is the sum over the records of losses, each of which depends on the outputs for one record only. The norm is
        that of a record's gradient with respect to all parameters together.
        """
        deltas = torch.autograd.grad(loss, [output for *_, output in self.uses], allow_unused=True)
        used = [(layer, given, d) for (layer, given, _), d in zip(self.uses, deltas, strict=True) if d is not None]
        squares = sum(
            (given.square().sum(1) + (layer.bias is not None)) * delta.square().sum(1) for layer, given, delta in used
        )
        if not isinstance(squares, Tensor):
            return {}
        norms = squares.sqrt()
        factors = torch.where(norms > limit, limit / norms, torch.ones_like(norms))
        factors = torch.where(norms.isfinite(), factors, torch.zeros_like(norms))
        found: dict[Tensor, Tensor] = {}
        for layer, given, delta in used:
            scaled = torch.where(factors.unsqueeze(1) > 0, delta * factors.unsqueeze(1), torch.zeros_like(delta))
            found[layer.weight] = scaled.T @ torch.nan_to_num(given)
            if layer.bias is not None:
                found[layer.bias] = scaled.sum(0)
        return found


class RecordGradients:
    """Watch the forward passes of a network whose trained parameters all belong to linear layers.

    Raises:
        UserError: If other layers have trained parameters, because their gradients per record are not computed here.
    """

    def __init__(self, model: nn.Module) -> None:
        self.layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
        covered = {id(p) for layer in self.layers for p in layer.parameters()}
        others = [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in covered]
        if others:
            raise NotPrivate(
                f'exchange.privacy.unit = "record" trains linear layers only, and {others[0]} belongs to another one. Take '
                "feature vectors of a published network in place of pictures or word pieces, and a local method without "
                'parameters of its own such as csq, or set the unit to "silo".'
            )

    @contextmanager
    def watched(self) -> Iterator[Passes]:
        """Record the inputs and outputs of the layers within a ``with`` block, which runs the model once on a batch.

        Raises:
            UserError: At the end of the block, if a layer was used more than once, or with an input that does not have
                two axes.
        """
        passes = Passes()

        def keep(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            """Keep one use of a layer."""
            assert isinstance(layer, nn.Linear)  # noqa: S101  hooked below
            if output.requires_grad:
                passes.uses.append((layer, inputs[0].detach(), output))

        handles = [layer.register_forward_hook(keep) for layer in self.layers]
        try:
            yield passes
        finally:
            for handle in handles:
                handle.remove()
        layers = {id(layer) for layer, *_ in passes.uses}
        if len(layers) != len(passes.uses) or any(given.ndim != 2 for _, given, _ in passes.uses):
            raise NotPrivate(
                'exchange.privacy.unit = "record" needs a network that uses each linear layer once per item. Choose another '
                'local method, such as csq, or set the unit to "silo".'
            )
