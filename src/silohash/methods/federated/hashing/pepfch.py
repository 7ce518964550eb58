"""PLFedCMH with another balance of its losses, and with image and text hypernetworks of each silo's own.

The mixing by hypernetworks, both losses with prototypes, and the table of symbols are those of
`silohash.methods.federated.hashing.plfedcmh`. In the authors' code, only a part of each hypernetwork learns
(`PEPFCHParams.learned`).
"""

from typing import ClassVar, Literal

from pydantic import Field

from silohash.base.types import MethodCard
from silohash.methods.federated.hashing.plfedcmh import AS_PUBLISHED, PLFedCMH, PLFedCMHParams

CARD = MethodCard(
    key="pepfch",
    title="Privacy-Enhanced Prototype-based Federated Cross-modal Hashing for Cross-modal Retrieval",
    authors="Ruifan Zuo, Chaoqun Zheng, Fengling Li, Lei Zhu, Zheng Zhang",
    venue="ACM Transactions on Multimedia Computing, Communications, and Applications",
    year=2024,
    link="https://github.com/vindahi/PEPFCH",
    summary="Mix a model for each silo by a hypernetwork of its own, and share mean outputs per class.",
    supervised=True,
    sends=("parameters, which the server sees silo by silo", "sums and counts of outputs per class"),
    differs_from_paper=(
        "The equations are those of the authors' public code, because the paper's text was not available.",
        "The noise that the paper calls encryption of prototypes is left out, and no privacy is claimed. In the authors'"
        " code, a silo adds random numbers to its outputs and the server subtracts other random numbers. They do not"
        " cancel, so the prototypes are noisier. They do not hide either: no bound on the outputs, no budget, and the"
        " server still receives each silo's parameters as they are.",
        "Prototypes are computed from sums over silos, which exchange.encryption can hide from the server. This method"
        " refuses it all the same, because the mixing needs the parameters of each silo.",
        "All parameters of the hypernetworks learn. In the authors' code, only the embedding of each silo learns, because"
        " the rest is read again from files that are not updated (the preset authors_code).",
        "Hypernetworks are not extended for new classes. In the authors' code, the extension never adds anything.",
        "Silos train in parallel, and the mixing learns from all of them at once, except in the preset authors_code. In"
        " the authors' code, later silos train on mixtures of earlier silos' new models.",
        "A silo is mixed in only for towers that it has trained.",
        "Losses are means over items and classes or bits, and the weight of the distance to prototypes is our choice. In"
        " the presets paper and authors_code both are those of the authors' code.",
        "The hashing loss is that of the local method. The authors' is SHDCH with one level of labels and normalization"
        " paper, fine_weight 0.9 (alpha in the authors' code) and quantization_weight 10 (gamma). There, each silo has"
        " class codes of its own, which pass a sigmoid. Here they are signs, and common to all silos.",
        "Items without any prototype are left out of both losses, and outputs are relaxed codes.",
        "Only classes with enough items are released, except in the presets paper and authors_code.",
    ),
)

EMBEDDING = "embedding."
"""Beginning of the names of a hypernetwork's embedding."""


class PEPFCHParams(PLFedCMHParams):
    """Parameters of PEPFCH."""

    class_code_weight: float = Field(default=0.1, ge=0)
    """Weight of the loss that makes items agree with the prototypes of their own labels only (beta in the authors'
    code), at least 0. At 0 it is off."""
    hyper_rate: float = Field(default=1e-3, ge=0)
    """Learning rate of the mixing, at least 0. At 0 the mixing stays as it starts."""
    hypernetworks: Literal["shared", "per_silo"] = "per_silo"
    """`per_silo`: one hypernetwork per tower and silo, trained by that silo's updates only, as in the paper. `shared`: one
    per tower, in which each silo has an embedding, so that all silos' updates train it."""
    learned: Literal["all", "embedding"] = "all"
    """Parameters of the hypernetworks that learn: `all`, or only the `embedding` of each silo, as in the authors' code. The
    others then keep their random initial values."""


class PEPFCH(PLFedCMH):
    """A mixture of all silos' layers for each silo, by a hypernetwork of its own."""

    Params = PEPFCHParams
    presets: ClassVar = {
        "recommended": {},
        "paper": AS_PUBLISHED,
        "authors_code": {**AS_PUBLISHED, "learned": "embedding", "sequential": True},
    }

    def learns(self, name: str) -> bool:
        """Return whether a parameter of a hypernetwork learns: all of them, or the embedding only."""
        return self.params.learned == "all" or name.startswith(EMBEDDING)
