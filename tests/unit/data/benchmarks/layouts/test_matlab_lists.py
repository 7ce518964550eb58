"""Lists of picture files with tags and labels, written small and read back."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from silohash.types import UserError
from tests.unit.data.benchmarks.arrays import items, read, save
from tests.unit.data.formats.matlab_files import cell


@pytest.mark.parametrize("of", ["mirflickr25k", "nus-wide", "iapr-tc12", "coco"])
def test_torchcmh(tmp_path, of):
    some = items(count=8)
    folders = [f"part{row % 2}" for row in range(8)] if of == "nus-wide" else [""] * 8
    paths = [f"{folder}/{name}".lstrip("/") for folder, name in zip(folders, some.names, strict=True)]
    for path, shade in zip(paths, range(8), strict=True):
        (tmp_path / "photos" / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (5, 4), (shade, 0, 0)).save(tmp_path / "photos" / path, format="PNG")
    end = "21" if of == "nus-wide" else ""
    names = {
        "mirflickr25k": {"FAll": cell(some.names)},
        "nus-wide": {"imgs": cell(list(zip(folders, some.names, strict=True)))},
    }.get(of, {"imgs": np.array(some.names)})
    variables = ("YAll", "LAll") if of == "mirflickr25k" else ("tags", "labels")
    save(tmp_path / f"imgList{end}.mat", **names)
    save(tmp_path / f"tagList{end}.mat", **{variables[0]: some.tags})
    save(tmp_path / f"labelList{end}.mat", **{variables[1]: some.labels})
    raw = read(tmp_path, of, "torchcmh", pictures="photos")
    assert raw.ids.tolist() == paths
    assert [raw.image.picture(row).getpixel((0, 0))[0] for row in range(8)] == list(range(8))
    assert np.array_equal(raw.labels, some.labels)
    assert np.array_equal(raw.text, some.tags.astype(np.float32))
    with pytest.raises(UserError, match="Set pictures to the folder that the names"):
        read(tmp_path, of, "torchcmh")
    (tmp_path / "photos" / paths[2]).unlink()
    assert (
        "1, the first"
        in read(tmp_path, of, "torchcmh", pictures="photos").notes["items whose picture is missing or damaged"]
    )
