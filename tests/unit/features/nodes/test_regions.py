"""Features of regions: sums over silos, padding, boxes, and what is restored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silohash import features
from silohash.base.errors import (
    ArchiveUnsuitable,
    NetworkChanged,
    OutOfRange,
    QueryUnsuitable,
    UnknownOption,
    UnsuitableFeatures,
    WrongType,
)
from silohash.data.pictures.reading import PictureFiles
from silohash.data.regions import Regions
from silohash.features.base import add_statistics
from silohash.features.nodes.regions import BLOCK_ITEMS, RegionFeatures
from tests import backbones
from tests.detectors import detector

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


def of_pictures(folder: Path, boxes: list[list[float]]) -> tuple[RegionFeatures, PictureFiles]:
    """Return the unfitted regions that a detector finds in five pictures, with the vectors that it gives."""
    path = detector(folder / "d.onnx", boxes, [0.9] * len(boxes))
    pictures = backbones.jpegs(folder / "pictures", 5)
    options = {"kind": "picture_regions", "detector": str(path), "vectors": "colors", "regions": 3}
    made = features.featurizer("image", pictures, options)
    assert isinstance(made, RegionFeatures)
    return made, pictures


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("own_cache")
def test_regions_found_in_pictures_are_standardized_and_restored(tmp_path: Path) -> None:
    boxes = [[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]]
    made, pictures = of_pictures(tmp_path, boxes)
    assert (made.kind, made.shape) == ("picture_regions", (3, 8))
    rows = np.arange(5)
    federated = made.fitted(add_statistics([made.statistics(pictures, rows[:2]), made.statistics(pictures, rows[2:])]))
    found = federated.transform(pictures, rows)
    assert (found.shape, found.dtype) == ((5, 3, 8), np.float16)
    assert found[0, :, 4:].tolist() == [*boxes, [0] * 4]
    assert not found[:, 2].any()
    np.testing.assert_allclose(found[:, :2, :3].mean((0, 1)), 0, atol=2e-3)
    np.testing.assert_allclose(found[:, :2, :3].std((0, 1)), 1, atol=2e-3)
    features.save(federated, tmp_path / "state.safetensors")
    restored = features.load(tmp_path / "state.safetensors")
    np.testing.assert_array_equal(restored.transform(pictures, rows), found)
    np.testing.assert_allclose(restored.encode_one(pictures.picture(3))[0], found[3], atol=2e-3)
    with pytest.raises(QueryUnsuitable):
        restored.encode_one("a text")
    with pytest.raises(ArchiveUnsuitable):
        restored.transform(column(), rows)


@pytest.mark.usefixtures("own_cache")
def test_pictures_without_a_box_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, pictures = of_pictures(tmp_path, [[2.0, 0.0, 3.0, 1.0]])
    sums = made.statistics(pictures, np.arange(4))
    assert sums["count"].tolist() == [4] * 4
    assert "in 4 of 4 pictures" in capsys.readouterr().err
    made, pictures = of_pictures(tmp_path, [[0.0, 0.0, 1.0, 0.5]])
    made.statistics(pictures, np.arange(4))
    assert not capsys.readouterr().err


@pytest.mark.usefixtures("own_cache")
def test_a_detector_that_changed_is_refused(tmp_path: Path) -> None:
    made, pictures = of_pictures(tmp_path, [[0.0, 0.0, 1.0, 0.5]])
    rows = np.arange(5)
    features.save(made.fitted(made.statistics(pictures, rows)), tmp_path / "state.safetensors")
    detector(tmp_path / "d.onnx", [[0.0, 0.0, 1.0, 1.0]], [0.9])
    with pytest.raises(NetworkChanged):
        features.load(tmp_path / "state.safetensors").encode_one(pictures.picture(0))


def test_options_of_pictures_are_not_those_of_given_regions(tmp_path: Path) -> None:
    with pytest.raises(UnknownOption):
        features.featurizer("image", column(), {"detector": "d.onnx"})
    with pytest.raises(UnsuitableFeatures):
        features.featurizer("image", column(), {"kind": "picture_regions", "vectors": "v", "detector": "d.onnx"})
    with pytest.raises(UnsuitableFeatures, match="picture_regions"):
        features.featurizer("image", backbones.jpegs(tmp_path, 1), {"kind": "regions"})
