"""What every named archive keeps: it says in one sentence what it is, and names its options, its layouts and its files."""

from __future__ import annotations

import inspect

import pytest

from silohash.base.errors import UserError
from silohash.data import ARCHIVES
from silohash.data.benchmarks.dataset import Dataset, benchmark, benchmarks
from silohash.data.benchmarks.layouts.reading import Layout
from silohash.data.catalogue import open_archive, summary_of


@pytest.mark.parametrize("name", ARCHIVES.names())
def test_archive_is_described_and_refuses_unknown_options(name: str) -> None:
    summary = summary_of(name)
    assert summary.endswith(".")
    assert "\n" not in summary
    with pytest.raises(UserError, match='has no option "unheard_of"'):
        open_archive(name, options={"unheard_of": 1})


@pytest.mark.parametrize(("key", "dataset"), benchmarks().items(), ids=list(benchmarks()))
def test_data_set_has_layouts_and_protocols(key: str, dataset: Dataset) -> None:
    assert benchmark(key) is dataset
    assert dataset.key == key
    assert dataset.default_protocol in dataset.protocols
    assert list(dataset.protocols)[-1] == "default"
    assert len({layout.name for layout in dataset.layouts}) == len(dataset.layouts) > 0
    assert summary_of(key) == dataset.summary
    assert dataset.protocol("").protocol.name == dataset.default_protocol
    assert {protocol.dataset for protocol in dataset.protocols.values()} == {key}


EVERY = [(key, layout) for key, dataset in benchmarks().items() for layout in dataset.layouts]


@pytest.mark.parametrize(("key", "layout"), EVERY, ids=[f"{key}/{layout.name}" for key, layout in EVERY])
def test_every_layout_names_the_options_that_its_reader_takes(key: str, layout: Layout) -> None:
    assert any(not need.optional for need in layout.needs)
    parameters = inspect.signature(layout.read).parameters.values()
    assert {one.name for one in parameters if one.kind is one.KEYWORD_ONLY} == set(layout.options)


@pytest.mark.parametrize("key", list(benchmarks()))
def test_without_its_files_every_layouts_are_named_with_their_place(key, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SILOHASH_DATA", str(tmp_path))
    with pytest.raises(UserError, match=rf"The files of {key} are missing") as error:
        open_archive(key)
    said = str(error.value)
    assert str(tmp_path / "data" / key) in said
    for layout in benchmarks()[key].layouts:
        assert f"layout {layout.name}: " in said
        assert all(f"missing  {need.pattern}" in said for need in layout.needs if not need.optional)
