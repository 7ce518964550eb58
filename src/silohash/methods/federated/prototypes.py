"""Class prototypes, as used by FedProto, FedProc, PLFedCMH and PEPFCH: computed in the silos, merged and sent by the server.

Prototypes are means of relaxed codes, which are bounded, so that a single item cannot dominate a sum.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MODALITIES, Arrays, Modality, Outputs, PairBatch
from silohash.methods.federated.base import FederatedMethod, FederationInfo, ServerState, SiloContext, received_extra
from silohash.methods.federated.shared_means import class_mean
from silohash.methods.federated.statistics import (
    ClassStatistics,
    ReleaseParams,
    class_statistics,
    mean_over_modalities,
    merged_prototypes,
    released,
    sum_statistics,
    with_release,
)
from silohash.methods.local.base import labels_of, outputs_of
from silohash.methods.message import Message
from silohash.methods.traits import Traits

FUSED = "fused"

PROTOTYPE_MEAN = class_mean("prototype_sum", "prototype_count", like="prototypes")
"""The class sums and counts of `prototype_sums`, which count items."""


class PrototypeParams(ReleaseParams):
    """Parameters of class prototypes."""

    fuse: bool = Field(default=True)
    """Use one prototype per class for both modalities, which aligns them. If false, each modality has its own
    prototypes."""
    prototype_weighting: Literal["examples", "uniform"] = "examples"
    """`examples`: a prototype is the mean over the items of all silos. `uniform`: it is the mean of the silos'
    means, as in the public code of FedProto and PLFedCMH."""


class PrototypeMethod(FederatedMethod):
    """A method whose silos send class sums (`prototype_sums`), from which the server computes common prototypes.

    Attributes:
        term_weights: Parameters that weight the terms with prototypes. If all are 0, silos do not use prototypes.
    """

    term_weights: ClassVar[tuple[str, ...]] = ()

    def chosen_traits(self) -> Traits:
        """State how class sums are released, and their limits. Under the weighting ``uniform``, each silo counts once."""
        used = any(getattr(self.params, name) > 0 for name in self.term_weights)
        traits = with_release(self.traits, self.params, used=used)
        if self.params.prototype_weighting == "examples":
            return replace(traits, means=(PROTOTYPE_MEAN,))
        unlimited = {
            "prototype_weighting": 'federated.prototype_weighting = "uniform" lets a single item change a class mean by '
            'any amount, which exchange.privacy cannot hide. Set it to "examples".'
        }
        means = (replace(PROTOTYPE_MEAN, most=1.0),)
        return replace(traits, means=means, not_private={**traits.not_private, **unlimited})

    def init_server(self, model: nn.Module, info: FederationInfo) -> ServerState:
        """Start without prototypes."""
        extras = empty_prototypes(model, info.classes, info.bits, self.params)
        return replace(super().init_server(model, info), extras=extras)

    def update(self, context: SiloContext) -> Message:
        """Send class sums beside the parameters."""
        return replace(super().update(context), sums=prototype_sums(context, self.params))

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Average the parameters, and compute the common prototypes from the class sums."""
        return updated_prototypes(super().aggregate(server, updates), updates)


def fused_statistics(context: SiloContext, release: ReleaseParams, like: np.ndarray) -> ClassStatistics:
    """Return the class statistics of the silo's items, each with the mean of its relaxed codes over its modalities.

    The codes are those of the trained model in evaluation mode. A silo that releases no class does not compute them. The
    sums have the shape of the prototypes ``like``, ``(C, K)``.
    """
    labels = labels_of(context.data)
    if not released(labels, release).any():
        return ClassStatistics.none(like, labels)
    codes = relaxed_codes(context)
    has = {modality: context.data.has(modality) for modality in codes}
    held = torch.stack(list(has.values())).any(0)
    return class_statistics(mean_over_modalities(codes, has)[held], labels[held], release)


