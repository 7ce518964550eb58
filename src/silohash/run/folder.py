"""The folder of a run: the paths of its files, and the objects read from them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from silohash.base.errors import AlreadyExists, DataChanged, ForeignFiles, MissingFile, NotARun, NotSupported
from silohash.base.files import explaining_disk_errors, read_toml, write_json, write_text
from silohash.base.locks import LOCK, locked_run
from silohash.base.names import listed
from silohash.run.model.saved import SavedModel
from silohash.run.model.trained import MODEL_RECORD

if TYPE_CHECKING:  # a search opens a run, and it must not wait for what only other commands need
    from silohash.data.archive import Archive
    from silohash.data.partitions.base import Partition
    from silohash.run.config.load import ResolvedConfig
    from silohash.run.config.sections import DataConfig, RunConfig
    from silohash.run.events import RoundRecord

PARTITION = "partition.json"
ENVIRONMENT = "environment.json"
FINGERPRINT = "archive.safetensors"
BEFORE_A_RUN = frozenset({"policies", "log.txt"})
"""Names that a folder may hold before the run is created: the silos' policies, and the log of a study."""


@dataclass(frozen=True)
class _Inside:
    """A file or folder of a run, as an attribute of the run."""

    name: str

    def __get__(self, run: Run, owner: type[Run]) -> Path:
        return run.folder / self.name


