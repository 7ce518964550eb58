"""All data in one place: the upper bound that a federation tries to reach, and may not do.

One silo that holds every silo's pairs, trained with the same rounds and epochs; it takes as many optimiser steps in a round
as all silos together.

Differs from the paper: no paper; this is the baseline "Centralized" of all five.
"""

from __future__ import annotations

from typing import ClassVar

from silohash.federated.base import FederatedMethod
from silohash.types import MethodCard

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


class Centralized(FederatedMethod):
    """Federated averaging over the one silo that holds everything."""

    pooled: ClassVar[bool] = True
