"""A request holds exactly one value to search for, and keeps the options."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import EmptyInput, OneInputNeeded
from silohash.search.hits import SearchOptions
from silohash.search.released import Code
from silohash.search.requests import SearchRequest, Vector

VECTOR = Vector(values=np.ones(3), modality="text")
CODE = Code(words=np.zeros(1, np.uint16), bits=16, model_digest="m")


def test_a_request_holds_exactly_one_value() -> None:
    picture = Image.new("L", (2, 2))
    for values in ({"text": "a"}, {"picture": picture}, {"vector": VECTOR}, {"code": CODE}):
        assert SearchRequest(**values).k == 10
    with pytest.raises(OneInputNeeded, match=r"vector.*given"):
        SearchRequest()
    with pytest.raises(OneInputNeeded, match="text"):
        SearchRequest(text="a", code=CODE)
    with pytest.raises(EmptyInput):
        SearchRequest(text=" \n")


def test_options_become_a_request() -> None:
    options = SearchOptions(target="text", k=3, offset=4, radius_bits=5, label="a", silos=("b",), previews=False)
    request = SearchRequest.of(options, text="c")
    assert (request.text, request.picture, request.vector, request.code) == ("c", None, None, None)
    assert request.values() == options.values() == vars(options)
    assert SearchRequest.of(options, code=CODE).code is CODE
    assert SearchRequest.of(options, vector=VECTOR).vector is VECTOR


def test_what_has_to_be_encoded_has_a_modality() -> None:
    picture = Image.new("L", (2, 2))
    assert SearchRequest(text="a").uncoded == ("a", "text")
    assert SearchRequest(picture=picture).uncoded == (picture, "image")
    assert SearchRequest(vector=VECTOR).uncoded == (VECTOR.values, "text")
    assert SearchRequest(code=CODE).uncoded is None


def test_a_value_becomes_a_request_by_its_type() -> None:
    picture = Image.new("L", (2, 2))
    for value, modality in (("a", "text"), (picture, "image"), (VECTOR.values, "text")):
        assert SearchRequest.for_value(value, modality, k=3).uncoded == (value, modality)
    assert SearchRequest.for_value("a", "text", k=3).k == 3
