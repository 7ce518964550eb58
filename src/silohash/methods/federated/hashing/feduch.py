"""Federated averaging with a contrast between modalities and a distillation within each of them.

The feature of an item in one modality is pulled toward the feature of its other modality by the global model, and pushed
away from that by the silo's model of the previous round. The codes of each modality are also kept close to those of the
global model. No term needs labels.

==========  ======================================  ======================================================
paper       code                                    meaning
==========  ======================================  ======================================================
mu          ``contrast_weight``                     weight of the contrast
phi         ``distillation_weight``                 weight of the distillation
tau         ``temperature``                         divides the cosines of the contrast
Z_k^V,r     ``outputs.feature["image"]``            projection of images by the model in training, ``(B, H)``
Z_G^T,r     `other_modality` of the global model    projection of their texts by the global model, ``(B, H)``
Z_k^T,r-1   `other_modality` of the previous one    projection of their texts by the silo's last model, ``(B, H)``
H_k, H_G    ``tanh(outputs.logit)``                 relaxed codes by the model in training and the global one, ``(B, K)``
==========  ======================================  ======================================================

The superscripts V and T stand for images and texts. The preset ``authors_code`` takes both terms in optimizer steps of their
own (`silohash.training.silo.with_separate_terms`). Equation (3) is `FederatedMethod.aggregate`, (8) to (10) are
`SiloContext.frozen_outputs`, (11) is `silohash.methods.federated.general.moon.model_contrast`, (12) and (13) are
`distillation`, and (14) is `FedUCH.terms`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.errors import UnsuitableMethod
from silohash.base.types import MODALITIES, MethodCard, Modality, Outputs, PairBatch, ReadArrays, Terms
from silohash.methods.federated.base import FederatedMethod, FederationInfo, ServerState, SiloContext
from silohash.methods.federated.general.moon import model_contrast
from silohash.methods.local.base import MethodParams
from silohash.methods.traits import Traits
from silohash.models.towers import HashNet, Part, group_of, hash_layers

CARD = MethodCard(
    key="feduch",
    title="Federated Unsupervised Cross-Modal Hashing",
    authors="Lei Zhu, Jingzhi Li, Tianshi Wang, Jingjing Li, Huaxiang Zhang",
    venue="Scientia Sinica Informationis",
    year=2023,
    link="https://doi.org/10.1360/SSI-2022-0366",
    summary="Pull features toward the other modality of the global model, and codes toward those of the global model.",
    sends=("parameters", "number of items"),
    keeps=("its previous model",),
    differs_from_paper=(
        "The first version of the authors' code (commit 141db0f of 2023-08-09) contains the contrast and the distillation. A"
        " later version of the same day does not: it averages the models of DGCPN. The preset authors_code follows the first"
        " version, and the equations follow the paper.",
        "The projection is the input of the hash layer. In training it is taken after dropout, with the preset authors_code"
        " before it.",
        "Both terms are sums over the two modalities. The paper writes the contrast for images only.",
        "Equation (13) is a divergence of real-valued codes, which are not distributions. By default it compares their"
        " softmax over the bits. The other choices are one Bernoulli distribution per bit, and the mean squared error.",
        "The contrast is omitted in a silo's first round, where the global and the previous model are equal.",
        "Items without the other modality are contrasted with their own, and so is a model of one modality. The contrast is"
        " then that of MOON.",
        "If the local method trains a tower in several steps per batch, such as the half-binary steps of DGCPN, the terms"
        " are added to the step on real-valued codes only. With the preset authors_code, they have steps of their own, one"
        " per tower, after all steps of the local method.",
        "Frozen models are in evaluation mode, and their outputs are computed once per round. With the preset authors_code,"
        " dropout is drawn anew for every batch in the global model's hash layers.",
        "A silo continues from the global model alone. The paper's text mentions the existing local model as well, but its"
        " algorithm overwrites it.",
        "A tower is averaged over the silos by their number of items of its modality, so a silo without a modality does not"
        " change that tower. The paper counts pairs.",
        "All trained parameters are averaged. The paper leaves out the networks that extract features.",
        "The paper encrypts models on their way to the server, which decrypts them. This does not hide them from the server."
        " With exchange.encryption, the server adds up encrypted models and cannot decrypt them.",
        "The paper selects the weights per data set. The preset paper holds those of MIRFlickr-25K and Wikipedia, and"
        " recipes/papers those of all five. The authors' code has 0.3 and 0.7 for all data sets.",
    ),
)

OTHER: Mapping[Modality, Modality] = {"image": "text", "text": "image"}
SMALLEST_PROBABILITY = 1e-4
"""Probabilities of bits are kept at least this far from 0 and 1."""

NOT_PRIVATE = (
    "federated.separate_steps is not supported with exchange.privacy, which trains on the sum of all terms. Set "
    "federated.separate_steps = false."
)

FrozenModel: TypeAlias = Literal["global", "previous"]

Divergence: TypeAlias = Literal["soft", "bernoulli", "mse"]


class FedUCHParams(MethodParams):
    """Parameters of FedUCH."""

    without_effect: ClassVar = {
        **MethodParams.switched_off("temperature", "representation", contrast_weight=(0,)),
        "distillation": {"distillation_weight": (0,)},
        "distillation_temperature": {"distillation_weight": (0,), "distillation": ("bernoulli", "mse")},
    }

    contrast_weight: float = Field(default=0.6, ge=0)
    """Weight of the contrast between modalities (mu in the paper), at least 0. At 0 it is off. The paper selects 0.6 for
    Wikipedia and MIRFlickr-25K, 0.5 for IAPR TC-12, 0.4 for MS-COCO, and 0.3 for NUS-WIDE."""
    temperature: float = Field(default=1.0, gt=0)
    """Temperature of the contrast (tau in the paper), positive. Lower values emphasize small differences."""
    representation: Literal["feature", "projection", "logit"] = "feature"
    """Contrasted outputs: `feature` (the input of the hash layer, as in the paper), `projection` (the same before dropout)
    or `logit` (the output of the hash layer). Features of the two towers need the same width."""
    distillation_weight: float = Field(default=0.4, ge=0)
    """Weight of the distillation from the global model (phi in the paper), at least 0. At 0 it is off, and if the weight of
    the contrast is 0 as well, the method is FedAvg. The paper selects 0.4 for Wikipedia and MIRFlickr-25K, 0.5 for
    IAPR TC-12, and 0.7 for MS-COCO and NUS-WIDE."""
    distillation: Divergence = "soft"
    """Distance between the codes of the global model and those of the model in training: `soft` (divergence of the softmax
    over the bits), `bernoulli` (mean divergence per bit), or `mse` (mean squared error)."""
    distillation_temperature: float = Field(default=1.0, gt=0)
    """Temperature of the softmax over the bits, positive. Higher values make the distributions more even. The divergence is
    multiplied by its square."""
    teacher_dropout: bool = False
    """Keep dropout on in the frozen models, with a new draw for every batch. Otherwise their outputs are computed once per
    round."""
    separate_steps: bool = False
    """Minimize both terms in optimizer steps of their own, one per tower, after those of the local method. Otherwise they
    are added to its loss."""


def soft_divergence(codes: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return the mean divergence of the softmax of codes over the bits from that of the teacher's codes, a scalar.

    The values of an item's bits may all shift by the same amount without an effect. The temperature divides the codes
    ``(B, K)``, and the divergence is multiplied by its square.

    Source: FedUCH, equation (13); the temperature is that of Hinton et al., "Distilling the Knowledge in a Neural Network".
    """
    student = F.log_softmax(codes / temperature, dim=1)
    wanted = F.log_softmax(teacher / temperature, dim=1)
    return F.kl_div(student, wanted, reduction="batchmean", log_target=True) * temperature**2


