"""The lower bound that a federation must beat: every silo trains alone, and nothing is sent.

Every silo trains its own model from the common initial parameters, on the same schedule as under federated averaging.
"""

from collections.abc import Sequence

from silohash.base.types import MethodCard, Phase
from silohash.methods.federated.base import FederatedMethod, SiloContext
from silohash.methods.traits import Traits
from silohash.models.parameters import install

CARD = MethodCard(
    key="local",
    title="Separate training",
    authors="The silohash developers",
    venue="baseline",
    year=2026,
    link="",
    summary="Train one model per silo, from common initial parameters. Nothing is sent.",
    keeps=("its model",),
    differs_from_paper=(),
)


class Local(FederatedMethod):
    """Separate training of one model per silo."""

    traits = Traits(
        shares="none", averages=False, personalized=True, codes_comparable=False, closed_form="silos", trains_scores=True,
        keeps_model=True,
    )  # fmt: skip

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Continue with the silo's model, or the common initial parameters in its first round."""
        self.personalize(context)
        return [Phase(name="train", model=context.model, epochs=context.epochs)]

    def personalize(self, context: SiloContext) -> None:
        """Install the silo's own model."""
        install(context.model, context.kept("model") or context.initial)
