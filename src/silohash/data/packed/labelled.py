"""Readers of the labelled data sets: coco18, fashion, wiki-sift-lda, clothing10, fashion-clip99 and pascal-deep."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Archive, ArchiveCard
from silohash.data.packed.files import (
    TEXT_OPTIONS,
    arrays,
    choice,
    columns_of,
    mobilenet,
    need,
    numbered,
    one_hot,
    rows_where,
    shown,
    table,
)
from silohash.data.pictures.packing import PackedPictures
from silohash.data.splits import default_splits
from silohash.types import Rows

IMAGE_OPTIONS = ("mobilenet", "jpeg")
DATABASE_OPTIONS = ("all", "unseen")
NO_LICENCE = "none stated; for research only"


def _splits(split: list[str], database: str) -> tuple[dict[str, Rows], str]:
    """Returns the splits, and the protocol as ``train-database`` sizes."""
    train = rows_where(split, "train")
    searched = rows_where(split, "database") if database == "unseen" else rows_where(split, "database", "train")
    name = f"{len(train)}-{len(searched)}" + ("-unseen" if database == "unseen" else "")
    return {"query": rows_where(split, "query"), "database": searched, "train": train}, name


def coco18(*, image: str = "mobilenet", text: str = "caption", database: str = "all") -> Archive:
    """Opens coco18: 12,000 photos with a caption and 18 labels.

    Args:
        image: ``mobilenet`` (given features) or ``jpeg``.
        text: ``caption``, ``bow`` or ``minilm``.
        database: ``all`` (train is a part of it) or ``unseen`` (rows that are never trained on).
    """
    choice("coco18", "image", image, IMAGE_OPTIONS)
    choice("coco18", "text", text, TEXT_OPTIONS)
    choice("coco18", "database", database, DATABASE_OPTIONS)
    rows = table("coco18", "pairs.csv")
    pictures = PackedPictures(need("coco18", "images-000.npz").parent)
    columns = shown("coco18", pictures, [row["caption"] for row in rows], image=image, text=text)
    splits, sizes = _splits([row["split"] for row in rows], database)
    return Archive(
        ids=np.array([f"coco18-{row['source_id']}" for row in rows], dtype=np.str_),
        image=columns.image,
        text=columns.text,
        labels=arrays("coco18", "labels.npz", ("labels",))["labels"].astype(np.uint8),
        label_names=tuple(row["name"] for row in table("coco18", "classes.csv")),
        splits=splits,
        card=ArchiveCard(
            name="coco18",
            source="Photos and captions of Microsoft COCO (Lin et al., ECCV 2014; Chen et al., arXiv 1504.00325) as "
            "github.com/syf0122/COMP5329_Assignment02 gives them",
            licence="annotations CC BY 4.0; photos under their Flickr licences, for research only",
            protocol=f"coco18/{sizes}",
            notes={"relevant": "items that share a label; 62 % hold person, so report a figure without it as well"},
        ),
        captions=columns.captions,
        preview=columns.preview,
    ).with_digest()


def fashion(
    *, image: str = "mobilenet", text: str = "caption", labels: str = "sub_category", database: str = "all"
) -> Archive:
    """Opens fashion: 6,200 product pictures with titles and a hierarchy of labels.

    Args:
        image: ``mobilenet`` (given features) or ``jpeg``.
        text: ``caption`` (the title), ``bow`` or ``minilm``.
        labels: ``sub_category``, ``article_type`` or ``article_type+colour`` (a class for each pair of the two).
        database: ``all`` (train is a part of it) or ``unseen`` (rows that are never trained on).
    """
    choice("fashion", "image", image, IMAGE_OPTIONS)
    choice("fashion", "text", text, TEXT_OPTIONS)
    choice("fashion", "labels", labels, ("sub_category", "article_type", "article_type+colour"))
    choice("fashion", "database", database, DATABASE_OPTIONS)
    rows = table("fashion", "pairs.csv")
    if labels == "article_type+colour":
        classes = [f"{row['article_type']}, {row['base_colour']}" for row in rows]
    else:
        classes = [row[labels] for row in rows]
    hot, names = one_hot(classes)
    pictures = PackedPictures(need("fashion", "images-000.npz").parent)
    columns = shown("fashion", pictures, [row["title"] for row in rows], image=image, text=text)
    splits, sizes = _splits([row["split"] for row in rows], database)
    return Archive(
        ids=np.array([f"fashion-{row['source_id']}" for row in rows], dtype=np.str_),
        image=columns.image,
        text=columns.text,
        labels=hot,
        label_names=names,
        splits=splits,
        card=ArchiveCard(
            name="fashion",
            source="Fashion Product Images (Param Aggarwal, 2019) as "
            "github.com/GaneshNeupane01/Fashion-Recommendation-System gives them",
            licence=NO_LICENCE,
            protocol=f"fashion/{sizes}/{labels}",
            notes={"relevant": f"items of the same {labels}"},
        ),
        columns=columns_of(rows, _FASHION_COLUMNS),
        captions=columns.captions,
        preview=columns.preview,
    ).with_digest()


_FASHION_COLUMNS = ("master_category", "sub_category", "article_type", "gender", "base_colour", "season", "usage")


def wiki_sift_lda(*, database: str = "train") -> Archive:
    """Opens the Wikipedia benchmark's classic features: 2,866 pairs in 10 classes.

    Args:
        database: ``train`` (the 693 test pairs ask the 2,173 training pairs) or ``test`` (every second test pair asks
            the other test pairs, since an archive keeps queries out of its database).
    """
    choice("wiki-sift-lda", "database", database, ("train", "test"))
    parts = ("train", "test")
    held = arrays(
        "wiki-sift-lda", "wiki.npz", [f"{what}_{part}" for what in ("image", "text", "label") for part in parts]
    )
    train_count, count = len(held["label_train"]), len(held["label_train"]) + len(held["label_test"])
    classes = np.concatenate([held["label_train"], held["label_test"]])
    names = tuple(row["name"] for row in table("wiki-sift-lda", "classes.csv"))
    items = table("wiki-sift-lda", "items.csv")
    train, test = np.arange(train_count), np.arange(train_count, count)
    searched = train if database == "train" else test[1::2]
    return Archive(
        ids=np.array([f"{item['split']}-{item['row']}" for item in items], dtype=np.str_),
        image=np.concatenate([held["image_train"], held["image_test"]]).astype(np.float32),
        text=np.concatenate([held["text_train"], held["text_test"]]).astype(np.float32),
        labels=_hot(classes, len(names)),
        label_names=names,
        splits={"query": test if database == "train" else test[::2], "database": searched, "train": train},
        card=ArchiveCard(
            name="wiki-sift-lda",
            source="Rasiwasia et al., A New Approach to Cross-Modal Multimedia Retrieval, ACM Multimedia 2010, as "
            "github.com/BMC-SDNU/Cross-Modal-Retrieval gives it",
            licence=NO_LICENCE,
            protocol="wiki-sift-lda/" + ("2173-2173" if database == "train" else "2173-test-halves"),
            notes={"relevant": "items of the same class", "features": "128 SIFT words, 10 LDA topics"},
        ),
        columns={"class": np.array(names, dtype=np.str_)[classes]},
    ).with_digest()


def _hot(classes: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.uint8]:
    return np.eye(count, dtype=np.uint8)[classes]


def clothing10(*, image: str = "mobilenet") -> Archive:
    """Opens clothing10: 3,409 pictures of clothes in ten classes, without texts.

    Args:
        image: ``mobilenet`` (given features) or ``jpeg``.
    """
    choice("clothing10", "image", image, IMAGE_OPTIONS)
    rows = table("clothing10", "images.csv")
    names = tuple(row["name"] for row in table("clothing10", "classes.csv"))
    pictures = PackedPictures(need("clothing10", "images-000.npz").parent)
    split = [row["split"] for row in rows]
    searched = rows_where(split, "database")
    return Archive(
        ids=np.array([row["source_id"] for row in rows], dtype=np.str_),
        image=mobilenet("clothing10") if image == "mobilenet" else pictures,
        text=None,
        labels=_hot(np.array([int(row["label"]) for row in rows]), len(names)),
        label_names=names,
        splits={"query": rows_where(split, "query"), "database": searched, "train": searched},
        card=ArchiveCard(
            name="clothing10",
            source="github.com/alexeygrigorev/clothing-dataset-small",
            licence="CC0 1.0",
            protocol="clothing10/3068-3068",
            notes={"relevant": "items of the same class"},
        ),
        columns=columns_of(rows, ("class",)),
        preview=pictures if image == "mobilenet" else None,
    ).with_digest()


def fashion_clip99(*, labels: str = "sub_category") -> Archive:
    """Opens fashion-clip99: deep features of 99 products in both modalities.

    Args:
        labels: ``sub_category`` or ``article_type``.
    """
    choice("fashion-clip99", "labels", labels, ("sub_category", "article_type"))
    rows = table("fashion-clip99", "items.csv")
    given = arrays("fashion-clip99", "embeddings.npz", ("image", "text"))
    hot, names = one_hot([row[labels] for row in rows])
    ids = np.array([row["source_id"] for row in rows], dtype=np.str_)
    return Archive(
        ids=ids,
        image=given["image"].astype(np.float32),
        text=given["text"].astype(np.float32),
        labels=hot,
        label_names=names,
        splits=default_splits(ids.tolist()),
        card=ArchiveCard(
            name="fashion-clip99",
            source="github.com/Mohnaufal2425/SearchEngine: products of Fashion Product Images, "
            "Marqo FashionCLIP features",
            licence=NO_LICENCE,
            protocol=f"fashion-clip99/default/{labels}",
            notes={"relevant": f"items of the same {labels}"},
        ),
        columns=columns_of(rows, _FASHION_COLUMNS),
        captions=np.array([row["title"] for row in rows], dtype=np.str_),
    ).with_digest()


def pascal_deep(*, texts: str = "paired") -> Archive:
    """Opens pascal-deep: 100 pairs of Pascal Sentence as deep features, five a class; one of each class is a query.

    Args:
        texts: ``paired``, or ``all`` to add 800 texts that have no picture to the database and the training rows.
    """
    choice("pascal-deep", "texts", texts, ("paired", "all"))
    pairs = arrays("pascal-deep", "pairs100.npz", ("image", "text", "label"))
    image, text, classes = pairs["image"].astype(np.float32), pairs["text"].astype(np.float32), pairs["label"]
    count = len(classes)
    first_of_class = np.unique(classes, return_index=True)[1]
    if texts == "all":
        alone = arrays("pascal-deep", "text800.npz", ("text", "label"))
        missing = np.full((len(alone["label"]), image.shape[1]), np.nan, dtype=np.float32)
        image = np.concatenate([image, missing])
        text = np.concatenate([text, alone["text"].astype(np.float32)])
        classes = np.concatenate([classes, alone["label"]])
    rest = np.setdiff1d(np.arange(len(classes)), first_of_class)
    hot = _hot(classes, int(classes.max()) + 1)
    return Archive(
        ids=numbered("pascal", len(classes)),
        image=image,
        text=text,
        labels=hot,
        label_names=tuple(f"class {number}" for number in range(hot.shape[1])),
        splits={"query": np.sort(first_of_class), "database": rest, "train": rest},
        card=ArchiveCard(
            name="pascal-deep",
            source="Zhen et al., Deep Supervised Cross-Modal Retrieval, CVPR 2019 (github.com/penghu-cs/DSCMR); data: "
            "Rashtchian et al., NAACL HLT 2010 workshop",
            licence=NO_LICENCE,
            protocol=f"pascal-deep/{len(rest)}-{len(rest)}",
            notes={"relevant": "items of the same class", "classes": "their names are not given"},
        ),
        has_image=np.arange(len(classes)) < count,
    ).with_digest()