def bit_divergence(codes: Tensor, teacher: Tensor) -> Tensor:
    """Return the mean divergence of the bits from those of the teacher, a scalar.

    A bit is 1 with probability (1 + u) / 2, for relaxed codes u in [-1, 1], ``(B, K)``. Source: FedUCH, equation (13).
    """
    low, high = SMALLEST_PROBABILITY, 1.0 - SMALLEST_PROBABILITY
    student, wanted = ((0.5 * (1.0 + values)).clamp(low, high) for values in (codes, teacher))
    ones = wanted * (wanted / student).log()
    zeros = (1.0 - wanted) * ((1.0 - wanted) / (1.0 - student)).log()
    return (ones + zeros).mean()


def distillation(codes: Tensor, teacher: Tensor, *, kind: Divergence, temperature: float = 1.0) -> Tensor:
    """Return the distance of relaxed codes ``(B, K)`` from the teacher's, a scalar. Source: FedUCH, (12) and (13)."""
    if kind == "mse":
        return F.mse_loss(codes, teacher)
    return bit_divergence(codes, teacher) if kind == "bernoulli" else soft_divergence(codes, teacher, temperature)


def other_modality(frozen: Mapping[Modality, Tensor], modality: Modality, batch: PairBatch) -> Tensor:
    """Return a frozen model's outputs of the other modality for the items of a batch, ``(B, p)``.

    Items without the other modality have those of their own. The model's outputs for the batch are given per modality;
    those of its own are not needed if all items have the other.
    """
    other = OTHER[modality]
    if modality not in frozen or other not in frozen:
        return frozen[other if other in frozen else modality]
    return torch.where(batch.has(other).unsqueeze(1), frozen[other], frozen[modality])


def feature_widths(params: ReadArrays) -> dict[str, int]:
    """Return the widths of the features that the hash layers take, by tower. Towers without such a layer are left out."""
    layers = [name for name in hash_layers(params) if name.endswith(".weight") and params[name].ndim == 2]
    return {group_of(name): params[name].shape[1] for name in reversed(layers)}


