"""The archive of icons, which ``card.toml`` describes, with the numbers of a complete build."""

from pathlib import Path
from typing import Any

from silohash.base.files import read_json, read_toml
from silohash.base.forms import REINSTALL, of_value
from silohash.data.build.archive import BuiltSet

CARD = read_toml(Path(__file__).with_name("card.toml"), remedy=REINSTALL, missing=REINSTALL)
FACTS = read_json(Path(__file__).with_name("facts.json"), dict[str, Any], remedy=REINSTALL, missing=REINSTALL)
NUMBERS = {name: str(value).translate(str.maketrans("", "", "{}'")) for name, value in FACTS.items()}
ICONS = of_value({**CARD, "notes": {**CARD["notes"], **NUMBERS}}, BuiltSet)
