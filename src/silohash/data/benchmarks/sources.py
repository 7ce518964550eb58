"""The papers and repositories that protocols come from, with the rules that each follows on every data set."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from silohash.data.protocols.rule import SplitProtocol

RESEARCH_ONLY = "not stated with the files; the pictures belong to their authors, for research only"
"""The license of data sets whose distributors state none."""

MAP_AT_50 = "mAP@50[denominator=retrieved]"
MAP_AT_5000 = "mAP@5000[denominator=retrieved]"
"""Measures of several sources, as `silohash.evaluate` writes them."""

SEEDED_LISTS = "Reproducible from the lists of pictures, tags and labels alone, because the permutation is seeded."

# fmt: off
FEDCAFE = {"name": "fedcafe", "source": "FedCAFE", "draw": "first rows", "round_by": "queries"}
FEDHAP = {"name": "fedhap", "source": "FedHAP", "train": 10_000}
FEDUCH = {"name": "feduch", "source": "FedUCH", "train": 5_000, "measure": MAP_AT_50}
DLFFH = {"name": "dlffh", "source": "DLFFH", "train": 10_000,
    "about": "The source does not state the size of the database, which is every item except the queries. The paper's "
    "figures are for queries hashed with their true labels."}
DCMH = {"name": "dcmh", "draw": "first rows", "round_by": "last",
    "source": "Jiang and Li, Deep Cross-Modal Hashing, CVPR 2017 (github.com/jiangqy/DCMH-CVPR2017)"}
UCCH = {"name": "ucch", "draw": "last rows", "round_by": "queries",
    "source": "Hu et al., Unsupervised Contrastive Cross-modal Hashing, TPAMI 2023 (github.com/penghu-cs/UCCH)"}
TORCHCMH = {"name": "torchcmh", "draw": "numpy seed", "round_by": "queries", "about": SEEDED_LISTS,
    "source": "github.com/WangGodder/deep-cross-modal-hashing"}
DEEPHASH = {"name": "deephash", "draw": "stated", "round_by": "queries",
    "source": "github.com/swuxyj/DeepHash-pytorch"}
HASHNET = {"draw": "stated", "measure": MAP_AT_5000, "no_hits": "skip", "round_by": "last",
    "source": "Cao et al., HashNet, ICCV 2017 (github.com/thuml/HashNet)"}
CSQ = {"name": "csq", "database": None, "draw": "stated", "searched": "neither", "measure": MAP_AT_5000,
    "no_hits": "skip", "round_by": "queries",
    "source": "Yuan et al., Central Similarity Quantization, CVPR 2020 (github.com/yuanli2333/Hadamard-Matrix-for-hashing)"}
DSCMR = {"name": "dscmr", "draw": "stated", "searched": "query", "round_by": "queries",
    "source": "Zhen et al., Deep Supervised Cross-Modal Retrieval, CVPR 2019 (github.com/penghu-cs/DSCMR)"}
# fmt: on


def protocol(source: Mapping[str, Any] = MappingProxyType({}), /, **facts: Any) -> SplitProtocol:  # noqa: ANN401  fields of SplitProtocol
    """Return a protocol with the rules of its source, except where the facts of a data set replace them."""
    return SplitProtocol(**{**source, **facts})
