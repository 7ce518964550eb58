"""The published protocols of the data sets, as ``protocols.toml`` states them."""

from functools import cache
from pathlib import Path
from typing import Any

from silohash.base.files import read_toml
from silohash.base.forms import REINSTALL, of_value
from silohash.data.protocols.rule import SplitProtocol

FILE = Path(__file__).with_name("protocols.toml")

RESEARCH_ONLY = "not stated with the files; the pictures belong to their authors, for research only"
"""The license of data sets whose distributors state none."""


def published(dataset: str) -> tuple[SplitProtocol, ...]:
    """Return the protocols of a data set, in the order of the file."""
    return tuple(of_value(facts, SplitProtocol) for facts in facts_of(dataset))


def facts_of(dataset: str) -> list[dict[str, Any]]:
    """Return the fields of each protocol: those that the data set states for all, those of the source, and its own."""
    sources, of_dataset = _facts()["sources"], _facts()[dataset]
    shared = {"dataset": dataset, "database": None, "note": "", **of_dataset}
    found = []
    for own in shared.pop("protocols"):
        source = sources.get(own.get("from"), {})
        facts = {**shared, **source, **own}
        facts["about"] = facts["about"].format(note=facts.pop("note"), source=source.get("about", ""))
        found.append({name: value for name, value in facts.items() if name != "from"})
    return found


@cache
def _facts() -> dict[str, Any]:
    return read_toml(FILE, remedy=REINSTALL, missing=REINSTALL)
