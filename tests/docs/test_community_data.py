"""The page on data sets in circulation says what the code has: every layout, every protocol, every size."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base.types import ResultRow
from silohash.data.benchmarks.dataset import benchmarks
from silohash.data.protocols.rule import SplitProtocol

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "community-data.md").read_text(encoding="utf-8")


def protocol_row(protocol: SplitProtocol) -> str:
    """Returns the row of the page's table."""
    if protocol.draw == "free":
        return f"| `{protocol.name}` | any | as stated, else a tenth | the rest | the rest | by ids |"
    items, database = ("–" if count is None else f"{count:,}" for count in (protocol.items, protocol.database))
    sizes = f"{items} | {protocol.query:,} | {protocol.train:,} | {database}"
    return f"| `{protocol.name}` | {sizes} | {protocol.draw} |"


@pytest.mark.parametrize("key", list(benchmarks()))
def test_data_set_and_protocols_stand_in_the_page(key: str) -> None:
    dataset = benchmarks()[key]
    layouts = ", ".join(f"`{layout.name}`" for layout in dataset.layouts)
    assert f"| `{key}` | {dataset.title} | {layouts} | `{dataset.default_protocol}` |\n" in PAGE
    section = PAGE.split(f"### {dataset.title}\n")[1].split("\n### ")[0]
    for protocol in dataset.protocols.values():
        assert f"{protocol_row(protocol)}\n" in section


def test_the_six_choices_are_columns_of_the_results() -> None:
    for name in ("population", "protocol", "measure", "no_hits", "query_in_database", "database_code", "round_by"):
        assert f"`{name}`" in PAGE
        assert name in ResultRow.__dataclass_fields__
