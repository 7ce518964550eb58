"""MIRFlickr-25K: the collectors' release, written small in its layout and read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import BadLine, MissingFile
from silohash.data.benchmarks.mirflickr import MIRFLICKR25K
from tests.unit.data.benchmarks.drawing import draw, write
from tests.unit.data.benchmarks.found import labels_of, names_of

RAW = next(layout for layout in MIRFLICKR25K.layouts if layout.name == "raw")


CONCEPTS = [f"topic{number:02d}" for number in range(24)]


RELEVANT = [f"{name}_r1" for name in CONCEPTS[:14]]


def write_mirflickr(root: Path) -> None:
    draw(root / "mirflickr", "im1.jpg", "im2.jpg", "im10.jpg")
    for name in [*CONCEPTS, *RELEVANT]:
        write(root, f"mirflickr25k_annotations_v080/{name}.txt")
    write(root, "mirflickr25k_annotations_v080/README.txt", "about the annotations")
    write(root, "mirflickr25k_annotations_v080/topic03.txt", "1", "10")
    write(root, "mirflickr25k_annotations_v080/topic03_r1.txt", "10")
    write(root, "mirflickr25k_annotations_v080/topic01.txt", "10")
    write(root / "mirflickr", "meta/tags/tags1.txt", "sky", "new york", "")
    write(root / "mirflickr", "meta/tags/tags2.txt")
    write(root / "mirflickr", "meta/tags/tags10.txt", "café")


def test_the_collectors_release(tmp_path: Path) -> None:
    write_mirflickr(tmp_path)
    assert not RAW.missing(tmp_path)
    raw = RAW.read(tmp_path)
    assert raw.ids.tolist() == ["im1", "im2", "im10"]
    assert names_of(raw) == ("im1.jpg", "im2.jpg", "im10.jpg")
    assert raw.label_names == tuple(CONCEPTS)
    assert labels_of(raw) == [["topic03"], [], ["topic01", "topic03"]]
    assert isinstance(raw.text, np.ndarray)
    assert raw.text.tolist() == ["sky newyork", "", "café"]
    assert raw.has("text").tolist() == [True, False, True]
    assert raw.notes["items without any of the concepts"] == "1"


def test_with_the_concepts_that_are_prominent(tmp_path: Path) -> None:
    write_mirflickr(tmp_path)
    raw = RAW.read(tmp_path, concepts=38)
    assert raw.label_names == tuple(sorted([*CONCEPTS, *RELEVANT]))
    assert labels_of(raw)[2] == ["topic01", "topic03", "topic03_r1"]


def test_missing_pictures_are_counted_and_a_missing_concept_is_refused(tmp_path: Path) -> None:
    write_mirflickr(tmp_path)
    (tmp_path / "mirflickr/im2.jpg").unlink()
    raw = RAW.read(tmp_path)
    assert raw.has("image").tolist() == [True, False, True]
    assert raw.notes["items whose picture is missing or damaged"] == "1"
    (tmp_path / "mirflickr25k_annotations_v080/topic05.txt").unlink()
    with pytest.raises(MissingFile, match=r"23.*24"):
        RAW.read(tmp_path)
    write(tmp_path, "mirflickr25k_annotations_v080/topic05.txt", "1", "one")
    with pytest.raises(BadLine, match=r"topic05\.txt"):
        RAW.read(tmp_path)
