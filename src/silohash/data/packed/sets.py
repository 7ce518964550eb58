"""Facts of the packed data sets: one descriptor per set. ``docs/how-to/development-data.md`` explains their options."""

from __future__ import annotations

import numpy as np

from silohash.data.packed.reader import FOLDS, OWN_SPLIT, Choices, Labeling, PackedSet, Row
from silohash.data.pictures.reading import read_array

IMAGE = {"image": ("mobilenet", "jpeg")}
TEXT = {"text": ("caption", "bow", "words", "minilm")}
FOLD = {"fold": (OWN_SPLIT, *map(str, range(FOLDS)))}
CAPTIONS = {"image": (*IMAGE["image"], "regions"), **TEXT, "captions": ("each", "first"), **FOLD}
BOXES = {**CAPTIONS, "image": (*CAPTIONS["image"], "boxes")}
DATABASE = {"database": ("all", "unseen")}

NO_LICENSE = "none stated; for research only"
SAME_CLASS = "items of the same class"
PRODUCT_COLUMNS = {
    name: f"{{{name}}}"
    for name in ("master_category", "sub_category", "article_type", "gender", "base_colour", "season", "usage")
}
PRODUCT_LABELS = {
    "sub_category": Labeling("{sub_category}", "items of the same sub_category"),
    "article_type": Labeling("{article_type}", "items of the same article_type"),
}


def _caption_rows(packed: PackedSet, chosen: Choices) -> list[Row]:
    """Return one row per caption, joined with the row of its picture."""
    pictures = {row["file"]: {**row, "image_row": place} for place, row in enumerate(packed.table("images.csv"))}
    captions = enumerate(packed.table("captions.csv"))
    rows = [{**pictures[caption["file"]], **caption, "text_row": place} for place, caption in captions]
    return rows if chosen["captions"] == "each" else [row for row in rows if row["caption_no"] == "0"]


def _region_rows(packed: PackedSet, chosen: Choices) -> list[Row]:
    """Return one row per caption, with the categories of its picture's regions joined with ``|``."""
    table = packed.table("regions.jsonl")
    regions = {row["file"]: "|".join(region["category"] for region in row["regions"]) for row in table}
    return [{**row, "categories": regions.get(row["file"], "")} for row in _caption_rows(packed, chosen)]


def _scene_rows(packed: PackedSet, chosen: Choices) -> list[Row]:
    """Return one row per scene and sentence, with the objects in the scene joined with ``|``."""
    rows = [{**row, "image_row": place, "text_row": place} for place, row in enumerate(packed.table("pairs.jsonl"))]
    rows = [row for row in rows if row["true"] or chosen["labels"] != "true"]
    for row in rows:
        row["truth"] = "yes" if row["true"] else "no"
        row["objects"] = "|".join(f"{region['colour']} {region['shape']}" for region in row["regions"])
    return rows


def _article_rows(packed: PackedSet, chosen: Choices) -> list[Row]:
    """Return one row per pair; where test pairs are searched, every second of them is a query."""
    classes = [row["name"] for row in packed.table("classes.csv")]
    rows = [{**row, "part": row["split"], "class": classes[int(row["label"])]} for row in packed.table("items.csv")]
    tested = [row for row in rows if row["split"] == "test"]
    for place, row in enumerate(tested):
        row["split"] = "database" if chosen["database"] == "test" and place % 2 else "query"
    return rows


def _sentence_rows(packed: PackedSet, chosen: Choices) -> list[Row]:
    """Return one row per text; the first pair of each class is a query."""
    files = ("pairs100.npz", "text800.npz")[: 2 if chosen["texts"] == "all" else 1]
    classes = np.concatenate([read_array(packed.file(file), "label") for file in files])
    queries = set(np.unique(classes, return_index=True)[1].tolist())
    return [
        {"number": place, "class": f"class {label}", "split": "query" if place in queries else "train"}
        for place, label in enumerate(classes.tolist())
    ]


COCO18 = PackedSet(
    name="coco18",
    summary="12,000 photos with a caption and 18 labels.",
    source="Photos and captions of Microsoft COCO (Lin et al., ECCV 2014; Chen et al., arXiv 1504.00325) as "
    "github.com/syf0122/COMP5329_Assignment02 gives them",
    license="annotations CC BY 4.0; photos under their Flickr licenses, for research only",
    options={**IMAGE, **TEXT, **DATABASE},
    rows="pairs.csv",
    id="coco18-{source_id}",
    caption="{caption}",
    pictures="images-000.npz",
    labelings={
        "": Labeling("{labels}", "items that share a label; 62 % hold person, so report a figure without it as well")
    },
    label_names="classes.csv",
)

FASHION = PackedSet(
    name="fashion",
    summary="6,200 product pictures with titles and a hierarchy of labels.",
    source="Fashion Product Images (Param Aggarwal, 2019) as "
    "github.com/GaneshNeupane01/Fashion-Recommendation-System gives them",
    license=NO_LICENSE,
    options={**IMAGE, **TEXT, "labels": ("sub_category", "article_type", "article_type+colour"), **DATABASE},
    rows="pairs.csv",
    id="fashion-{source_id}",
    protocol="{sizes}/{labels}",
    caption="{title}",
    pictures="images-000.npz",
    labelings={
        **PRODUCT_LABELS,
        "article_type+colour": Labeling("{article_type}, {base_colour}", "items of the same article_type+colour"),
    },
    columns=PRODUCT_COLUMNS,
)

