"""The process that trains one silo with its own data: ``python -m silohash.training.sites.trainer SITE.toml``.

It reads tasks from standard input and writes results to standard output. It runs only what is installed on its machine, and
everything that it needs to continue after a restart is in its folder.
"""

import json
import sys
import tomllib
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from silohash.base.errors import Diverged, NotPermitted, OtherVersion, SilosDiffer, UserError
from silohash.base.files import digest_arrays, read_arrays, write_arrays, write_bytes
from silohash.base.forms import of_json
from silohash.base.types import Arrays, Modality, Notify, ReadArrays, Task
from silohash.data.partitions.base import Partition, SiloRows
from silohash.evaluate.calibration import Calibration
from silohash.evaluate.collapse import CodeUse
from silohash.features.base import Featurizers
from silohash.features.device import choose_device
from silohash.features.network import NETWORK_FILES
from silohash.methods.federated.base import ServerState
from silohash.methods.federated.screening import infinite_array
from silohash.methods.message import Message
from silohash.run.config.load import ResolvedConfig, load_resolved
from silohash.run.folder import Run, archive_of
from silohash.run.model.trained import CALIBRATION, CODES
from silohash.training.engines.port import SiloResult, SiloTask
from silohash.training.engines.processes import serve
from silohash.training.engines.wire import decode_task, encode_result
from silohash.training.experiment import environment, save_model
from silohash.training.prepared import Prepared
from silohash.training.privacy.budget import KEY
from silohash.training.privacy.training import stored_key
from silohash.training.sites.plan import (
    PLAN,
    Plan,
    check_digest,
    check_separable,
    check_version,
    described,
    read_message,
)
from silohash.training.sites.settings import SiteSettings, check_run_name, read_site_settings
from silohash.training.updates.encryption import SiloKey
from silohash.training.worker import Worker, set_threads

ANNOUNCED, NOISE = "announced.safetensors", "noise.safetensors"

FILES = (*NETWORK_FILES, "vocabulary", "vectors", "parses")
"""Options of features that hold the path of a file. A model can also be the name of a published one."""

SERVER = "the server"
SITES = "sites"
"""Kind of the partition of items that silos on other machines hold."""


@dataclass
class Site:
    """Carry out the tasks of one silo with its own data.

    Attributes:
        workers: The worker of each run that this process has trained, by the name of the run. Only the last is kept.
        secrets: The secret of that run's noise, among the arrays that the silo keeps; empty if it has none.
    """

    settings: SiteSettings
    workers: dict[str, Worker] = field(default_factory=dict)
    secrets: Arrays = field(default_factory=dict)

    def do(self, run: str, task: SiloTask) -> SiloResult:
        """Carry out a task of a run.

        Raises:
            UserError: If the run does not fit this silo, or a file is missing or damaged.
        """
        check_run_name(run)
        folder = self.settings.state / run
        if task.kind == "describe":
            for name in (ANNOUNCED, PLAN):
                (folder / name).unlink(missing_ok=True)
            announced = Announced.of(task, self.settings)
            archive = archive_of(announced.resolved.config.data)
            message = described(archive, announced.resolved, task.silo, announced.silos)
            self.workers.clear()
            write_bytes(folder / ANNOUNCED, task.broadcast.encode())
            return SiloResult(task.silo, message)
        if task.kind == "prepare":
            write_bytes(folder / PLAN, task.broadcast.encode())
            self._prepare(run, folder, task)
            return SiloResult(task.silo, Message(kind="ready", sender=self.settings.silo, round=0))
        if run not in self.workers:
            self._prepare(run, folder, task)
        kept = KeptArrays(folder / "kept")
        if task.kind == "train":
            kept.remove_all_but(task.kept, task.best)
        result = self.workers[run].do(replace(task, kept={**kept.load(task.kept), **self.secrets}))
        if task.kind == "deploy":
            store_own_run(
                folder, self.workers[run].prepared, Plan.decode(read_message(folder / PLAN)).featurizers,
                broadcast=self.workers[run].chain.received(task).broadcast, model=result.update,
                notify=lambda text: print(text, file=sys.stderr),
            )  # fmt: skip
            return SiloResult(task.silo, Message("deployed", self.settings.silo, task.broadcast.round))
        stored = kept.store(result.kept, round=task.broadcast.round, finishing=task.kind == "finish")
        return replace(result, kept=stored)

    def _prepare(self, run: str, folder: Path, task: SiloTask) -> None:
        first, plan = read_message(folder / ANNOUNCED), Plan.decode(read_message(folder / PLAN))
        announced = Announced.of(replace(task, broadcast=first), self.settings)
        prepared = plan.silo_inputs(archive_of(announced.resolved.config.data), announced.resolved, task.silo)
        if prepared.config.exchange.encryption is not None:
            prepared = replace(prepared, key=SiloKey.load(self.settings.key))
        self.workers.clear()
        self.secrets = {}
        privacy = prepared.config.exchange.privacy
        if privacy is not None and not privacy.repeatable:
            purpose = f"{prepared.config.digest()}/{digest_arrays(prepared.arrays)}"
            self.secrets = {KEY: stored_key(folder / NOISE, purpose)}
        set_threads(prepared.config.train)
        self.workers[run] = Worker(prepared, choose_device(prepared.config.train.device))


