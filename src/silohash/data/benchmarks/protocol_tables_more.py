"""The protocols of COCO, IAPR TC-12, Wikipedia, FashionVC, Ssense and Pascal Sentence."""

from __future__ import annotations

from functools import partial

from silohash.data.benchmarks.protocol_tables import (
    CSQ,
    DCMH,
    DEEPHASH,
    DLFFH,
    FEDCAFE,
    FEDHAP,
    FEDUCH,
    HASHNET,
    TORCHCMH,
    UCCH,
)
from silohash.data.protocols.rule import SplitProtocol

FEDBIGNNS = "FedBi-GNNs"
KARPATHY = "Karpathy and Fei-Fei, Deep Visual-Semantic Alignments, CVPR 2015"
DSCMR = "Zhen et al., Deep Supervised Cross-Modal Retrieval, CVPR 2019 (github.com/penghu-cs/DSCMR)"
SHDCH = "Zhan et al., Supervised Hierarchical Deep Hashing, 2020 (github.com/SDU-MIMA/SHDCH)"

_coco = partial(SplitProtocol, dataset="coco", items=122_218, classes=80, population="labelled", collected=123_287)
_coco_lists = partial(_coco, query=5_000, train=10_000, draw="stated", measure="mAP@5000[denominator=retrieved]")
_karpathy = partial(
    _coco,
    source=FEDBIGNNS,
    query=5_000,
    train=113_287,
    database=5_000,
    items=123_287,
    classes=0,
    population="all",
    draw="stated",
    searched="query",
    measure="Success@1",
    round_by="validation",
    reader={"captions": "each"},
)

COCO = (
    _coco(
        name="fedhap",
        source=FEDHAP,
        query=4_992,
        train=10_000,
        database=112_226,
        about="4,992 queries and 112,226 searched items are 117,218, which is the 122,218 labelled items without 5,000: "
        "the database list of DeepHash, split again. 4,992 is 39 batches of 128, so a last batch of eight was dropped. "
        "Which 5,000 are missing is not told; they are drawn.",
    ),
    _coco(
        name="feduch",
        source=FEDUCH,
        query=2_000,
        train=5_000,
        database=121_287,
        items=123_287,
        population="all",
        measure="mAP@50[denominator=retrieved]",
        about="All 123,287 items, of which 1,069 have no label: they are relevant to nothing, and as queries count 0.",
    ),
    _coco_lists(
        name="deephash",
        source=DEEPHASH,
        database=117_218,
        round_by="queries",
        about="117,218 items are searched: all but the queries, the training items among them. The other list in "
        "circulation has 112,218 (hashnet-112218). The best epoch is chosen on the queries.",
    ),
    _coco_lists(
        name="hashnet-112218",
        source=HASHNET,
        database=112_218,
        searched="not train",
        no_hits="skip",
        round_by="last",
        about="The authors' lists: 112,218 items are searched, all but the training items, and all 5,000 queries are "
        "among them, so that a picture query finds itself first. Our figures within one modality take the own item out; "
        'evaluate.own_item = "count" gives the published convention.',
    ),
    _coco_lists(
        name="csq",
        source=CSQ,
        train=9_992,
        database=None,
        searched="neither",
        no_hits="skip",
        round_by="queries",
        items=None,
        about="Lists of its own; 9,992 items to train on. The size of the database is not told in the paper.",
    ),
    _coco(
        name="ucch",
        source=UCCH,
        query=5_000,
        train=117_218,
        database=117_218,
        draw="last rows",
        round_by="queries",
        about="The last 5,000 rows of the file are the queries; all others are trained on without labels.",
    ),
    _coco(
        name="torchcmh",
        source=TORCHCMH,
        query=5_000,
        train=10_000,
        database=None,
        items=None,
        population="all",
        draw="numpy seed",
        numpy_seed=8,
        round_by="queries",
        about="Reproducible from the files imgList.mat, tagList.mat and labelList.mat alone, as the permutation is "
        "seeded; how many rows they have is not told.",
    ),
    _karpathy(
        name="fedbi-gnns",
        partition='kind = "nested", fractions = [1.0, 0.8, 0.6]',
        about="Karpathy's split with five captions a picture; an answer is right if it is of the same picture, so the "
        "queries are searched themselves. Silos hold 100, 80 and 60 % of the training pictures, each within the former: "
        "113,287, 90,630 and 67,972. The paper's table has 7,972 for the last (fedbi-gnns-7972).",
    ),
    _karpathy(
        name="fedbi-gnns-7972",
        partition='kind = "nested", fractions = [1.0, 0.8, 0.0704]',
        about="As fedbi-gnns, the third silo taken by the word of the paper's table: 7,972 pictures (and 39,860 texts), "
        "where its 60 % are 67,972 and 339,860.",
    ),
)

_iapr = partial(
    SplitProtocol, dataset="iapr-tc12", items=20_000, classes=255, query=2_000, database=18_000, collected=20_000
)

