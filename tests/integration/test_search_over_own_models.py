"""Silos that use different models are searched together, from training to the hits on the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from silohash.run.folder import Run
from tests.runs import silohash, train, write_archive

pytestmark = pytest.mark.whole_run


@pytest.fixture(scope="module", params=["local", "fedproto"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp(request.param)
    archive = write_archive(folder / "archive", text="words")
    found = train(archive, folder / "run", federated={"name": request.param, "rounds": 1})
    said = silohash("index", found.folder)
    assert said.code == 0, said.err
    return found


def test_the_answer_interleaves_the_silos_and_says_why(run: Run) -> None:
    said = silohash("search", run.folder, "parrot and zebra", "-k", 100, "--json")
    assert said.code == 0, said.err
    found = said.document()
    assert (found["order"], found["comparable"]) == ("rank", False)
    hits = found["hits"]
    silos = {silo.name for silo in run.partition.silos}
    assert len(hits) == len(run.archive.split("database"))
    first = [hit for hit in hits if hit["rank"] == 1]
    assert hits[: len(first)] == first
    assert {hit["silo"] for hit in first} == silos
    for silo in silos:
        own = [hit["distance_bits"] for hit in hits if hit["silo"] == silo]
        assert own == sorted(own)
    assert [hit["rank"] for hit in hits] == sorted(hit["rank"] for hit in hits)
    assert [hit["distance_bits"] for hit in hits] != sorted(hit["distance_bits"] for hit in hits)


def test_more_items_are_encoded_by_the_model_that_is_named(run: Run, tmp_path: Path) -> None:
    more = write_archive(tmp_path / "more", text="words", seed=3)
    said = silohash("index", run.folder, more)
    assert said.code == 2
    own = run.partition.silos[0].name
    assert f"Name one with --model: {own}" in said.err
    try:
        assert silohash("index", run.folder, more, "--model", own).code == 0
        found = silohash("search", run.folder, "parrot and zebra", "-k", 300, "--json")
        assert found.code == 0, found.err
        distances = {
            silo: [hit["distance_bits"] for hit in found.document()["hits"] if hit["silo"] == silo]
            for silo in ("more", own)
        }
        assert all(values == sorted(values) and values for values in distances.values())
    finally:
        shutil.rmtree(run.index_folder / "more", ignore_errors=True)
    assert "Give its folder as well" in silohash("index", run.folder, "--model", own).err


def test_the_command_line_says_what_the_order_is(run: Run) -> None:
    said = silohash("search", run.folder, "parrot", "-k", 5)
    lines = said.out.splitlines()
    assert len(lines) == 5
    ranks = [int(line.split("\t")[6]) for line in lines]
    assert ranks == sorted(ranks)
    assert ranks[0] == 1
    assert "ordered by their rank within each silo" in said.err


def test_silos_with_one_model_are_merged_by_distance(tmp_path: Path) -> None:
    found = train(write_archive(tmp_path / "archive", text="words"), tmp_path / "run", federated={"rounds": 1})
    silohash("index", found.folder)
    answer = silohash("search", found.folder, "parrot", "-k", 100, "--json").document()
    assert (answer["order"], answer["comparable"]) == ("outputs", True)
    assert "rank" not in answer["hits"][0]
    said = silohash("search", found.folder, "parrot")
    assert "rank" not in said.err
    assert all(line.endswith("\t") for line in said.out.splitlines())
