"""Texts that are longer than a published model reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("transformers")

from silohash.data.archive import Archive
from silohash.features import featurizer, truncation
from silohash.features.network import NetworkFeatures
from silohash.features.truncation import Unread, truncation_remark, unread_end
from silohash.run.model.network_saving import save_networks
from tests import backbones
from tests.archives import made_up_archive

TEXTS = ("a red tree", "a red tree on the blue tree", "violin", "two parrots on the red tree")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return backbones.bert(tmp_path_factory.mktemp("truncation") / "bert")


@pytest.fixture
def archive() -> Archive:
    return replace(made_up_archive(4), text=np.array(TEXTS))


@pytest.mark.parametrize("block", [1, 3, 4_096])
def test_texts_as_tokens(folder: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(truncation, "BLOCK_ROWS", block)

    def remark(length: int, of: Archive = archive) -> str:
        options = {"kind": "tokens", "model": str(folder), "length": length}
        return truncation_remark(of, {"text": featurizer("text", of.text, options)})

    assert remark(12) == ""
    assert remark(5) == (
        "2 texts are longer than the 5 word pieces that the text model reads (made-up). Only their beginning is encoded."
    )
    assert remark(8).startswith("1 text is longer than the 8 word pieces")
    without = replace(archive, has_text=np.array([True, False, True, False]))
    assert remark(5, without) == ""


def test_texts_of_a_frozen_network(folder: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILOHASH_CACHE", str(folder.parent / "cache"))
    found = featurizer("text", archive.text, {"kind": "huggingface", "model": str(folder)})
    assert truncation_remark(archive, {"text": found}) == ""
    long = replace(archive, text=np.array(["a " * 20, *TEXTS[1:]]))
    assert truncation_remark(long, {"text": found}).startswith("1 text is longer than the 12 word pieces")


def test_the_end_of_a_query_is_named(folder: Path, archive: Archive) -> None:
    found = featurizer("text", archive.text, {"kind": "tokens", "model": str(folder), "length": 5})
    end = unread_end(found, "a red tree on the Blue tree")
    assert end == Unread("on the Blue tree", 5, "word pieces")
    assert str(end) == (
        "The query is longer than the 5 word pieces that the text model reads. Its end was not read: “on the Blue tree”"
    )
    assert unread_end(found, "a red tree") is None
    assert str(Unread("x" * 121, 5, "words")).endswith(f"“{'x' * 120}…”")


def test_the_end_of_a_query_is_known_without_the_models_folder(
    folder: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SILOHASH_CACHE", str(folder.parent / "cache"))
    made = featurizer("text", archive.text, {"kind": "huggingface", "model": str(folder)})
    assert isinstance(made, NetworkFeatures)
    save_networks({"text": made}, print)
    again = NetworkFeatures.from_state(*made.state())
    monkeypatch.setattr(again.source, "network", None)  # where there is no torch
    assert unread_end(again, "a red " * 5 + "violin") == Unread("violin", 12, "word pieces")


def test_words_of_a_fixed_number(archive: Archive) -> None:
    words = featurizer("text", archive.text, {"kind": "words", "length": 6})
    assert unread_end(words, "a red tree on the Blue tree") == Unread("the blue tree", 4, "words")
    assert truncation_remark(archive, {"text": words}).startswith(
        "2 texts are longer than the 4 words that the text model"
    )


def test_pictures_and_vectors_have_no_end(archive: Archive) -> None:
    words = featurizer("text", archive.text, {"kind": "words", "length": 6})
    assert unread_end(words, np.zeros(900)) is None
    assert unread_end(None, "a red tree") is None
    assert unread_end(featurizer("text", archive.text, {}), "a " * 5000) is None


def test_models_without_word_pieces_read_everything(archive: Archive) -> None:
    words = featurizer("text", np.array(["a " * 5000]), {})
    assert truncation_remark(archive, {"text": words}) == ""
    assert truncation_remark(archive, {}) == ""
    given = replace(archive, text=np.ones((4, 3), np.float32))
    assert truncation_remark(given, {"text": featurizer("text", given.text, {})}) == ""
