"""The table of benchmarks: each has layouts, protocols and a line in the catalogue."""

from __future__ import annotations

import inspect

import pytest

from silohash.data.benchmarks.layouts.reading import Layout
from silohash.data.benchmarks.table import DATASETS
from silohash.data.catalogue import ARCHIVES, summary_of


def test_every_data_set_is_an_archive_with_layouts_and_protocols() -> None:
    assert len(DATASETS) == 8
    for key, dataset in DATASETS.items():
        assert dataset.key == key in ARCHIVES
        assert dataset.default_protocol in dataset.protocols
        assert list(dataset.protocols)[-1] == "default"
        assert len({layout.name for layout in dataset.layouts}) == len(dataset.layouts) > 0
        assert summary_of(key) == dataset.summary
        assert DATASETS[key].protocol("").protocol.name == dataset.default_protocol


EVERY = [(key, layout) for key, dataset in DATASETS.items() for layout in dataset.layouts]


@pytest.mark.parametrize(("key", "layout"), EVERY, ids=[f"{key}/{layout.name}" for key, layout in EVERY])
def test_every_layout_names_the_options_that_its_reader_takes(key: str, layout: Layout) -> None:
    assert any(not need.optional for need in layout.needs)
    parameters = inspect.signature(layout.read).parameters.values()
    assert {one.name for one in parameters if one.kind is one.KEYWORD_ONLY} == set(layout.options)
