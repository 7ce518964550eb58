"""Pascal Sentence: the collectors' release, written small in its layout and read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base.errors import NothingUsable
from silohash.data.benchmarks.pascal import PASCAL_SENTENCE
from tests.unit.data.benchmarks.drawing import draw, write
from tests.unit.data.benchmarks.found import labels_of

RAW = next(layout for layout in PASCAL_SENTENCE.layouts if layout.name == "raw")


def test_the_collectors_release(tmp_path: Path) -> None:
    draw(tmp_path, "dataset/dog/1.jpg", "dataset/cat/1.jpg")
    write(tmp_path, "sentence/dog/1.txt", "A dog.", "Two dogs.")
    write(tmp_path, "sentence/cat/1.txt", "A cat.")
    write(tmp_path, "sentence/cat/2.txt", "A cat without a picture.")
    assert not RAW.missing(tmp_path)
    raw = RAW.read(tmp_path)
    assert raw.ids.tolist() == ["cat/1", "cat/2", "dog/1"]
    assert labels_of(raw) == [["cat"], ["cat"], ["dog"]]
    assert raw.text is not None
    assert raw.text.tolist() == ["A cat.", "A cat without a picture.", "A dog. Two dogs."]
    assert raw.has("image").tolist() == [True, False, True]
    assert RAW.read(tmp_path, captions="each").ids.tolist() == ["cat/1#0", "cat/2#0", "dog/1#0", "dog/1#1"]
    for path in (tmp_path / "dataset").rglob("*.jpg"):
        path.write_bytes(b"")
    with pytest.raises(NothingUsable, match="3"):
        RAW.read(tmp_path)


def test_the_published_protocol() -> None:
    (rule,) = PASCAL_SENTENCE.published
    assert (rule.query, rule.train, rule.database) == (100, 800, 100)
    assert (rule.items, rule.classes, rule.collected) == (1_000, 20, 1_000)
