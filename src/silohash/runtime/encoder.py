"""From items to codes, the same way in training and in search: featuriser, tower, the method's adaptation, signs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from silohash import __version__, features
from silohash.data.archive import Archive
from silohash.features.base import Featuriser, Value
from silohash.federated.base import Adapted, FederatedMethod, ServerState
from silohash.files import digest_arrays, digest_json, folder_beside, read_arrays, read_json, write_arrays, write_json
from silohash.index.codes import Codes, pack
from silohash.local.base import LocalMethod, SiloData, outputs_of
from silohash.models.parameters import install
from silohash.models.towers import ModelSpec
from silohash.runtime.config import RunConfig, load_config
from silohash.runtime.prepared import pixel_statistics, vectors
from silohash.types import MODALITIES, Arrays, Modality, Rows, UserError

FORMAT_VERSION = 1
GLOBAL = "global"


@dataclass(frozen=True)
class Weights:
    """The parameters that a party deploys, and the extras that encoding needs."""

    params: Arrays
    extras: Arrays

    def digest(self, about: str) -> str:
        """Returns a digest of parameters, extras and ``about`` (the towers and featurisers)."""
        named = {f"params/{n}": a for n, a in self.params.items()} | {f"extras/{n}": a for n, a in self.extras.items()}
        return digest_json([digest_arrays(named), about])


@dataclass(frozen=True)
class TrainedModel:
    """Everything that a finished run needs to encode: what lies in ``RUN/model``.

    Attributes:
        config: the run.
        spec: the towers.
        featurisers: fitted, a modality.
        weights: ``global``, and a silo's name for each personal model.
        round: the round that was chosen, from 0.
    """

    config: RunConfig
    spec: ModelSpec
    featurisers: Mapping[Modality, Featuriser]
    weights: Mapping[str, Weights]
    round: int

    @property
    def personalized(self) -> bool:
        """Whether silos deploy models of their own."""
        return set(self.weights) != {GLOBAL}

    def deployed_by(self, silo: str) -> str:
        """Returns the name of the weights that a silo encodes with."""
        return silo if silo in self.weights else GLOBAL

    def name_of(self, digest: str) -> str:
        """Returns the name of the weights with a digest.

        Raises:
            UserError: if there are none.
        """
        for name in self.weights:
            if self.encoder(name).digest == digest:
                return name
        raise UserError(
            f"An index was made by the model {digest}, which the run does not have. Make it anew: silohash index"
        )

    def shared_name(self) -> str:
        """Returns the name of the weights with which every silo encodes.

        Raises:
            UserError: if each silo has its own.
        """
        if self.personalized:
            own = ", ".join(name for name in self.weights if name != GLOBAL)
            raise UserError(
                f"Each silo encodes with a model of its own. Name one with --model: {own}; or {GLOBAL}, which none deploys."
            )
        return GLOBAL

    def encoder(self, name: str = GLOBAL, device: torch.device | None = None) -> Encoder:
        """Returns the encoder of the global model, or of a silo's own.

        Raises:
            UserError: if there is no such model.
        """
        if name not in self.weights:
            raise UserError(f'The run has no model "{name}"; it has: {", ".join(self.weights)}.')
        return Encoder(self, name, device or torch.device("cpu"))

    def save(self, folder: Path) -> None:
        """Writes the model's folder in place of the one before."""
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
                },
            )

    @staticmethod
    def load(folder: Path) -> TrainedModel:
        """Reads a model's folder.

        Raises:
            UserError: if it is missing, damaged or of a newer silohash.
        """
        if not folder.exists():
            raise UserError(
                f"{folder} is missing: the run has no trained model yet. Run: silohash resume {folder.parent}"
            )
        about = read_json(folder / "model.json")
        if about["format_version"] > FORMAT_VERSION:
            raise UserError(
                f"{folder} was written by a newer silohash ({about['silohash']}). Upgrade silohash to read it."
            )
        weights = {}
        for number, name in enumerate(about["weights"]):
            arrays, _ = read_arrays(folder / f"weights-{number:03d}.safetensors")
            weights[name] = Weights(params=_section(arrays, "params"), extras=_section(arrays, "extras"))
        return TrainedModel(
            config=load_config(about["config"]),
            spec=ModelSpec.from_json(about["spec"]),
            featurisers={
                modality: features.load(folder / f"features-{modality}.safetensors")
                for modality in MODALITIES
                if modality in about["modalities"]
            },
            weights=weights,
            round=about["round"],
        )


