"""Regions of a user's own pictures: boxes of detectors and grids, and the means of maps within them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto
from PIL import Image

from silohash.base.errors import (
    MissingFile,
    OneInputNeeded,
    OutOfRange,
    UnsuitableFeatures,
    UnsupportedNetwork,
    UserError,
    WrongValue,
)
from silohash.features.nodes.picture_regions import RegionNetwork, best, frozen, grid_boxes, pooled
from silohash.models.huggingface import maps
from tests import backbones
from tests.detectors import detector

BOXES = [[0.0, 0.0, 0.5, 1.0], [0.25, 0.5, 1.0, 0.75], [0.0, 0.0, 0.5, 0.9]]
SCORES = [0.5, 0.9, 0.4]


def picture(width: int = 40, height: int = 24, color: tuple[int, int, int] = (51, 102, 204)) -> Image.Image:
    return Image.new("RGB", (width, height), color)


def regions_of(network: RegionNetwork, *pictures: Image.Image) -> np.ndarray:
    flat = network.embed(network.prepare(pictures), "cpu", half=False)
    assert flat.shape == (len(pictures), network.width)
    return flat.reshape(len(pictures), network.finder.most, -1)


def with_vectors(path: Path, **options: Any) -> RegionNetwork:
    return frozen("image", detector=str(path), vectors="colors", **options)


@pytest.mark.parametrize("sides", [("height", "width"), (32, 48)])
@pytest.mark.parametrize("batched", [False, True])
def test_boxes_and_vectors_of_a_detector(tmp_path: Path, sides: tuple[Any, Any], batched: bool) -> None:
    path = detector(tmp_path / "d.onnx", BOXES, SCORES, sides=sides, batched=batched)
    # The third box is nearly the first one, which has a higher score.
    [found] = regions_of(with_vectors(path, regions=4), picture())
    assert found[:, 4:].tolist() == [BOXES[1], BOXES[0], [0] * 4, [0] * 4]
    np.testing.assert_allclose(found[:2, :4], [[0.2, 0.4, 0.8, 1], [0.2, 0.4, 0.8, 0]], atol=5e-4)
    assert not found[2:].any()
    [[only]] = regions_of(with_vectors(path, regions=1), picture())
    assert only[4:].tolist() == BOXES[1]


@pytest.mark.parametrize(("kind", "values"), [(TensorProto.FLOAT, "bytes"), (TensorProto.UINT8, "unit")])
def test_pixels_are_given_as_the_detector_takes_them(tmp_path: Path, kind: int, values: str) -> None:
    path = detector(tmp_path / "d.onnx", BOXES, SCORES, kind=kind, units="shares")
    [found] = regions_of(with_vectors(path, values=values, units="shares"), picture())
    np.testing.assert_allclose(found[0, :3], [51, 102, 204], atol=1e-3)
    np.testing.assert_array_equal(found[0, 4:], BOXES[1])


def test_boxes_of_different_labels_do_not_exclude_each_other(tmp_path: Path) -> None:
    path = detector(tmp_path / "d.onnx", BOXES, SCORES, [1, 1, 2])
    [found] = regions_of(with_vectors(path, outputs=["boxes", "scores", "labels"]), picture())
    assert found[:3, 3].tolist() == [1, 0, 2]
    [found] = regions_of(with_vectors(path, threshold=0.45), picture())
    assert found[:, 3].tolist() == [1, 0] + [0] * 34
    [found] = regions_of(with_vectors(path, overlap=1.0), picture())
    assert found[:3, 3].tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    "boxes",
    [
        [],
        [[math.nan, 0, 1, 1]],
        [[0, 0, math.inf, 1]],
        [[1.2, 0, 1.5, 1]],
        [[0.5, 0, 0.4, 1]],
        [[0.5, 0, 0.50001, 1]],
        [[-3, -3, -1, -1]],
    ],
)
def test_pictures_without_a_usable_box_are_one_region(tmp_path: Path, boxes: list[list[float]]) -> None:
    path = detector(tmp_path / "d.onnx", boxes, [0.9] * len(boxes))
    [found] = regions_of(with_vectors(path, regions=3), picture(1, 1))
    assert found[:, 4:].tolist() == [[0, 0, 1, 1], [0] * 4, [0] * 4]
    assert not found[:, :4].any()


def test_boxes_are_cut_to_the_picture(tmp_path: Path) -> None:
    path = detector(tmp_path / "d.onnx", [[-0.5, 0.25, 0.5, 7], [0, 0, 1, 1]], [0.9, math.nan])
    [found] = regions_of(with_vectors(path, regions=2), picture(1000, 3))
    assert found[:, 4:].tolist() == [[0, 0.25, 0.5, 1], [0] * 4]


def test_means_within_boxes_equal_those_of_many_points() -> None:
    generator = np.random.default_rng(0)
    cells = generator.normal(size=(3, 5, 2))
    corners = np.sort(generator.uniform(size=(6, 2, 2)), axis=1)
    boxes = np.concatenate([corners[:, 0], corners[:, 1]], axis=1).astype(np.float32)
    found = pooled(cells, boxes)
    side = 400
    for box, mean in zip(boxes, found, strict=True):
        x = box[0] + (np.arange(side) + 0.5) / side * (box[2] - box[0])
        y = box[1] + (np.arange(side) + 0.5) / side * (box[3] - box[1])
        points = cells[(y * 3).astype(int)][:, (x * 5).astype(int)]
        np.testing.assert_allclose(mean, points.mean((0, 1)), atol=0.02)
    assert not pooled(cells, np.zeros((1, 4), np.float32)).any()


def test_the_grid_of_the_size_of_the_map_is_the_map() -> None:
    cells = np.random.default_rng(0).normal(size=(4, 4, 3))
    np.testing.assert_allclose(pooled(cells, grid_boxes(4)), cells.reshape(16, 3), atol=1e-6)
    halves = pooled(cells, grid_boxes(2)).reshape(2, 2, 3)
    np.testing.assert_allclose(halves[0, 1], cells[:2, 2:].mean((0, 1)), atol=1e-6)
    np.testing.assert_allclose(pooled(cells, grid_boxes(1)), cells.mean((0, 1))[None], atol=1e-6)


@pytest.mark.parametrize("name", ["resnet", "vit", "dinov2", "clip"])
def test_maps_of_backbones_are_pooled_within_boxes(tmp_path: Path, name: str) -> None:
    folder = backbones.IMAGE_MODELS[name](tmp_path / name)
    shown = backbones.jpegs(tmp_path / "pictures", 2)
    pictures = [shown.picture(0), shown.picture(1)]
    network = maps(model=str(folder), size=0, download=False)
    side = math.isqrt(network.tokens)
    pixels = network.prepare(pictures)
    cells = network.embed(pixels, "cpu", half=False).reshape(2, side, side, -1)
    assert cells.shape[3] == backbones.WIDTH
    factor, offset = map(torch.from_numpy, network.preparation.affine())
    with torch.inference_mode():
        inner = network.module.network
        hidden = inner(pixel_values=torch.from_numpy(pixels["pixels"]) * factor + offset).last_hidden_state
    own = hidden.flatten(2).mT if hidden.ndim > 3 else hidden[:, 1:]
    np.testing.assert_allclose(cells.reshape(2, side**2, -1), own.numpy(), atol=1e-5)
    path = detector(tmp_path / "d.onnx", BOXES, SCORES)
    found = regions_of(frozen("image", model=str(folder), detector=str(path), regions=3), *pictures)
    for number in range(2):
        np.testing.assert_allclose(found[number, :2, :-4], pooled(cells[number], np.float32(BOXES)[[1, 0]]), atol=1e-5)
        assert not found[number, 2].any()
    grid = regions_of(frozen("image", model=str(folder), grid=side), *pictures)
    np.testing.assert_allclose(grid[..., :-4], cells.reshape(2, side**2, -1), atol=1e-5)
    assert grid[0, :, -4:].tolist() == grid_boxes(side).tolist()


def test_whole_pictures_are_shown_to_backbones(tmp_path: Path) -> None:
    from silohash.base.files import write_json

    folder = backbones.resnet(tmp_path / "resnet")
    write_json(
        folder / "preprocessor_config.json",
        {"size": {"shortest_edge": 32}, "crop_size": 32, "do_center_crop": True, "image_processor_type": "CLIP"},
    )
    wide = picture(200, 40, (0, 0, 0))
    wide.paste((255, 255, 255), (0, 0, 20, 40))
    network = maps(model=str(folder), size=64, download=False)
    pixels = network.prepare([wide])["pixels"]
    assert pixels.shape == (1, 3, 64, 64)
    assert pixels[0, 0, 30, 2] > 200
    assert network.tokens == 4 * maps(model=str(folder), size=32, download=False).tokens


@pytest.mark.parametrize(("name", "size"), [("resnet", -5), ("resnet", 1.5), ("vit", 64)])
def test_sizes_that_a_backbone_does_not_take_are_refused(tmp_path: Path, name: str, size: Any) -> None:
    folder = backbones.IMAGE_MODELS[name](tmp_path / name)
    with pytest.raises(UnsupportedNetwork if name == "vit" else OutOfRange):
        maps(model=str(folder), size=size, download=False)


def test_keys_follow_what_decides_the_regions(tmp_path: Path) -> None:
    one, other = detector(tmp_path / "a.onnx", BOXES, SCORES), detector(tmp_path / "b.onnx", BOXES, [0.1, 0.2, 0.3])
    keys = {
        with_vectors(one).key, with_vectors(other).key, with_vectors(one, regions=5).key,
        with_vectors(one, threshold=0.1).key, with_vectors(one, overlap=0.6).key, with_vectors(one, values="bytes").key,
    }  # fmt: skip
    assert len(keys) == 6
    (tmp_path / "elsewhere").mkdir()
    moved = one.rename(tmp_path / "elsewhere" / "c.onnx")
    assert with_vectors(moved).key in keys


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"grid": 0}, WrongValue),
        ({"regions": 0}, WrongValue),
        ({"overlap": 0.0}, WrongValue),
        ({"outputs": ["boxes"]}, WrongValue),
        ({"values": "imagenet"}, WrongValue),
        ({"units": "inches"}, WrongValue),
        ({"vectors": ""}, OneInputNeeded),
        ({"model": "a-model"}, OneInputNeeded),
        ({"detector": ""}, OneInputNeeded),
        ({"detector": "none.onnx"}, MissingFile),
        ({"detector": 5}, WrongValue),
        ({"outputs": 5}, WrongValue),
        ({"outputs": "boxes"}, WrongValue),
        ({"grid": "many"}, WrongValue),
        ({"threshold": "high"}, WrongValue),
        ({"vectors": "labels"}, UnsupportedNetwork),
        ({"vectors": "none"}, UnsupportedNetwork),
        ({"outputs": ["boxes", "none"]}, UnsupportedNetwork),
        ({"outputs": ["scores", "boxes"]}, UnsupportedNetwork),
        ({"outputs": ["colors", "scores", "labels", "labels"]}, WrongValue),
        ({"outputs": ["boxes", "colors"]}, UnsupportedNetwork),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path: Path, options: dict[str, Any], kind: type[UserError]) -> None:
    path = detector(tmp_path / "d.onnx", BOXES, SCORES)
    with pytest.raises(kind):
        frozen("image", **{"detector": str(path), "vectors": "colors", **options})


@pytest.mark.parametrize("content", [b"", b"no network", b"\x00" * 100])
def test_files_that_hold_no_detector_are_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "d.onnx").write_bytes(content)
    with pytest.raises(UnsupportedNetwork, match=r"d\.onnx"):
        with_vectors(tmp_path / "d.onnx")


def test_other_networks_are_no_detectors(tmp_path: Path) -> None:
    from onnx import helper

    value = helper.make_tensor_value_info("inputs", TensorProto.FLOAT, ["n", 8])
    out = helper.make_tensor_value_info("outputs", TensorProto.FLOAT, ["n", 8])
    graph = helper.make_graph([helper.make_node("Identity", ["inputs"], ["outputs"])], "tower", [value], [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "tower.onnx").write_bytes(model.SerializeToString())
    for outputs in (["boxes", "scores"], ["outputs", "outputs"]):
        with pytest.raises(UnsupportedNetwork, match=r"tower\.onnx"):
            with_vectors(tmp_path / "tower.onnx", outputs=outputs)


def test_texts_have_no_regions() -> None:
    with pytest.raises(UnsuitableFeatures):
        frozen("text", model="a-model")


def test_best_boxes_equal_a_plain_search() -> None:
    generator = np.random.default_rng(1)
    corners = np.sort(generator.uniform(size=(40, 2, 2)), axis=1)
    boxes, scores = corners.reshape(40, 4), generator.uniform(size=40)
    labels = generator.integers(0, 2, 40)
    kept: list[int] = []
    for place in sorted(range(40), key=lambda n: -scores[n]):

        def share(a: int, b: int) -> float:
            (ax, ay, aX, aY), (bx, by, bX, bY) = boxes[a], boxes[b]
            common = max(0.0, min(aX, bX) - max(ax, bx)) * max(0.0, min(aY, bY) - max(ay, by))
            return common / ((aX - ax) * (aY - ay) + (bX - bx) * (bY - by) - common)

        if all(share(place, other) <= 0.3 for other in kept if labels[other] == labels[place]):
            kept.append(place)
    assert best(boxes, scores, labels, 0.3, 40) == kept
    assert best(boxes, scores, labels, 0.3, 3) == kept[:3]
    assert len(kept) < 40
