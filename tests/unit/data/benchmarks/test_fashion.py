"""FashionVC and Ssense: SHDCH's files, written small and read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import WrongChoice, WrongShape
from tests.unit.data.benchmarks.arrays import Items, items, pixels, read, save
from tests.unit.data.formats.matlab_files import write_v73


def fashion(root: Path, coarse: int, fine: int, kind: str, count: int = 90) -> Items:
    some = items(count=count, classes=fine, size=8)
    fines = np.random.default_rng(1).integers(0, fine, count)
    labels = np.hstack([np.eye(coarse, dtype=np.uint8)[fines % coarse], np.eye(fine, dtype=np.uint8)[fines]])
    if kind == "v5":
        save(root / "image.mat", Image=some.pictures)
    else:
        write_v73(root / "image.mat", {"Image": some.pictures})
    save(root / "tag.mat", Tag=some.tags)
    save(root / "label.mat", Label=labels)
    return some._replace(labels=labels)


@pytest.mark.parametrize(("of", "coarse", "fine", "kind"), [("fashionvc", 8, 27, "v5"), ("ssense", 4, 28, "v7.3")])
def test_shdch(tmp_path, of, coarse, fine, kind):
    some = fashion(tmp_path, coarse, fine, kind)
    raw = read(tmp_path, of, "shdch", queries=20)
    assert np.array_equal(pixels(raw), some.pictures)
    assert np.array_equal(raw.labels, some.labels[:, coarse:])
    assert raw.label_names[0] == "fine 0"
    assert raw.stated["query"].tolist() == list(range(20))
    assert raw.stated["train"].tolist() == list(range(20, 90))
    assert raw.columns["fine"][5] == f"fine {some.labels[5, coarse:].argmax()}"
    assert raw.columns["coarse"][5] == f"coarse {some.labels[5, :coarse].argmax()}"
    assert ("image: memory" in raw.notes) == (kind == "v5")
    assert np.array_equal(read(tmp_path, of, "shdch", labels="coarse").labels, some.labels[:, :coarse])
    both = read(tmp_path, of, "shdch", labels="both")
    assert np.array_equal(both.labels, some.labels)
    assert len(both.label_names) == coarse + fine
    assert both.stated == {}
    assert "none stated" in both.notes["splits"]
    with pytest.raises(WrongChoice):
        read(tmp_path, of, "shdch", labels="all")


def test_labels_of_the_other_fashion_set_are_named(tmp_path):
    some = fashion(tmp_path, 4, 28, "v5")
    with pytest.raises(WrongShape, match=r"8.*27.*35"):
        read(tmp_path, "fashionvc", "shdch")
    save(tmp_path / "label.mat", Label=np.roll(some.labels, 4, axis=1))
    notes = read(tmp_path, "ssense", "shdch").notes
    assert "items without exactly one coarse and one fine class" in notes
