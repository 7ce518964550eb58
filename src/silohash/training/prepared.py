"""Prepare the inputs of training: each silo's training items, with vectors and labels in files that workers map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from numpy.lib.format import open_memmap

from silohash.base import files, seeds
from silohash.base.errors import ConflictingOptions, ModalityNeeded, NothingUsable, UnknownName
from silohash.base.registry import suggestion
from silohash.base.types import MODALITIES, Arrays, Modality, Rows
from silohash.data.archive import Archive
from silohash.data.pairs import groups_of, picture_numbers
from silohash.data.partitions.base import Partition
from silohash.data.partitions.columns import values_of
from silohash.data.partitions.kinds import training_split
from silohash.data.partitions.training import SiloItems, TrainingSilo, bootstrap_sample, held_back_pairs, parts_of
from silohash.features.base import Featurizer, Featurizers, add_statistics
from silohash.features.image import PixelFeatures
from silohash.features.text import BagOfWords
from silohash.features.vectors import pixel_statistics, vectors
from silohash.measure.measurable import ignored_labels
from silohash.methods.federated.base import FederationInfo, ServerState
from silohash.methods.local.base import ClosedForm, SiloData
from silohash.methods.local.label_counts import federation_labels, label_sums
from silohash.models.backbones import published_weights
from silohash.models.specs import ModelSpec
from silohash.models.tower_specs import tower_spec
from silohash.run.config.load import ResolvedConfig, load_resolved
from silohash.run.config.sections import NORM_LIMIT, RunConfig
from silohash.run.model.trained import TrainedModel, deployed_weights
from silohash.training import checks
from silohash.training.updates.bounds import Announced, Bounds
from silohash.training.updates.chain import Chain, Link, Screening
from silohash.training.updates.compression import Compression
from silohash.training.updates.encryption import KEY, SiloKey
from silohash.training.updates.noise import Noise
from silohash.training.updates.sealed import Encryption, run_digest

Networks: TypeAlias = Mapping[Modality, Mapping[str, Any]]
"""The settings of towers that are published networks."""

PUBLISHED = "published.safetensors"
FEW_PHOTOGRAPHS = 5_000
"""With fewer color pictures than this, a tower that is trained from scratch does not learn what photographs show."""

FEWEST_WITH_VALIDATION = 4
"""A silo with fewer training items than this does not hold any back for validation."""


def training_silos(archive: Archive, partition: Partition, resolved: ResolvedConfig) -> list[TrainingSilo]:
    """Split each silo's training items into items to train on and validation queries, which select the best round.

    Items of the same picture stay together. If the partition draws training items with replacement, it draws from those
    that are not held back. A pooled method gets one silo with the training and validation items of all silos.

    Raises:
        UserError: If no silo has training items, or a pooled method is combined with silos that lack a modality or pairs.
    """
    config = resolved.config
    split, drawn = training_split(partition.params), bool(partition.params.get("bootstrap"))
    train, pictures = archive.split(split), picture_numbers(archive)
    by_pairs = resolved.validation_by == "pairs"
    held_pairs = held_back_pairs(archive, config.evaluate.validation, config.seed, split) if by_pairs else train[:0]
    silos = []
    for number, silo in enumerate(partition.silos):
        rows = np.intersect1d(silo.rows, train)
        first, group_of = groups_of(pictures[rows])
        order = seeds.numpy_generator(config.seed, "validation", silo=number).permutation(rows[first])
        held = int(config.evaluate.validation * len(first)) if len(rows) >= FEWEST_WITH_VALIDATION else 0
        validation = rows[np.isin(rows[first][group_of], order[:held])]
        if by_pairs:
            holds_pairs = not silo.lacks and held > 0
            validation = np.intersect1d(rows, held_pairs) if holds_pairs else rows[:0]
        kept = np.setdiff1d(rows, validation)
        kept = bootstrap_sample(kept, partition.seed, number) if drawn else kept
        silos.append(TrainingSilo(silo.name, kept, validation, silo.has_image, silo.has_text, silo.paired))
    if not any(len(silo.train) for silo in silos):
        raise NothingUsable(f'Archive "{archive.card.name}" has no items in the split "{split}". Assign some to it.')
    return [_pooled(silos, repeated=drawn)] if resolved.federated.traits.pooled else silos


def _pooled(silos: list[TrainingSilo], *, repeated: bool) -> TrainingSilo:
    """Return the silo that holds the items of all silos. Those that were drawn several times stay ``repeated``."""
    if not all(silo.has_image and silo.has_text and silo.paired for silo in silos):
        raise ConflictingOptions(
            'Pooled training (federated.name = "centralized") needs every silo\'s images, texts and pairs, but the '
            "partition removes some. Remove partition.missing_image, partition.missing_text and partition.unpaired."
        )
    if len(silos) == 1:
        return silos[0]
    return TrainingSilo(
        name="pooled",
        train=(np.sort if repeated else np.unique)(np.concatenate([silo.train for silo in silos])),
        validation=np.unique(np.concatenate([silo.validation for silo in silos])),
    )


def fit_featurizers(
    archive: Archive, silos: list[TrainingSilo], unfitted: Featurizers, *, private: bool = False
) -> dict[Modality, Featurizer]:
    """Fit each modality's featurizer to the silos' training items, from the silos' statistics, if they share any.

    Raises:
        UserError: If no silo has training items of a modality, or a featurizer needs statistics and there are none.
    """
    fitted: dict[Modality, Featurizer] = {}
    for modality, featurizer in unfitted.items():
        column = archive.values(modality)
        assert column is not None  # noqa: S101  a featurizer exists only for columns of the archive
        held = [silo.train[archive.has(modality)[silo.train]] for silo in silos if silo.holds(modality)]
        statistics = partial(checks.no_statistics, featurizer) if private else featurizer.statistics
        parts = [statistics(column, rows) for rows in held if len(rows)]
        if not parts:
            raise ModalityNeeded(
                f"No silo has training items with {modality} data, so the {modality} tower cannot be trained. "
                "Set data.modality, or change the partition."
            )
        fitted[modality] = featurizer.fitted(add_statistics(parts))
    return fitted


def model_spec(
    featurizers: Featurizers, resolved: ResolvedConfig, labels: int, arrays: Arrays, networks: Networks | None = None
) -> ModelSpec:
    """Return the structure of a model, given the number of labels, the inputs, if they are here, and known networks."""
    model, known = resolved.config.model, networks or {}
    return ModelSpec(
        towers={
            m: tower_spec(
                m, featurizer, widths=model.widths.get(m, (model.hidden,)), dropout=model.dropout,
                backbone=model.of(m), network=known.get(m),
            )
            for m, featurizer in featurizers.items()
        },
        classes=labels if resolved.needs_labels else 0, class_head=resolved.federated.traits.class_head,
        coarse_classes=arrays["coarse_labels"].shape[1] if "coarse_labels" in arrays else 0,
    )  # fmt: skip


@dataclass(frozen=True)
class Prepared:
    """Everything that training needs from the config and the archive.

    Attributes:
        silos: Name, number of training items and number of validation items of each silo. An archive row can belong
            to several silos.
        arrays: ``image``, ``text``, ``labels``, ``has_image`` and ``has_text``, each with the training rows of silo 0,
            its validation rows, the training rows of silo 1, and so on; ``coarse_labels`` likewise, if the local method
            names a column for them. If images are given as pixels, also ``pixel_mean`` and ``pixel_deviation``. With
            labels, also the sums of `label_sums`. If neither method learns from labels, there is nothing of these labels,
            and ``judged_labels`` holds those of the same rows for the validation score alone. If pairs choose the round,
            ``pictures`` holds the number of the picture of each row (`picture_numbers`), and otherwise ``ignored_labels``
            the columns of the labels in ``evaluate.ignore_labels``.
        published: The initial weights of towers that are published networks, under ``modality/name``.
        key: The key with which silos encrypt what they send, if they do.
        announced: What each silo on another machine announced, which only the server knows.
    """

    resolved: ResolvedConfig
    spec: ModelSpec
    silos: list[tuple[str, int, int]]
    arrays: Arrays
    published: Arrays = field(default_factory=dict)
    key: SiloKey | None = None
    announced: Sequence[Announced] = ()

    @property
    def config(self) -> RunConfig:
        """The config of the run."""
        return self.resolved.config

    def chain(self) -> Chain:
        """Return what happens to updates on their way: the one place where its links are made."""
        exchange, federated = self.config.exchange, self.resolved.federated
        links: list[Link] = []
        # Noise is first, because it alone changes how a silo trains: no link may stand between it and the training.
        if exchange.privacy is not None:
            links.append(Noise(self.resolved, exchange.privacy, [train for _, train, _ in self.silos]))
        limit, traits = self.config.federated.norm_limit, federated.traits
        if limit is None:
            by_silo = exchange.privacy is not None and exchange.privacy.unit == "silo"
            hidden = exchange.encryption is not None or by_silo
            limit = NORM_LIMIT if self.announced and not hidden else 0.0
        largest = traits.largest_weight if exchange.privacy is None else 1.0  # private weights are public and equal
        links += [Bounds(self.announced, traits.means, largest, limit), Screening(federated)]
        if exchange.compression is not None:
            links.append(Compression.of(exchange.compression, federated))
        if exchange.encryption is not None:
            names = tuple(name for name, _, _ in self.silos)
            links.append(Encryption(self.key, federated, run_digest(self.config), names))
        return Chain(tuple(links))

    def trained(
        self,
        featurizers: Featurizers,
        server: ServerState,
        personal: Mapping[str, Arrays],
        *,
        round: int,  # noqa: A002
    ) -> TrainedModel:
        """Return the model that a run ends with, given the server's state, and the parameters of personal models."""
        weights = deployed_weights(self.resolved.federated, server, personal)
        return TrainedModel(self.resolved, self.spec, featurizers, weights, round)

    def info(self) -> FederationInfo:
        """Return what the server knows before the first round."""
        several = int(self.arrays["label_items"][1]) if "label_items" in self.arrays else 0
        return FederationInfo(
            silos=len(self.silos), classes=self.spec.classes, bits=self.config.local.bits,
            total_rounds=self.config.federated.rounds, seed=self.config.seed, exclusive=several == 0,
        )  # fmt: skip

    def silo(self, number: int, device: torch.device) -> tuple[SiloData, SiloData]:
        """Return a silo's training items and validation items on the device."""
        name, (train, held) = self.silos[number][0], self._rows(number)
        return self._data(name, train, device), self._data(name, held, device)

    def _rows(self, number: int) -> tuple[slice, slice]:
        start = sum(train + validation for _, train, validation in self.silos[:number])
        _, train, validation = self.silos[number]
        return slice(start, start + train), slice(start + train, start + train + validation)

    def pictures(self, number: int) -> npt.NDArray[np.int64] | None:
        """Return the numbers of the pictures of a silo's validation items, or None if labels choose the round."""
        if "pictures" not in self.arrays:
            return None
        return np.asarray(self.arrays["pictures"][self._rows(number)[1]])

    def judged(self, number: int, pairs: tuple[SiloData, SiloData]) -> tuple[SiloData, SiloData]:
        """Return a silo's two parts, as `silo` returns them, with the labels that the validation score compares."""
        if "judged_labels" not in self.arrays:
            return pairs
        train, held = (
            replace(part, labels=_tensor(self.arrays["judged_labels"][rows], part.has_image.device))
            for part, rows in zip(pairs, self._rows(number), strict=True)
        )
        return train, held

    @property
    def ignored_labels(self) -> tuple[int, ...]:
        """The columns of the labels that do not count in the validation score."""
        return tuple(int(column) for column in self.arrays.get("ignored_labels", ()))

    def _data(self, name: str, rows: slice, device: torch.device) -> SiloData:
        def tensor(key: str, rows: slice = rows) -> torch.Tensor | None:
            """Return rows of an array, those of the silo by default, or None if the array does not exist."""
            return _tensor(self.arrays[key][rows], device) if key in self.arrays else None

        return SiloData(
            name=name, image=tensor("image"), text=tensor("text"), labels=tensor("labels"),
            has_image=_tensor(self.arrays["has_image"][rows], device),
            has_text=_tensor(self.arrays["has_text"][rows], device), coarse_labels=tensor("coarse_labels"),
            pictures=tensor("pictures"), pixel_mean=tensor("pixel_mean", slice(None)),
            pixel_deviation=tensor("pixel_deviation", slice(None)),
            federation=federation_labels(self.arrays, self.config.seed, device),
        )  # fmt: skip

    def save(self, folder: Path) -> None:
        """Write the inputs as files that worker processes map into memory."""
        with files.explaining_disk_errors(folder):
            for name, array in self.arrays.items():
                mapped = open_memmap(folder / f"{name}.npy", mode="w+", dtype=array.dtype, shape=array.shape)
                mapped[...] = array
                mapped.flush()
        files.write_arrays(folder / PUBLISHED, self.published)
        if self.key:
            self.key.save(folder / KEY)
        files.write_text(folder / "config.toml", self.config.to_toml())
        files.write_json(folder / "prepared.json", {"spec": self.spec.to_json(), "silos": self.silos})

    @staticmethod
    def load(folder: Path) -> Prepared:
        """Map the inputs that `save` wrote. Processes on one machine share the memory."""
        about = files.read_json(folder / "prepared.json", _StoredInputs)
        arrays: Arrays = {path.stem: files.read_npy(path, mapped=True) for path in sorted(folder.glob("*.npy"))}
        return Prepared(
            resolved=load_resolved(folder / "config.toml"),
            spec=about.spec,
            silos=about.silos,
            arrays=arrays,
            published=files.read_arrays(folder / PUBLISHED)[0],
            key=SiloKey.load(folder / KEY) if (folder / KEY).exists() else None,
        )


