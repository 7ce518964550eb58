"""Defaults of the hooks that many local methods do not need: nothing is kept between batches, and there are no warnings."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from silohash.base.types import Outputs, PairBatch, Step
from silohash.methods.local.base import SiloData, SiloState
from silohash.methods.traits import Traits


class DefaultHooks:
    """A base of local methods, which override the hooks that they need.

    The other members of the contract (`silohash.methods.local.base.LocalMethod`) have no defaults.
    """

    traits: Traits = Traits()

    def init_state(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Keep nothing."""

    def record(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> None:
        """Keep nothing."""

    def end_epoch(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Keep nothing."""

    def warnings(self, terms: Mapping[str, float]) -> list[str]:
        """Return no warnings."""
        return []
