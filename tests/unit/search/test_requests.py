"""A request holds one value to search for, and keeps the options."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import EmptyInput
from silohash.search.hits import SearchOptions
from silohash.search.requests import Code, SearchRequest

CODE = Code(words=np.zeros(1, np.uint16), bits=16, model_digest="m")


def test_a_request_holds_a_value_with_its_modality() -> None:
    for value in (Image.new("L", (2, 2)), np.ones(3), CODE):
        assert (SearchRequest(value=value).value, SearchRequest(value=value).modality) == (value, "image")
    assert SearchRequest(value="a").modality == SearchRequest(value=np.ones(3), modality="text").modality == "text"
    assert SearchRequest(value="a").k == 10
    with pytest.raises(EmptyInput):
        SearchRequest(value=" \n")


def test_options_become_a_request() -> None:
    options = SearchOptions(target="text", k=3, offset=4, radius_bits=5, label="a", silos=("b",), previews=False)
    request = SearchRequest.of(options, "c")
    assert (request.value, request.modality) == ("c", "text")
    assert request.values() == options.values() == vars(options)
    assert SearchRequest.of(options, CODE).value is CODE
    assert SearchRequest.of(options, np.ones(3), "text").modality == "text"
