"""A trained model as a folder, ``RUN/model``: towers, featurizers, weights, and the config that they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from silohash import __version__, features
from silohash.config.load import ResolvedConfig, load_resolved
from silohash.config.sections import RunConfig
from silohash.encode.encoder import Encoder
from silohash.features.base import Featuriser
from silohash.federated.base import FederatedMethod, ServerState
from silohash.files import (
    TRAIN_AGAIN,
    digest_arrays,
    digest_file,
    digest_json,
    folder_beside,
    read_arrays,
    read_json,
    write_arrays,
    write_json,
)
from silohash.models.parameters import install
from silohash.models.specs import ModelSpec
from silohash.models.towers import Adapted
from silohash.types import MODALITIES, Arrays, Modality, UserError

FORMAT_VERSION = 1
GLOBAL = "global"


@dataclass(frozen=True)
class Weights:
    """The parameters that a party deploys, and the extras that encoding needs."""

    params: Arrays
    extras: Arrays

    def digest(self, about: str) -> str:
        """Return a digest of the parameters, the extras and ``about``, the digest of towers and featurizers."""
        named = {f"params/{n}": a for n, a in self.params.items()} | {f"extras/{n}": a for n, a in self.extras.items()}
        return digest_json([digest_arrays(named), about])


@dataclass(frozen=True)
class TrainedModel:
    """Everything from a finished run that encoding needs.

    Attributes:
        resolved: the config of the run, with its methods.
        spec: the towers.
        featurisers: one fitted featurizer per modality.
        weights: ``global``, and one entry per personal model under its silo's name.
        round: the round that was chosen, from 0.
    """

    resolved: ResolvedConfig
    spec: ModelSpec
    featurisers: Mapping[Modality, Featuriser]
    weights: Mapping[str, Weights]
    round: int

    @property
    def config(self) -> RunConfig:
        """The config of the run."""
        return self.resolved.config

    @property
    def personalized(self) -> bool:
        """Whether silos deploy personal models."""
        return set(self.weights) != {GLOBAL}

    def deployed_by(self, silo: str) -> str:
        """Return the name of the weights that a silo encodes with."""
        return silo if silo in self.weights else GLOBAL

    def name_of(self, digest: str) -> str:
        """Return the name of the weights that have a digest.

        Raises:
            UserError: if none have it.
        """
        for name in self.weights:
            if self.encoder(name).digest == digest:
                return name
        raise UserError(
            f"An index was made by the model {digest}, which the run does not have. Make it again: silohash index"
        )

    def shared_name(self) -> str:
        """Return the name of the weights with which every silo encodes.

        Raises:
            UserError: if each silo has a personal model.
        """
        if self.personalized:
            personal = ", ".join(name for name in self.weights if name != GLOBAL)
            raise UserError(
                f"Each silo of this run encodes with a personal model. Name one with --model: {personal}; or {GLOBAL}, "
                "which no silo deploys."
            )
        return GLOBAL

    def encoder(self, name: str = GLOBAL, device: torch.device | None = None) -> Encoder:
        """Return the encoder of the global model, or of a silo's personal model.

        Raises:
            UserError: if there is no such model, or it lacks what its codes depend on.
        """
        if name not in self.weights:
            raise UserError(f'The run has no model "{name}". Its models are: {", ".join(self.weights)}.')
        device = device or torch.device("cpu")
        weights, method = self.weights[name], self.resolved.federated
        missing = [extra for extra in method.encode_extras if extra not in weights.extras]
        if missing:
            raise UserError(
                f'The model "{name}" lacks {", ".join(missing)}, which its codes depend on. Train it again.'
            )
        bits = self.config.local.bits
        network = self.resolved.local.build(self.spec, bits).to(device)
        install(network, weights.params)
        model = Adapted(network, method, weights.extras)
        return Encoder(model, self.featurisers, bits=bits, digest=weights.digest(self._digest()), device=device)

    def _digest(self) -> str:
        """Return a digest of the towers' form and of the featurizers."""
        states = {modality: featuriser.state() for modality, featuriser in self.featurisers.items()}
        vectors_digest = {modality: [digest_arrays(arrays), about] for modality, (arrays, about) in states.items()}
        return digest_json([self.spec.to_json(), vectors_digest])

    def save(self, folder: Path) -> None:
        """Write the model's folder, replacing an earlier one."""
        with folder_beside(folder) as new:
            for modality, featuriser in self.featurisers.items():
                features.save(featuriser, new / f"features-{modality}.safetensors")
            for number, weights in enumerate(self.weights.values()):
                arrays = {f"params/{n}": a for n, a in weights.params.items()}
                arrays |= {f"extras/{n}": a for n, a in weights.extras.items()}
                write_arrays(new / f"weights-{number:03d}.safetensors", arrays)
            write_json(
                new / "model.json",
                {
                    "format_version": FORMAT_VERSION,
                    "silohash": __version__,
                    "config": self.config.to_json(),
                    "spec": self.spec.to_json(),
                    "modalities": list(self.featurisers),
                    "weights": list(self.weights),
                    "round": self.round,
                    "digests": {path.name: digest_file(path) for path in sorted(new.iterdir())},
                },
            )

    @staticmethod
    def load(folder: Path, known: ResolvedConfig | None = None) -> TrainedModel:
        """Read a model's folder.

        Args:
            folder: the folder that `save` wrote.
            known: a config that is already resolved. It is used if it equals the model's config.

        Raises:
            UserError: if the folder is missing, a file in it is damaged or was replaced, or a newer version wrote it.
        """
        if not folder.exists():
            raise UserError(
                f"{folder} does not exist: the run has no trained model yet. Run: silohash resume {folder.parent}"
            )
        about = read_json(folder / "model.json", _StoredModel, remedy=TRAIN_AGAIN)
        if about.format_version > FORMAT_VERSION:
            raise UserError(
                f"{folder} was written by a newer silohash ({about.silohash}). Upgrade silohash to read it."
            )
        _check_digests(folder, about.digests)
        weights = {}
        for number, name in enumerate(about.weights):
            arrays, _ = read_arrays(folder / f"weights-{number:03d}.safetensors")
            weights[name] = Weights(params=_section(arrays, "params"), extras=_section(arrays, "extras"))
        same = known is not None and known.config.to_json() == about.config
        return TrainedModel(
            resolved=known if known is not None and same else load_resolved(about.config),
            spec=about.spec,
            featurisers={
                modality: features.load(folder / f"features-{modality}.safetensors")
                for modality in MODALITIES
                if modality in about.modalities
            },
            weights=weights,
            round=about.round,
        )


