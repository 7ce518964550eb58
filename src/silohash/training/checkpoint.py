"""Save and load checkpoints, from which an interrupted run continues with the same results."""

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self

from silohash.base import files
from silohash.base.errors import DamagedFile, RunChanged
from silohash.base.forms import check_version, reading
from silohash.base.types import Arrays
from silohash.methods.federated.base import ServerState
from silohash.training.privacy.budget import KEY

FORMAT_VERSION = 1
SECTIONS = ("params", "extras", "private")


@dataclass(frozen=True)
class RunState:
    """The state of a run between rounds.

    It does not include random generators, because every draw depends only on seed, purpose, silo and round.

    Attributes:
        round: Number of completed rounds.
        silos: The state that each silo keeps, by silo number.
        best_score: The highest validation score so far, or that of a final state (`ServerState.final`); None
            without validation.
        best_round: The round with that score; -1 without validation.
        best_server: The server's state after that round.
        best_silos: The silos' state after that round.
    """

    round: int
    server: ServerState
    silos: Mapping[int, Arrays] = field(default_factory=dict)
    best_score: float | None = None
    best_round: int = -1
    best_server: ServerState | None = None
    best_silos: Mapping[int, Arrays] = field(default_factory=dict)

    def chosen(self) -> tuple[ServerState, Mapping[int, Arrays], int]:
        """Return the server's state, the silos' state and the number of the best round.

        Without validation this is the last round.
        """
        if self.best_server is None:
            return self.server, self.silos, self.round - 1
        return self.best_server, self.best_silos, self.best_round

    def with_score(self, score: float | None, *, final: bool = False) -> Self:
        """Return the state with the last round as the best one, if its score is the highest so far or if it is final.

        A final round is deployed even if an earlier one has a higher score. Without validation, there is no score.
        """
        if score is None or not (final or self.best_score is None or score > self.best_score):
            return self
        return replace(
            self, best_score=score, best_round=self.round - 1, best_server=self.server, best_silos=dict(self.silos)
        )


@dataclass(frozen=True)
class _StoredState:
    """The form of ``state.json``."""

    format_version: int
    round: int
    best_score: float | None
    best_round: int
    config_digest: str
    digests: dict[str, str]

    def __post_init__(self) -> None:
        for names in (("server", "silos"), ("best_server", "best_silos")):
            if (names[0] == "server" or self.has_best) and not self.digests.keys() >= set(names):
                raise ValueError(f"the digest of {' or '.join(names)} is missing")

    @property
    def has_best(self) -> bool:
        """Whether the checkpoint holds the best round beside the last."""
        return not self.digests.keys().isdisjoint({"best_server", "best_silos"})


def save_checkpoint(folder: Path, state: RunState, config_digest: str) -> None:
    """Replace the checkpoint. If writing is interrupted, the previous checkpoint remains.

    Files of the best round are linked from the previous checkpoint if that round has not changed.
    """
    path = folder / "state.json"
    previous = files.read_json(path, _StoredState, remedy=files.TRAIN_AGAIN) if path.exists() else None
    with files.folder_beside(folder) as new:
        digests = {
            "server": _write(new / "server.safetensors", _sections(state.server)),
            "silos": _write(new / "silos.safetensors", state.silos),
        }
        if state.best_server is not None:
            if previous is not None and previous.best_round == state.best_round and previous.has_best:
                for name in ("best_server", "best_silos"):
                    source, digests[name] = folder / f"{name}.safetensors", previous.digests[name]
                    try:
                        (new / source.name).hardlink_to(source)
                    except OSError:
                        shutil.copyfile(source, new / source.name)
            else:
                digests["best_server"] = _write(new / "best_server.safetensors", _sections(state.best_server))
                digests["best_silos"] = _write(new / "best_silos.safetensors", state.best_silos)
        stored = _StoredState(FORMAT_VERSION, state.round, state.best_score, state.best_round, config_digest, digests)
        files.write_json(new / "state.json", asdict(stored))


def load_checkpoint(folder: Path, config_digest: str) -> RunState:
    """Read a checkpoint.

    Raises:
        UserError: If it is missing, damaged, or was written for another config or has another version of the format.
    """
    about = files.read_json(folder / "state.json", _StoredState, remedy=files.TRAIN_AGAIN)
    check_version(folder, about.format_version, FORMAT_VERSION, "Resume the run with the silohash that wrote it.")
    if about.config_digest != config_digest:
        raise RunChanged(
            f"{folder} belongs to another config (digest {about.config_digest}, now {config_digest}). "
            "Put config.toml back as it was, or train into a new folder."
        )
    digests, best = about.digests, about.has_best
    return RunState(
        round=about.round,
        server=_read_server(folder / "server.safetensors", digests["server"]),
        silos=_read_silos(folder / "silos.safetensors", digests["silos"]),
        best_score=about.best_score,
        best_round=about.best_round,
        best_server=_read_server(folder / "best_server.safetensors", digests["best_server"]) if best else None,
        best_silos=_read_silos(folder / "best_silos.safetensors", digests["best_silos"]) if best else {},
    )


def has_checkpoint(folder: Path) -> bool:
    """Return whether a folder holds a checkpoint. One whose writing was interrupted is restored by `Run.writing`."""
    return (folder / "state.json").exists()


def _sections(server: ServerState) -> dict[str, Arrays]:
    return {section: getattr(server, section) for section in SECTIONS}


def _write(path: Path, parts: Mapping[str, Arrays] | Mapping[int, Arrays]) -> str:
    """Write parts by name to a file, and return its digest. Only its owner can read a secret of differential privacy."""
    arrays = {f"{part}/{name}": array for part, held in parts.items() for name, array in held.items()}
    files.write_arrays(path, arrays, private=any(name.endswith(f"/{KEY}") for name in arrays))
    return files.digest_arrays(arrays)


def _read(path: Path, digest: str) -> dict[str, Arrays]:
    """Return the parts that `_write` wrote. Those without arrays are left out."""
    arrays, _ = files.read_arrays(path)
    if files.digest_arrays(arrays) != digest:
        raise DamagedFile(f"{path} was damaged or replaced, because its digest is another one. Train the run again.")
    parts: dict[str, Arrays] = {}
    for key, array in arrays.items():
        part, _, name = key.partition("/")
        parts.setdefault(part, {})[name] = array
    return parts


def _read_server(path: Path, digest: str) -> ServerState:
    with reading(path, remedy=files.TRAIN_AGAIN):
        return ServerState(**{"params": {}, **_read(path, digest)})


def _read_silos(path: Path, digest: str) -> dict[int, Arrays]:
    with reading(path, remedy=files.TRAIN_AGAIN):
        return {int(silo): arrays for silo, arrays in _read(path, digest).items()}
