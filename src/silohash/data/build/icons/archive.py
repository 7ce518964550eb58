"""The archive of icons, which ``card.toml`` describes."""

from __future__ import annotations

from pathlib import Path

from silohash.base.files import read_toml
from silohash.base.forms import REINSTALL, of_value
from silohash.data.build.archive import BuiltSet

ICONS = of_value(read_toml(Path(__file__).with_name("card.toml"), remedy=REINSTALL, missing=REINSTALL), BuiltSet)
