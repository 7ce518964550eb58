"""The folder of a run: its files, and what can be read from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from silohash.config.load import ResolvedConfig, read_config, resolve
from silohash.config.sections import RunConfig
from silohash.data.archive import Archive
from silohash.data.catalogue import open_archive
from silohash.data.partition.base import Partition
from silohash.encode.trained import TrainedModel
from silohash.files import read_json, write_json, write_text
from silohash.runtime.events import RoundRecord, read_rounds
from silohash.types import UserError


@dataclass(frozen=True)
class Run:
    """One run. Config, archive, partition and model are read when they are first needed, and only once.

    Attributes:
        folder: holds ``config.toml``, ``environment.json``, ``partition.json``, ``rounds.jsonl``, ``results.csv``,
                ``per_query.safetensors``, ``curves.json``, ``examples.json``, ``checkpoint/``, ``model/``,
                ``index/<silo>/``
            and ``report.html``, each as soon as it has been written.
        given: the config, if it is known already; None to read it from the folder.
    """

    folder: Path
    given: ResolvedConfig | None = field(default=None, compare=False, repr=False)

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Return the run in a folder.

        Raises:
            UserError: if the folder does not hold a run.
        """
        run = cls(folder)
        run.check()
        return run

    @classmethod
    def create(
        cls, folder: Path, resolved: ResolvedConfig, partition: Partition, environment: dict[str, object]
    ) -> Run:
        """Write what is known of a run before its first round.

        Raises:
            UserError: if the folder already holds a run.
        """
        run = cls(folder, resolved)
        run.check_free()
        write_json(folder / "partition.json", partition.to_json())
        write_json(folder / "environment.json", environment)
        write_text(run.config_path, resolved.config.to_toml())
        return run

    @property
    def config_path(self) -> Path:
        """The run's config, with every value spelled out."""
        return self.folder / "config.toml"

    @property
    def checkpoint(self) -> Path:
        """The state that an interrupted run resumes from."""
        return self.folder / "checkpoint"

    @property
    def model_folder(self) -> Path:
        """The trained model."""
        return self.folder / "model"

    @property
    def index_folder(self) -> Path:
        """The indexes, one folder per silo."""
        return self.folder / "index"

    @property
    def onnx_folder(self) -> Path:
        """The towers as ONNX files."""
        return self.folder / "onnx"

    @property
    def card_path(self) -> Path:
        """The model card."""
        return self.model_folder / "card.md"

    @property
    def rounds_path(self) -> Path:
        """The record of the rounds, one line per round."""
        return self.folder / "rounds.jsonl"

    @property
    def results_path(self) -> Path:
        """The measured figures."""
        return self.folder / "results.csv"

    @property
    def per_query_path(self) -> Path:
        """The value of each figure for every query."""
        return self.folder / "per_query.safetensors"

    @property
    def curves_path(self) -> Path:
        """Precision and recall by radius, one curve per task."""
        return self.folder / "curves.json"

    @property
    def examples_path(self) -> Path:
        """Example searches, with thumbnails of the items that they show."""
        return self.folder / "examples.json"

    @property
    def report_path(self) -> Path:
        """The report, a web page."""
        return self.folder / "report.html"

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.folder.resolve().name

    def check(self) -> None:
        """Check that the folder holds a run.

        Raises:
            UserError: if it does not.
        """
        if not self.config_path.exists():
            raise UserError(
                f'"{self.folder}" does not hold a run: it has no config.toml. '
                f"Train one: silohash train CONFIG --out {self.folder}"
            )

    def check_free(self) -> None:
        """Check that the folder does not hold a run.

        Raises:
            UserError: if it does.
        """
        if self.config_path.exists():
            raise UserError(
                f'"{self.folder}" already holds a run. Continue it with: silohash resume {self.folder}; '
                "or choose another folder with --out."
            )

    @cached_property
    def config(self) -> RunConfig:
        """The config that the run was started with."""
        if self.given is not None:
            return self.given.config
        self.check()
        return read_config(self.config_path)

    @cached_property
    def resolved(self) -> ResolvedConfig:
        """The config with its methods."""
        return self.given or resolve(self.config, where=str(self.config_path))

    @cached_property
    def archive(self) -> Archive:
        """The archive that the run was trained on."""
        return archive_of(self.config)

    @cached_property
    def partition(self) -> Partition:
        """How the archive is divided among silos.

        Raises:
            UserError: if the archive has changed since the partition was made.
        """
        self.check()
        partition = Partition.from_json(read_json(self.folder / "partition.json"))
        partition.check(self.archive)
        return partition

    @cached_property
    def model(self) -> TrainedModel:
        """The trained model."""
        self.check()
        return TrainedModel.load(self.model_folder, self.resolved)

    def rounds(self) -> list[RoundRecord]:
        """Return the record of every round."""
        return read_rounds(self.rounds_path)


def archive_of(config: RunConfig) -> Archive:
    """Open the archive that a config names, or one modality of it."""
    data = config.data
    protocol = {} if data.protocol is None else {"protocol": data.protocol}
    archive = open_archive(data.name, data.path, options={**data.options, **protocol})
    return archive if data.modality is None else archive.of_modality(data.modality)


def runs(folders: Sequence[Path]) -> list[Run]:
    """Return the runs in some folders.

    Raises:
        UserError: if a folder does not hold a run.
    """
    return [Run.open(folder) for folder in folders]
