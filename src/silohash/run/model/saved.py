"""The folder of a trained model, ``RUN/model``. Each part is read when it is first needed.

A search needs the record of the folder, one featurizer and one ONNX file. It reads neither the weights nor the config, and
it does not need torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from silohash import features
from silohash.base.errors import ChoiceNeeded, DamagedFile, ModelMissing, UnknownName, UserError
from silohash.base.files import TRAIN_AGAIN, digest_bytes, digest_file, read_json
from silohash.base.forms import check_version, damaged, reading
from silohash.base.optional import installed, require
from silohash.base.types import MODALITIES, Modality, Task
from silohash.evaluate.calibration import Calibration
from silohash.evaluate.collapse import CodeUse
from silohash.features.base import Featurizer
from silohash.index.codes import BITS_HIGHEST, BITS_LOWEST
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.run.model.encoder import Encoder, OnnxTowers
from silohash.run.model.trained import (
    FORMAT_VERSION,
    GLOBAL,
    MODEL_RECORD,
    TrainedModel,
    Weights,
    features_file,
    onnx_file,
    weights_file,
)

if TYPE_CHECKING:
    from silohash.run.config.load import ResolvedConfig

RunBy: TypeAlias = Literal["any", "torch"]
"""The program that runs the towers: torch, or any. If any is allowed, onnxruntime is preferred, because it starts faster."""


@dataclass(frozen=True)
class ModelRecord:
    """The form of ``model.json``.

    Attributes:
        silohash: Version of silohash that wrote the folder.
        spec: The towers.
        modalities: The modalities that the model encodes.
        weights: The names of the models: ``global``, and the silo's name of each personal model.
        round: The round that was chosen, from 0.
        onnx: For each model and modality, the agreement of the ONNX file with torch.
        without_onnx: Why there are no ONNX files.
        digests: Digest of each other file of the folder.
        model_digests: For each model, the digest of everything that decides its codes.
        calibration: How sure hits are, for each task for which silos held queries back.
        codes: The use of the codes of each modality, as far as it is known.
    """

    format_version: int
    silohash: str
    config: dict[str, Any]
    spec: ModelSpec
    modalities: tuple[Modality, ...]
    weights: tuple[str, ...]
    round: int
    onnx: dict[str, dict[Modality, dict[str, float]]]
    without_onnx: str
    digests: dict[str, str]
    model_digests: dict[str, str]
    calibration: dict[Task, Calibration] = field(default_factory=dict)
    codes: dict[Modality, CodeUse] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for modality in self.modalities:
            if modality not in self.spec.towers:
                raise ValueError(f'its modality "{modality}" has no tower')
        if GLOBAL not in self.weights:
            raise ValueError(f'its weights lack "{GLOBAL}"')
        for name in self.weights:
            if name not in self.model_digests:
                raise ValueError(f'its model_digests lack "{name}"')


@dataclass(frozen=True)
class ModelFiles:
    """The files of a model's folder, which are compared with the digests that the training recorded."""

    folder: Path
    digests: Mapping[str, str]

    def path(self, name: str) -> Path:
        """Return the path of a file, after comparing its content.

        Raises:
            UserError: If the file is missing, cannot be read, or was damaged or replaced.
        """
        path = self.folder / name
        with reading(path, remedy=self._remedy, missing=self._remedy):
            digest = digest_file(path)
        self._compare(path, digest)
        return path

    def content(self, name: str) -> bytes:
        """Return the content of a file, after comparing it. The exceptions are those of `path`."""
        path = self.folder / name
        with reading(path, remedy=self._remedy, missing=self._remedy):
            content = path.read_bytes()
        self._compare(path, digest_bytes(content))
        return content

    @property
    def _remedy(self) -> str:
        return f"Restore it, or write it again: silohash resume {self.folder.parent}"

    def _compare(self, path: Path, digest: str) -> None:
        if self.digests.get(path.name) != digest:
            raise DamagedFile(
                f"{path} does not match its digest in {MODEL_RECORD}: it was damaged or replaced. {self._remedy}"
            )


class SavedFeaturizers(Mapping[Modality, Featurizer]):
    """The featurizers of a model's folder, each read on first use."""

    def __init__(self, files: ModelFiles, towers: Mapping[Modality, TowerSpec], modalities: Sequence[Modality]) -> None:
        self._files = files
        self._towers = towers
        self._modalities = tuple(modality for modality in MODALITIES if modality in modalities)
        self._read: dict[Modality, Featurizer] = {}

    def __getitem__(self, modality: Modality) -> Featurizer:
        if modality not in self._modalities:
            raise KeyError(modality)
        if modality not in self._read:
            path, tower = self._files.path(features_file(modality)), self._towers[modality]
            fitted = features.load(path)
            if tuple(fitted.shape) != tuple(tower.shape):
                raise damaged(
                    path, f"its vectors have shape {fitted.shape}, and the tower takes {tower.shape}", TRAIN_AGAIN
                )
            self._read[modality] = fitted
        return self._read[modality]

    def __iter__(self) -> Iterator[Modality]:
        return iter(self._modalities)

    def __len__(self) -> int:
        return len(self._modalities)


