"""A run's training inputs, made once: vectors, labels and rows of every silo, in files that workers map."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from numpy.lib.format import open_memmap

from silohash import seeds
from silohash.data.archive import Archive
from silohash.data.partition.base import Partition
from silohash.features.base import Featuriser, add_statistics
from silohash.features.image import PixelFeatures
from silohash.features.text import BagOfWords
from silohash.features.tokens import TokenFeatures
from silohash.files import explaining_disk_errors, read_arrays, read_json, write_arrays, write_json, write_text
from silohash.local.base import SiloData
from silohash.models.backbones import network_settings, published_weights
from silohash.models.towers import ModelSpec, TowerSpec
from silohash.runtime.config import RunConfig, load_config
from silohash.types import MODALITIES, Arrays, Modality, Rows, UserError

PUBLISHED = "published.safetensors"


@dataclass(frozen=True)
class TrainingSilo:
    """Which rows of the archive one silo trains on, and which it holds back."""

    name: str
    train: Rows
    validation: Rows
    has_image: bool = True
    has_text: bool = True

    def holds(self, modality: Modality) -> bool:
        """Tells whether the silo has the modality at all."""
        return self.has_image if modality == "image" else self.has_text


def training_silos(archive: Archive, partition: Partition, config: RunConfig) -> list[TrainingSilo]:
    """Splits every silo's training items into those it trains on and those that choose the round.

    A pooled method gets one silo that trains on the same items as all silos of a federation together.

    Raises:
        UserError: if no silo has an item to train on.
    """
    train = archive.split("train")
    silos = []
    for number, silo in enumerate(partition.silos):
        rows = np.intersect1d(silo.rows, train)
        order = seeds.numpy_generator(config.seed, "validation", silo=number).permutation(rows)
        held = int(config.evaluate.validation * len(rows)) if len(rows) >= 4 else 0
        silos.append(
            TrainingSilo(
                name=silo.name,
                train=np.sort(order[held:]),
                validation=np.sort(order[:held]),
                has_image=silo.has_image,
                has_text=silo.has_text,
            )
        )
    if not any(len(silo.train) for silo in silos):
        raise UserError(f'Archive "{archive.card.name}" has no items in the split "train", so nothing can be trained.')
    if config.federated_method.pooled:
        return [_pooled(silos)]
    return silos


def _pooled(silos: list[TrainingSilo]) -> TrainingSilo:
    if not all(silo.has_image and silo.has_text for silo in silos):
        raise UserError(
            'Pooled training (federated.name = "centralized") needs every silo\'s pictures and texts; the partition takes '
            "them from some. Leave out partition.missing_image and partition.missing_text."
        )
    if len(silos) == 1:
        return silos[0]
    return TrainingSilo(
        name="pooled",
        train=np.unique(np.concatenate([silo.train for silo in silos])),
        validation=np.unique(np.concatenate([silo.validation for silo in silos])),
    )


def fit_featurisers(
    archive: Archive, silos: list[TrainingSilo], unfitted: Mapping[Modality, Featuriser]
) -> dict[Modality, Featuriser]:
    """Fits each modality's vectors to sums over silos of what each silo counts in its own training items."""
    fitted: dict[Modality, Featuriser] = {}
    for modality, featuriser in unfitted.items():
        column = archive.values(modality)
        assert column is not None  # noqa: S101  a featuriser was made for it
        holders = [(silo, silo.train[archive.has(modality)[silo.train]]) for silo in silos if silo.holds(modality)]
        parts = [featuriser.statistics(column, rows) for _, rows in holders if len(rows)]
        if not parts:
            raise UserError(f"No silo has a training item with {modality}; the {modality} tower could not learn.")
        fitted[modality] = featuriser.fitted(add_statistics(parts))
    return fitted


def input_scale(featuriser: Featuriser) -> float:
    """Returns by what inputs are multiplied so that a unit-length row of V words starts as loud as D standardised values."""
    return math.sqrt(featuriser.shape[0]) / 4 if isinstance(featuriser, BagOfWords) else 1.0


