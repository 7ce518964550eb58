"""The protocols of MIRFlickr-25K and NUS-WIDE: those of the five papers, and others in circulation.

Where a source contradicts itself, both readings have a name. Nothing is put right silently.
"""

from __future__ import annotations

from functools import partial

from silohash.data.protocols.rule import SplitProtocol

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
TAGS_ABOUT = (
    "20,015 is the number of items with one of 24 labels and one of the 1,386 tags that stand on 20 items or more. The "
    "paper's words, that items with fewer than 20 tags are removed, cannot be meant: an item has about nine."
)

_mirflickr = partial(
    SplitProtocol,
    dataset="mirflickr25k",
    items=20_015,
    classes=24,
    population="frequent tags",
    least=20,
    labels="without _r1",
    collected=25_000,
)
_mirflickr_dcmh = partial(_mirflickr, query=2_000, train=10_000, database=18_015)

MIRFLICKR = (
    _mirflickr_dcmh(
        name="fedcafe",
        source=FEDCAFE,
        draw="first rows",
        round_by="queries",
        about=f"{TAGS_ABOUT} The paper says that queries are drawn at random; its code takes the first 2,000 rows of the "
        "file and then 10,000 to train on, as DCMH's ports do, and keeps the best round on the queries.",
    ),
    _mirflickr_dcmh(
        name="fedhap",
        source=FEDHAP,
        about="The sizes of the paper's table, with a database of 18,015 that holds the training items. Its text says "
        "otherwise (fedhap-text), and its table gives 21 classes here and 24 for NUS-WIDE (fedhap-table-classes).",
    ),
    _mirflickr(
        name="fedhap-text",
        source=FEDHAP,
        query=2_000,
        train=10_000,
        database=8_015,
        searched="neither",
        about="The paper's text: 10,000 items to train on, 2,000 queries of the remaining, and what then remains, 8,015, "
        "is searched. Its table says 18,015 (fedhap).",
    ),
    _mirflickr(
        name="fedhap-table-classes",
        source=FEDHAP,
        query=2_000,
        train=10_000,
        database=None,
        items=None,
        classes=21,
        labels="most frequent",
        about="The paper's table taken by its word: 21 classes, here the most frequent of the 24. The classes of "
        "MIRFlickr and NUS-WIDE are exchanged in that table; fedhap has the usual 24.",
    ),
    _mirflickr(
        name="feduch",
        source=FEDUCH,
        query=2_000,
        train=5_000,
        database=18_015,
        measure="mAP@50[denominator=retrieved]",
        about="Every item but the queries is searched, which is 18,015. The paper's table says 16,015 (feduch-16015).",
    ),
    _mirflickr(
        name="feduch-16015",
        source=FEDUCH,
        query=2_000,
        train=5_000,
        database=16_015,
        measure="mAP@50[denominator=retrieved]",
        about="The paper's table taken by its word: 16,015 items are searched, 2,000 fewer than remain without the "
        "queries; they were lost, or subtracted twice. Which they were is not told, so they are drawn.",
    ),
    _mirflickr_dcmh(
        name="dlffh",
        source=DLFFH,
        about=f"{TAGS_ABOUT} The size of the database is not stated; it is every item but the queries. The paper's figures "
        "are of queries that are hashed with their true labels.",
    ),
    _mirflickr_dcmh(
        name="dcmh",
        source=DCMH,
        draw="first rows",
        round_by="last",
        about=f"{TAGS_ABOUT} The order of rows is that of the file (as in the TensorFlow code and its ports); the Matlab "
        "code draws a permutation (dcmh-matlab).",
    ),
    _mirflickr_dcmh(
        name="dcmh-matlab",
        source=DCMH,
        round_by="last",
        about="As dcmh, with a permutation in place of the file's order. Matlab's own permutation is not reproduced; "
        "the seed draws another.",
    ),
    _mirflickr(
        name="dcmh-20-tags",
        source=DCMH,
        query=2_000,
        train=10_000,
        database=None,
        items=None,
        population="many tags",
        about="The words of DCMH, FedCAFE and DLFFH taken literally: items with fewer than 20 tags are removed. Far fewer "
        "than 20,015 remain, so on complete files this name mostly shows that the words cannot be meant.",
    ),
    _mirflickr(
        name="dcmh-24581",
        source="the population without the rule about tags",
        query=2_000,
        train=10_000,
        database=22_581,
        items=24_581,
        population="labelled",
        about="24,581 items have one of the 24 labels; 4,566 of them have none of the frequent tags, so that a text "
        "query of theirs is empty. Figures are not comparable with those on 20,015.",
    ),
    _mirflickr(
        name="deephash",
        source=DEEPHASH,
        query=1_000,
        train=4_000,
        database=20_000,
        items=25_000,
        classes=38,
        population="all",
        labels="as they are",
        draw="stated",
        searched="neither",
        round_by="queries",
        reader={"concepts": 38},
        about="All 25,000 pictures under 38 concepts, 1.8 % of them without any. Lists of files state the splits; the "
        "database holds no training items. The best epoch is chosen on the queries.",
    ),
    _mirflickr_dcmh(
        name="ucch",
        source=UCCH,
        train=18_015,
        draw="last rows",
        round_by="queries",
        about="The last 2,000 rows are the queries, and all others are trained on without labels. With the pictures, the "
        "code first shuffles without a seed; with features the file's order stands.",
    ),
    _mirflickr_dcmh(
        name="torchcmh",
        source=TORCHCMH,
        draw="numpy seed",
        numpy_seed=6,
        round_by="queries",
        about="Reproducible from the files imgList.mat, tagList.mat and labelList.mat alone, as the permutation is seeded.",
    ),
)