@dataclass(frozen=True)
class Announced:
    """A run as a server announces it to all silos, with the data and the machine of this silo in place of the server's."""

    resolved: ResolvedConfig
    silos: list[str]

    @classmethod
    def of(cls, task: SiloTask, settings: SiteSettings) -> Self:
        """Read a task of the kind ``describe``.

        Raises:
            UserError: If the config is not valid or has another digest here, asks for a download or a file that the silo
                does not permit, the server has another version of silohash, or the task is that of another silo.
        """
        check_version(task.broadcast.notes.get("version", ""), SERVER)
        silos = [str(name) for name in json.loads(task.broadcast.notes["silos"])]
        if silos[task.silo : task.silo + 1] != [settings.silo]:
            raise SilosDiffer(f'The server takes this silo, "{settings.silo}", for number {task.silo + 1} of {silos}.')
        tables = tomllib.loads(task.broadcast.notes["config"])
        if not settings.downloads and (place := _download(tables)):
            raise NotPermitted(f"This silo does not permit downloads ({place}). Set downloads = true in its file.")
        if not settings.files and (place := _file(tables)):
            raise NotPermitted(
                f"The run asks for a file of this silo ({place}), which the silo does not permit. Set files = true in its "
                "file if the run may read any file here, or remove the key from the config of the run."
            )
        tables["data"] = json.loads(settings.data.model_dump_json(exclude_defaults=True))
        machine = {"device": settings.device, "threads": settings.threads, "workers": 1}
        tables["train"] = {**tables.get("train", {}), **{k: v for k, v in machine.items() if v is not None}}
        resolved = load_resolved(tables)
        check_digest(task.broadcast.notes.get("digest", ""), resolved.config, SERVER)
        check_separable(resolved)
        return cls(resolved, silos)


def store_own_run(
    folder: Path, prepared: Prepared, featurizers: Featurizers, *, broadcast: Message, model: Message, notify: Notify
) -> None:
    """Store the run of a silo, with the model that it deploys. An earlier model is replaced.

    The silo's index is built from it, without a copy of the run of the server. A personal model is only there.

    ``broadcast`` is the server's message of the round after the best one.

    Raises:
        UserError: If another process writes to the folder, or the disk is full.
    """
    resolved, silo = prepared.resolved, model.sender
    personal = {silo: dict(model.params)} if resolved.federated.traits.personalized else {}
    server = ServerState(params={} if personal else dict(broadcast.params), extras=dict(broadcast.extras))
    trained = replace(
        prepared.trained(featurizers, server, personal, round=broadcast.round - 1),
        calibration=of_json(broadcast.notes.get(CALIBRATION, "{}"), dict[Task, Calibration]),
        codes=of_json(broadcast.notes.get(CODES, "{}"), dict[Modality, CodeUse]),
    )
    archive = archive_of(resolved.config.data)
    own = Partition(
        kind=SITES, params={}, seed=resolved.config.seed, silos=(SiloRows(silo, np.arange(len(archive))),),
        archive=digest_arrays({"ids": archive.ids}),
    )  # fmt: skip
    run = Run(folder, resolved)
    with run.writing():
        run.describe(own, environment(resolved.config), archive)
        save_model(run, trained, prepared, notify)