@dataclass(frozen=True)
class Run:
    """One run. The config, archive, partition and model are read once, when they are first needed.

    Attributes:
        folder: The folder with ``environment.json``, ``partition.json`` and the files below, each from the moment that it
            is written.
        given: The resolved config; None to read it from the folder.
    """

    folder: Path
    given: ResolvedConfig | None = field(default=None, compare=False, repr=False)

    config_path = _Inside("config.toml")
    """The config with all values, including defaults."""
    fingerprint_path = _Inside(FINGERPRINT)
    """The digests of the archive that the run was trained on. The copies that members of a federation get lack them."""
    checkpoint = _Inside("checkpoint")
    """The folder with the state from which an interrupted run resumes."""
    model_folder = _Inside("model")
    """The folder of the trained model."""
    index_folder = _Inside("index")
    """The folder of the indexes, which holds one folder per silo."""
    onnx_folder = _Inside("onnx")
    """The folder of the towers as ONNX files."""
    rounds_path = _Inside("rounds.jsonl")
    """The records of the rounds, one line per round."""
    results_path = _Inside("results.csv")
    """The measured figures, one row per evaluation, task and measure."""
    per_query_path = _Inside("per_query.safetensors")
    """The measures per query."""
    unseen_results_path = _Inside("results-unseen.csv")
    """The same figures over the items that no silo trained on."""
    unseen_per_query_path = _Inside("per_query-unseen.safetensors")
    """The measures per query over the items that no silo trained on."""
    costs_path = _Inside("costs.csv")
    """The figures beside those of real-valued vectors and of ITQ, if they were compared."""
    curves_path = _Inside("curves.json")
    """Precision and recall by Hamming radius, one curve per task."""
    memory_path = _Inside("memory.json")
    """The peak memory of the process that trained and measured the run, if a study ran it on Linux."""
    examples_path = _Inside("examples.json")
    """Example searches, with thumbnails of their items."""
    report_path = _Inside("report.html")
    """The report, an HTML page."""
    card_path = _Inside("model/card.md")
    """The model card."""

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Return the run in a folder, after `check`."""
        run = cls(folder)
        run.check()
        return run

    def describe(self, partition: Partition, environment: dict[str, object], archive: Archive) -> None:
        """Write the files that are known before the first round. Check the folder first (`check_free`)."""
        from silohash.run.fingerprint import write_fingerprint

        write_json(self.folder / PARTITION, partition.to_json())
        write_json(self.folder / ENVIRONMENT, environment)
        write_fingerprint(self.fingerprint_path, archive)
        write_text(self.config_path, self.config.to_toml())

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.folder.resolve().name

    def check(self) -> None:
        """Check that the folder holds a run.

        Raises:
            UserError: If it does not hold a run.
        """
        if self.config_path.exists():
            return
        inside = sorted(str(path.parent) for path in self.folder.glob("*/config.toml"))
        if inside:
            raise NotARun(
                f'"{self.folder}" does not hold a run, but folders in it do. Choose one of them: {listed(inside)}'
            )
        raise NotARun(
            f'"{self.folder}" does not hold a run: it has no config.toml. '
            f"Train one: silohash train CONFIG --out {self.folder}"
        )

    def check_free(self) -> None:
        """Check that a run can be created in the folder without overwriting anything.

        Raises:
            UserError: If the folder already holds a run, another process writes to it, or it holds files that do not
                belong to a run.
        """
        if self.config_path.exists() and ((self.folder / PARTITION).exists() or self.model_folder.exists()):
            if (self.folder / LOCK).exists():
                with self.writing():  # names the process if the run is being trained
                    pass
            raise AlreadyExists(
                f'"{self.folder}" already holds a run. Continue it with: silohash resume {self.folder}; '
                "or choose another folder with --out."
            )
        with explaining_disk_errors(self.folder):
            names = sorted(entry.name for entry in self.folder.iterdir()) if self.folder.exists() else []
        # With a lock, files without a config come from a run whose creation was interrupted.
        known = BEFORE_A_RUN | ({PARTITION, ENVIRONMENT, FINGERPRINT} if LOCK in names else set())
        foreign = [name for name in names if name not in known and not name.startswith(".")]
        if foreign:
            more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
            raise ForeignFiles(
                f'"{self.folder}" already holds files that do not belong to a run: {foreign[0]}{more}. '
                "Choose a new or an empty folder with --out."
            )

    def writing(self, wait_seconds: float = 0.0) -> AbstractContextManager[None]:
        """Hold the lock of the run while the block runs. See `locked_run`."""
        return locked_run(self.folder, wait_seconds)

    @cached_property
    def config(self) -> RunConfig:
        """The config of the run."""
        if self.given is not None:
            return self.given.config
        from silohash.run.config.load import read_config

        self.check()
        return read_config(self.config_path)

    @property
    def data_path(self) -> Path | None:
        """The folder of the archive; None for a named archive. The rest of the config is not checked."""
        if self.given is not None:
            return self.given.config.data.path
        data = read_toml(self.config_path, remedy="Correct the file.").get("data")
        path = data.get("path") if isinstance(data, dict) else None
        return (self.folder / path).resolve() if isinstance(path, str) and path else None

    @cached_property
    def resolved(self) -> ResolvedConfig:
        """The config with its methods."""
        from silohash.run.config.load import resolve

        return self.given or resolve(self.config, where=str(self.config_path))

    @cached_property
    def archive(self) -> Archive:
        """The archive that the run was trained on.

        Raises:
            UserError: If the archive is no longer there, or has changed since the run was trained.
        """
        from silohash.run.fingerprint import changes, read_fingerprint

        path = self.config.data.path
        if path is not None and not path.exists():
            raise MissingFile(
                f"The archive of the run, {path}, does not exist. If it was moved, set path in the table [data] of "
                f"{self.config_path}."
            )
        archive = archive_of(self.config.data)
        if self.fingerprint_path.exists():
            changed = changes(read_fingerprint(self.fingerprint_path), archive)
            if changed:
                place = archive.folder or archive.card.name
                raise DataChanged(
                    f'The archive "{archive.card.name}" has changed since {self.folder} was trained: {"; ".join(changed)}. '
                    "Restore it, train a new run, or search it as it is now with: silohash index "
                    f"{self.folder} {place} --name NEW"
                )
        return archive

    @cached_property
    def stored_partition(self) -> Partition:
        """How the archive was divided among silos, without a look at the archive.

        Raises:
            UserError: If the folder does not hold a run, the silos are on other machines, or the stored partition is
                missing or damaged.
        """
        from silohash.data.partitions.base import read_partition

        self.check()
        if self.trained_elsewhere:
            raise NotSupported(
                f'The silos of "{self.folder}" hold their items on their own machines. Give the folder of a silo\'s items: '
                f"silohash index {self.folder} ARCHIVE --name SILO"
            )
        return read_partition(self.folder / PARTITION)

    @property
    def trained_elsewhere(self) -> bool:
        """Whether the run was trained with silos on other machines, so that its folder holds the model only."""
        kept_here = (self.folder / PARTITION).exists() or self.fingerprint_path.exists()
        return self.model_folder.exists() and not kept_here

    @property
    def silo_names(self) -> tuple[str, ...]:
        """The names of the silos whose items the run holds; none if they are on other machines."""
        return () if self.trained_elsewhere else tuple(silo.name for silo in self.stored_partition.silos)

    @cached_property
    def partition(self) -> Partition:
        """How the archive is divided among silos.

        Raises:
            UserError: If the archive has changed since the partition was made.
        """
        partition = self.stored_partition
        partition.check(self.archive)
        return partition

    @cached_property
    def model(self) -> SavedModel:
        """The trained model."""
        self.check()
        return SavedModel.open(self.model_folder, lambda: self.resolved)

    def rounds(self) -> list[RoundRecord]:
        """Return the records of the completed rounds."""
        from silohash.run.events import read_rounds

        return read_rounds(self.rounds_path)

    @property
    def is_trained(self) -> bool:
        """Whether the run has done all of its rounds and has its model."""
        return len(self.rounds()) >= self.config.federated.rounds and (self.model_folder / MODEL_RECORD).exists()


def archive_of(data: DataConfig) -> Archive:
    """Open the configured archive, or only one modality of it if the config says so.

    Raises:
        UserError: If the archive cannot be read, or does not have the modality.
    """
    from silohash.data.catalogue import link_options, open_archive

    protocol = {} if data.protocol is None else {"protocol": data.protocol}
    options = {**data.options, **protocol, **link_options(follow_links=data.follow_links)}
    archive = open_archive(data.name, data.path, options=options)
    return archive if data.modality is None else archive.of_modality(data.modality)
