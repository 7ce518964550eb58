"""The papers and repositories that several benchmarks' protocols come from."""

from __future__ import annotations

FEDCAFE = "FedCAFE"
FEDHAP = "FedHAP"
FEDUCH = "FedUCH"
DLFFH = "DLFFH"
DCMH = "Jiang and Li, Deep Cross-Modal Hashing, CVPR 2017 (github.com/jiangqy/DCMH-CVPR2017)"
UCCH = "Hu et al., Unsupervised Contrastive Cross-modal Hashing, TPAMI 2023 (github.com/penghu-cs/UCCH)"
TORCHCMH = "github.com/WangGodder/deep-cross-modal-hashing"
DEEPHASH = "github.com/swuxyj/DeepHash-pytorch"
HASHNET = "Cao et al., HashNet, ICCV 2017 (github.com/thuml/HashNet)"
CSQ = "Yuan et al., Central Similarity Quantization, CVPR 2020 (github.com/yuanli2333/Hadamard-Matrix-for-hashing)"
DSCMR = "Zhen et al., Deep Supervised Cross-Modal Retrieval, CVPR 2019 (github.com/penghu-cs/DSCMR)"

RESEARCH_ONLY = "not stated with the files; the pictures belong to their authors, for research only"
"""The licence of data sets whose distributors state none."""

MAP_AT_50 = "mAP@50[denominator=retrieved]"
MAP_AT_5000 = "mAP@5000[denominator=retrieved]"
"""Measures of several sources, as `silohash.evaluate` writes them."""

DATABASE_NOT_STATED = (
    "The source does not state the size of the database, which is every item except the queries. The paper's figures are "
    "for queries hashed with their true labels."
)
"""What DLFFH leaves open."""

SEEDED_LISTS = (
    "The files imgList{0}.mat, tagList{0}.mat and labelList{0}.mat suffice to reproduce it, because the permutation is "
    "seeded."
)
"""What makes torchcmh's splits reproducible."""
