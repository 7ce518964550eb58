"""Folders of published models: found, refused with a reason, and known by the files that matter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from silohash.base.errors import (
    DependencyMissing,
    MissingFile,
    NetworkUnavailable,
    SettingNeeded,
    UnsupportedNetwork,
)
from silohash.features.model_folder import SentenceRule, find_model, folder_digest, needing_transformers, sentence_rule


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def pool(folder: Path, **modes: bool) -> None:
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 4, **modes}))


def modules(folder: Path, *kinds: str) -> None:
    entries = [{"type": f"sentence_transformers.models.{kind}"} for kind in kinds]
    (folder / "modules.json").write_text(json.dumps(entries))


def test_a_folder_is_found_by_its_path(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_model(str(model), "features.image", download=False) == model
    monkeypatch.setenv("HOME", str(model.parent))
    assert find_model("~/model", "features.image", download=False) == model


@pytest.mark.parametrize("name", ["./nowhere", "~/nowhere", "/nowhere", "a/b/c"])
def test_a_path_is_not_looked_up_by_name(name: str) -> None:
    with pytest.raises(MissingFile, match=r"model\.text"):
        find_model(name, "model.text", download=False)


def test_a_model_must_be_given() -> None:
    with pytest.raises(SettingNeeded, match=r"model\.text"):
        find_model("", "model.text", download=False)


def test_files_that_are_missing_are_named(model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    with pytest.raises(MissingFile, match="does not hold weights in the safetensors format"):
        find_model(str(model), "model.text", download=False)
    (model / "config.json").unlink()
    with pytest.raises(MissingFile, match=r"config\.json"):
        find_model(str(model), "model.text", download=False)


def test_the_digest_covers_what_changes_vectors(model: Path) -> None:
    (model / "tokenizer.json").write_text("one")
    (model / "preprocessor_config.json").write_text("{}")
    image, text = folder_digest(model, "image"), folder_digest(model, "text")
    assert image != text
    (model / "README.md").write_text("notes")
    assert (folder_digest(model, "image"), folder_digest(model, "text")) == (image, text)
    (model / "tokenizer.json").write_text("other")
    assert folder_digest(model, "image") == image
    assert folder_digest(model, "text") != text
    (model / "model.safetensors").write_bytes(b"other weights")  # of another size, in case its time is still the same
    assert folder_digest(model, "image") != image


def test_a_folder_without_a_rule(model: Path) -> None:
    assert sentence_rule(model) is None


def test_the_rule_of_a_sentence_encoder(model: Path) -> None:
    pool(model, pooling_mode_mean_tokens=True, pooling_mode_cls_token=False)
    assert sentence_rule(model) == SentenceRule("mean", unit_length=True, most_pieces=0)
    modules(model, "Transformer", "Pooling")
    (model / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 128}))
    assert sentence_rule(model) == SentenceRule("mean", unit_length=False, most_pieces=128)
    modules(model, "Transformer", "Pooling", "Normalize")
    (model / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": None}))
    pool(model, pooling_mode_cls_token=True)
    assert sentence_rule(model) == SentenceRule("cls", unit_length=True, most_pieces=0)


@pytest.mark.parametrize(
    ("modes", "message"),
    [
        ({"pooling_mode_max_tokens": True}, "requires pooling_mode_max_tokens"),
        ({"pooling_mode_max_tokens": True, "pooling_mode_cls_token": True}, "pooling_mode_cls_token"),
        ({}, None),
    ],
)
def test_pooling_that_is_not_supported(model: Path, modes: dict[str, bool], message: str | None) -> None:
    pool(model, **modes)
    with pytest.raises(UnsupportedNetwork, match=message):
        sentence_rule(model)


def test_modules_that_are_not_supported(model: Path) -> None:
    pool(model, pooling_mode_mean_tokens=True)
    modules(model, "Transformer", "Pooling", "Dense")
    with pytest.raises(UnsupportedNetwork, match="Dense"):
        sentence_rule(model)


def test_what_to_install() -> None:
    says = r"^The model needs transformers\. Install it: pip install 'silohash\[backbones\]'$"
    with pytest.raises(DependencyMissing, match=says), needing_transformers("The model"):
        raise ImportError("transformers")


@pytest.mark.parametrize("download", [True, False])
def test_a_name_is_looked_up_in_the_cache(model: Path, monkeypatch: pytest.MonkeyPatch, download: bool) -> None:
    hub = pytest.importorskip("huggingface_hub")
    asked: list[tuple[str, bool]] = []

    def snapshot(name: str, *, local_files_only: bool, allow_patterns: list[str]) -> str:
        asked.append((name, local_files_only))
        assert {"config.json", "vocab.*", "preprocessor_config.json"} <= set(allow_patterns)
        return str(model)

    monkeypatch.setattr(hub, "snapshot_download", snapshot)
    for name in ("bert", "google/bert"):
        assert find_model(name, "features.text", download=download) == model
    assert asked == [("bert", not download), ("google/bert", not download)]


@pytest.mark.parametrize(
    ("download", "error", "says"),
    [
        (True, OSError("first\nsecond"), "first"),
        (True, OSError(), "OSError"),
        (False, OSError("first"), r"features.text.*bert"),
    ],
)
def test_names_that_are_not_found(monkeypatch: pytest.MonkeyPatch, download: bool, error: Exception, says: str) -> None:
    def fail(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(pytest.importorskip("huggingface_hub"), "snapshot_download", fail)
    with pytest.raises(NetworkUnavailable, match=says):
        find_model("bert", "features.text", download=download)


def test_a_digest_names_files_by_their_place(model: Path) -> None:
    pool(model, pooling_mode_mean_tokens=True)
    before = folder_digest(model, "text")
    (model / "2.safetensors").write_bytes(b"more")
    assert folder_digest(model, "text") != before
    (model / "2.safetensors").unlink()
    assert folder_digest(model, "text") == before
    (model / "vocab.txt").mkdir()
    assert folder_digest(model, "text") == before
