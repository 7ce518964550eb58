"""CNN-F: its form, its arithmetic against plain numpy, and its weights from files of every age."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.lib.stride_tricks import sliding_window_view
from PIL import Image

from silohash.base.errors import (
    DamagedFile,
    MissingContent,
    MissingFile,
    NetworkChanged,
    QueryUnsuitable,
    SettingNeeded,
    UnknownOption,
    UnsuitableFeatures,
    UserError,
    WrongChoice,
    WrongKindOfFile,
    WrongShape,
    WrongType,
)
from silohash.data.formats.folder import read_folder
from silohash.features.image import PixelFeatures
from silohash.features.network import make_network, options_of
from silohash.features.text import BagOfWords
from silohash.methods.federated.base import FederatedMethod
from silohash.methods.local.base import MethodParams
from silohash.models import cnnf
from silohash.models.backbones import network_settings
from silohash.models.cnnf import CNNF, TRAINED, load_cnnf, local_response, read_weights, weights_file
from silohash.models.parameters import params_of
from silohash.run.folder import Run
from silohash.run.model.trained import GLOBAL
from tests import runs

SMALL: dict[str, Any] = {"maps": (3, 5), "width": 6}


def small(seed: int = 0, **options: Any) -> CNNF:
    """Returns a narrow CNN-F whose layers keep their inputs alive, so that few outputs are zero."""
    generator = np.random.default_rng(seed)
    net = CNNF(**SMALL, **options)
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            values = generator.normal(size=tuple(tensor.shape)) / np.sqrt(max(1, tensor[0].numel()))
            tensor.copy_(torch.from_numpy(values + (0.05 if name.endswith("bias") else 0.0)))
        net.mean.copy_(torch.from_numpy(generator.uniform(90, 140, (3, 224, 224))))
    return net.eval()


def pictures(count: int = 2, seed: int = 0) -> torch.Tensor:
    generator = np.random.default_rng(seed)
    return torch.from_numpy(generator.integers(0, 256, (count, 3, 224, 224), dtype=np.uint8))


def test_the_layers_have_the_published_numbers_of_parameters() -> None:
    with torch.device("meta"):
        net = CNNF()
    counts = {name: sum(p.numel() for p in getattr(net, name).parameters()) for name in TRAINED}
    assert counts == {
        "conv1": 23_296, "conv2": 409_856, "conv3": 590_080, "conv4": 590_080, "conv5": 590_080,
        "fc6": 37_752_832, "fc7": 16_781_312,
    }  # fmt: skip
    assert sum(p.numel() for p in net.parameters()) == 56_737_536
    assert net(torch.zeros(2, 3, 224, 224, device="meta")).shape == (2, 4096)


def test_the_maps_have_the_published_sizes() -> None:
    net = small()
    seen: dict[str, tuple[int, ...]] = {}
    for name in TRAINED:
        getattr(net, name).register_forward_hook(
            lambda layer, given, made, name=name: seen.update({name: (*given[0].shape[2:], *made.shape[2:])})
        )
    net(pictures(1))
    assert seen == {
        "conv1": (224, 224, 54, 54), "conv2": (27, 27, 27, 27), "conv3": (13, 13, 13, 13), "conv4": (13, 13, 13, 13),
        "conv5": (13, 13, 13, 13), "fc6": (6, 6, 1, 1), "fc7": (1, 1, 1, 1),
    }  # fmt: skip


def by_loops(maps: np.ndarray) -> np.ndarray:
    """Returns the normalization of MatConvNet: the sum of squares over up to two maps on either side, not their mean."""
    normalized = np.zeros_like(maps)
    for item in range(maps.shape[0]):
        for number in range(maps.shape[1]):
            neighbors = maps[item, max(0, number - 2) : number + 3]
            normalized[item, number] = maps[item, number] / (2 + 1e-4 * np.square(neighbors).sum(0)) ** 0.75
    return normalized


def test_the_normalization_is_that_of_matconvnet() -> None:
    maps = np.random.default_rng(0).uniform(0, 30, (2, 9, 3, 3))
    ours = local_response("matconvnet")(torch.from_numpy(maps.astype(np.float32))).numpy()
    assert np.abs(ours - by_loops(maps)).max() < 2e-6
    legacy = local_response("legacy-port")(torch.from_numpy(maps.astype(np.float32))).numpy()
    assert np.abs(legacy - by_loops(maps)).max() > 1


def convolved(maps: np.ndarray, layer: torch.nn.Conv2d, *, step: int = 1, border: int = 0) -> np.ndarray:
    weight, bias = (p.detach().numpy().astype(np.float64) for p in (layer.weight, layer.bias))
    maps = np.pad(maps, ((0, 0), (0, 0), (border, border), (border, border)))
    windows = sliding_window_view(maps, weight.shape[2:], axis=(2, 3))[:, :, ::step, ::step]
    return np.maximum(np.einsum("nchwij,ocij->nohw", windows, weight) + bias[:, None, None], 0)


def pooled(maps: np.ndarray) -> np.ndarray:
    return sliding_window_view(maps, (3, 3), axis=(2, 3))[:, :, ::2, ::2].max(axis=(4, 5))


def in_numpy(net: CNNF, pixels: torch.Tensor) -> np.ndarray:
    maps = by_loops(convolved(pixels.numpy().astype(np.float64) - net.mean.numpy(), net.conv1, step=4))
    maps = pooled(np.pad(maps, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=-np.inf))
    maps = pooled(by_loops(convolved(maps, net.conv2, border=2)))
    for layer in (net.conv3, net.conv4, net.conv5):
        maps = convolved(maps, layer, border=1)
    return convolved(convolved(pooled(maps), net.fc6), net.fc7)[:, :, 0, 0]


def test_the_outputs_are_those_of_plain_numpy() -> None:
    net, pixels = small(), pictures()
    expected = in_numpy(net, pixels)
    assert (expected > 0).sum() >= 4
    with torch.no_grad():
        np.testing.assert_allclose(net(pixels).numpy(), expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(net(pixels).numpy(), net(pixels.float()).numpy())


def test_one_number_is_followed_by_hand() -> None:
    net = CNNF(maps=(1, 1), width=1).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        net.mean.fill_(100.0)
        net.conv1.weight[0, 1, 5, 5] = 0.5  # looks at green in the middle of its patch
        net.conv1.bias.fill_(1.0)
        net.conv2.weight[0, 0, 2, 2] = 2.0
        for layer in (net.conv3, net.conv4, net.conv5):
            layer.weight[0, 0, 1, 1] = 3.0
        net.fc6.weight[0, 0, 2, 3] = -0.25
        net.fc6.bias.fill_(200.0)
        net.fc7.weight.fill_(0.5)
        net.fc7.bias.fill_(0.125)
        pixels = torch.full((1, 3, 224, 224), 100.0)
        pixels[:, 1] = 160.0
        first = 31.0 / (2 + 1e-4 * 31.0**2) ** 0.75  # (160 - 100) * 0.5 + 1
        second = 2 * first / (2 + 1e-4 * (2 * first) ** 2) ** 0.75
        expected = (200.0 - 0.25 * 27 * second) * 0.5 + 0.125
        assert expected > 0
        assert net(pixels).item() == pytest.approx(expected, rel=1e-6)


def test_legacy_normalization_gives_other_features() -> None:
    ours, legacy = small(), small(lrn="legacy-port")
    with torch.no_grad():
        assert not torch.allclose(ours(pictures()), legacy(pictures()), rtol=1e-2)


def test_the_mean_is_saved_but_not_shared() -> None:
    class Holder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = CNNF(**SMALL)
            self.hash = torch.nn.BatchNorm1d(6)

    model = Holder()
    assert "backbone.mean" in params_of(model)
    shared = FederatedMethod(MethodParams()).shared_parameters(model)
    assert set(params_of(model)) - set(shared) == {"backbone.mean"}


def write_mat(
    path: Path, net: CNNF, *, structure: str = "new", fields: str = "weights", mean: np.ndarray | None = None,
    kinds: Mapping[str, str] | None = None, leave_out: str = "",
) -> Path:  # fmt: skip
    """Writes a file as MatConvNet does, its fields in an order of our own."""
    savemat = pytest.importorskip("scipy.io").savemat
    layers: list[dict[str, Any]] = []
    for name in (*TRAINED, "fc8"):
        if name == leave_out:
            continue
        layer = getattr(net, name, net.fc7)
        filters = layer.weight.detach().numpy().transpose(2, 3, 1, 0)
        biases = layer.bias.detach().numpy()
        cell = np.empty((1, 2), object)
        cell[0, 0], cell[0, 1] = filters, biases.reshape(1, -1)
        trained = {"weights": cell} if fields == "weights" else {"filters": filters, "biases": biases.reshape(-1, 1)}
        layers.append({"pad": np.zeros((1, 4)), "type": "conv", "name": name, **trained})
        if name in {"conv1", "conv2"}:
            layers.append({"type": "lrn", "param": np.array([[5, 2, 1e-4, 0.75]]), "name": f"norm{name[-1]}"})
    for layer in layers:
        layer["type"] = (kinds or {}).get(layer["name"], layer["type"])
    cells = np.empty((1, len(layers)), object)
    cells[0, :] = layers
    picture = net.mean.numpy().transpose(1, 2, 0) if mean is None else mean
    about = {"interpolation": "bicubic", "averageImage": picture, "keepAspect": 1}
    tops = {"old": {"normalization": about, "classes": {"name": "tench"}}, "new": {"meta": {"normalization": about}}}
    savemat(path, {"layers": cells, **tops.get(structure, {})})
    return path


@pytest.mark.parametrize("structure", ["old", "new"])
@pytest.mark.parametrize("fields", ["weights", "filters"])
def test_weights_come_back_from_files_of_every_age(tmp_path: Path, structure: str, fields: str) -> None:
    net = small()
    path = write_mat(tmp_path / "imagenet-vgg-f.mat", net, structure=structure, fields=fields)
    again = load_cnnf(path, net=CNNF(**SMALL))
    for name, tensor in net.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], tensor, rtol=0, atol=0)
    assert not again.training


def test_a_mean_of_three_numbers_holds_everywhere(tmp_path: Path) -> None:
    path = write_mat(tmp_path / "net.mat", small(), mean=np.array([123.0, 117.0, 104.0], np.float32).reshape(1, 1, 3))
    mean = read_weights(path)["mean"]
    assert mean.shape == (3, 224, 224)
    np.testing.assert_array_equal(mean[:, 7, 200], [123.0, 117.0, 104.0])
    assert (mean == mean[:, :1, :1]).all()


def test_exchanged_pictures_give_the_same_features(tmp_path: Path) -> None:
    path = write_mat(tmp_path / "net.mat", small())
    normal = load_cnnf(path, net=CNNF(**SMALL))
    exchanged = load_cnnf(path, orientation="legacy-port", net=CNNF(**SMALL))
    pixels = pictures()
    with torch.no_grad():
        expected = normal(pixels)
        torch.testing.assert_close(exchanged(pixels.transpose(2, 3)), expected, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(exchanged(pixels), expected, rtol=1e-2)


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        ({"kinds": {"norm1": "bnorm"}}, WrongKindOfFile, None),
        ({"kinds": {"norm1": "relu", "norm2": "relu"}}, WrongKindOfFile, "0"),
        ({"leave_out": "fc6"}, MissingContent, "fc6"),
        ({"structure": "none"}, MissingContent, None),
        ({"mean": np.zeros((64, 64, 3))}, WrongShape, "averageImage"),
    ],
)
def test_a_file_that_is_another_says_so(
    tmp_path: Path, change: Mapping[str, Any], kind: type[UserError], says: str | None
) -> None:
    path = write_mat(tmp_path / "net.mat", small(), **change)
    with pytest.raises(kind, match=says) as error:
        load_cnnf(path, net=CNNF(**SMALL))
    assert "imagenet-vgg-f.mat" in str(error.value)


def test_a_network_of_other_sizes_is_refused(tmp_path: Path) -> None:
    path = write_mat(tmp_path / "net.mat", small())
    with pytest.raises(WrongShape, match=r"conv1.weight.*11.*11"):
        load_cnnf(path, net=CNNF(maps=(4, 5), width=6))


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        load_cnnf(tmp_path / "imagenet-vgg-f.mat")
    content = bytearray(write_mat(tmp_path / "net.mat", small()).read_bytes())
    content[200:300] = b"\xff" * 100
    (tmp_path / "net.mat").write_bytes(content)
    with pytest.raises(DamagedFile, match=r"net\.mat"):
        load_cnnf(tmp_path / "net.mat")
    (tmp_path / "broken.mat").write_bytes(b"not a file of MATLAB at all" * 20)
    with pytest.raises(DamagedFile):
        load_cnnf(tmp_path / "broken.mat")
    pytest.importorskip("scipy.io").savemat(tmp_path / "other.mat", {"features": np.zeros((2, 2))})
    with pytest.raises(MissingContent, match="features"):
        load_cnnf(tmp_path / "other.mat")


def test_settings_that_there_are_not_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongChoice):
        load_cnnf(tmp_path / "net.mat", orientation="sideways")  # type: ignore[arg-type]
    with pytest.raises(WrongChoice):
        small(lrn="caffe")


def test_the_legacy_normalization_is_over_two_maps_with_torchs_factor() -> None:
    maps = np.random.default_rng(0).uniform(0, 30, (1, 4, 1, 1))
    found = local_response("legacy-port")(torch.from_numpy(maps)).numpy()
    for number in range(4):
        neighbors = maps[0, max(0, number - 1) : number + 1]
        expected = maps[0, number] / (2 + 1e-4 / 2 * np.square(neighbors).sum(0)) ** 0.75
        np.testing.assert_allclose(found[0, number], expected)


@pytest.mark.parametrize(
    ("weights", "says"), [("", "weights is not set"), ("nowhere.mat", 'the file "nowhere.mat" does not')]
)
def test_a_file_of_weights_that_is_not_there(weights: str, says: str) -> None:
    with pytest.raises(SettingNeeded, match=f"^model.image: {says}"):
        weights_file(weights, "model.image")


def test_a_file_of_weights_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.mat").write_bytes(b"")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert weights_file("~/net.mat", "model.image") == tmp_path / "net.mat"


def changed_layer(tmp_path: Path, **fields: Any) -> Path:
    """Writes a file in which the first layer has other fields."""
    scipy_io = pytest.importorskip("scipy.io")
    path = write_mat(tmp_path / "net.mat", small(), fields="filters")
    content = scipy_io.loadmat(path)
    first = content["layers"][0, 0]
    known = {name: first[name][0, 0] for name in first.dtype.names} | fields
    content["layers"][0, 0] = {name: value for name, value in known.items() if value is not None}
    scipy_io.savemat(path, {name: value for name, value in content.items() if not name.startswith("__")})
    return path


@pytest.mark.parametrize(
    ("fields", "kind", "says"),
    [
        ({"filters": np.zeros((2, 2))}, WrongShape, r"conv1.*2.*2"),
        ({"filters": None}, MissingContent, r"field.*filters"),
        ({"weights": np.array([[1.0]])}, WrongShape, "1"),
        ({"name": "first"}, MissingContent, r"conv1.*first"),
    ],
)
def test_layers_that_do_not_fit(tmp_path: Path, fields: Mapping[str, Any], kind: type[UserError], says: str) -> None:
    with pytest.raises(kind, match=says):
        read_weights(changed_layer(tmp_path, **fields))


def test_a_layer_must_be_a_struct(tmp_path: Path) -> None:
    pytest.importorskip("scipy.io").savemat(tmp_path / "net.mat", {"layers": np.array([1.0, 2.0])})
    with pytest.raises(WrongType, match=r"layer.*1"):
        read_weights(tmp_path / "net.mat")


def drawn(width: int = 300, height: int = 150, mode: str = "RGB") -> Image.Image:
    """Returns a picture whose left half is bright."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2] = (200, 100, 50)
    return Image.fromarray(pixels).convert(mode)


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    path = tmp_path / "imagenet-vgg-f.mat"
    path.write_bytes(b"stands for the user's own file")
    return path


