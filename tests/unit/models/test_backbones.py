from __future__ import annotations

import json
import shutil
from typing import Any

import numpy as np
import pytest
import torch

from silohash.base.errors import (
    MissingFile,
    NetworkChanged,
    SettingNeeded,
    UnknownName,
    UnknownOption,
    UnsuitableFeatures,
    UnsupportedNetwork,
    UserError,
    WrongType,
)

pytest.importorskip("transformers")

from silohash.base.forms import of_json
from silohash.features import featurizer
from silohash.models.backbones import PublishedTower, install_published, network_settings, published_weights
from silohash.models.huggingface import read_backbone
from silohash.models.parameters import fixed_buffers
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import HashNet
from tests import backbones

COUNT = 6
ROWS = np.arange(COUNT)
HIDDEN = 12


def pixels(tmp_path, *, size: int = backbones.SIDE, channels: int = 3):
    column = backbones.jpegs(tmp_path / "pictures", COUNT)
    features = featurizer("image", column, {"kind": "pixels", "size": size, "channels": channels})
    return features.fitted(features.statistics(column, ROWS)), column


def spec_of(modality, featurizer, folder, **options) -> TowerSpec:
    settings = network_settings(modality, featurizer, {"backbone": "huggingface", "model": str(folder), **options})
    return TowerSpec("network", tuple(featurizer.shape), HIDDEN, 0.5, settings=settings)


def standardised(features, column) -> torch.Tensor:
    values = features.transform(column, ROWS).astype(np.float32)
    shape = (1, -1, 1, 1)
    return torch.from_numpy(
        ((values - features.mean.reshape(shape)) / features.deviation.reshape(shape)).astype(np.float32)
    )


def test_the_head_has_the_layers_of_the_spec() -> None:
    settings = {"kind": "cnnf", "width": 4096, "lrn": "matconvnet", "freeze": False}

    def widths(**values: Any) -> list[tuple[int, int]]:
        with torch.device("meta"):
            head = PublishedTower(TowerSpec("network", (3, 224, 224), settings=settings, **values)).head
        return [(layer.in_features, layer.out_features) for layer in head if isinstance(layer, torch.nn.Linear)]

    assert widths(hidden=4096) == []
    assert widths(hidden=24) == [(4096, 24)]
    assert widths(hidden=4096, layers=(24,)) == [(4096, 24), (24, 4096)]


@pytest.mark.parametrize("name", list(backbones.IMAGE_MODELS))
def test_a_tower_starts_as_the_published_network(tmp_path, name):
    folder = backbones.IMAGE_MODELS[name](tmp_path / name)
    features, column = pixels(tmp_path)
    spec = spec_of("image", features, folder)
    model = HashNet(ModelSpec({"image": spec}, classes=3), 8).eval()
    published = published_weights({"image": spec})
    sample = torch.rand(1, 3, backbones.SIDE, backbones.SIDE)
    backbone, width = read_backbone(folder, sample, "image", "auto")
    assert spec.settings["width"] == width
    tower = model.image.backbone
    assert not torch.allclose(next(tower.network.parameters()), next(backbone.parameters()))
    install_published(model, published)
    raw = torch.from_numpy(features.transform(column, ROWS)).float()
    mean, deviation = (torch.tensor(values).reshape(1, 3, 1, 1) for values in ([0.5, 0.4, 0.3], [0.5, 0.25, 0.2]))
    with torch.no_grad():
        expected = backbone((raw / 255 - mean) / deviation)
        inputs = standardised(features, column) * tower.factor + tower.offset
        torch.testing.assert_close(tower.network(inputs), expected, atol=1e-3, rtol=1e-3)
        assert tower(standardised(features, column)).shape == (COUNT, HIDDEN)


@pytest.mark.parametrize("name", list(backbones.TEXT_MODELS))
def test_a_tower_of_texts(tmp_path, name):
    length = 6 if name == "sentence_encoder" else 12
    folder, column = backbones.TEXT_MODELS[name](tmp_path / name), backbones.sentences(COUNT)
    features = featurizer("text", column, {"kind": "tokens", "model": str(folder), "length": length})
    spec = spec_of("text", features, folder)
    model = HashNet(ModelSpec({"text": spec}, classes=3), 8).eval()
    install_published(model, published_weights({"text": spec}))
    frozen = featurizer("text", column, {"kind": "huggingface", "model": str(folder)})
    with torch.no_grad():
        found = model.text.backbone.network(torch.from_numpy(features.transform(column, ROWS)))
    np.testing.assert_allclose(found, frozen.network_vectors(column, ROWS), atol=2e-3)


