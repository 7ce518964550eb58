"""All data in one place: the upper bound that a federation tries to reach, and may not do.

One silo that holds every silo's pairs, trained with the same rounds and epochs; it takes as many optimiser steps in a round
as all silos together, or with ``parts`` as many as one of them.

Differs from the paper: no paper; this is the baseline "Centralized" of all five.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field

from silohash.federated.base import FederatedMethod, SiloContext
from silohash.local.base import MethodParams
from silohash.types import MethodCard, Phase

CARD = MethodCard(
    key="centralized",
    title="All data in one place",
    authors="",
    venue="baseline",
    year=2017,
    link="",
    summary="One model trained on all pairs pooled; what no federation is allowed, as the upper bound.",
    supervised=False,
    sends=("everything",),
)


class CentralizedParams(MethodParams):
    """Parameters of pooled training."""

    parts: int = Field(default=1, ge=1)
    """A round passes over one of so many parts of the pairs, drawn anew: as many as silos give the steps of one silo."""


class Centralized(FederatedMethod):
    """Federated averaging over the one silo that holds everything."""

    Params: ClassVar[type[MethodParams]] = CentralizedParams
    pooled: ClassVar[bool] = True

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Installs the model; a round's phase draws from all pairs, or from one part of them."""
        phases = super().begin_round(context)
        if self.params.parts == 1:
            return phases
        order = torch.randperm(len(context.data), generator=context.generator).numpy()
        rows = np.sort(order[: max(1, round(len(order) / self.params.parts))])
        return [replace(phase, rows=rows) for phase in phases]
