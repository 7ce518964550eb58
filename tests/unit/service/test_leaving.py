"""A silo leaves the hub's file and the NATS server's config; repeating it changes nothing, and strangers are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from silohash.base.errors import TooFewSilos, UnknownName
from silohash.base.files import read_json
from silohash.run.folder import Run
from silohash.service import leaving
from silohash.service.config import HubConfig, read_config
from silohash.service.leaving import leave_federation, remains
from silohash.service.nats_server import token
from silohash.service.new_federation import write_federation
from tests.runs import silohash
from tests.served import served_run

MUSEUM = "Musée d'Orsay"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Path]:
    """The hub's file, with a comment of its owner."""
    write_federation(Run.open(served_run(tmp_path)), tmp_path / "museums", silos=["silo-1", "silo-2", MUSEUM])
    file = tmp_path / "museums" / "hub" / "hub.toml"
    file.write_text("# We search on weekdays.\n" + file.read_text())
    return file


def members(hub: Path) -> list[str]:
    return list(read_config(hub, HubConfig).silos)


def test_a_silo_is_taken_out_of_both_files_and_nothing_else_changes(hub: Path) -> None:
    before, nats = read_config(hub, HubConfig), hub.parents[1] / "nats" / "nats.conf"
    key = before.silos[MUSEUM]
    assert key in nats.read_text()
    assert leave_federation(hub, MUSEUM)
    assert members(hub) == ["silo-1", "silo-2"]
    assert hub.read_text().startswith("# We search on weekdays.\n")
    after = read_config(hub, HubConfig)
    assert {*after.sealing.silos} == {*after.silos}, "what it seals is not accepted any more"
    assert after.model_copy(update={"silos": before.silos, "sealing": before.sealing}) == before
    assert key not in nats.read_text()
    assert token(MUSEUM) not in nats.read_text()
    assert before.silos["silo-1"] in nats.read_text()
    assert list(read_json(hub.with_name("left.json"), dict[str, str])) == [MUSEUM]


@pytest.mark.parametrize("form", ["inline", "dotted"])
def test_other_forms_of_the_table_are_changed_as_well(hub: Path, form: str) -> None:
    before, (head, rest) = read_config(hub, HubConfig), hub.read_text().split("[silos]\n")
    lines, tail = rest.split("\n\n[nats]")
    entries = lines.strip().splitlines()
    given = f"silos = {{{', '.join(entries)}}}" if form == "inline" else "\n".join(f"silos.{line}" for line in entries)
    hub.write_text(head.replace("federation =", f"{given}\nfederation =", 1) + "[nats]" + tail)
    assert read_config(hub, HubConfig) == before
    leave_federation(hub, "silo-2")
    after = read_config(hub, HubConfig)
    assert after.silos == {silo: key for silo, key in before.silos.items() if silo != "silo-2"}
    assert after.model_copy(update={"silos": before.silos, "sealing": before.sealing}) == before


def test_what_was_interrupted_is_completed_by_repeating_it(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nats, write, written = hub.parents[1] / "nats" / "nats.conf", leaving.write_text, list[Path]()

    def dies(path: Path, content: str) -> None:
        written.append(path)
        if path == nats:
            raise KeyboardInterrupt
        write(path, content)

    key = read_config(hub, HubConfig).silos["silo-2"]
    with monkeypatch.context() as patch:
        patch.setattr(leaving, "write_text", dies)
        with pytest.raises(KeyboardInterrupt):
            leave_federation(hub, "silo-2")
    assert written == [hub, nats]
    assert key in nats.read_text()
    content, left = hub.read_bytes(), hub.with_name("left.json").read_bytes()
    assert leave_federation(hub, "silo-2")
    assert key not in nats.read_text()
    assert (hub.read_bytes(), hub.with_name("left.json").read_bytes()) == (content, left)


def test_strangers_and_the_last_silo_are_refused(hub: Path) -> None:
    content = hub.read_bytes()
    with pytest.raises(UnknownName, match="silo-2"):
        leave_federation(hub, "silo-3")
    assert hub.read_bytes() == content
    leave_federation(hub, "silo-2")
    leave_federation(hub, MUSEUM)
    with pytest.raises(TooFewSilos):
        leave_federation(hub, "silo-1")
    assert members(hub) == ["silo-1"]


def test_without_the_folder_of_init_the_config_of_the_server_is_left_to_the_hub(hub: Path, tmp_path: Path) -> None:
    moved = hub.parent.rename(tmp_path / "elsewhere") / hub.name
    assert not leave_federation(moved, "silo-2")
    assert members(moved) == ["silo-1", MUSEUM]
    said = silohash("federation", "leave", moved, "silo-2")
    assert said.code == 0
    assert f"silohash hub {moved} --write-nats-config FILE" in said.out


def test_the_command_says_what_remains_and_locks_the_silo_out_of_training(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nvflare")
    from silohash.training.engines.flare import jobs

    locked: list[Any] = []
    monkeypatch.setattr(jobs, "set_admission", lambda kit, silo, *, admitted: locked.append((kit, silo, admitted)))
    said = silohash("federation", "leave", hub, "silo-2", "--kit", hub.parent)
    assert said.code == 0, said.err
    assert locked == [(hub.parent, "silo-2", False)]
    assert f"{hub.parents[1] / 'silo-2'} holds its files" in said.out
    assert f"{hub.parent / 'run'} was trained with it." in said.out
    assert not any("was trained with it" in line for line in remains(hub, MUSEUM))
    said = silohash("federation", "leave", hub, "nobody", "--kit", hub.parent)
    assert (said.code, said.err.splitlines()[-1].strip()) == (2, "[unknown-name]")
    assert len(locked) == 1