def model_spec(featurisers: Mapping[Modality, Featuriser], classes: int, config: RunConfig) -> ModelSpec:
    """Returns the towers that fit the vectors."""
    towers: dict[Modality, TowerSpec] = {}
    for modality, featuriser in featurisers.items():
        shape = tuple(featuriser.shape)
        backbone = config.model.of(modality)
        if isinstance(featuriser, TokenFeatures) and not backbone:
            raise UserError(
                'features.text kind "tokens" is for a text tower that is trained on from a published model. Set '
                'model.text = { backbone = "huggingface", model = ... }, or another kind of features.'
            )
        towers[modality] = TowerSpec(
            kind="network" if backbone else "conv" if len(shape) == 3 else "mlp",
            shape=shape,
            hidden=config.model.hidden,
            dropout=config.model.dropout,
            scale=input_scale(featuriser),
            settings=network_settings(modality, featuriser, backbone) if backbone else {},
        )
    return ModelSpec(towers=towers, classes=classes, class_head=config.federated_method.class_head)


@dataclass(frozen=True)
class Prepared:
    """Everything that training needs, and nothing of the archive beside.

    Attributes:
        config: the run.
        spec: the towers.
        silos: names and how many items each trains on and holds back; an archive row may stand in several silos.
        arrays: ``image``, ``text``, ``labels``, ``has_image``, ``has_text``: training rows of silo 0, its validation rows,
            those of silo 1, ...; and ``pixel_mean``, ``pixel_deviation`` for pictures.
        published: the weights of published networks that towers are trained on from, as ``modality/name``.
    """

    config: RunConfig
    spec: ModelSpec
    silos: list[tuple[str, int, int]]
    arrays: Arrays
    published: Arrays = field(default_factory=dict)

    def silo(self, number: int, device: torch.device) -> tuple[SiloData, SiloData]:
        """Returns a silo's training and validation items on the device."""
        start = sum(train + validation for _, train, validation in self.silos[:number])
        name, train, validation = self.silos[number]
        return (
            self._data(name, slice(start, start + train), device),
            self._data(name, slice(start + train, start + train + validation), device),
        )

    def _data(self, name: str, rows: slice, device: torch.device) -> SiloData:
        def tensor(key: str) -> torch.Tensor | None:
            """Returns the rows of an array, or None where there is no such array."""
            return torch.from_numpy(np.array(self.arrays[key][rows])).to(device) if key in self.arrays else None

        def whole(key: str) -> torch.Tensor | None:
            """Returns a whole array, or None where there is no such array."""
            return torch.from_numpy(np.array(self.arrays[key])).to(device) if key in self.arrays else None

        has_image, has_text = tensor("has_image"), tensor("has_text")
        assert has_image is not None  # noqa: S101  always written
        assert has_text is not None  # noqa: S101
        return SiloData(
            name=name,
            image=tensor("image"),
            text=tensor("text"),
            labels=tensor("labels"),
            has_image=has_image,
            has_text=has_text,
            pixel_mean=whole("pixel_mean"),
            pixel_deviation=whole("pixel_deviation"),
        )

    def save(self, folder: Path) -> None:
        """Writes the inputs where worker processes map them."""
        with explaining_disk_errors(folder):
            for name, array in self.arrays.items():
                mapped = open_memmap(folder / f"{name}.npy", mode="w+", dtype=array.dtype, shape=array.shape)
                mapped[...] = array
                mapped.flush()
        write_arrays(folder / PUBLISHED, self.published)
        write_text(folder / "config.toml", self.config.to_toml())
        write_json(folder / "prepared.json", {"spec": self.spec.to_json(), "silos": self.silos})

    @staticmethod
    def load(folder: Path) -> Prepared:
        """Maps what `save` wrote; pages are shared among processes."""
        about = read_json(folder / "prepared.json")
        arrays: Arrays = {
            path.stem: np.load(path, mmap_mode="r", allow_pickle=False) for path in sorted(folder.glob("*.npy"))
        }
        return Prepared(
            config=load_config(folder / "config.toml"),
            spec=ModelSpec.from_json(about["spec"]),
            silos=[(name, train, validation) for name, train, validation in about["silos"]],
            arrays=arrays,
            published=read_arrays(folder / PUBLISHED)[0],
        )


