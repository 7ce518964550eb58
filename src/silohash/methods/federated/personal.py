"""Personal models: silos share parameters by averaging, and each deploys a model of its own.

A silo keeps its hash layers to itself, or it shares all parameters and deploys the model as it trained it. The method only
decides which parameters are shared and which model is deployed, so it can be composed with methods that add terms to the
loss, such as FedUCH. Their global model then has the averaged layers and the silo's own private ones.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from silohash.base.types import Arrays, MethodCard, Phase
from silohash.methods.federated.base import FederatedMethod, SiloContext
from silohash.methods.local.base import MethodParams
from silohash.methods.traits import Traits
from silohash.models.parameters import install

CARD = MethodCard(
    key="personal",
    title="Personal models by private layers or local training",
    authors="The silohash developers",
    venue="baseline",
    year=2026,
    link="",
    summary="Average models, and let each silo deploy its own: with private hash layers, or as it trained it.",
    sends=("parameters that are not private", "number of items"),
    keeps=("its model",),
    differs_from_paper=(),
)


class PersonalParams(MethodParams):
    """Parameters of personal models."""

    private: Literal["hash", "none"] = "none"
    """Parameters that stay with a silo: its hash layers (`hash`), or none. With private hash layers, the codes of different
    silos mean different things."""
    deploy: Literal["trained", "averaged"] = "trained"
    """Shared parameters of the model that a silo deploys: as the silo `trained` them in its last round, or as the server
    `averaged` them after it."""


class Personal(FederatedMethod[PersonalParams]):
    """Federated averaging in which each silo deploys its own model."""

    traits = Traits(personalized=True, codes_comparable=False, keeps_model=True)

    def chosen_traits(self) -> Traits:
        """State which layers silos share."""
        return replace(self.traits, shares="body" if self.params.private == "hash" else "all")

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Install the averaged parameters and the silo's private ones."""
        install(context.model, self._averaged(context))
        # copied now, so that the global model has the private layers from before the training
        if self.params.private == "hash":
            context.global_model.eval()
        return [Phase(name="train", model=context.model, epochs=context.epochs)]

    def _averaged(self, context: SiloContext) -> Arrays:
        """Return the averaged parameters with the silo's private ones, which are the initial ones in its first round."""
        return {**(context.kept("model") or context.initial), **context.payload.params}

    def personalize(self, context: SiloContext) -> None:
        """Install the model that the silo trained in its last round, or its private parameters with the averaged ones."""
        trained = context.kept("model") if self.params.deploy == "trained" else {}
        install(context.model, trained or self._averaged(context))
