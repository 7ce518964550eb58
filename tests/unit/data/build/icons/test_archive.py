"""The card of the icons has what the package knows of a complete build."""

from __future__ import annotations

from silohash.data import ARCHIVES
from silohash.data.build.icons.archive import ICONS


def test_the_card_states_licenses_and_numbers() -> None:
    assert ARCHIVES.resolve("icons") is ICONS
    assert all(name in ICONS.license for name in ("MIT", "ISC", "Apache-2.0", "CC BY 4.0", "CC BY 3.0"))
    assert {"label noise", "items per silo", "random mAP"} <= ICONS.notes.keys()
    assert ICONS.notes["splits"].startswith("train: ")
