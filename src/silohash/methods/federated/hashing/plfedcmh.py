"""Personalized models, mixed layer by layer on the server, with class prototypes shared between the silos.

The mixing by hypernetworks, both losses with prototypes, and the table of symbols are those of
`silohash.methods.federated.hashing.layer_mixtures`. By default, all silos share one hypernetwork per tower.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from silohash.base.types import MethodCard
from silohash.methods.federated.hashing.layer_mixtures import LayerMixtures, MixtureParams

CARD = MethodCard(
    key="plfedcmh",
    title="Prototype-based Layered Federated Cross-Modal Hashing",
    authors="Jiale Liu, Yu-Wei Zhan, Xin Luo, Zhen-Duo Chen, Yongxin Wang, Xin-Shun Xu",
    venue="ICASSP",
    year=2023,
    link="https://arxiv.org/abs/2210.15678",
    summary="Mix a model for each silo on the server, layer by layer, and share mean outputs per class.",
    supervised=True,
    sends=("parameters, which the server sees silo by silo", "sums and counts of outputs per class"),
    differs_from_paper=(
        "The equations are those of the authors' public code. The paper (arXiv 2210.15678) is public too, but its equations"
        " were not compared with the code.",
        "The mixing moves toward the updates of all silos at once. The authors' code moves away, silo by silo.",
        "Silos share one hypernetwork per tower, except in the presets paper and authors_code.",
        "Silos train in parallel. In the authors' code, later silos train on mixtures of earlier silos' new models.",
        "A silo is mixed in only for towers that it has trained.",
        "Losses are means over items and classes or bits. In the presets paper and authors_code they have the scale of"
        " the authors' code, which decreases with the silo's size.",
        "The hashing loss is that of the local method.",
        "Items without any prototype are left out of both losses, and outputs are relaxed codes.",
        "Only classes with enough items are released, except in the presets paper and authors_code.",
    ),
)


class PLFedCMHParams(MixtureParams):
    """Parameters of PLFedCMH."""

    hyper_rate: float = Field(default=1e-3)
    """Learning rate of the mixing. Negative values move the mixing away from the silos' updates, as in the authors'
    code."""


class PLFedCMH(LayerMixtures):
    """A mixture of all silos' layers for each silo."""

    Params = PLFedCMHParams
    presets: ClassVar = {
        "recommended": {},
        "paper": {
            "hypernetworks": "per_silo", "normalization": "code", "prototype_weight": 1e5, "min_count": 1,
            "max_labels": 1000,
        },
        "authors_code": {
            "hypernetworks": "per_silo", "hyper_rate": -1e-3, "sequential": True, "normalization": "code",
            "prototype_weight": 1e5, "min_count": 1, "max_labels": 1000,
        },
    }  # fmt: skip