def relaxed_codes(context: SiloContext) -> dict[Modality, Tensor]:
    """Return the relaxed codes of all items by the trained model in evaluation mode, ``(n, K)`` per modality."""
    return {m: torch.tanh(logit) for m, logit in outputs_of(context.model, context.data, part="logit").items()}


def prototype_sums(context: SiloContext, params: PrototypeParams) -> Arrays:
    """Return the silo's class sums and counts, computed by the trained model in evaluation mode.

    They are ``prototype_sum/NAME`` ``(C, K)`` and ``prototype_count/NAME`` ``(C,)``, where ``NAME`` is a modality or
    ``fused``. There are none if the silo has no items or no labels.
    """
    labels = context.data.labels
    if labels is None or not len(context.data):
        return {}
    found: dict[str, ClassStatistics] = {}
    if params.fuse:
        found[FUSED] = fused_statistics(context, params, context.payload.extras[f"prototypes/{FUSED}"])
    else:
        for modality, codes in relaxed_codes(context).items():
            held = context.data.has(modality)
            found[modality] = class_statistics(codes[held], labels[held], params)
    sums: Arrays = {}
    for name, statistics in found.items():
        sent = statistics.with_equal_counts() if params.prototype_weighting == "uniform" else statistics
        sums[f"prototype_sum/{name}"] = sent.sums.cpu().numpy()
        sums[f"prototype_count/{name}"] = sent.counts.cpu().numpy()
    return sums


def empty_prototypes(model: nn.Module, classes: int, bits: int, params: PrototypeParams) -> Arrays:
    """Return the extras before the first round: prototypes of zeros, all masked out."""
    names = [FUSED] if params.fuse else [m for m in MODALITIES if hasattr(model, m)]
    extras: Arrays = {f"prototypes/{name}": np.zeros((classes, bits), np.float32) for name in names}
    return extras | {f"mask/{name}": np.zeros(classes, np.bool_) for name in names}


def updated_prototypes(server: ServerState, updates: Sequence[Message]) -> ServerState:
    """Return the server state with prototypes computed from the updates' class sums."""
    total = sum_statistics(updates)
    extras = dict(server.extras)
    for key in [key for key in extras if key.startswith("prototypes/")]:
        name = key.removeprefix("prototypes/")
        if f"prototype_sum/{name}" in total:
            extras[key], extras[f"mask/{name}"] = merged_prototypes(
                total[f"prototype_sum/{name}"], total[f"prototype_count/{name}"], extras[key]
            )
    return replace(server, extras=extras)


def received_prototypes(context: SiloContext, modality: Modality) -> tuple[Tensor, Tensor]:
    """Return the prototypes ``(C, K)`` for a modality and a mask of the existing ones ``(C,)`` bool."""
    name = FUSED if f"prototypes/{FUSED}" in context.payload.extras else modality
    return received_extra(context, f"prototypes/{name}"), received_extra(context, f"mask/{name}")


@dataclass(frozen=True)
class PrototypeRows:
    """The items of a batch that have a modality and at least one label with a prototype.

    Attributes:
        values: ``(n, K)``, relaxed codes of the items in (-1, 1).
        labels: ``(n, C)`` multi-hot.
        prototypes: ``(C, K)``.
        mask: ``(C,)`` bool, the existing prototypes.
    """

    modality: Modality
    values: Tensor
    labels: Tensor
    prototypes: Tensor
    mask: Tensor


def prototype_rows(context: SiloContext, batch: PairBatch, outputs: Outputs) -> Iterator[PrototypeRows]:
    """Yield the items that can be compared with prototypes, for each modality of a step that has some."""
    labels = labels_of(batch)
    for modality, logit in outputs.logit.items():
        prototypes, mask = received_prototypes(context, modality)
        rows = batch.has(modality) & (labels[:, mask].sum(1) > 0)
        if rows.any():
            yield PrototypeRows(modality, torch.tanh(logit)[rows], labels[rows], prototypes, mask)