def _download(tables: Mapping[str, Any], place: str = "") -> str:
    """Return which key of a config permits a download; empty if none does."""
    for name, value in tables.items():
        if name == "download" and value:
            return f"{place}{name}"
        if isinstance(value, Mapping) and (found := _download(value, f"{place}{name}.")):
            return found
    return ""


def _file(tables: Mapping[str, Any]) -> str:
    """Return which key of a config names a file for features, whose content could be sent to the server; empty if none."""
    for modality, table in tables.get("features", {}).items():
        for name in FILES:
            value = table.get(name)
            if isinstance(value, str) and value and (name != "model" or Path(value).expanduser().exists()):
                return f"features.{modality}.{name}"
    return ""


REFERENCE = "stored"
"""Name of the array that refers to a file: ``(2,)`` int64, the round and the number of the task within the round."""


@dataclass(frozen=True)
class KeptArrays:
    """The arrays that a silo keeps, one file per task that keeps any."""

    folder: Path

    def load(self, reference: ReadArrays) -> Arrays:
        """Return the arrays that a reference stands for. An empty reference stands for no arrays.

        Raises:
            UserError: If the file is missing or damaged, or the reference is not one of `store`.
        """
        if not reference:
            return {}
        return read_arrays(self._path(*self._place(reference)))[0]

    def store(self, arrays: ReadArrays, *, round: int, finishing: bool) -> Arrays:  # noqa: A002  the field's word
        """Write arrays, and return the reference to them. Nobody but the owner of the file may read it.

        Without arrays, nothing is written, and the reference is empty. If ``finishing``, they replace those of
        the same round, in which the silo waited for merged statistics.

        Raises:
            UserError: If they are not finite, because no later round could use them, or the disk is full.
        """
        if not arrays:
            return {}
        if (reason := infinite_array("its stored ", arrays)) is not None:
            raise Diverged(f"{reason[0].upper()}{reason[1:]}. Lower train.learning_rate, or set train.clip_norm = 1.0.")
        place = (round, int(finishing))
        self.folder.mkdir(parents=True, exist_ok=True)
        write_arrays(self._path(*place), {name: arrays[name] for name in arrays}, private=True)
        return {REFERENCE: np.array(place, np.int64)}

    def remove_all_but(self, *references: ReadArrays) -> None:
        """Remove all files but those that references stand for.

        When a round begins, the server has saved the state that it begins with. A run can only continue from that state
        and from the best one, so no other file is needed.
        """
        spared = {self._path(*self._place(reference)).name for reference in references if reference}
        for path in self.folder.glob("*.safetensors"):
            if path.name not in spared:
                path.unlink(missing_ok=True)

    def _place(self, reference: ReadArrays) -> tuple[int, int]:
        place = reference.get(REFERENCE)
        if place is None or place.shape != (2,) or place.dtype != np.int64 or (place < 0).any():
            raise OtherVersion(
                "The server sent a reference to stored arrays that this silo did not make. Install the same version of "
                "silohash everywhere, and train a new run."
            )
        return int(place[0]), int(place[1])

    def _path(self, round: int, task: int) -> Path:  # noqa: A002  the field's word
        return self.folder / f"{round:08d}-{task}.safetensors"


def _prepare() -> Callable[[bytes], bytes]:
    """Read the file of the silo, and return the function that carries out a task."""
    site = Site(read_site_settings(Path(sys.argv[1])))

    def answer(request: bytes) -> bytes:
        """Return the result of a task, or a message that describes why it failed."""
        try:
            message = Message.decode(request)
            return encode_result(site.do(message.notes.get("run", ""), decode_task(message)))
        except Exception as error:
            notes = {"failure": str(error)}
            if not isinstance(error, UserError):
                # The traceback can name files and items of the silo. It stays in the silo's log.
                traceback.print_exc()
                notes = {"failure": "The silo's trainer failed. Its log has the reason."}
        return Message(kind="failure", sender=site.settings.silo, round=-1, notes=notes).encode()

    return answer


if __name__ == "__main__":
    serve(_prepare)