FASHION_CLIP99 = PackedSet(
    name="fashion-clip99",
    summary="99 products as deep features of both modalities.",
    source="github.com/Mohnaufal2425/SearchEngine: products of Fashion Product Images, Marqo FashionCLIP features",
    license=NO_LICENSE,
    options={"labels": ("sub_category", "article_type")},
    rows="items.csv",
    protocol="default/{labels}",
    caption="{title}",
    given={"image": [("embeddings.npz", "image")], "text": [("embeddings.npz", "text")]},
    labelings=PRODUCT_LABELS,
    columns=PRODUCT_COLUMNS,
)

CLOTHING10 = PackedSet(
    name="clothing10",
    summary="3,409 pictures of clothes in ten classes, without texts.",
    source="github.com/alexeygrigorev/clothing-dataset-small",
    license="CC0 1.0",
    options=IMAGE,
    rows="images.csv",
    pictures="images-000.npz",
    labelings={"": Labeling("{class}", SAME_CLASS)},
    label_names="classes.csv",
    split_names={"database": "train"},
    columns={"class": "{class}"},
)

FLICKR8K_1K = PackedSet(
    name="flickr8k-1k",
    summary="1,000 photos with five captions each, without labels; the 300 test photos are queries.",
    source="Hodosh, Young, Hockenmaier, Framing Image Description as a Ranking Task, JAIR 47, 2013, as "
    "github.com/quantumnaan/sic_translator gives a part of it",
    license="non-commercial research and education; photos belong to their Flickr authors",
    options=CAPTIONS,
    rows=_caption_rows,
    id="{file}#{caption_no}",
    protocol="{split}/{captions}-caption",
    own_split="600-700",
    caption="{caption}",
    pictures="images",
    split_names={"test": "query", "val": "database"},
    split_key="{file}",
    columns={"picture": "{file}"},
    notes={"relevant": "captions of the same picture, by the column picture"},
)

COCO_MINI = PackedSet(
    name="coco-mini",
    summary="239 photos with five captions each; 159 have labels of 80 categories from their boxed regions.",
    source="Photos, boxes, captions of Microsoft COCO (Lin et al., ECCV 2014; Chen et al., arXiv 1504.00325), "
    "as github.com/Obmutescence/COCO-MINI and github.com/ruizewang/evaluate give them",
    license="annotations CC BY 4.0; each photo under its Flickr license, many non-commercial",
    options=BOXES,
    rows=_region_rows,
    id="{file}#{caption_no}",
    protocol="{split}/{captions}-caption",
    caption="{caption}",
    pictures="images",
    labelings={"": Labeling("{categories}", "items that share a label; photos without regions have none")},
    label_names="categories.csv",
    split_key="{file}",
    columns={"picture": "{file}"},
)

NLVR_GRAPHS = PackedSet(
    name="nlvr-graphs",
    summary="989 drawn scenes with a sentence that is true or false of them.",
    source="Suhr, Lewis, Yeh, Artzi, A Corpus of Natural Language for Visual Reasoning, ACL 2017 "
    "(github.com/lil-lab/nlvr)",
    license="CC BY 4.0",
    options={"image": ("mobilenet", "png", "scene"), **TEXT, "labels": ("group", "objects", "true"), **FOLD},
    rows=_scene_rows,
    id="{id}",
    protocol="{split}/{labels}",
    caption="{sentence}",
    pictures="images",
    labelings={
        "group": Labeling("{group}", "items of the same group"),
        "objects": Labeling("{objects}", "items that share a kind of object"),
        "true": Labeling("{group}", "items of the same group; scenes of which their sentence is false are left out"),
    },
    columns={"group": "{group}", "true": "{truth}"},
)

WIKI_SIFT_LDA = PackedSet(
    name="wiki-sift-lda",
    summary="2,866 pairs of the Wikipedia benchmark in 10 classes, as its classic features.",
    source="Rasiwasia et al., A New Approach to Cross-Modal Multimedia Retrieval, ACM Multimedia 2010, as "
    "github.com/BMC-SDNU/Cross-Modal-Retrieval gives it",
    license=NO_LICENSE,
    options={"database": ("train", "test")},
    rows=_article_rows,
    id="{part}-{row}",
    given={
        "image": [("wiki.npz", "image_train"), ("wiki.npz", "image_test")],
        "text": [("wiki.npz", "text_train"), ("wiki.npz", "text_test")],
    },
    labelings={"": Labeling("{class}", SAME_CLASS)},
    label_names="classes.csv",
    columns={"class": "{class}"},
    notes={"features": "128 SIFT words, 10 LDA topics"},
)

PASCAL_DEEP = PackedSet(
    name="pascal-deep",
    summary="100 pairs of Pascal Sentence as deep features, five per class; `texts = all` adds 800 texts alone.",
    source="Zhen et al., Deep Supervised Cross-Modal Retrieval, CVPR 2019 (github.com/penghu-cs/DSCMR); data: "
    "Rashtchian et al., NAACL HLT 2010 workshop",
    license=NO_LICENSE,
    options={"texts": ("paired", "all")},
    rows=_sentence_rows,
    id="pascal-{number}",
    given={"image": [("pairs100.npz", "image")], "text": [("pairs100.npz", "text"), ("text800.npz", "text")]},
    labelings={"": Labeling("{class}", SAME_CLASS)},
    label_names=tuple(f"class {number}" for number in range(20)),
    notes={"classes": "their names are not given"},
)
