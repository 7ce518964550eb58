"""Items as they are read from a data set's files, before a protocol is applied."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from silohash.data.pictures.packing import PictureFiles
from silohash.data.protocols.contents import Contents


def test_an_item_has_a_modality_unless_its_features_are_nan_or_its_text_or_file_name_is_empty() -> None:
    features = np.array([[1, np.nan], [np.nan, np.nan], [0, 0]], np.float32)
    raw = Contents(np.array(["a", "b", "c"]), features, np.array(["x", "", "z"]), None, ())
    assert raw.has("image").tolist() == [True, False, True]
    assert raw.has("text").tolist() == [True, False, True]
    assert replace(raw, text=None).has("text").tolist() == [False] * 3
    assert replace(raw, image=PictureFiles(Path(), ["1", "", "3"])).has("image").tolist() == [True, False, True]