@dataclass(frozen=True)
class SavedModel:
    """The model of a finished run.

    Attributes:
        files: The files of the folder that `TrainedModel.save` wrote.
        record: The content of its ``model.json``.
        bits: Code length.
        featurizers: One fitted featurizer per modality.
        known: Function that returns the config of the run with its methods. It is used if it equals the model's config.
    """

    files: ModelFiles
    record: ModelRecord
    bits: int
    featurizers: Mapping[Modality, Featurizer]
    known: Callable[[], ResolvedConfig] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def open(cls, folder: Path, known: Callable[[], ResolvedConfig] | None = None) -> SavedModel:
        """Read the record of a model's folder.

        Raises:
            UserError: If the folder is missing, damaged, or has another version of the format.
        """
        if not folder.exists():
            raise ModelMissing(
                f"{folder} does not exist: the run has no trained model yet. Run: silohash resume {folder.parent}"
            )
        record = read_json(folder / MODEL_RECORD, ModelRecord, remedy=TRAIN_AGAIN)
        remedy = f"Use silohash {record.silohash}, which wrote it, or run the training again."
        check_version(folder, record.format_version, FORMAT_VERSION, remedy)
        with reading(folder / MODEL_RECORD, remedy=TRAIN_AGAIN):
            bits = int(record.config["local"]["bits"])
            if not BITS_LOWEST <= bits <= BITS_HIGHEST:
                raise ValueError(f"config.local.bits is {bits}, and codes have {BITS_LOWEST} to {BITS_HIGHEST} bits")
        files = ModelFiles(folder, record.digests)
        return cls(files, record, bits, SavedFeaturizers(files, record.spec.towers, record.modalities), known)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the models: ``global``, and the silo's name of each personal model."""
        return self.record.weights

    def modalities_of_queries(self, *, vectors: bool) -> tuple[Modality, ...]:
        """Return the modalities in which queries are feature vectors, or those in which they are texts and pictures."""
        kinds = {modality: featurizer.kind for modality, featurizer in self.featurizers.items()}
        return tuple(modality for modality, kind in kinds.items() if (kind in features.VECTOR_KINDS) == vectors)

    @property
    def personalized(self) -> bool:
        """Whether silos deploy personal models."""
        return set(self.names) != {GLOBAL}

    def deployed_by(self, silo: str) -> str:
        """Return the name of the model that a silo encodes with."""
        return silo if silo in self.names else GLOBAL

    def name_of(self, digest: str) -> str:
        """Return the name of the model that has a digest.

        Raises:
            UserError: If none has it.
        """
        for name in self.names:
            if self.digest(name) == digest:
                return name
        raise ModelMissing(
            f"An index was made by the model {digest}, which the run does not have. Make it again: silohash index RUN"
        )

    def shared_name(self) -> str:
        """Return the name of the model with which every silo encodes.

        Raises:
            UserError: If each silo has a personal model.
        """
        if self.personalized:
            personal = ", ".join(name for name in self.names if name != GLOBAL)
            raise ChoiceNeeded(
                f"Each silo of this run encodes with a personal model. Name one with --model: {personal}; or {GLOBAL}, "
                "which no silo deploys."
            )
        return GLOBAL

    def digest(self, name: str) -> str:
        """Return the digest of everything that decides the codes of a model."""
        self._check(name)
        return self.record.model_digests[name]

    def encoder(self, name: str = GLOBAL, *, run_by: RunBy = "any") -> Encoder:
        """Return the encoder of the global model, or of a silo's personal model.

        Args:
            name: Name of the model.
            run_by: The program that runs the towers. If it is torch and torch is missing, onnxruntime runs them.

        Raises:
            UserError: If there is no such model, it lacks what its codes depend on, or it has no ONNX files and torch
                is missing.
        """
        self._check(name)
        files = self._onnx_files(name)
        if files and (run_by == "any" or not installed("torch")):
            towers = OnnxTowers(lambda modality: self.files.content(files[modality]))
            return Encoder(towers, self.featurizers, bits=self.bits, digest=self.digest(name))
        require("torch", f'The model "{name}" in {self.files.folder} has no ONNX files, so encoding with it')
        return self.trained.encoder(name)

    @cached_property
    def trained(self) -> TrainedModel:
        """The model in memory, with its weights. Making its methods needs torch."""
        return TrainedModel(
            resolved=self._resolved(), spec=self.record.spec, featurizers=dict(self.featurizers),
            weights={
                name: Weights.read(self.files.path(weights_file(number))) for number, name in enumerate(self.names)
            },
            round=self.record.round, calibration=self.record.calibration, codes=self.record.codes,
        )  # fmt: skip

    def _resolved(self) -> ResolvedConfig:
        from silohash.run.config.load import load_resolved

        known = self.known() if self.known else None
        if known is not None and known.config.to_json() == self.record.config:
            return known
        try:
            return load_resolved(self.record.config)
        except UserError as error:
            raise damaged(self.files.folder / MODEL_RECORD, f"config: {error}".rstrip("."), TRAIN_AGAIN) from error

    def _check(self, name: str) -> None:
        if name not in self.names:
            raise UnknownName(f'The run has no model "{name}". Its models are: {", ".join(self.names)}.')

    def _onnx_files(self, name: str) -> dict[Modality, str]:
        """Return the name of each modality's ONNX file; empty unless all of them exist."""
        compared, number = self.record.onnx.get(name, {}), self.names.index(name)
        files = {modality: onnx_file(modality, number) for modality in self.featurizers}
        whole = all(modality in compared and (self.files.folder / file).is_file() for modality, file in files.items())
        return files if whole else {}
