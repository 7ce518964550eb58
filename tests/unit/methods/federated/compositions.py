"""Compositions of federated methods on the glyphs."""

from __future__ import annotations

from typing import Any

import pytest

from silohash.base.errors import UserError
from silohash.methods.federated.compose import Compose
from silohash.run.config.load import load_config, load_resolved

GLYPHS = {"data": {"name": "glyphs"}}
PROC = {"name": "fedproc", "min_count": 1}
HAP = {"name": "fedhap", "min_count": 1, "weighting": "examples"}
CAFE = {"name": "fedcafe", "min_count": 1, "weighting": "examples"}


def whole(*methods: dict[str, Any]) -> Compose:
    """Return the composition of some members."""
    method: Compose = load_resolved({**GLYPHS, "federated": {"name": "compose", "methods": methods}}).federated
    return method


def error_of(*methods: Any) -> str:
    """Return the error with which a composition is rejected when the config is read."""
    with pytest.raises(UserError) as error:
        load_config({**GLYPHS, "federated": {"name": "compose", "methods": list(methods)}})
    return str(error.value).removeprefix("the config: ")
