"""A trained model in memory: towers, featurizers, weights, and the config that they belong to.

`TrainedModel.save` writes the folder ``RUN/model``. To encode with a folder, open it as a
`silohash.run.model.saved.SavedModel`, which needs torch only if the folder has no ONNX files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from silohash import __version__, features
from silohash.base import files
from silohash.base.errors import CannotEncode, DamagedFile, UnknownName
from silohash.base.forms import MALFORMED, detail
from silohash.base.types import Arrays, Modality, Task
from silohash.evaluate.calibration import Calibration
from silohash.evaluate.collapse import CodeUse
from silohash.features.base import Featurizer
from silohash.models.specs import ModelSpec
from silohash.run.model.encoder import Encoder

if TYPE_CHECKING:
    import torch
    from torch import nn

    from silohash.methods.federated.base import FederatedMethod, ServerState
    from silohash.run.config.load import ResolvedConfig
    from silohash.run.config.sections import RunConfig


FORMAT_VERSION = 1
MODEL_RECORD = "model.json"

CALIBRATION, CODES = "calibration", "codes"
"""Names of what is known of a model's hits and codes, in its record and in the message with which silos receive it."""

GLOBAL = "global"
"""The name of the weights that all silos train together."""


@dataclass(frozen=True)
class Weights:
    """The parameters that a party deploys, and the extras that encoding needs."""

    params: Arrays
    extras: Arrays

    def digest(self, about: str) -> str:
        """Return a digest of the parameters, the extras and ``about``, the digest of towers and featurizers."""
        return files.digest_json([files.digest_arrays(self._named()), about])

    def write(self, path: Path) -> None:
        """Write the weights to a safetensors file."""
        files.write_arrays(path, self._named())

    @staticmethod
    def read(path: Path) -> Weights:
        """Read the weights that `write` wrote."""
        arrays, _ = files.read_arrays(path)
        return Weights(params=_section(arrays, "params"), extras=_section(arrays, "extras"))

    def _named(self) -> Arrays:
        return {f"params/{n}": a for n, a in self.params.items()} | {f"extras/{n}": a for n, a in self.extras.items()}


