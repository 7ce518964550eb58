from __future__ import annotations

import sys
import types

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from silohash.base.types import UserError
from silohash.features.network import make_network
from silohash.features.word_pieces import read_word_pieces
from silohash.models.huggingface import CHUNK_ITEMS, Backbone, pooled, read_backbone
from tests import backbones

TEXTS = ["two red parrots", "a violin", "the blue harbour on the red tree"]


@pytest.fixture
def pictures(tmp_path):
    return [backbones.jpegs(tmp_path / "pictures", 3).picture(row) for row in range(3)]


def embedded(network, values) -> np.ndarray:
    return network.embed(network.prepare(iter(values)), "cpu", half=False)


def seen(folder, pictures) -> torch.Tensor:
    """What the folder's published processor makes of pictures."""
    import transformers

    name = "ViTImageProcessorPil"  # without Pil before version 5
    made = getattr(transformers, name, None) or getattr(transformers, name.removesuffix("Pil"))
    return made.from_pretrained(folder)(pictures, return_tensors="pt")["pixel_values"]


def summary(output):
    """What version 5 of transformers returns within an object, and earlier ones as it is."""
    return getattr(output, "pooler_output", output)


def published(folder):
    from transformers import AutoModel

    return AutoModel.from_pretrained(folder).eval()


@torch.no_grad()
def test_clip_gives_its_projections(tmp_path, pictures):
    folder = backbones.clip(tmp_path / "clip")
    model = published(folder)
    image = make_network("huggingface", "image", {"model": str(folder)})
    expected = summary(model.get_image_features(pixel_values=seen(folder, pictures)))
    np.testing.assert_allclose(embedded(image, pictures), expected, atol=1e-5)
    text = make_network("huggingface", "text", {"model": str(folder)})
    from transformers import AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    expected = summary(model.get_text_features(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]))
    np.testing.assert_allclose(embedded(text, TEXTS), expected, atol=1e-5)
    assert image.width == text.width == 10
    assert image.key != text.key


@torch.no_grad()
def test_clip_gives_the_projections_of_its_patches(tmp_path, pictures):
    folder = backbones.clip(tmp_path / "clip")
    model = published(folder)
    network = make_network("huggingface", "image", {"model": str(folder), "pooling": "tokens"})
    assert (network.tokens, network.width) == (16, 170)
    found = embedded(network, pictures).reshape(3, 17, 10)
    expected = summary(model.get_image_features(pixel_values=seen(folder, pictures)))
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-5)
    vision = model.vision_model
    hidden = vision(pixel_values=seen(folder, pictures)).last_hidden_state
    for patch in range(1, 17):
        projected = model.visual_projection(vision.post_layernorm(hidden[:, patch]))
        np.testing.assert_allclose(found[:, patch], projected, atol=1e-5)


@torch.no_grad()
def test_clip_gives_the_projections_of_its_word_pieces(tmp_path):
    folder = backbones.clip(tmp_path / "clip")
    model = published(folder)
    network = make_network("huggingface", "text", {"model": str(folder), "pooling": "tokens", "length": 10})
    assert (network.tokens, network.width) == (10, 110)
    found = embedded(network, TEXTS).reshape(3, 11, 10)
    for text, rows in zip(TEXTS, found, strict=True):
        pieces = network.prepare([text])["ids"]
        assert pieces.shape == (1, 10)
        count = int((pieces >= 0).sum())
        ids = torch.from_numpy(pieces[:, :count]).long()
        np.testing.assert_allclose(rows[0], summary(model.get_text_features(input_ids=ids))[0], atol=1e-5)
        hidden = model.text_model(input_ids=ids).last_hidden_state[0]
        np.testing.assert_allclose(rows[1:count], model.text_projection(hidden[:-1]), atol=1e-5)
        assert not rows[count:].any()


def test_the_length_of_texts_is_part_of_the_key(tmp_path):
    folder = str(backbones.clip(tmp_path / "clip"))
    options = ({}, {"length": 5}, {"pooling": "tokens"}, {"pooling": "tokens", "length": 5})
    networks = [make_network("huggingface", "text", {"model": folder, **given}) for given in options]
    assert [network.pieces.most for network in networks] == [12, 5, 12, 5]  # the model reads 12
    assert len({network.key for network in networks}) == 4
    assert networks[0].key == make_network("huggingface", "text", {"model": folder, "length": 0}).key
    assert [network.tokens for network in networks] == [0, 0, 12, 5]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vit", lambda output: output.last_hidden_state[:, 0]),
        ("dinov2", lambda output: output.pooler_output),
        ("resnet", lambda output: output.last_hidden_state.mean(dim=(2, 3))),
    ],
)
@torch.no_grad()
def test_backbones_of_pictures(tmp_path, pictures, name, expected):
    folder = backbones.IMAGE_MODELS[name](tmp_path / name)
    network = make_network("huggingface", "image", {"model": str(folder)})
    found = embedded(network, pictures)
    np.testing.assert_allclose(found, expected(published(folder)(seen(folder, pictures))), atol=1e-5)
    assert found.shape == (3, backbones.WIDTH) == (3, network.width)
    assert network.smallest_pixels == backbones.SIDE


