"""Training under differential privacy: random samples of items, noisy sums of clipped gradients, and noisy messages.

Source: Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, for the unit ``record``; McMahan et al., "Learning
Differentially Private Recurrent Language Models", ICLR 2018, for the unit ``silo``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from silohash.base import seeds
from silohash.base.files import digest_arrays, read_arrays, write_arrays
from silohash.base.optional import require
from silohash.base.types import Modality, Outputs, PairBatch, ReadArrays, Step, UserError
from silohash.methods.federated.base import FederatedMethod, ServerState, SiloContext
from silohash.methods.federated.private_updates import noise_share, private_change, private_statistics, public_weights
from silohash.models.parameters import buffers_of, fixed_buffers
from silohash.models.specs import ModelSpec
from silohash.models.towers import Adapted
from silohash.run.config.load import ResolvedConfig
from silohash.run.config.sections import PrivacyConfig, RunConfig
from silohash.training.engines.port import SiloResult, SiloTask
from silohash.training.privacy.budget import KEY, sampling
from silohash.training.privacy.record_gradients import RecordGradients


def new_key(seed: int | None, *, silo: int = -1) -> np.ndarray:
    """Return a secret from the operating system; with a seed, one that everyone who knows the seed can derive.

    Returns:
        ``(32,)`` uint8.
    """
    if seed is None:
        return np.frombuffer(seeds.secret(), np.uint8)
    return np.frombuffer(hashlib.blake2b(f"{seed}/privacy/{silo}".encode(), digest_size=32).digest(), np.uint8)


def stored_key(path: Path, purpose: str) -> np.ndarray:
    """Return the secret in a file that only its owner can read, which is made when it is first needed.

    A silo that trains a round again after a failure must add the same noise, or the server sees two noisy versions where the
    accountant counts one. The same noise on other data or under another config would cancel out, so those get a new secret.

    Args:
        path: The file.
        purpose: Digest of all that must not have another's secret.

    Returns:
        ``(32,)`` uint8.
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
        settings: The table ``[exchange.privacy]``.
        key: The silo's secret.
        place: What else the noise depends on.
        round: Number of the round, from 0.
        drawn: Number of silos per round.
    """

    settings: PrivacyConfig
    key: np.ndarray
    place: str
    round: int
    drawn: int

    @classmethod
    def of(cls, task: SiloTask, config: RunConfig, silos: int) -> PrivateRound | None:
        """Return the noise for a task, or None without differential privacy.

        Args:
            task: The task to train for a round, with what the silo keeps.
            config: The config of the run.
            silos: Number of silos of the run.
        """
        settings = config.exchange.privacy
        if settings is None:
            return None
        key = task.kept.get(KEY)
        if key is None or settings.repeatable:
            key = new_key(config.seed if settings.repeatable else None, silo=task.silo)
        received = digest_arrays(dict(task.broadcast.params) | dict(task.broadcast.extras))
        return cls(settings, np.array(key), received, task.broadcast.round, config.federated.participants(silos))

    @property
    def by_record(self) -> bool:
        """Whether the gradients of items are limited and noisy."""
        return self.settings.unit == "record"

    def generator(self, purpose: str) -> np.random.Generator:
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

        Args:
            result: The result of the training. With the unit ``record``, its parameters are private already.
            origin: The parameters that the silo received.
            federated: The federated method.
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


@dataclass(frozen=True)
class PrivateSteps:
    """The noisy gradients of a phase.

    Attributes:
        context: The context of the silo's round.
        federated: The federated method.
        model: The model that the phase trains.
        adapted: The model with the outputs that the local method is trained on.
        steps: The steps of the local method, whose terms are added up.
        settings: The table ``[exchange.privacy]``.
        expected: Expected number of items per step, by which the sum is divided.
    """

    context: SiloContext
    federated: FederatedMethod
    model: nn.Module
    adapted: Adapted
    steps: Sequence[Step]
    settings: PrivacyConfig
    expected: float

    def set_gradients(self, rows: Tensor, generator: np.random.Generator) -> None:
        """Set the gradients of all trained parameters to the noisy mean of the clipped gradients of some items.

        Args:
            rows: ``(B,)`` int64, rows of the items; may be empty.
            generator: Source of the noise.
        """
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

    def cut(values: Tensor | None) -> Tensor | None:
        """Return the row of the item."""
        return None if values is None else values[place : place + 1]

    return replace(
        batch, row=batch.row[place : place + 1], image=cut(batch.image), text=cut(batch.text), labels=cut(batch.labels),
        has_image=batch.has_image[place : place + 1], has_text=batch.has_text[place : place + 1],
    )  # fmt: skip


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
    """Check that differential privacy holds for the model of a run, before the run is created.

    Args:
        resolved: The config of the run with its methods.
        spec: The structure of the model.

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
    buffers = sorted(buffers_of(model) - fixed_buffers(model))
    if buffers:
        raise UserError(
            f"exchange.privacy: the model has buffers that silos send exactly, such as {buffers[0]}. Choose a local method "
            "and towers without batch normalization, such as csq on feature vectors."
        )
    if settings.unit == "record":
        RecordGradients(model)


def with_server_key(server: ServerState, config: RunConfig) -> ServerState:
    """Return the server's state before the first round, with the secret by which it draws the silos of each round.

    It has none without differential privacy, or if the run must be repeatable.
    """
    settings = config.exchange.privacy
    if settings is None or settings.repeatable:
        return server
    return replace(server, private={**server.private, KEY: new_key(None)})
