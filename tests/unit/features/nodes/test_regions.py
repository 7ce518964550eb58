"""Features of regions: sums over silos, padding, boxes, and what is restored."""

from __future__ import annotations

import numpy as np
import pytest

from silohash import features
from silohash.base.errors import (
    ArchiveUnsuitable,
    OutOfRange,
    QueryUnsuitable,
    UnsuitableFeatures,
    WrongType,
)
from silohash.data.regions import Regions
from silohash.features.base import add_statistics
from silohash.features.nodes.regions import BLOCK_ITEMS, RegionFeatures

COUNT = BLOCK_ITEMS + 60
ALL = np.arange(COUNT)


def column(width: int = 3) -> Regions:
    """Return items with one to four regions."""
    generator = np.random.default_rng(0)
    boxes = np.tile(np.array([0.0, 0.25, 0.5, 0.75], np.float32), (COUNT, 4, 1))
    for item in range(COUNT):
        boxes[item, 1 + item % 4 :] = 0.0
    return Regions(generator.normal(size=(COUNT, 4, width)) * 3 + 10, boxes, ALL)


def fitted(regions: Regions) -> RegionFeatures:
    made = features.featurizer("image", regions, {})
    assert isinstance(made, RegionFeatures)
    return made.fitted(made.statistics(regions, ALL))


def test_regions_share_a_mean_and_a_deviation_and_boxes_stay() -> None:
    held = column()
    found = fitted(held).transform(held, ALL)
    assert (found.shape, found.dtype) == ((COUNT, 4, 7), np.float16)
    there = held.boxes[..., 2] > 0
    values = held.features[there]
    expected = (values - values.mean(0)) / values.std(0)
    np.testing.assert_allclose(found[there][:, :3], expected, atol=5e-3)
    np.testing.assert_array_equal(found[there][:, 3:], held.boxes[there])
    assert not found[~there].any()


def test_sums_of_silos_give_the_pooled_fit() -> None:
    held = column()
    made = features.featurizer("image", held, {})
    federated = made.fitted(add_statistics([made.statistics(held, ALL[start::3]) for start in range(3)]))
    np.testing.assert_allclose(federated.transform(held, ALL), fitted(held).transform(held, ALL), atol=2e-3)


def test_unstandardized_regions_are_left_as_they_are() -> None:
    held = column()
    made = features.featurizer("image", held, {"standardize": False})
    found = made.fitted(made.statistics(held, ALL)).transform(held, ALL[3:4])
    np.testing.assert_allclose(found[0, :, :3], held.features[3], rtol=1e-3)


def test_a_restored_featurizer_gives_the_same_regions() -> None:
    held = column()
    arrays, about = fitted(held).state()
    restored = RegionFeatures.from_state(arrays, about)
    assert (about["kind"], restored.shape) == ("regions", (4, 7))
    np.testing.assert_array_equal(restored.transform(held, ALL), fitted(held).transform(held, ALL))
    np.testing.assert_array_equal(restored.encode_one(held.of(ALL[2:3])[0]), fitted(held).transform(held, ALL[2:3]))


def test_other_inputs_are_refused() -> None:
    made = fitted(column())
    with pytest.raises(ArchiveUnsuitable, match=r"4.*2"):
        made.transform(column(width=2), ALL)
    with pytest.raises(ArchiveUnsuitable):
        made.transform(np.array(["a text"]), ALL[:1])
    with pytest.raises(QueryUnsuitable, match=r"4.*7"):
        made.encode_one("a text")
    regions = column().of(ALL[:1])[0]
    for place, number in (((0, 0), np.nan), ((1, 1), np.inf), ((0, -1), 1.5), ((2, -4), -0.5)):
        changed = regions.copy()
        changed[place] = number
        with pytest.raises(OutOfRange):
            made.encode_one(changed)
    with pytest.raises(UnsuitableFeatures, match="regions"):
        features.featurizer("image", np.zeros((2, 3), np.float32), {"kind": "regions"})
    with pytest.raises(WrongType):
        features.featurizer("image", column(), {"standardize": 1})