IAPR = (
    _iapr(
        name="feduch",
        source=FEDUCH,
        train=5_000,
        measure="mAP@50[denominator=retrieved]",
        about="Texts are vectors of 1,024 by BERT in the paper; here they are what the files hold.",
    ),
    _iapr(
        name="dlffh",
        source=DLFFH,
        train=10_000,
        about="The size of the database is not stated; it is every item but the queries. The paper's figures are of "
        "queries that are hashed with their true labels.",
    ),
    _iapr(
        name="dcmh",
        source=DCMH,
        train=10_000,
        draw="first rows",
        round_by="last",
        about="Of the collectors' 275 labels, 255 occur.",
    ),
    _iapr(
        name="ucch",
        source=UCCH,
        train=18_000,
        draw="last rows",
        round_by="queries",
        about="The file's own database and test part one after the other; the last 2,000 rows are the queries, all others "
        "are trained on without labels.",
    ),
    _iapr(
        name="torchcmh",
        source=TORCHCMH,
        train=10_000,
        draw="numpy seed",
        numpy_seed=8,
        round_by="queries",
        about="Reproducible from the files imgList.mat, tagList.mat and labelList.mat alone, as the permutation is seeded.",
    ),
)

_wikipedia = partial(
    SplitProtocol, dataset="wikipedia", items=2_866, classes=10, train=2_173, draw="stated", collected=2_866
)

WIKIPEDIA = (
    _wikipedia(
        name="feduch",
        source=FEDUCH,
        query=462,
        items=None,
        database=2_173,
        searched="train",
        measure="mAP@50[denominator=retrieved]",
        about="2,173 and 462 of the 2,866 items: the split with a validation part of 231 that DSCMR and others use, "
        "without that part. The database is what was trained on. Lists of 693 test items do not tell which of them are "
        "the 462 (rasiwasia takes all).",
    ),
    _wikipedia(
        name="dscmr",
        source=DSCMR,
        query=462,
        items=None,
        database=462,
        searched="query",
        round_by="queries",
        about="The 462 test items ask the 462 test items, so each finds its own pair among them; the best epoch is "
        "chosen on them too.",
    ),
    _wikipedia(
        name="rasiwasia",
        source="Rasiwasia et al., A New Approach to Cross-Modal Multimedia Retrieval, ACM Multimedia 2010",
        query=693,
        database=2_173,
        queries_of=("validation", "query"),
        searched="train",
        about="The collectors' split: 2,173 training and 693 test items, those included that others set aside for "
        "validation. The paper's own figures are of the test items "
        "asking the test items; here they ask the training items, as hashing papers have it.",
    ),
)

_FASHION_ABOUT = (
    "What is searched is what was trained on, so database codes are of items that were seen; relevance is by the fine "
    "labels. The paper draws the queries at random; the code that it builds on takes the first rows."
)
_fashionvc = partial(
    SplitProtocol,
    dataset="fashionvc",
    items=19_862,
    classes=27,
    population="frequent labels",
    least=25,
    labels="last",
    query=3_000,
    train=16_862,
    database=16_862,
    draw="first rows",
    searched="train",
    collected=20_726,
)
_ssense = partial(
    SplitProtocol,
    dataset="ssense",
    items=15_696,
    classes=28,
    population="frequent labels",
    least=70,
    labels="last",
    query=2_000,
    train=13_696,
    database=13_696,
    draw="first rows",
    searched="train",
    collected=25_947,
)

FASHIONVC = (
    _fashionvc(name="fedcafe", source=FEDCAFE, about=f"{_FASHION_ABOUT} 8 coarse and 27 fine labels."),
    _fashionvc(name="shdch", source=SHDCH, round_by="queries", about=f"{_FASHION_ABOUT} 8 coarse and 27 fine labels."),
)
SSENSE = (
    _ssense(name="fedcafe", source=FEDCAFE, about=f"{_FASHION_ABOUT} 4 coarse and 28 fine labels."),
    _ssense(name="shdch", source=SHDCH, round_by="queries", about=f"{_FASHION_ABOUT} 4 coarse and 28 fine labels."),
    _ssense(
        name="shdch-column-8",
        source=SHDCH,
        classes=24,
        round_by="queries",
        about="The published code as it runs: its evaluation takes the labels from column 8 on, as FashionVC has them. "
        "Of Ssense's 28 fine labels, which begin at column 4, four vanish, and their queries count 0.",
    ),
)

PASCAL = (
    SplitProtocol(
        dataset="pascal-sentence",
        name="dscmr",
        source=DSCMR,
        query=100,
        train=800,
        database=100,
        items=1_000,
        classes=20,
        draw="stated",
        searched="query",
        round_by="queries",
        collected=1_000,
        about="40 of the 50 pairs a class are trained on and 5 are for validation; the 5 test pairs a class ask the test "
        "pairs, so each finds its own pair among them. The best epoch is chosen on them too. Where files state no "
        "splits, dscmr/drawn draws as many.",
    ),
)