def frozen_model(context: SiloContext, key: FrozenModel) -> nn.Module:
    """Return the frozen global model of a round, or the silo's previous one, which must exist."""
    previous = context.previous_model if key == "previous" else context.global_model
    assert previous is not None  # noqa: S101  the caller has checked it
    return previous


class FedUCH(FederatedMethod[FedUCHParams]):
    """Federated averaging with a contrast between modalities and a distillation."""

    presets: ClassVar = {
        "recommended": {},
        "paper": {"contrast_weight": 0.6, "distillation_weight": 0.4},
        "authors_code": {
            "contrast_weight": 0.3,
            "distillation_weight": 0.7,
            "distillation_temperature": 1.5,
            "representation": "projection",
            "teacher_dropout": True,
            "separate_steps": True,
        },
    }
    traits = Traits(private_units=("record", "silo"))

    def chosen_traits(self) -> Traits:
        """State whether the terms have steps of their own, and whether the contrast needs the model of the last round."""
        separate, keeps = self.params.separate_steps, self.params.contrast_weight > 0
        reasons = {"separate_steps": NOT_PRIVATE} if separate else {}
        return replace(self.traits, separate_steps=separate, not_private=reasons, keeps_model=keeps)

    def init_server(self, model: nn.Module, info: FederationInfo) -> ServerState:
        """Check that the contrasted features have the same width and, if needed, are known before dropout.

        Raises:
            UserError: If they do not, or if the model's features are not those of its towers before dropout.
        """
        server = super().init_server(model, info)
        widths = feature_widths(server.params)
        contrasts = self.params.contrast_weight > 0 and self.params.representation != "logit"
        # Towers that are run in another way do not give their features before dropout.
        projects = isinstance(model, HashNet) and type(model).run_tower is HashNet.run_tower
        if contrasts and self.params.representation == "projection" and not projects:
            raise UnsuitableMethod(
                'federated.representation = "projection" compares the features of towers before dropout, and the local '
                'method computes its features in another way. Set federated.representation = "feature" or "logit".'
            )
        if contrasts and len(set(widths.values())) > 1:
            found = " and ".join(f"{width} ({tower})" for tower, width in widths.items())
            raise UnsuitableMethod(
                f"feduch compares the features of the two towers, and they have different widths: {found}. Set "
                'federated.representation = "logit", or choose towers whose features have the same width.'
            )
        return server

    def terms(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return the contrast and the distillation, summed over the step's modalities. Source: equation (14)."""
        held = [modality for modality in outputs.logit if bool(batch.has(modality).any())]
        terms: Terms = {}
        if not held:
            return terms
        if self.params.contrast_weight and context.previous_model is not None:
            contrasts = [self._contrast(context, batch, outputs, modality) for modality in held]
            terms["contrast"] = (self.params.contrast_weight, torch.stack(contrasts).sum())
        if self.params.distillation_weight:
            gaps = [self._distillation(context, batch, outputs, modality) for modality in held]
            terms["distillation"] = (self.params.distillation_weight, torch.stack(gaps).sum())
        return terms

    def _contrast(self, context: SiloContext, batch: PairBatch, outputs: Outputs, modality: Modality) -> Tensor:
        """Return the mean contrast of one modality with the other one, a scalar. Source: equation (11)."""
        part, held, other = self.params.representation, batch.rows_with(modality), OTHER[modality]
        needed = (other,) if bool(batch.has(other).all()) else MODALITIES
        ahead = self._frozen(context, "global", batch, part, needed)
        behind = self._frozen(context, "previous", batch, part, needed)
        positive, negative = (other_modality(frozen, modality, batch)[held] for frozen in (ahead, behind))
        values = getattr(outputs, part)[modality][held]
        return model_contrast(values, positive, [negative], self.params.temperature).mean()

    def _distillation(self, context: SiloContext, batch: PairBatch, outputs: Outputs, modality: Modality) -> Tensor:
        """Return the distance of one modality's codes from the global model's, a scalar. Source: (12) and (13)."""
        held = batch.rows_with(modality)
        frozen = self._frozen(context, "global", batch, "logit", (modality,))[modality]
        return distillation(
            torch.tanh(outputs.logit[modality][held]), torch.tanh(frozen[held]),
            kind=self.params.distillation, temperature=self.params.distillation_temperature,
        )  # fmt: skip

    def _frozen(
        self, context: SiloContext, key: FrozenModel, batch: PairBatch, part: Part, modalities: Sequence[Modality]
    ) -> Mapping[Modality, Tensor]:
        """Return a frozen model's outputs for a batch, ``(B, p)`` per modality. Dropout does not change projections."""
        found: Mapping[Modality, Tensor]
        if self.params.teacher_dropout and part != "projection":
            model = frozen_model(context, key)
            with torch.no_grad():
                found = getattr(model.train()(batch, modalities), part)
            model.eval()
            return found
        found = context.frozen_outputs(key, lambda: frozen_model(context, key), part)
        return {modality: found[modality][batch.row] for modality in modalities if modality in found}