def test_the_spec_alone_builds_the_tower(tmp_path):
    folder = backbones.resnet(tmp_path / "resnet")
    spec = ModelSpec({"image": spec_of("image", pixels(tmp_path)[0], folder)}, classes=3)
    model = HashNet(spec, 8)
    install_published(model, published_weights(spec.towers))
    shutil.rmtree(folder)
    twin = HashNet(of_json(json.dumps(spec.to_json()), ModelSpec), 8)
    twin.load_state_dict(model.state_dict())
    inputs = torch.rand(2, 3, backbones.SIDE, backbones.SIDE)
    torch.testing.assert_close(twin.eval().image(inputs)[1], model.eval().image(inputs)[1])
    with pytest.raises(MissingFile, match=r"the folder .* does not exist"):
        published_weights(spec.towers)


@pytest.mark.parametrize("freeze", [False, True])
def test_a_frozen_network_neither_learns_nor_travels(tmp_path, freeze):
    folder = backbones.resnet(tmp_path / "resnet")
    spec = spec_of("image", pixels(tmp_path)[0], folder, freeze=freeze)
    model = HashNet(ModelSpec({"image": spec}, classes=3), 8).train()
    before = {name: values.clone() for name, values in model.state_dict().items()}
    model.image(torch.rand(4, 3, backbones.SIDE, backbones.SIDE))[1].square().mean().backward()
    network = [name for name in before if name.startswith("image.backbone.network.")]
    assert fixed_buffers(model) == (set(network) if freeze else set())
    parameters = dict(model.named_parameters())
    assert all((parameters[name].grad is None) == freeze for name in network if name in parameters)
    means = [name for name in network if name.endswith("running_mean")]
    same = [torch.equal(before[name], model.state_dict()[name]) for name in means]
    assert means
    assert all(same) if freeze else not any(same)


def test_no_layer_between_equal_widths(tmp_path):
    folder, (features, _) = backbones.vit(tmp_path / "vit"), pixels(tmp_path)
    settings = spec_of("image", features, folder).settings
    model = HashNet(ModelSpec({"image": TowerSpec("network", features.shape, 16, settings=settings)}, 3), 8)
    assert not list(model.image.backbone.head.parameters())


def test_files_that_change_while_a_run_is_prepared(tmp_path):
    folder = backbones.vit(tmp_path / "vit")
    spec = spec_of("image", pixels(tmp_path)[0], folder)
    backbones.vit(folder, seed=1)
    with pytest.raises(NetworkChanged):
        published_weights({"image": spec})


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"backbone": "hugingface"}, UnknownName, r"hugingface.*huggingface"),
        ({"modle": "x"}, UnknownOption, "modle"),
        ({"freeze": "yes"}, WrongType, "yes"),
        ({"model": ""}, SettingNeeded, None),
    ],
)
def test_options_that_do_not_fit(tmp_path, options, kind: type[UserError], message: str | None):
    folder = backbones.vit(tmp_path / "vit")
    with pytest.raises(kind, match=message):
        network_settings("image", pixels(tmp_path)[0], {"backbone": "huggingface", "model": str(folder), **options})


def test_inputs_that_do_not_fit(tmp_path):
    folder = backbones.vit(tmp_path / "vit")
    with pytest.raises(UnsupportedNetwork, match=r"support.*16.*16"):
        spec_of("image", pixels(tmp_path, size=16)[0], folder)
    with pytest.raises(UnsuitableFeatures, match="needs color pictures"):
        spec_of("image", pixels(tmp_path, channels=1)[0], folder)
    bert, texts = backbones.bert(tmp_path / "bert"), backbones.sentences(COUNT)
    with pytest.raises(UnsuitableFeatures, match="word pieces of its tokenizer"):
        spec_of("text", featurizer("text", texts, {}), bert)
    other = featurizer("text", texts, {"kind": "tokens", "model": str(backbones.clip(tmp_path / "clip"))})
    with pytest.raises(UnsuitableFeatures, match="word pieces of its tokenizer"):
        spec_of("text", other, bert)