@dataclass(frozen=True)
class _StoredModel:
    """The form of ``model.json``."""

    format_version: int
    silohash: str
    config: dict[str, Any]
    spec: ModelSpec
    modalities: tuple[Modality, ...]
    weights: tuple[str, ...]
    round: int
    digests: Mapping[str, str] = field(default_factory=dict)


def _check_digests(folder: Path, digests: Mapping[str, str]) -> None:
    """Check the weights and the featurizers against ``model.json``. Models of earlier versions have no digests.

    Raises:
        UserError: if a file is missing or has another content.
    """
    for name, digest in digests.items():
        path = folder / name
        if not path.is_file():
            raise UserError(f"{path} is missing. Restore it, or write it again: silohash resume {folder.parent}")
        if digest_file(path) != digest:
            raise UserError(
                f"{path} does not match its digest in model.json: it was damaged or replaced. "
                f"Restore it, or write it again: silohash resume {folder.parent}"
            )


def _section(arrays: Arrays, name: str) -> Arrays:
    return {key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")}


def deployed_weights(
    federated: FederatedMethod, server: ServerState, personal: Mapping[str, Arrays]
) -> dict[str, Weights]:
    """Return the weights that a run ends with: the global ones, and those of each silo's personal model."""
    extras = {name: server.extras[name] for name in federated.encode_extras if name in server.extras}
    weights = {GLOBAL: Weights(params=server.params, extras=extras)}
    return weights | {silo: Weights(params=params, extras=extras) for silo, params in personal.items()}