_nus = partial(
    SplitProtocol,
    dataset="nus-wide",
    items=195_834,
    classes=21,
    population="labelled",
    labels="most frequent",
    collected=269_648,
    reader={"classes": 21},
)
_nus_dcmh = partial(_nus, query=2_100, train=10_500, database=193_734)
_nus_81 = partial(_nus, classes=81, labels="as they are", items=None, reader={"classes": 81})

NUS_WIDE = (
    _nus_dcmh(
        name="fedcafe",
        source=FEDCAFE,
        draw="first rows",
        round_by="queries",
        about="The paper draws at random and publishes no code for this data set; the rows are those of DCMH's code. The "
        "centralised row of its table equals, in all six figures, one that DLFFH measured on another split.",
    ),
    _nus(
        name="fedhap",
        source=FEDHAP,
        query=2_100,
        train=10_000,
        database=193_734,
        about="The paper's text with its 21 classes; its table says 24 (fedhap-table-classes).",
    ),
    _nus_81(
        name="fedhap-table-classes",
        source=FEDHAP,
        query=2_100,
        train=10_000,
        database=None,
        classes=24,
        labels="most frequent",
        about="The paper's table taken by its word: 24 classes, here the most frequent of the 81, which only the "
        "collectors' release holds. The classes of MIRFlickr and NUS-WIDE are exchanged in that table.",
    ),
    _nus(
        name="feduch",
        source=FEDUCH,
        query=2_000,
        train=5_000,
        database=193_834,
        measure="mAP@50[denominator=retrieved]",
        about="2,000 queries where most others take 2,100, and mAP among the first 50 items.",
    ),
    _nus(
        name="dlffh",
        source=DLFFH,
        query=2_000,
        train=10_000,
        database=193_834,
        about="The size of the database is not stated; it is every item but the queries. The paper's figures are of "
        "queries that are hashed with their true labels.",
    ),
    _nus_dcmh(
        name="dcmh",
        source=DCMH,
        draw="first rows",
        round_by="last",
        about="195,834 items have one of the 21 labels; 5,413 of them have none of the 1,000 tags (dcmh-190421).",
    ),
    _nus(
        name="dcmh-190421",
        source="the population with a rule about tags",
        query=2_100,
        train=10_500,
        database=188_321,
        items=190_421,
        population="tagged",
        about="Items with one of the 21 labels and one of the 1,000 tags, so that no text is empty. Figures are not "
        "comparable with those on 195,834.",
    ),
    _nus_81(
        name="deephash-21",
        source=DEEPHASH,
        query=2_100,
        train=10_500,
        database=None,
        classes=21,
        draw="stated",
        searched="neither",
        measure="mAP@5000[denominator=retrieved]",
        round_by="queries",
        reader={},
        about="Lists of files state the splits. The best epoch is chosen on the queries.",
    ),
    _nus_81(
        name="hashnet-81",
        source=HASHNET,
        query=5_000,
        train=10_000,
        database=None,
        draw="stated",
        searched="neither",
        measure="mAP@5000[denominator=retrieved]",
        no_hits="skip",
        round_by="last",
        about="Lists of files state the splits, under all 81 labels.",
    ),
    _nus_81(
        name="csq",
        source=CSQ,
        query=2_040,
        train=10_455,
        database=None,
        classes=21,
        draw="stated",
        searched="neither",
        measure="mAP@5000[denominator=retrieved]",
        no_hits="skip",
        round_by="queries",
        reader={},
        about="Lists of its own, a little shorter than the 10,500 and 2,100 of the others.",
    ),
    _nus(
        name="ucch",
        source=UCCH,
        query=2_100,
        train=184_477,
        database=184_477,
        items=186_577,
        classes=10,
        draw="last rows",
        round_by="queries",
        reader={"classes": 10},
        about="The ten most frequent labels: 186,577 items (the repository's page says 186,557). The last 2,100 rows "
        "are the queries, all others are trained on without labels.",
    ),
    _nus_dcmh(
        name="torchcmh",
        source=TORCHCMH,
        draw="numpy seed",
        numpy_seed=7,
        round_by="queries",
        about="Reproducible from the files imgList21.mat, tagList21.mat and labelList21.mat alone, as the permutation is "
        "seeded.",
    ),
)