def test_the_whole_picture_is_squeezed_into_the_square(user_file: Path) -> None:
    made = cnnf.frozen("image", weights=str(user_file)).prepare(iter([drawn(), drawn(mode="L")]))
    assert {name: (array.shape, array.dtype.name) for name, array in made.items()} == {
        "pixels": ((2, 3, 224, 224), "uint8")
    }
    assert made["pixels"][0, :, 100, 20].tolist() == [200, 100, 50]
    assert made["pixels"][0, :, 100, 200].tolist() == [0, 0, 0]
    assert len(set(made["pixels"][1, :, 100, 20].tolist())) == 1
    assert cnnf.frozen("image", weights=str(user_file)).prepare([])["pixels"].shape == (0, 3, 224, 224)


def test_the_vectors_are_those_of_the_network(user_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Path, str, str]] = []
    net = CNNF(maps=(3, 4), width=5).eval()

    def load(path: Path, *, lrn: str, orientation: str) -> CNNF:
        asked.append((path, lrn, orientation))
        return net

    monkeypatch.setattr(cnnf, "load_cnnf", load)
    network = make_network("cnnf", "image", {"weights": str(user_file), "lrn": "legacy-port"})
    batch = network.prepare([drawn(), drawn(100, 400)])
    vectors = network.embed(batch, "cpu", half=False)
    with torch.no_grad():
        np.testing.assert_array_equal(vectors, net(torch.from_numpy(batch["pixels"])).numpy())
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(network.embed(batch, "cpu", half=True), vectors)
    assert asked == [(user_file, "legacy-port", "normal")]


