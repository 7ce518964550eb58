"""What the tests of readers look at."""

from __future__ import annotations

import numpy as np

from silohash.data.pictures.reading import PictureFiles
from silohash.data.protocols.contents import Contents


def names_of(raw: Contents) -> tuple[str, ...]:
    assert isinstance(raw.image, PictureFiles)
    return raw.image.names


def labels_of(raw: Contents) -> list[list[str]]:
    assert raw.labels is not None
    return [[raw.label_names[column] for column in np.flatnonzero(row)] for row in raw.labels]
