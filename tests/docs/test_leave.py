"""Leave, and erase items: the commands of the page work as written, and the runs and files are what it says."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import pytest

from silohash.api.erasure import HOLDS
from silohash.run.folder import Run
from silohash.service.config import HubConfig, read_config
from tests.docs.test_two_silos import BLOCK
from tests.runs import silohash, write_archive, write_config, write_metadata

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "leave.md").read_text(encoding="utf-8")
COMMANDS = [shlex.split(line) for kind, body in BLOCK.findall(PAGE) if kind == "bash" for line in body.splitlines()]
LEAVE, RELOAD, RETRAIN, ELSEWHERE, REMOVE = COMMANDS


def test_whatever_the_command_lists_is_in_the_table() -> None:
    listed = set(re.findall(r"`([\w.]+)`", PAGE.split("## Erase items")[1].split("## Backups")[0]))
    assert set(HOLDS) <= listed


@pytest.mark.whole_run
@pytest.mark.slow
def test_commands_work_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    archive = write_archive(tmp_path / "items", count=60, text="words", places=2)
    with (archive / "metadata.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    ids = REMOVE[-1].split(",")
    for row in rows:
        row["id"] = {"item-001": ids[0], "item-002": ids[1]}.get(row["id"], row["id"])
        row["place"] = {"place-0": "north", "place-1": "south"}[row["place"]]
    write_metadata(archive, rows)
    by_place = {"kind": "column", "column": "place", "silos": 2}
    config = write_config(tmp_path / "run.toml", archive, partition=by_place, federated={"rounds": 1})
    assert silohash("train", config, "--out", "runs/first").code == 0
    assert silohash("federation", "init", "runs/first", "museums").code == 0
    kit = LEAVE.index("--kit")
    said = silohash(*LEAVE[1:kit])
    assert said.code == 0, said.err
    assert " ".join(RELOAD) in said.out
    assert "silohash retrain RUN --without south --out NEW" in said.out
    assert list(read_config(Path("museums/hub/hub.toml"), HubConfig).silos) == ["north"]
    said = silohash(*RETRAIN[1:])
    assert said.code == 0, said.err
    assert Run.open(Path("runs/second")).silo_names == ("north",)
    said = silohash(*ELSEWHERE[1:])
    assert "[not-supported]" in said.err, "the silos of this run are on this machine"
    said = silohash(*REMOVE[1:])
    assert said.code == 0, said.err
    assert all(name in said.out for name in ids)
    assert all(f"`{name}`" in PAGE for name in HOLDS)
