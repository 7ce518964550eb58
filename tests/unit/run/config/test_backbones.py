"""Published networks by short names, and the tables of a config that use them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from silohash.base.types import UserError
from silohash.run.config.backbones import BACKBONES, feature_tables, find_backbone
from tests.backbones import clip, vit

BOTH = ("image", "text")


def test_names_are_found_and_a_wrong_one_suggests_the_closest(tmp_path: Path) -> None:
    for name, backbone in BACKBONES.items():
        assert find_backbone(name, tmp_path / "run.toml") is backbone
        assert set(backbone.megabytes) == set(backbone.models.values())
    with pytest.raises(UserError) as error:
        find_backbone("clpi", tmp_path / "run.toml")
    assert str(error.value).startswith(
        'There is no backbone "clpi" (did you mean "clip"?). Choose clip, clip-large, siglip'
    )


@pytest.mark.parametrize("name", BACKBONES)
def test_tables_are_toml_and_state_the_size_of_every_download_once(name: str) -> None:
    backbone = BACKBONES[name]
    tables = feature_tables(backbone, BOTH)
    assert [modality for modality, _, _ in tables] == [m for m in BOTH if m in backbone.models]
    words = " ".join(paragraph for _, paragraphs, _ in tables for paragraph in paragraphs)
    assert words.startswith(backbone.summary)
    assert words.count("Nothing is downloaded unless download is true.") == len(set(backbone.models.values()))
    for modality, _, keys in tables:
        assert tomllib.loads(keys) == {"kind": "huggingface", "model": backbone.models[modality]}


def test_sizes_have_units() -> None:
    (_, clip_words, _), (_, again, _) = feature_tables(BACKBONES["clip"], BOTH)
    assert "Then 605 MB are fetched from huggingface.co/laion/CLIP-ViT-B-32-laion2B-s34B-b79K" in clip_words[1]
    assert "Then 1.7 GB are" in feature_tables(BACKBONES["clip-large"], BOTH)[0][1][1]
    assert again == ["The same network, which is downloaded only once."]
    (_, small, _), (_, texts, _) = feature_tables(BACKBONES["dinov2+minilm"], BOTH)
    assert "Then 88 MB are fetched from huggingface.co/facebook/dinov2-small" in small[1]
    assert "Then 91 MB are fetched from huggingface.co/sentence-transformers/all-MiniLM-L6-v2" in texts[0]


def test_only_the_modalities_of_the_archive_get_tables() -> None:
    assert [modality for modality, _, _ in feature_tables(BACKBONES["clip"], ("text",))] == ["text"]
    with pytest.raises(UserError, match="The backbone is for image data, and the archive has only text"):
        feature_tables(BACKBONES["dinov2"], ("text",))


def test_a_folder_is_used_for_what_it_holds(tmp_path: Path) -> None:
    file = tmp_path / "configs" / "run.toml"
    file.parent.mkdir()
    both = find_backbone(str(clip(tmp_path / "clip")), file)
    assert (dict(both.models), dict(both.megabytes)) == ({"image": "../clip", "text": "../clip"}, {})
    pictures = find_backbone(str(vit(tmp_path / "vit")), file)
    assert dict(pictures.models) == {"image": "../vit"}
    (table,) = feature_tables(pictures, BOTH)
    assert table[2] == 'kind = "huggingface"\nmodel = "../vit"\n'
    assert not any("download" in paragraph for paragraph in table[1])


@pytest.mark.parametrize("name", ["config.json", "preprocessor_config.json"])
def test_a_folder_without_a_model_is_refused(tmp_path: Path, name: str) -> None:
    (vit(tmp_path / "model") / name).unlink()
    with pytest.raises(UserError, match=r'folder ".*model" does not hold a Hugging Face model. It needs config\.json'):
        find_backbone(str(tmp_path / "model"), tmp_path / "run.toml")
