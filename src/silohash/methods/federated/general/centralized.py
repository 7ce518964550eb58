"""The reference that a federation tries to reach: one model trained on the pooled data of all silos.

Rounds and epochs are those of the federation. A round takes as many optimizer steps as all silos together, or, with
``parts``, as many as one of them.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from pydantic import Field

from silohash.base.types import MethodCard, Phase
from silohash.methods.federated.base import FederatedMethod, SiloContext
from silohash.methods.local.base import MethodParams
from silohash.methods.traits import Traits

CARD = MethodCard(
    key="centralized",
    title="Pooled training",
    authors="The silohash developers",
    venue="baseline",
    year=2026,
    link="",
    summary="Train one model on the pooled data of all silos, as a reference for federated methods.",
    sends=("all data",),
    differs_from_paper=(),
)


class CentralizedParams(MethodParams):
    """Parameters of pooled training."""

    parts: int = Field(default=1, ge=1)
    """Number of parts into which the pairs are divided in each round, at least 1. Each round trains on one part,
    drawn at random. With the number of silos, a round takes as many steps as one silo."""


class Centralized(FederatedMethod[CentralizedParams]):
    """Federated averaging over a single silo that holds all data."""

    traits = Traits(pooled=True, closed_form="silos", trains_scores=True)

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Install the model and return one phase over all pairs or over one part of them."""
        phases = super().begin_round(context)
        if self.params.parts == 1:
            return phases
        order = torch.randperm(len(context.data), generator=context.generator).numpy()
        rows = np.sort(order[: max(1, round(len(order) / self.params.parts))])
        return [replace(phase, rows=rows) for phase in phases]
