"""Texts that are longer than a published model reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("transformers")

from silohash.data.archive import Archive
from silohash.features import featuriser, truncation
from silohash.features.truncation import truncation_remark
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
        return truncation_remark(of, {"text": featuriser("text", of.text, options)})

    assert remark(12) == ""
    assert remark(5) == (
        "2 texts are longer than the 5 word pieces that the text model reads (made-up). Only their beginning is encoded."
    )
    assert remark(8).startswith("1 text is longer than the 8 word pieces")
    without = replace(archive, has_text=np.array([True, False, True, False]))
    assert remark(5, without) == ""


def test_texts_of_a_frozen_network(folder: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILOHASH_CACHE", str(folder.parent / "cache"))
    found = featuriser("text", archive.text, {"kind": "huggingface", "model": str(folder)})
    assert truncation_remark(archive, {"text": found}) == ""
    long = replace(archive, text=np.array(["a " * 20, *TEXTS[1:]]))
    assert truncation_remark(long, {"text": found}).startswith("1 text is longer than the 12 word pieces")


def test_models_without_word_pieces_read_everything(archive: Archive) -> None:
    words = featuriser("text", np.array(["a " * 5000]), {})
    assert truncation_remark(archive, {"text": words}) == ""
    assert truncation_remark(archive, {}) == ""
    given = replace(archive, text=np.ones((4, 3), np.float32))
    assert truncation_remark(given, {"text": featuriser("text", given.text, {})}) == ""