def _section(arrays: Arrays, name: str) -> Arrays:
    return {key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")}


class Encoder:
    """One model that turns items of an archive, or one query, into codes."""

    def __init__(self, trained: TrainedModel, name: str, device: torch.device) -> None:
        weights = trained.weights[name]
        local: LocalMethod = trained.config.local_method
        federated: FederatedMethod = trained.config.federated_method
        missing = [extra for extra in federated.encode_extras if extra not in weights.extras]
        if missing:
            raise UserError(
                f'The model "{name}" lacks {", ".join(missing)}, which its codes depend on. Train it again.'
            )
        network = local.build(trained.spec, trained.config.local.bits).to(device)
        install(network, weights.params)
        self.bits = trained.config.local.bits
        self.featurisers = trained.featurisers
        self.device = device
        self.model = Adapted(network, federated, weights.extras).eval()
        states = {modality: featuriser.state() for modality, featuriser in trained.featurisers.items()}
        vectors_digest = {modality: [digest_arrays(arrays), about] for modality, (arrays, about) in states.items()}
        self.digest = weights.digest(digest_json([trained.spec.to_json(), vectors_digest]))
        self.pixels = {n: torch.from_numpy(a).to(device) for n, a in pixel_statistics(trained.featurisers).items()}

    def codes(self, archive: Archive, rows: Rows, modality: Modality) -> Codes:
        """Returns the codes of an archive's items; every row must have the modality."""
        self._check(modality)
        has = np.ones(len(rows), dtype=np.bool_)
        values = vectors(archive, self.featurisers[modality], rows, has)
        return self._codes(values, modality, archive.ids[rows])

    def codes_of(self, values: npt.NDArray[np.generic], modality: Modality, ids: npt.NDArray[np.str_]) -> Codes:
        """Returns the codes of vectors that the featuriser gave, ``(n, *shape)``."""
        return self._codes(values, modality, ids)

    def encode(self, value: Value, modality: Modality) -> Codes:
        """Returns the code of one text, picture or given vector.

        Raises:
            UserError: if the model has no such modality or the query is of the wrong kind.
        """
        self._check(modality)
        return self._codes(self.featurisers[modality].encode_one(value), modality, np.asarray(["query"]))

    def _check(self, modality: Modality) -> None:
        if modality not in self.featurisers:
            raise UserError(
                f"The model was trained without {modality}; it encodes {' and '.join(self.featurisers)} only."
            )

    def outputs(self, values: npt.NDArray[np.generic], modality: Modality) -> npt.NDArray[np.float32]:
        """Returns the real numbers whose signs are the codes, ``(n, bits)`` float32, of vectors that the featuriser gave."""
        if not len(values):
            return np.zeros((0, self.bits), np.float32)
        given = torch.from_numpy(np.array(values)).to(self.device)
        found: npt.NDArray[np.float32] = outputs_of(self.model, self.pairs(given, modality))[modality].cpu().numpy()
        return found

    def pairs(self, values: torch.Tensor, modality: Modality) -> SiloData:
        """Returns the featuriser's vectors ``(n, *shape)`` as the model takes them, with nothing of the other modality."""
        flags = torch.ones(values.shape[0], dtype=torch.bool, device=values.device)
        none = torch.zeros_like(flags)
        return SiloData(
            name="query",
            image=values if modality == "image" else None,
            text=values if modality == "text" else None,
            labels=None,
            has_image=flags if modality == "image" else none,
            has_text=flags if modality == "text" else none,
            pixel_mean=self.pixels.get("pixel_mean"),
            pixel_deviation=self.pixels.get("pixel_deviation"),
        )

    def _codes(self, values: npt.NDArray[np.generic], modality: Modality, ids: npt.NDArray[np.str_]) -> Codes:
        words = pack(self.outputs(values, modality))
        return Codes(words=words, bits=self.bits, ids=ids, modality=modality, model_digest=self.digest)


def deployed_weights(
    federated: FederatedMethod,
    server: ServerState,
    personal: Mapping[str, Arrays],
) -> dict[str, Weights]:
    """Returns the weights that a run ends with: the global ones, and each silo's own for personalised methods."""
    extras = {name: server.extras[name] for name in federated.encode_extras if name in server.extras}
    weights = {GLOBAL: Weights(params=server.params, extras=extras)}
    return weights | {silo: Weights(params=params, extras=extras) for silo, params in personal.items()}
