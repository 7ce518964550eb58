"""``partition``: the silos of a config as a table, as JSON and as a plot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs import silohash, write_archive, write_config


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("partition")
    return write_config(folder / "run.toml", write_archive(folder / "archive"))


def test_every_item_is_in_a_silo(config: Path) -> None:
    document = silohash("partition", config, "--json").document()
    assert sum(document["silos"].values()) == 120
    assert list(document["silos"]) == list(document["drift"]["silos"])
    assert len(document["drift"]["silos"]) == 3
    assert set(document["drift"]["between_silos"]) == {"total variation", "Hellinger", "Jensen-Shannon"}
    printed = silohash("partition", config).out
    assert "silo-3" in printed
    assert "between silos, mean of pairs: total variation" in printed


def test_values_can_be_overridden(config: Path) -> None:
    other = silohash("partition", config, "--set", "partition.silos=2", "--json").document()
    assert len(other["silos"]) == 2
    again = silohash("partition", config, "--set", "seed=1", "--json").document()
    assert again["digest"] != silohash("partition", config, "--json").document()["digest"]


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_partition_is_drawn(config: Path, tmp_path: Path, suffix: str) -> None:
    said = silohash("partition", config, "--plot", tmp_path / f"a.{suffix}")
    assert said.code == 0, said
    assert f"Wrote {tmp_path / f'a.{suffix}'}" in said.err
    content = (tmp_path / f"a.{suffix}").read_bytes()
    assert b"archive: iid over 3 silos, seed 0" in content


def test_archive_without_labels_has_sizes_and_no_drift(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive")
    rows = (archive / "metadata.csv").read_text(encoding="utf-8").splitlines()
    position = rows[0].split(",").index("labels")
    kept = [",".join(cell for place, cell in enumerate(line.split(",")) if place != position) for line in rows]
    (archive / "metadata.csv").write_text("\n".join(kept) + "\n", encoding="utf-8")
    config = write_config(tmp_path / "run.toml", archive)
    document = silohash("partition", config, "--json").document()
    assert document["drift"] is None
    assert sum(document["silos"].values()) == 120
    refused = silohash("partition", config, "--plot", tmp_path / "a.svg")
    assert refused.code == 2
    assert "no labels" in refused.err


def test_remarks_on_the_archive_are_printed(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", count=30)
    table = (archive / "metadata.csv").read_text(encoding="utf-8").splitlines()
    table[0] = table[0].replace("text", "caption")
    table[5] += ",one,two"
    (archive / "metadata.csv").write_text("\n".join(table), encoding="utf-8")
    said = silohash("partition", write_config(tmp_path / "run.toml", archive), "--set", "partition.silos=2", "--json")
    assert said.code == 0, said
    assert 'warning: The column "caption" is not used (did you mean "text"?).' in said.err
    assert "skipped: metadata.csv, row 6: has 7 fields and the header has 5; left out" in said.err
    assert sum(said.document()["silos"].values()) == 29
