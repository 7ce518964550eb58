"""The archive of icons, which ``card.toml`` describes, with the numbers of a complete build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from silohash.base.files import read_json, read_toml
from silohash.base.forms import REINSTALL, of_value
from silohash.data.build.archive import BuiltSet

HERE = Path(__file__).parent


def _described() -> BuiltSet:
    card = read_toml(HERE / "card.toml", remedy=REINSTALL, missing=REINSTALL)
    facts = read_json(HERE / "facts.json", dict[str, Any], remedy=REINSTALL, missing=REINSTALL)
    words = {name: str(value).translate(str.maketrans("", "", "{}'")) for name, value in facts.items()}
    return of_value({**card, "notes": {**card["notes"], **words}}, BuiltSet)


ICONS = _described()