@torch.no_grad()
def test_texts_are_means_over_their_own_pieces(tmp_path):
    folder = backbones.bert(tmp_path / "bert")
    network = make_network("huggingface", "text", {"model": str(folder)})
    found = embedded(network, TEXTS)
    model, pieces = published(folder), read_word_pieces(folder)
    for text, vector in zip(TEXTS, found, strict=True):
        ids = torch.from_numpy(pieces.ids([text])).long()
        np.testing.assert_allclose(vector, model(ids).last_hidden_state[0].mean(0), atol=1e-5)
    first = make_network("huggingface", "text", {"model": str(folder), "pooling": "cls"})
    assert first.key != network.key
    ids = torch.from_numpy(pieces.ids(TEXTS[:1])).long()
    np.testing.assert_allclose(embedded(first, TEXTS)[0], model(ids).last_hidden_state[0, 0], atol=1e-5)


def test_a_sentence_encoder_is_used_as_its_folder_says(tmp_path):
    folder = backbones.sentence_encoder(tmp_path / "encoder")
    network = make_network("huggingface", "text", {"model": str(folder)})
    found = embedded(network, TEXTS)
    plain = embedded(make_network("huggingface", "text", {"model": str(folder), "pooling": "mean"}), TEXTS)
    np.testing.assert_allclose(found[:2], (plain / np.linalg.norm(plain, axis=1, keepdims=True))[:2], atol=1e-5)
    assert network.prepare(TEXTS)["ids"].shape == (3, 6)
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true}', encoding="utf-8")
    with pytest.raises(UserError, match="pooling_mode_lasttoken"):
        make_network("huggingface", "text", {"model": str(folder)})


