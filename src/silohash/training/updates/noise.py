"""Differential privacy as a link: what leaves a silo is noisy, and the server counts what that releases."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from typing_extensions import override

from silohash.base.types import ReadArrays
from silohash.methods.federated.base import ServerState
from silohash.run.config.load import ResolvedConfig
from silohash.run.config.sections import PrivacyConfig
from silohash.training.engines.port import SiloResult, SiloTask
from silohash.training.privacy.budget import KEY, Budget
from silohash.training.privacy.training import PrivateRound, new_key, public_weights
from silohash.training.updates.chain import CarryOut, Link, Released


@dataclass(frozen=True)
class Noise(Link):
    """The differential privacy of a run, given the number of training items of each silo."""

    resolved: ResolvedConfig
    settings: PrivacyConfig
    items: Sequence[int]

    @override
    def do(self, task: SiloTask, carry_out: CarryOut) -> SiloResult:
        """Make an update private and its weights public. The secret of the noise stays in the silo."""
        plain = replace(task, kept={name: array for name, array in task.kept.items() if name != KEY})
        if task.kind == "weigh":
            result = carry_out(plain)
            weights = public_weights(result.update, unit=self.settings.unit)
            return replace(result, update=replace(result.update, weights=weights))
        if task.kind != "train":
            return carry_out(plain)
        private = PrivateRound.of(task, self.resolved.config, self.settings, len(self.items))
        result = carry_out(plain, private if private.by_record else None)
        return private.protected(result, task.broadcast.params, self.resolved.federated)

    @override
    def start(self, server: ServerState) -> ServerState:
        """Give the server the secret by which it draws the silos of each round."""
        if self.settings.repeatable:
            return server
        return replace(server, private={**server.private, KEY: new_key(None)})

    @override
    def released(self, before: ReadArrays, asked: Sequence[int], used: Sequence[int]) -> Released:
        """Count what the round has released."""
        return Budget(self.resolved, self.settings, self.items).spent(before, asked=asked, used=used)