def test_the_key_follows_all_that_decides_the_vectors(user_file: Path) -> None:
    def key(**options: str) -> str:
        return make_network("cnnf", "image", {"weights": str(user_file), **options}).key

    before = key()
    other = {before, key(lrn="legacy-port"), key(orientation="legacy-port")}
    moved = user_file.rename(user_file.with_name("elsewhere.mat"))
    assert key(weights=str(moved)) == before
    moved.write_bytes(b"other weights")
    assert len({*other, key(weights=str(moved))}) == 4


def test_its_options_have_defaults() -> None:
    assert options_of(cnnf.frozen) == {"weights": "", "lrn": "matconvnet", "orientation": "normal"}


def test_it_takes_pictures_only_and_needs_weights(user_file: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsuitableFeatures):
        make_network("cnnf", "text", {"weights": str(user_file)})
    with pytest.raises(SettingNeeded, match=r"imagenet-vgg-f\.mat"):
        make_network("cnnf", "image", {})
    with pytest.raises(SettingNeeded, match="does not exist"):
        make_network("cnnf", "image", {"weights": str(tmp_path / "nowhere.mat")})
    with pytest.raises(QueryUnsuitable):
        make_network("cnnf", "image", {"weights": str(user_file)}).prepare(["a harbour"])


def narrow_cnnf(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes the file of a narrow CNN-F, which stands for the full one from now on."""
    monkeypatch.setattr(cnnf, "CNNF", partial(CNNF, **SMALL))
    monkeypatch.setattr(cnnf, "WIDTH", SMALL["width"])
    return write_mat(folder / "imagenet-vgg-f.mat", small())


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a narrow CNN-F."""
    return narrow_cnnf(tmp_path, monkeypatch)


def painted_archive(folder: Path, count: int = 24) -> Path:
    runs.write_archive(folder, count=count, image=None, text="words")
    rows = []
    for number, labels in enumerate(runs.labels_of(count)):
        pixels = np.full((9, 12, 3), 40, np.uint8)
        pixels[..., int(np.flatnonzero(labels)[0]) % 3] = 60 + 30 * int(labels.sum())
        Image.fromarray(pixels).save(folder / f"{number}.png")
        words = [runs.WORDS[column] for column in np.flatnonzero(labels)]
        split = "query" if number % 6 == 0 else "train"
        rows.append({"file_name": f"{number}.png", "text": " ".join(words), "labels": "|".join(words), "split": split})
    runs.write_metadata(folder, rows)
    return folder


def train(tmp_path: Path, weights: Path, **options: Any) -> Run:
    return runs.train(
        painted_archive(tmp_path / "archive"), tmp_path / "run",
        model={"image": {"backbone": "cnnf", "weights": str(weights), **options}},
        features={"image": {"size": 224, "channels": 3, "cache": False}, "text": {"buckets": 32}},
        partition={"silos": 2}, federated={"rounds": 1, "local_epochs": 1},
    )  # fmt: skip


@pytest.mark.whole_run
@pytest.mark.parametrize("freeze", [False, True])
def test_training_goes_on_from_the_users_weights(tmp_path: Path, weights: Path, *, freeze: bool) -> None:
    run = train(tmp_path, weights, freeze=freeze)
    params = run.model.trained.weights[GLOBAL].params
    start = small().state_dict()
    moved = {
        name for name, tensor in start.items()
        if not np.array_equal(params[f"image.backbone.network.{name}"], tensor.numpy())
    }  # fmt: skip
    assert "mean" not in moved
    assert moved == (set() if freeze else set(start) - {"mean"})
    far = max(float(np.abs(params[f"image.backbone.network.{n}"] - t.numpy()).max()) for n, t in start.items())
    assert far < 0.1
    weights.unlink()
    archive = read_folder(tmp_path / "archive")
    codes = Run(run.folder).model.encoder().codes(archive, np.arange(4), "image")
    assert len(codes) == 4


@pytest.mark.whole_run
def test_the_network_sees_pixels_as_they_are(tmp_path: Path, weights: Path) -> None:
    run = train(tmp_path, weights)
    encoder = run.model.trained.encoder()
    seen: list[torch.Tensor] = []
    network = encoder.towers.model.model.image.backbone.network
    network.register_forward_pre_hook(lambda layer, given: seen.append(given[0]))
    archive = read_folder(tmp_path / "archive")
    encoder.codes(archive, np.arange(2), "image")
    pixels = run.model.featurizers["image"].transform(archive.image, np.arange(2))  # type: ignore[arg-type]
    np.testing.assert_allclose(seen[0].numpy(), pixels, atol=1e-2)
    assert seen[0].max() > 60


@pytest.mark.parametrize(
    ("options", "size", "kind", "says"),
    [
        ({}, 224, SettingNeeded, "weights is not set"),
        ({"weights": "nowhere.mat"}, 224, SettingNeeded, r"nowhere.mat"),
        ({"weights": "here.mat"}, 64, UnsuitableFeatures, "224"),
        ({"weights": "here.mat", "pooling": "mean"}, 224, UnknownOption, "pooling"),
    ],
)
def test_what_does_not_fit_is_refused(
    options: dict[str, Any],
    size: int,
    kind: type[UserError],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here.mat").write_bytes(b"weights")
    with pytest.raises(kind, match=says):
        network_settings("image", PixelFeatures(size), {"backbone": "cnnf", **options})


def test_texts_are_refused() -> None:
    with pytest.raises(UnsuitableFeatures):
        network_settings("text", BagOfWords(), {"backbone": "cnnf"})


def test_weights_that_changed_meanwhile_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.mat"
    path.write_bytes(b"one")
    about = {"source": str(path), "digest": "of another file", "lrn": "matconvnet", "orientation": "normal"}
    with pytest.raises(NetworkChanged):
        cnnf.weights(about)