def prepare(
    archive: Archive, silos: list[TrainingSilo], featurisers: Mapping[Modality, Featuriser], config: RunConfig
) -> Prepared:
    """Turns the silos' items into vectors.

    Raises:
        UserError: if the methods need labels or modalities that the archive lacks, or queries that no silo holds back.
    """
    check_methods(archive, silos, featurisers, config)
    rows = np.concatenate([part for silo in silos for part in (silo.train, silo.validation)])
    arrays: Arrays = {}
    for modality in MODALITIES:
        held = [np.full(len(silo.train) + len(silo.validation), silo.holds(modality)) for silo in silos]
        has = archive.has(modality)[rows] & np.concatenate(held) & (modality in featurisers)
        arrays[f"has_{modality}"] = has
        if modality in featurisers:
            arrays[modality] = vectors(archive, featurisers[modality], rows, has)
    arrays.update(pixel_statistics(featurisers))
    if archive.labels is not None:
        arrays["labels"] = archive.labels[rows].astype(np.float32)
    spec = model_spec(featurisers, len(archive.label_names), config)
    return Prepared(
        config=config,
        spec=spec,
        silos=[(silo.name, len(silo.train), len(silo.validation)) for silo in silos],
        arrays=arrays,
        published=published_weights(spec.towers),
    )


def vectors(
    archive: Archive, featuriser: Featuriser, rows: Rows, has: npt.NDArray[np.bool_]
) -> npt.NDArray[np.generic]:
    """Returns the vectors of some rows, ``(n, *shape)``; zeros where ``has (n,)`` is False."""
    column = archive.values(featuriser.modality)
    assert column is not None  # noqa: S101  a featuriser was made for it
    values = featuriser.transform(column, rows[has])
    if has.all():
        return values
    spread = np.zeros((len(rows), *values.shape[1:]), values.dtype)
    spread[has] = values
    return spread


def pixel_statistics(featurisers: Mapping[Modality, Featuriser]) -> Arrays:
    """Returns by what pixels are centred and divided, ``(c, 1, 1)`` each; nothing where pictures are no pixels."""
    featuriser = featurisers.get("image")
    if not isinstance(featuriser, PixelFeatures):
        return {}
    mean, deviation = np.float32(featuriser.mean), np.float32(featuriser.deviation)
    return {"pixel_mean": mean.reshape(-1, 1, 1), "pixel_deviation": deviation.reshape(-1, 1, 1)}


def check_methods(
    archive: Archive, silos: list[TrainingSilo], featurisers: Mapping[Modality, Featuriser], config: RunConfig
) -> None:
    """Checks that the archive has what the methods need, and the silos the queries by which some weigh.

    Raises:
        UserError: if labels, modalities or queries are missing.
    """
    method = config.federated_method
    needs_labels = config.local_method.needs_labels or method.needs_labels
    labelled = archive.labels is not None and bool(archive.labels.any())
    if needs_labels and not labelled:
        needing = config.local.name if config.local_method.needs_labels else config.federated.name
        raise UserError(
            f'"{needing}" learns from labels and archive "{archive.card.name}" has none. Add a column "labels" to its '
            "metadata, or choose a method that needs none."
        )
    if len(featurisers) < method.min_modalities:
        raise UserError(
            f'"{config.federated.name}" needs {method.min_modalities} modalities and archive '
            f'"{archive.card.name}" has {len(featurisers)}.'
        )
    members = getattr(method, "members", {config.federated.name: method})
    scoring = [label for label, member in members.items() if getattr(member, "needs_scores", False)]
    if scoring and not (labelled and any(len(silo.validation) for silo in silos)):
        raise UserError(
            f'"{scoring[0]}" weights silos by their scores on labelled queries held back from training, and no silo has any '
            f"(evaluate.validation is {config.evaluate.validation:g}). Set evaluate.validation = 0.1, or its "
            'weighting = "examples".'
        )
