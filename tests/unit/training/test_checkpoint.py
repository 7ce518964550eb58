"""Checkpoints: whole or as before, checked when they are read."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from silohash.base import files
from silohash.base.errors import DamagedFile, DiskFull, MissingFile, OtherVersion, RunChanged
from silohash.base.locks import locked_run
from silohash.methods.federated.base import ServerState
from silohash.training import checkpoint
from silohash.training.checkpoint import RunState, has_checkpoint, load_checkpoint, save_checkpoint
from silohash.training.privacy.budget import KEY
from tests.runs import same_arrays

DIGEST = "abc"


def state(number: int = 3, *, best: int | None = 1) -> RunState:
    def server(value: float) -> ServerState:
        return ServerState(
            params={"image.hash.weight": np.full((2, 3), value, np.float32), "steps": np.asarray(7)},
            extras={"memory": np.full(4, value)},
            private={"bank/a": np.arange(3, dtype=np.int8)},
        )

    silos = {0: {"model/image.hash.weight": np.ones((2, 3), np.float32)}, 11: {"own": np.asarray(2.5)}}
    if best is None:
        return RunState(number, server(number), silos)
    return RunState(number, server(number), silos, 0.1 + best, best, server(best), {0: {"own": np.asarray(best)}})


def same(first: RunState, second: RunState) -> bool:
    plain = [(s.round, s.best_score, s.best_round, sorted(s.silos), sorted(s.best_silos)) for s in (first, second)]
    servers = [(first.server, second.server)]
    if first.best_server is not None and second.best_server is not None:
        servers.append((first.best_server, second.best_server))
    elif first.best_server is not second.best_server:
        return False
    pairs = [(getattr(a, name), getattr(b, name)) for a, b in servers for name in checkpoint.SECTIONS]
    for ours, theirs in ((first.silos, second.silos), (first.best_silos, second.best_silos)):
        pairs += [(ours[silo], theirs[silo]) for silo in ours]
    return plain[0] == plain[1] and all(same_arrays(a, b) for a, b in pairs)


@pytest.mark.parametrize("best", [None, 0, 2])
def test_round_trip(tmp_path: Path, best: int | None) -> None:
    folder = tmp_path / "checkpoint"
    assert not has_checkpoint(folder)
    save_checkpoint(folder, state(best=best), DIGEST)
    assert has_checkpoint(folder)
    assert same(load_checkpoint(folder, DIGEST), state(best=best))
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_chosen_is_the_best_round_or_the_last() -> None:
    server, silos, number = state(3, best=1).chosen()
    assert (server.params["image.hash.weight"][0, 0], silos[0]["own"], number) == (1, 1, 1)
    server, silos, number = state(3, best=None).chosen()
    assert (server.params["image.hash.weight"][0, 0], number) == (3, 2)
    assert set(silos) == {0, 11}


def test_best_round_is_written_once_and_still_there_when_links_are_not_to_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoint"
    save_checkpoint(folder, state(2, best=1), DIGEST)
    inode = (folder / "best_server.safetensors").stat().st_ino
    save_checkpoint(folder, state(3, best=1), DIGEST)
    assert (folder / "best_server.safetensors").stat().st_ino == inode
    assert same(load_checkpoint(folder, DIGEST), state(3, best=1))

    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    save_checkpoint(folder, state(4, best=1), DIGEST)
    assert same(load_checkpoint(folder, DIGEST), state(4, best=1))
    save_checkpoint(folder, state(5, best=4), DIGEST)
    assert same(load_checkpoint(folder, DIGEST), state(5, best=4))


def test_other_config(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "checkpoint", state(), DIGEST)
    with pytest.raises(RunChanged, match=r"abc.*xyz"):
        load_checkpoint(tmp_path / "checkpoint", "xyz")


@pytest.mark.parametrize("version", [0, 2])
def test_another_version(tmp_path: Path, version: int) -> None:
    save_checkpoint(tmp_path / "checkpoint", state(), DIGEST)
    about = tmp_path / "checkpoint" / "state.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "format_version": version}))
    with pytest.raises(OtherVersion, match=f"{version}.*1"):
        load_checkpoint(tmp_path / "checkpoint", DIGEST)


@pytest.mark.parametrize("name", ["server", "silos", "best_server", "best_silos"])
def test_truncated_missing_and_replaced_files(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "checkpoint"
    save_checkpoint(folder, state(), DIGEST)
    path = folder / f"{name}.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - 5])
    with pytest.raises(DamagedFile, match=rf"{name}\.safetensors is damaged"):
        load_checkpoint(folder, DIGEST)
    path.unlink()
    with pytest.raises(MissingFile, match=rf"{name}\.safetensors"):
        load_checkpoint(folder, DIGEST)
    altered = bytearray(content)
    altered[-1] ^= 1
    path.write_bytes(bytes(altered))
    with pytest.raises(DamagedFile):
        load_checkpoint(folder, DIGEST)


def test_truncated_state(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "checkpoint", state(), DIGEST)
    about = tmp_path / "checkpoint" / "state.json"
    about.write_text(about.read_text()[:40])
    with pytest.raises(DamagedFile, match=r"state\.json is damaged"):
        load_checkpoint(tmp_path / "checkpoint", DIGEST)
    with pytest.raises(MissingFile):
        load_checkpoint(tmp_path / "elsewhere", DIGEST)


@pytest.mark.parametrize("at", ["server.safetensors", "silos.safetensors", "state.json"])
def test_full_disk_leaves_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    folder = tmp_path / "checkpoint"
    save_checkpoint(folder, state(2), DIGEST)
    sync = os.fsync

    def full(descriptor: int) -> None:
        if at in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(DiskFull):
        save_checkpoint(folder, state(3), DIGEST)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    assert same(load_checkpoint(folder, DIGEST), state(2))


def test_kill_between_the_two_renames_loses_nothing(tmp_path: Path) -> None:
    """A kill after the old checkpoint was moved aside, before the new one took its place."""
    folder = tmp_path / "checkpoint"
    save_checkpoint(folder, state(2), DIGEST)
    save_checkpoint(tmp_path / "new", state(3), DIGEST)
    beside = f".checkpoint.{2**31 - 1}.88"  # of a process that does not exist
    folder.rename(tmp_path / f"{beside}.old")
    (tmp_path / "new").rename(tmp_path / f"{beside}.part")
    assert not has_checkpoint(folder), "whoever only looks leaves the files of a process that may be writing alone"
    with locked_run(tmp_path):
        assert has_checkpoint(folder)
        assert same(load_checkpoint(folder, DIGEST), state(3))


def test_kill_before_the_new_one_was_whole_leaves_the_one_before(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    save_checkpoint(folder, state(2), DIGEST)
    (tmp_path / ".checkpoint.77.88.part").mkdir()
    (tmp_path / ".checkpoint.77.88.part" / "server.safetensors").write_bytes(b"half")
    assert same(load_checkpoint(folder, DIGEST), state(2))
    save_checkpoint(folder, state(3), DIGEST)
    assert same(load_checkpoint(folder, DIGEST), state(3))


def test_first_checkpoint_cut_off_is_none(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint.77.88.part").mkdir()
    assert not has_checkpoint(tmp_path / "checkpoint")


def test_what_is_saved_is_as_it_was_then(tmp_path: Path) -> None:
    before = state(2)
    save_checkpoint(tmp_path / "checkpoint", before, DIGEST)
    before.server.params["image.hash.weight"][:] = 99
    assert same(load_checkpoint(tmp_path / "checkpoint", DIGEST), state(2))
    assert replace(before, round=9).round == 9


def test_a_new_state_has_no_best_round() -> None:
    fresh = RunState(0, ServerState(params={}))
    assert (fresh.best_score, fresh.best_round, fresh.best_server) == (None, -1, None)
    assert fresh.chosen()[2] == -1


@pytest.mark.parametrize("name", ["server", "silos", "best_server", "best_silos"])
def test_a_digest_that_is_missing_is_damage(tmp_path: Path, name: str) -> None:
    save_checkpoint(tmp_path / "checkpoint", state(), DIGEST)
    path = tmp_path / "checkpoint" / "state.json"
    about = json.loads(path.read_text())
    del about["digests"][name]
    path.write_text(json.dumps(about))
    with pytest.raises(DamagedFile, match=r"state\.json is damaged"):
        load_checkpoint(tmp_path / "checkpoint", DIGEST)


def test_the_first_best_round_is_written_although_earlier_checkpoints_have_none(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    save_checkpoint(folder, replace(state(1, best=None), best_round=2), DIGEST)
    save_checkpoint(folder, state(3, best=2), DIGEST)
    assert same(load_checkpoint(folder, DIGEST), state(3, best=2))


@pytest.mark.parametrize(
    ("score", "earlier", "final", "best"),
    [
        (None, None, False, -1), (None, None, True, -1), (0.5, None, False, 2), (0.5, 0.4, False, 2),
        (0.5, 0.5, False, 1), (0.5, 0.6, False, 1), (0.5, 0.6, True, 2), (0.0, 0.6, True, 2),
    ],
)  # fmt: skip
def test_the_best_round_has_the_highest_score_or_is_final(
    score: float | None, earlier: float | None, final: bool, best: int
) -> None:
    old, new = ServerState(params={"x": np.zeros(1)}), ServerState(params={"x": np.ones(1)})
    state = RunState(
        round=3, server=new, silos={0: {"y": np.ones(1)}}, best_score=earlier,
        best_round=-1 if earlier is None else 1, best_server=None if earlier is None else old,
    )  # fmt: skip
    after = state.with_score(score, final=final)
    assert after.best_round == best
    if best == 2:
        assert after.best_server is new
        assert after.best_silos == state.silos
        assert after.best_score == score
    else:
        assert after == state


def test_secrets_of_silos_and_server_are_read_by_their_owner_only(tmp_path: Path) -> None:
    secret = {KEY: np.zeros(32, np.uint8)}
    plain = state()
    private = replace(plain, server=replace(plain.server, private=secret), silos={0: secret})
    modes = {}
    for name, given in (("plain", plain), ("private", private)):
        save_checkpoint(tmp_path / name, given, DIGEST)
        files_of = (tmp_path / name / "server.safetensors", tmp_path / name / "silos.safetensors")
        modes[name] = [path.stat().st_mode & 0o077 for path in files_of]
    assert modes["private"] == [0, 0]
    assert all(modes["plain"])