def _tensor(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return an array as a tensor. On the CPU it shares the memory of a writable array, and nothing may change it."""
    return torch.from_numpy(np.require(array, requirements=("C", "W"))).to(device)


@dataclass(frozen=True)
class _StoredInputs:
    """The form of ``prepared.json``."""

    spec: ModelSpec
    silos: list[tuple[str, int, int]]


def prepare(
    archive: Archive,
    silos: list[TrainingSilo],
    featurizers: Featurizers,
    resolved: ResolvedConfig,
    *,
    networks: Networks | None = None,
) -> Prepared:
    """Turn the silos' items into vectors, and specify the towers for them, some of which may be known `networks`.

    Raises:
        UserError: If the archive lacks labels or modalities that the methods require, or no silo holds back the
            validation queries that they require.
    """
    parts = [parts_of(archive, silo, featurizers) for silo in silos]
    items = list(chain.from_iterable(parts))
    rows = np.concatenate([part.rows for part in items])
    arrays = _vectors(archive, featurizers, items, rows) | pixel_statistics(featurizers)
    arrays |= label_arrays(archive, parts, rows, resolved)
    if resolved.validation_by == "pairs":
        arrays["pictures"] = picture_numbers(archive)[rows]
    spec = model_spec(featurizers, resolved, len(archive.label_names), arrays, networks)
    sizes = [(silo.name, len(train), len(held)) for silo, (train, held) in zip(silos, parts, strict=True)]
    remarks = () if resolved.federated.traits.pooled else _remarks_on_silos(resolved, sizes, arrays)
    if isinstance(resolved.local, ClosedForm):
        remarks = (*remarks, *resolved.local.remarks(spec, resolved.config.local.bits))
    return Prepared(
        resolved=replace(resolved, remarks=(*resolved.remarks, *remarks)),
        spec=spec,
        silos=sizes,
        arrays=arrays,
        published={} if networks else published_weights(spec.networks),
    )


def _vectors(archive: Archive, featurizers: Featurizers, items: Sequence[SiloItems], rows: Rows) -> Arrays:
    """Return the vectors of the silos' items per modality, and which items have them; see `Prepared`."""
    arrays: Arrays = {}
    for modality in MODALITIES:
        arrays[f"has_{modality}"] = np.concatenate([part.has[modality] for part in items])
        if modality in featurizers:
            arrays[modality] = vectors(archive, featurizers[modality], rows, arrays[f"has_{modality}"])
    return arrays


def label_arrays(
    archive: Archive, parts: Sequence[tuple[SiloItems, SiloItems]], rows: Rows, resolved: ResolvedConfig
) -> Arrays:
    """Return the arrays of the silos' items that are made from labels; see `Prepared`.

    This is the only place where labels enter the training. If neither method learns from labels, the silos' data does not
    hold any, and only the validation score can see them.
    """
    arrays: Arrays = {}
    if resolved.validation_by == "labels" and resolved.config.evaluate.ignore_labels:
        arrays["ignored_labels"] = np.array(ignored_labels(archive, resolved.config.evaluate), np.int64)
    if not resolved.needs_labels:
        if archive.labels is not None and resolved.validation_by == "labels":
            arrays["judged_labels"] = archive.labels[rows].astype(np.float32)
        return arrays
    if archive.labels is not None:
        arrays["labels"] = archive.labels[rows].astype(np.float32)
        shared = slice(None) if resolved.config.exchange.privacy is None else slice(0)
        arrays.update(label_sums([archive.labels[train.rows[shared]] for train, _ in parts]))
    if column := resolved.local.traits.coarse_column:
        arrays["coarse_labels"] = coarse_labels(archive, rows, column)
    return arrays


def coarse_labels(archive: Archive, rows: Rows, column: str) -> npt.NDArray[np.float32]:
    """Return the labels of a coarser level, one per value of a column, ``(n, C')``. An empty value is not a label.

    Raises:
        UserError: If the archive does not have the column.
    """
    if column not in archive.columns:
        near, listed = suggestion(column, archive.columns), ", ".join(archive.columns)
        remedy = f"Set it to one of: {listed}" if listed else "It has no columns, so remove local.coarse_column"
        raise UnknownName(f'local.coarse_column: "{archive.card.name}" has no column "{column}"{near}. {remedy}.')
    names, places, _ = values_of(archive.columns[column][rows])
    labels = [place for place, name in enumerate(names) if name]
    found: npt.NDArray[np.float32] = (places[:, None] == labels).astype(np.float32)
    return found


def _remarks_on_silos(resolved: ResolvedConfig, sizes: checks.SiloSizes, arrays: Arrays) -> tuple[str, ...]:
    settings, federated = resolved.config.federated, resolved.federated
    rule = settings.robust.rule if settings.robust else ""
    towers = checks.towers_of_few_silos(settings.given_cap, rule, sizes, arrays) if federated.traits.averages else ()
    releases = {name: part.traits.release for name, part in federated.parts(settings.name).items()}
    return *checks.unreleased_classes(releases, sizes, arrays), *towers


def remarks_on(prepared: Prepared, featurizers: Featurizers) -> list[str]:
    """Return what a user should know about the inputs before the training starts, as sentences."""
    train, words = prepared.config.train, isinstance(featurizers.get("text"), BagOfWords)
    return [
        *_few_photographs(prepared, featurizers.get("image")),
        *(checks.decay_of_absent_words(train.optimizer, train.weight_decay) if words else ()),
    ]


def _few_photographs(prepared: Prepared, featurizer: Featurizer | None) -> Iterator[str]:
    """Yield a remark if an image tower is trained from scratch on few color pictures."""
    if not isinstance(featurizer, PixelFeatures) or featurizer.channels != 3 or prepared.config.model.image:
        return
    count = int(prepared.arrays["has_image"].sum())
    if count < FEW_PHOTOGRAPHS:
        yield (
            f"The image tower is trained from scratch on {count:,} color pictures, which can teach it colors and simple "
            "shapes, but not what photographs show. For photographs, start from a published network: silohash new CONFIG "
            "--data FOLDER --backbone clip"
        )
