"""The packed data sets: columns, splits and protocols are those that their descriptions state."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from silohash.data.archive import is_features
from silohash.data.catalogue import open_archive
from silohash.data.packed.reader import MOBILENET_STEP

pytestmark = pytest.mark.usefixtures("shared_data")
EXPECTED = [
    ("coco18", {}, "coco18/4000-11000", (1000, 11000, 4000), 18),
    ("coco18", {"database": "unseen", "text": "minilm"}, "coco18/4000-7000-unseen", (1000, 7000, 4000), 18),
    ("fashion", {}, "fashion/3000-5600/sub_category", (600, 5600, 3000), 23),
    ("fashion", {"labels": "article_type"}, "fashion/3000-5600/article_type", (600, 5600, 3000), 60),
    ("wiki-sift-lda", {}, "wiki-sift-lda/2173-2173", (693, 2173, 2173), 10),
    ("wiki-sift-lda", {"database": "test"}, "wiki-sift-lda/2173-test-halves", (347, 346, 2173), 10),
    ("clothing10", {}, "clothing10/3068-3068", (341, 3068, 3068), 10),
    ("flickr8k-1k", {}, "flickr8k-1k/600-700/each-caption", (1500, 3500, 3000), 0),
    ("flickr8k-1k", {"captions": "first"}, "flickr8k-1k/600-700/first-caption", (300, 700, 600), 0),
    ("flickr8k-1k", {"fold": 9}, "flickr8k-1k/10-fold/each-caption", (500, 4500, 4500), 0),
    ("fashion-clip99", {}, "fashion-clip99/default/sub_category", (10, 89, 89), 19),
    ("coco-mini", {"captions": "first"}, "coco-mini/default/first-caption", (24, 215, 215), 80),
    ("coco-mini", {"captions": "first", "fold": "0"}, "coco-mini/10-fold/first-caption", (24, 215, 215), 80),
    ("nlvr-graphs", {"labels": "objects"}, "nlvr-graphs/default/objects", (99, 890, 890), 9),
    ("pascal-deep", {"texts": "all"}, "pascal-deep/880-880", (20, 880, 880), 20),
]


@pytest.mark.parametrize(("name", "options", "protocol", "sizes", "label_count"), EXPECTED)
def test_protocols_and_sizes(name, options, protocol, sizes, label_count):
    archive = open_archive(name, options=options)
    assert archive.card.protocol == protocol
    assert tuple(len(archive.split(split)) for split in ("query", "database", "train")) == sizes
    assert len(archive.label_names) == label_count
    assert archive.card.license
    pictures = archive.pictures()
    if pictures is not None:
        assert pictures.picture(len(archive) - 1).mode == "RGB"


def test_coco18_puts_features_pictures_and_labels_in_the_order_of_its_table(shared_data: Path):
    with (shared_data / "coco18" / "pairs.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    archive = open_archive("coco18")
    raw = np.load(shared_data / "coco18" / "features" / "image_mobilenetv2.npy", mmap_mode="r", allow_pickle=False)
    for row in (0, 2999, 3000, 11_999):
        assert archive.text[row] == rows[row]["caption"]
        assert set(archive.labels_of(row)) == set(rows[row]["labels"].split("|"))
        assert archive.preview.picture(row).size == (int(rows[row]["width"]), int(rows[row]["height"]))
        np.testing.assert_allclose(archive.image[row], raw[row] * MOBILENET_STEP, rtol=1e-6)
    assert archive.image.dtype == np.float32
    assert 5.9 < archive.image.max() <= 6.0


def test_coco18_pictures_and_word_counts():
    archive = open_archive("coco18", options={"image": "jpeg", "text": "bow"})
    assert archive.image.picture(0).size == (128, 86)
    assert is_features(archive.text)
    assert archive.text.shape == (12_000, 1252)
    assert archive.caption(0) == "A blue and yellow passenger train at a station."


def test_fashion_joins_article_and_colour():
    archive = open_archive("fashion", options={"labels": "article_type+colour"})
    assert archive.labels_of(0) == ["Flip Flops, Black"]
    assert (archive.labels.sum(axis=1) == 1).all()
    assert archive.columns["gender"][1] == "Women"


def test_clothing10_has_no_text():
    archive = open_archive("clothing10", options={"image": "jpeg"})
    assert archive.text is None
    assert not archive.has("text").any()
    assert archive.labels_of(0) == [archive.columns["class"][0]] == ["dress"]


def test_captions_of_a_picture_share_its_features():
    archive = open_archive("flickr8k-1k", options={"text": "minilm"})
    pictures = archive.columns["picture"]
    np.testing.assert_array_equal(archive.image[0], archive.image[4])
    assert pictures[0] == pictures[4] != pictures[5]
    assert (archive.text[0] != archive.text[4]).any()
    asked = set(pictures[archive.split("query")].tolist())
    assert asked.isdisjoint(pictures[archive.split("database")].tolist())


def test_wiki_labels_are_those_of_its_items(shared_data: Path):
    with (shared_data / "wiki-sift-lda" / "items.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    archive = open_archive("wiki-sift-lda")
    assert [np.flatnonzero(labels)[0] for labels in archive.labels] == [int(row["label"]) for row in rows]
    assert (archive.columns["class"] == [archive.labels_of(row)[0] for row in range(len(archive))]).all()
    np.testing.assert_allclose(archive.image.sum(axis=1), 1, atol=1e-3)


def test_texts_without_pictures_are_a_missing_modality():
    archive = open_archive("pascal-deep", options={"texts": "all"})
    assert archive.has("image").sum() == 100
    assert archive.has("text").all()
    assert np.isnan(archive.image[~archive.has("image")]).all()
    assert archive.has("image")[archive.split("query")].all()
    assert (archive.labels[archive.split("query")].sum(axis=0) == 1).all()


def test_nlvr_columns_tell_group_and_truth():
    archive = open_archive("nlvr-graphs")
    assert (archive.columns["true"] == "yes").sum() == 547
    assert archive.labels_of(0) == [archive.columns["group"][0]]
    assert archive.pictures().picture(0).size == (400, 100)


def test_nlvr_scenes_are_exact_and_their_sentences_true(shared_data: Path):
    archive = open_archive("nlvr-graphs", options={"image": "scene", "labels": "true"})
    assert len(archive) == 547
    assert set(archive.columns["true"]) == {"yes"}
    with (shared_data / "nlvr-graphs" / "pairs.jsonl").open(encoding="utf-8") as stream:
        rows = [row for row in map(json.loads, stream) if row["true"]]
    for row in (0, 546):
        objects = rows[row]["regions"]
        held = archive.image.of(np.array([row]))[0]
        assert (held[:, :-4].sum(1) == np.array([4] * len(objects) + [0] * (len(held) - len(objects)))).all()
        left, top, width, height = objects[0]["bbox"]
        expected = [left / 400, top / 100, (left + width) / 400, (top + height) / 100]
        np.testing.assert_allclose(held[0, -4:], expected, rtol=1e-6)
        assert held[0, {"square": 0, "circle": 1, "triangle": 2}[objects[0]["shape"]]] == 1