@pytest.mark.parametrize("name", ["vit", "dinov2", "resnet", "clip"])
def test_a_network_is_built_of_its_config_alone(tmp_path, name):
    folder = backbones.IMAGE_MODELS[name](tmp_path / name)
    sample = torch.rand(CHUNK_ITEMS + 3, 3, backbones.SIDE, backbones.SIDE)
    backbone, _ = read_backbone(folder, sample[:1], "image", "auto")
    twin = Backbone(backbone.config, "image", backbone.pooling).eval()
    assert twin.state_dict().keys() == backbone.state_dict().keys()
    twin.load_state_dict(backbone.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(twin(sample), backbone(sample))
        torch.testing.assert_close(backbone(sample)[-1:], backbone(sample[-1:]))


def test_only_what_is_used_is_kept(tmp_path):
    vit, _ = read_backbone(backbones.vit(tmp_path / "vit"), torch.zeros(1, 3, 32, 32), "image", "auto")
    assert not [name for name in vit.state_dict() if "pooler" in name]
    clip, _ = read_backbone(backbones.clip(tmp_path / "clip"), torch.zeros(1, 3, dtype=torch.int32), "text", "auto")
    assert {name.split(".")[1] for name in clip.state_dict()} == {"text_model", "text_projection"}


def test_weights_that_are_not_there_are_never_random(tmp_path):
    from safetensors.numpy import load_file, save_file

    folder = backbones.vit(tmp_path / "vit")
    arrays = load_file(folder / "model.safetensors")
    without = {name: array for name, array in arrays.items() if not name.startswith("pooler.")}
    save_file(without, folder / "model.safetensors", metadata={"format": "pt"})
    options = {"model": str(folder)}
    assert make_network("huggingface", "image", options).width == backbones.WIDTH
    with pytest.raises(UserError, match=r"lacks weights of its network \(pooler\."):
        make_network("huggingface", "image", {**options, "pooling": "pooler"})
    cut = {name: array for name, array in without.items() if "layernorm" not in name}
    save_file(cut, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="lacks weights"):
        make_network("huggingface", "image", options)
    (folder / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(UserError, match="cannot be read"):
        make_network("huggingface", "image", options)


@pytest.mark.parametrize(
    ("name", "modality", "options", "message"),
    [
        ("vit", "image", {"pooling": "projection"}, "not a model of both pictures and texts"),
        ("vit", "image", {"pooling": "sum"}, 'pooling is "sum"'),
        ("clip", "image", {"pooling": "cls"}, "only the projection is supported, or the tokens of CLIP"),
        ("vit", "image", {"pooling": "tokens"}, "is not a CLIP model, so it does not project tokens"),
        ("clip", "image", {"length": 5}, "length is 5, and pictures have no length"),
        ("clip", "text", {"length": 2}, "length is 2; it must be an integer of at least 3, or 0"),
        ("clip", "text", {"length": -1}, "length is -1"),
        ("clip", "text", {"length": "5"}, "length is '5'"),
        ("resnet", "image", {"pooling": "cls"}, "do not have a first token"),
        ("bert", "image", {}, r"preprocessor_config\.json is missing"),
        ("vit", "text", {}, "does not have a readable tokenizer"),
    ],
)
def test_what_a_model_does_not_do(tmp_path, name, modality, options, message):
    folder = (backbones.IMAGE_MODELS | backbones.TEXT_MODELS)[name](tmp_path / name)
    with pytest.raises(UserError, match=message):
        make_network("huggingface", modality, {"model": str(folder), **options})


def test_weights_change_the_key_and_notes_do_not(tmp_path):
    def key() -> str:
        return make_network("huggingface", "image", {"model": str(tmp_path / "vit")}).key

    folder = backbones.vit(tmp_path / "vit")
    first = key()
    (folder / "README.md").write_text("notes", encoding="utf-8")
    assert key() == first
    backbones.vit(folder, seed=1)
    assert key() != first


@pytest.mark.parametrize("package", ["transformers", "tokenizers"])
def test_what_to_install_is_said(tmp_path, monkeypatch, package):
    folder = backbones.bert(tmp_path / "bert")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=r"needs transformers\. Install it: pip install 'silohash\[backbones\]'"):
        embedded(make_network("huggingface", "text", {"model": str(folder)}), TEXTS)


def test_pooling_of_networks_without_a_summary():
    class Output:
        last_hidden_state = torch.arange(12.0).reshape(1, 3, 4)

    assert pooled(Output, "mean", torch.tensor([[1, 1, 0]])).tolist() == [[2, 3, 4, 5]]
    assert pooled(Output, "cls").tolist() == [[0, 1, 2, 3]]
    with pytest.raises(UserError, match="does not have a pooler"):
        pooled(Output, "pooler")


def output(hidden: torch.Tensor, summary: torch.Tensor | None = None) -> types.SimpleNamespace:
    return types.SimpleNamespace(last_hidden_state=hidden, pooler_output=summary)


def test_pooling_by_hand():
    tokens = torch.arange(12.0).reshape(1, 3, 4)
    assert pooled(output(tokens), "mean").tolist() == [[4, 5, 6, 7]]
    assert pooled(output(tokens), "mean", torch.tensor([[0, 0, 0]])).tolist() == [[0, 0, 0, 0]]
    assert pooled(output(tokens), "mean", torch.tensor([[0, 1, 1]])).tolist() == [[6, 7, 8, 9]]
    maps = torch.arange(16.0).reshape(1, 4, 2, 2)
    assert pooled(output(maps), "mean").tolist() == [[1.5, 5.5, 9.5, 13.5]]
    assert pooled(output(maps, torch.ones(2, 3, 1, 1)), "pooler").shape == (2, 3)
    with pytest.raises(UserError, match="do not have a first token"):
        pooled(output(maps), "cls")


def test_a_backbone_keeps_vectors_and_padding_as_they_are_by_default(tmp_path):
    read, width = read_backbone(backbones.bert(tmp_path / "bert"), torch.zeros(1, 3, dtype=torch.int32), "text", "auto")
    assert (read.unit_length, read.padding, read.pooling, width) == (False, 0, "mean", backbones.WIDTH)
    assert not read.training
    unit = Backbone(read.config, "text", "mean", unit_length=True, network=read.network).eval()
    with torch.no_grad():
        found = unit(torch.tensor([[2, 5, 3, -1]], dtype=torch.int32))
    torch.testing.assert_close(found.norm(dim=1), torch.ones(1))


def test_inputs_that_a_network_does_not_support_are_named(tmp_path):
    with pytest.raises(UserError, match="does not support pictures of 24 x 40 pixels"):
        read_backbone(backbones.vit(tmp_path / "vit"), torch.zeros(1, 3, 40, 24), "image", "cls")
    with pytest.raises(UserError, match="does not support word pieces"):
        read_backbone(backbones.bert(tmp_path / "bert"), torch.full((1, 3), 10**6, dtype=torch.int32), "text", "auto")


def test_transformers_is_as_loud_after_reading_as_before(tmp_path):
    from transformers.utils import logging

    level = logging.get_verbosity()
    for before in (logging.INFO, logging.ERROR):
        logging.set_verbosity(before)
        read_backbone(backbones.vit(tmp_path / "vit"), torch.zeros(1, 3, 32, 32), "image", "auto")
        assert logging.get_verbosity() == before
    logging.set_verbosity(level)
