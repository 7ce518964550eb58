"""A run's folder: what lies where, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from silohash.data.archive import Archive
from silohash.data.catalogue import open_archive
from silohash.data.partition.base import Partition
from silohash.files import read_json, write_json, write_text
from silohash.runtime.config import RunConfig, load_config
from silohash.runtime.encoder import TrainedModel
from silohash.runtime.events import RoundRecord, read_rounds
from silohash.types import UserError


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        folder: holds ``config.toml``, ``environment.json``, ``partition.json``, ``rounds.jsonl``, ``results.csv``,
            ``per_query.safetensors``, ``curves.json``, ``examples.json``,
            ``checkpoint/``, ``model/``, ``index/<silo>/`` and ``report.html``, each once it is made.
    """

    folder: Path

    @property
    def config_path(self) -> Path:
        """The run's config, every value spelled out."""
        return self.folder / "config.toml"

    @property
    def checkpoint(self) -> Path:
        """What `resume` goes on from."""
        return self.folder / "checkpoint"

    @property
    def model_folder(self) -> Path:
        """The trained model."""
        return self.folder / "model"

    @property
    def index_folder(self) -> Path:
        """A folder a silo, with its index."""
        return self.folder / "index"

    @property
    def onnx_folder(self) -> Path:
        """The towers as ONNX files."""
        return self.folder / "onnx"

    @property
    def card_path(self) -> Path:
        """What one should know of the model before using it."""
        return self.model_folder / "card.md"

    @property
    def rounds_path(self) -> Path:
        """A line a round."""
        return self.folder / "rounds.jsonl"

    @property
    def results_path(self) -> Path:
        """The figures."""
        return self.folder / "results.csv"

    @property
    def per_query_path(self) -> Path:
        """Each figure's values query by query."""
        return self.folder / "per_query.safetensors"

    @property
    def curves_path(self) -> Path:
        """Precision and recall by radius, a task each."""
        return self.folder / "curves.json"

    @property
    def examples_path(self) -> Path:
        """Example searches, with thumbnails of the items that they show."""
        return self.folder / "examples.json"

    @property
    def report_path(self) -> Path:
        """The page."""
        return self.folder / "report.html"

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @cached_property
    def config(self) -> RunConfig:
        """The config that the run was started with."""
        if not self.config_path.exists():
            raise UserError(
                f'"{self.folder}" is no run: it has no config.toml. Train one: silohash train CONFIG --out {self.folder}'
            )
        return load_config(self.config_path)

    @cached_property
    def archive(self) -> Archive:
        """The archive that the run was trained on."""
        return archive_of(self.config)

    @cached_property
    def partition(self) -> Partition:
        """How the archive is spread over silos.

        Raises:
            UserError: if the archive is no longer the one that the partition was made for.
        """
        _ = self.config
        partition = Partition.from_json(read_json(self.folder / "partition.json"))
        partition.check(self.archive)
        return partition

    @cached_property
    def model(self) -> TrainedModel:
        """The trained model."""
        _ = self.config
        return TrainedModel.load(self.model_folder)

    def rounds(self) -> list[RoundRecord]:
        """Returns the record of every round."""
        return read_rounds(self.rounds_path)

    def create(self, config: RunConfig, partition: Partition, environment: dict[str, object]) -> None:
        """Writes what is known before the first round.

        Raises:
            UserError: if the folder already holds a run.
        """
        if self.config_path.exists():
            raise UserError(
                f'"{self.folder}" already holds a run. Go on with it: silohash resume {self.folder}; or give another --out.'
            )
        write_json(self.folder / "partition.json", partition.to_json())
        write_json(self.folder / "environment.json", environment)
        write_text(self.config_path, config.to_toml())


def archive_of(config: RunConfig) -> Archive:
    """Opens the archive that a config names, or one modality of it."""
    data = config.data
    protocol = {} if data.protocol is None else {"protocol": data.protocol}
    archive = open_archive(data.name, data.path, options={**data.options, **protocol})
    return archive if data.modality is None else archive.of_modality(data.modality)


def runs(folders: Sequence[Path]) -> list[Run]:
    """Returns the runs in some folders, each checked to be one."""
    found = [Run(folder) for folder in folders]
    for run in found:
        _ = run.config
    return found
