"""Checkpoints: everything that an interrupted run needs to continue as if it had never stopped."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from silohash.federated.base import ServerState
from silohash.files import digest_arrays, folder_beside, read_arrays, read_json, write_arrays, write_json
from silohash.types import Arrays, UserError

FORMAT_VERSION = 1
SECTIONS = ("params", "extras", "private")


@dataclass(frozen=True)
class RunState:
    """The state of a run between rounds. Random draws need none: they follow from (seed, purpose, silo, round).

    Attributes:
        round: rounds that are done.
        server: the server's state.
        silos: what each silo keeps, by its number.
        best_score: the highest validation score so far, or None without validation.
        best_round: the round it came from.
        best_server: the server's state after that round.
        best_silos: what the silos kept then.
    """

    round: int
    server: ServerState
    silos: Mapping[int, Arrays] = field(default_factory=dict)
    best_score: float | None = None
    best_round: int = -1
    best_server: ServerState | None = None
    best_silos: Mapping[int, Arrays] = field(default_factory=dict)

    def chosen(self) -> tuple[ServerState, Mapping[int, Arrays], int]:
        """Return server, silos and number of the round that validation picked; of the last without validation."""
        if self.best_server is None:
            return self.server, self.silos, self.round - 1
        return self.best_server, self.best_silos, self.best_round


def save_checkpoint(folder: Path, state: RunState, config_digest: str) -> None:
    """Write the state in place of the one before; an interrupted write leaves the one before."""
    before = read_json(folder / "state.json") if (folder / "state.json").exists() else {}
    with folder_beside(folder) as new:
        digests = {
            "server": _write_server(new / "server.safetensors", state.server),
            "silos": _write_silos(new / "silos.safetensors", state.silos),
        }
        if state.best_server is not None:
            if before.get("best_round") == state.best_round and "best_server" in before.get("digests", {}):
                for name in ("best_server", "best_silos"):
                    _link(folder / f"{name}.safetensors", new / f"{name}.safetensors")
                    digests[name] = before["digests"][name]
            else:
                digests["best_server"] = _write_server(new / "best_server.safetensors", state.best_server)
                digests["best_silos"] = _write_silos(new / "best_silos.safetensors", state.best_silos)
        about = {
            "format_version": FORMAT_VERSION,
            "round": state.round,
            "best_score": state.best_score,
            "best_round": state.best_round,
            "config_digest": config_digest,
            "digests": digests,
        }
        write_json(new / "state.json", about)


def load_checkpoint(folder: Path, config_digest: str) -> RunState:
    """Read a checkpoint.

    Raises:
        UserError: if it is missing, damaged, of another config or of a newer silohash.
    """
    _recover(folder)
    about = read_json(folder / "state.json")
    if about.get("format_version", 0) > FORMAT_VERSION:
        raise UserError(f"{folder} was written by a newer silohash. Upgrade silohash to resume this run.")
    if about["config_digest"] != config_digest:
        raise UserError(
            f"{folder} belongs to another config (digest {about['config_digest']}, now {config_digest}). "
            "Put config.toml back as it was, or train into a new folder."
        )
    digests = about["digests"]
    best = "best_server" in digests
    return RunState(
        round=about["round"],
        server=_read_server(folder / "server.safetensors", digests["server"]),
        silos=_read_silos(folder / "silos.safetensors", digests["silos"]),
        best_score=about["best_score"],
        best_round=about["best_round"],
        best_server=_read_server(folder / "best_server.safetensors", digests["best_server"]) if best else None,
        best_silos=_read_silos(folder / "best_silos.safetensors", digests["best_silos"]) if best else {},
    )


def has_checkpoint(folder: Path) -> bool:
    """Return whether there is something to resume from."""
    _recover(folder)
    return (folder / "state.json").exists()


def _recover(folder: Path) -> None:
    """Take the whole new checkpoint beside, if a kill fell between removing the old one and renaming."""
    if folder.exists():
        return
    for beside in sorted(folder.parent.glob(f".{folder.name}.*.part")):
        if (beside / "state.json").exists():
            shutil.move(str(beside), str(folder))
            return


def _link(before: Path, path: Path) -> None:
    """Puts a file of the checkpoint before into the new one; a copy where the disk knows no links."""
    try:
        path.hardlink_to(before)
    except OSError:
        shutil.copyfile(before, path)


def _write_server(path: Path, server: ServerState) -> str:
    arrays = {f"{section}/{name}": array for section in SECTIONS for name, array in getattr(server, section).items()}
    return _write(path, arrays)


def _write_silos(path: Path, silos: Mapping[int, Arrays]) -> str:
    return _write(path, {f"{silo}/{name}": array for silo, kept in silos.items() for name, array in kept.items()})


def _write(path: Path, arrays: Arrays) -> str:
    write_arrays(path, arrays)
    return digest_arrays(arrays)


def _read(path: Path, digest: str) -> Arrays:
    arrays, _ = read_arrays(path)
    if digest_arrays(arrays) != digest:
        raise UserError(f"{path} is not the file that the checkpoint names: it was damaged or replaced. Train again.")
    return arrays


def _read_server(path: Path, digest: str) -> ServerState:
    sections: dict[str, Arrays] = {section: {} for section in SECTIONS}
    for name, array in _read(path, digest).items():
        section, _, rest = name.partition("/")
        sections[section][rest] = array
    return ServerState(**sections)


def _read_silos(path: Path, digest: str) -> dict[int, Arrays]:
    silos: dict[int, Arrays] = {}
    for name, array in _read(path, digest).items():
        silo, _, rest = name.partition("/")
        silos.setdefault(int(silo), {})[rest] = array
    return silos