def _section(arrays: Arrays, name: str) -> Arrays:
    return {key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")}


def deployed_weights(
    federated: FederatedMethod, server: ServerState, personal: Mapping[str, Arrays]
) -> dict[str, Weights]:
    """Return the weights that a run ends with: the global ones, and those of each silo's personal model."""
    extras = {name: server.extras[name] for name in federated.traits.encode_extras if name in server.extras}
    weights = {GLOBAL: Weights(params=server.params, extras=extras)}
    return weights | {silo: Weights(params=params, extras=extras) for silo, params in personal.items()}


def features_file(modality: Modality) -> str:
    """Return the name of the file that holds the featurizer of a modality."""
    return f"features-{modality}.safetensors"


def weights_file(number: int) -> str:
    """Return the name of the file that holds the weights with a number."""
    return f"weights-{number:03d}.safetensors"


def onnx_file(modality: Modality, number: int) -> str:
    """Return the name of the ONNX file of a tower of the weights with a number."""
    return f"{modality}-{number:03d}.onnx"


@dataclass(frozen=True)
class SavedTowers:
    """The towers that silos encode with, as ONNX files and their agreement with torch, or the reason why there are none."""

    contents: Mapping[str, bytes] = field(default_factory=dict)
    record: Mapping[str, Mapping[Modality, Mapping[str, float]]] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class TrainedModel:
    """Everything from a finished run that encoding needs.

    Attributes:
        featurizers: One fitted featurizer per modality.
        weights: ``global``, and one entry per personal model under its silo's name.
        round: The round that was chosen, from 0.
        calibration: How sure hits are, for each task for which silos held queries back.
        codes: The use of the codes of each modality, unless silos deploy personal models.
    """

    resolved: ResolvedConfig
    spec: ModelSpec
    featurizers: Mapping[Modality, Featurizer]
    weights: Mapping[str, Weights]
    round: int
    calibration: Mapping[Task, Calibration] = field(default_factory=dict)
    codes: Mapping[Modality, CodeUse] = field(default_factory=dict)

    @property
    def config(self) -> RunConfig:
        """The config of the run."""
        return self.resolved.config

    def digest(self, name: str = GLOBAL) -> str:
        """Return the digest of everything that decides the codes of a model: towers, featurizers and weights."""
        states = {modality: featurizer.state() for modality, featurizer in self.featurizers.items()}
        vectors_digest = {
            modality: [files.digest_arrays(arrays), about] for modality, (arrays, about) in states.items()
        }
        return self.weights[name].digest(files.digest_json([self.spec.to_json(), vectors_digest]))

    def encoder(self, name: str = GLOBAL, device: torch.device | None = None) -> Encoder:
        """Return the encoder of the global model, or of a silo's personal model, run by torch. See `network`."""
        import torch

        from silohash.models.towers import Adapted
        from silohash.run.model.torch_towers import TorchTowers

        network = self.network(name).to(device := device or torch.device("cpu"))
        weights, method = self.weights[name], self.resolved.federated
        towers = TorchTowers(Adapted(network, method.adapter, weights.extras), self.featurizers, device)
        traits = self.resolved.local.traits
        return Encoder(
            towers, self.featurizers, bits=self.config.local.bits, digest=self.digest(name),
            label_sides=traits.label_sides, label_free=traits.label_free,
        )  # fmt: skip

    def network(self, name: str = GLOBAL) -> nn.Module:
        """Return the network of the global model, or of a silo's personal model, with its weights, on the CPU.

        Raises:
            UserError: If there is no such model, or it lacks what its outputs depend on.
        """
        from silohash.models.parameters import install

        if name not in self.weights:
            raise UnknownName(f'The run has no model "{name}". Its models are: {", ".join(self.weights)}.')
        weights, method = self.weights[name], self.resolved.federated
        missing = [extra for extra in method.traits.encode_extras if extra not in weights.extras]
        if missing:
            raise CannotEncode(
                f'The model "{name}" lacks {", ".join(missing)}, which its codes depend on. Train it again.'
            )
        network = self._network(name)
        if any(parameter not in weights.params for parameter in network.state_dict()):
            raise CannotEncode(f'The model "{name}" cannot encode, because {self._reason()}')
        install(network, weights.params)
        return network

    def _network(self, name: str) -> nn.Module:
        """Return the towers without their parameters, after comparing the names, shapes and types of the parameters."""
        from silohash.models.parameters import check_fit

        try:
            network = self.resolved.local.build(self.spec, self.config.local.bits)
            check_fit(network, self.weights[name].params)
        except MALFORMED as error:
            raise DamagedFile(
                f'The weights of the model "{name}" do not fit its towers ({detail(error)}). Restore the folder "model" of '
                "the run, or train the run again."
            ) from error
        return network

    @property
    def deployed(self) -> tuple[str, ...]:
        """The names of the weights that silos encode with: the personal ones, or else the global ones."""
        return tuple(name for name in self.weights if name != GLOBAL) or (GLOBAL,)

    def _reason(self) -> str:
        """Return why the global model cannot encode, and which model can in its place."""
        if self.config.exchange.encryption is not None:
            return "the server cannot read its parameters. Each silo has stored it on its own machine. Search there."
        remedy = f"Name the model of a silo: {', '.join(self.deployed)}."
        if self.deployed == (GLOBAL,):
            remedy = "Each silo has stored a personal model on its own machine. Search there."
        return f'silos share only a part of its parameters under "{self.config.federated.name}". {remedy}'

    def save(self, folder: Path, towers: SavedTowers | None = None) -> None:
        """Write the model's folder, with the towers as ONNX files if there are any, replacing an earlier one."""
        towers = towers or SavedTowers()
        with files.folder_beside(folder) as new:
            for modality, featurizer in self.featurizers.items():
                features.save(featurizer, new / features_file(modality))
            for number, weights in enumerate(self.weights.values()):
                weights.write(new / weights_file(number))
            for name, content in towers.contents.items():
                files.write_bytes(new / name, content)
            digests = {path.name: files.digest_file(path) for path in sorted(new.iterdir())}
            files.write_json(
                new / MODEL_RECORD,
                {
                    "format_version": FORMAT_VERSION, "silohash": __version__, "config": self.config.to_json(),
                    "spec": self.spec.to_json(), "modalities": list(self.featurizers), "weights": list(self.weights),
                    "model_digests": {name: self.digest(name) for name in self.weights}, "onnx": towers.record,
                    "without_onnx": towers.reason, "round": self.round,
                    CALIBRATION: {task: asdict(learned) for task, learned in self.calibration.items()},
                    CODES: {modality: asdict(use) for modality, use in self.codes.items()}, "digests": digests,
                },
            )  # fmt: skip
