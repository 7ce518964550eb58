"""Codes as documents, and options as a backend takes them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from silohash.base.errors import BitsDiffer
from silohash.features.truncation import Unread
from silohash.index.codes import pack
from silohash.search.fields import hexadecimal
from silohash.search.hits import Hits
from silohash.service.web import documents
from silohash.service.web.documents import CodeDocument, Options, ResultsDocument, SearchDocument
from tests.served import MadeUpBackend


@pytest.mark.parametrize("bits", [8, 12, 31, 64, 160, 256])
def test_a_code_comes_back(bits: int) -> None:
    words = pack(np.random.default_rng(bits).normal(size=(1, bits)))[0]
    document = CodeDocument(hex=hexadecimal(words, bits), bits=bits, model_digest="m")
    assert len(document.hex) == 2 * -(-bits // 8)
    assert document.code().words.tolist() == words.tolist()


def test_codes_that_are_refused() -> None:
    for values in ({"hex": "zz", "bits": 8}, {"hex": "f", "bits": 8}, {"hex": "", "bits": 8}, {"hex": "ff", "bits": 7}):
        with pytest.raises(ValidationError):
            CodeDocument(**values, model_digest="m")
    with pytest.raises(BitsDiffer, match=r"4.*2"):
        CodeDocument(hex="ff", bits=12, model_digest="m").code()
    with pytest.raises(BitsDiffer, match="12"):
        CodeDocument(hex="ffff", bits=12, model_digest="m").code()


def test_options_for_a_backend() -> None:
    options = Options(find="image", k=3, silo=["a"]).options("ann")
    assert options.asker == "ann"
    assert (options.target, options.k, options.silos, options.previews) == ("image", 3, ("a",), True)
    assert Options().options("").silos is None
    for values in ({"silo": []}, {"k": 0}, {"k": 201}, {"find": "x"}, {"radius_bits": 257}, {"other": 1}):
        with pytest.raises(ValidationError):
            SearchDocument(text="a", **values)


def test_ranks_and_unknown_words_are_told() -> None:
    hits = MadeUpBackend().hits(Options(k=2).options(""))
    ranked = replace(hits, ranks=(1, 2), unknown_words=("zebra",))
    document = ResultsDocument.of(ranked, asked=2)
    assert (document.order, [hit["rank"] for hit in document.hits]) == ("rank", [1, 2])
    assert document.unknown_words == ["zebra"]
    assert document.model_digests == ["m"]


def test_results_have_the_form_that_the_api_describes() -> None:
    backend = MadeUpBackend()
    for hits in (
        backend.hits(Options(k=5).options("")),
        replace(backend.hits(Options(k=2).options("")), ranks=(1, 2), unknown_words=("zebra",)),
        replace(backend.hits(Options(k=2).options("")), ranks=(1, 2), distances=(1, None)),
        replace(backend.hits(Options(k=2).options("")), unread=Unread("foo", 5, "words")),
        Hits(missing_silos={"north": "It is asleep."}, limited_silos={"south": "It limits results."}),
    ):
        written = ResultsDocument.of(hits, asked=2).model_dump_json()
        read = ResultsDocument.model_validate_json(written, strict=True)
        assert read.model_dump_json() == written
        assert [hit["id"] for hit in read.hits] == list(hits.ids)
        assert [hit["preview"] for hit in read.hits] == [hit.preview_url for hit in hits]


def test_every_longer_description_is_that_of_a_field() -> None:
    for key, about in documents.ABOUT.items():
        document, _, name = key.partition(".")
        described = TypeAdapter(getattr(documents, document)).json_schema()["properties"][name]
        assert described["description"] == about


def test_examples_have_the_form_of_their_documents() -> None:
    results = ResultsDocument.model_validate(documents.EXAMPLES["results"], strict=False)
    assert results.hits[0]["id"] == documents.EXAMPLES["item"]["id"]
    assert SearchDocument.model_validate(documents.EXAMPLES["search"]).value() == "two parrots on a branch"
