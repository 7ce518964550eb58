"""Made-up silos, on which a method trains in a fraction of a second.

The vectors, regions and words of an item follow from its labels or from what it shows, so that a method can learn from them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from silohash.base import seeds
from silohash.base.types import Arrays
from silohash.features.nodes.regions import BOX
from silohash.methods.local.base import SiloData
from silohash.methods.local.label_counts import federation_labels, label_sums
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.run.config.load import load_resolved
from silohash.run.config.sections import DataConfig, FederatedConfig, RunConfig, TrainConfig
from silohash.training.prepared import Prepared

BITS = 16
CLASSES = 6
WIDTH = 16
NOISE = 0.5
MORE_LABELS = 0.15
"""Probability of each further label of an item."""

LACKING = ("one item", "one class", "no labels", "some without a picture", "some without a text", "no texts",
           "no pictures", "no pairs")  # fmt: skip
"""What a made-up silo can lack, see `lacking`."""

REGIONS, NODE_WIDTH, PLACES, WORDS = 5, 12, 9, 20
"""Regions of a made-up picture and their width without the box, words of a text, and size of the vocabulary."""

LACKING_NODES = ("one item", "some without a picture", "some without a text", "no pairs")
"""What a made-up silo with regions and words can lack, see `lacking_nodes`."""


@dataclass(frozen=True)
class Held:
    """Which modalities the items of a made-up silo have."""

    image: bool = True
    text: bool = True

    def __str__(self) -> str:
        return "both" if self.image and self.text else "image" if self.image else "text"


BOTH = Held()
MODALITIES = (BOTH, Held(text=False), Held(image=False))


def over_items(
    name: str, check: Callable[..., None], modalities: Sequence[Held] = MODALITIES
) -> dict[str, Callable[[], None]]:
    """Return a check as one per modality of the items and for one or several labels, with ``held`` and ``single`` given."""
    return {
        f"{name}-{held}-{'single' if single else 'multi'}": partial(check, held=held, single=single)
        for held in modalities
        for single in (True, False)
    }


def labels_of(count: int, *, single: bool = False) -> npt.NDArray[np.uint8]:
    """Return ``(count, CLASSES)`` multi-hot labels: one per row, or at least one."""
    generator = seeds.numpy_generator(0, "contract/labels")
    labels = np.zeros((count, CLASSES), np.uint8)
    labels[np.arange(count), generator.integers(0, CLASSES, count)] = 1
    if not single:
        labels |= (generator.random((count, CLASSES)) < MORE_LABELS).astype(np.uint8)
    return labels


def views_of(labels: npt.NDArray[np.uint8], modality: str) -> npt.NDArray[np.float32]:
    """Return vectors ``(count, WIDTH)`` of a modality: a fixed linear view of the labels, and noise."""
    mixing = seeds.numpy_generator(0, f"contract/{modality}").normal(size=(labels.shape[1], WIDTH))
    noise = seeds.numpy_generator(0, f"contract/{modality}/noise").normal(size=(len(labels), WIDTH))
    return (labels @ mixing + NOISE * noise).astype(np.float32)


def silo_data(count: int, *, single: bool = False, held: Held = BOTH) -> SiloData:
    """Return the pairs of a silo, which is the only silo of its federation."""
    labels = labels_of(count, single=single)
    return SiloData(
        name="silo",
        image=torch.from_numpy(views_of(labels, "image")) if held.image else None,
        text=torch.from_numpy(views_of(labels, "text")) if held.text else None,
        labels=torch.from_numpy(labels).float(),
        has_image=torch.full((count,), held.image),
        has_text=torch.full((count,), held.text),
        federation=federation_labels(label_sums([labels]), 0, torch.device("cpu")),
    )


def lacking(case: str) -> SiloData:
    """Return the pairs of a silo that lacks something: one of `LACKING`."""
    if case == "one item":
        return silo_data(1)
    data = silo_data(20, single=True)
    assert data.labels is not None  # noqa: S101  made-up data has labels
    if case == "one class":
        return replace(data, labels=torch.eye(data.labels.shape[1])[torch.zeros(20, dtype=torch.long)])
    if case == "no labels":
        return replace(data, labels=torch.zeros_like(data.labels))
    return _without_views(data, case)


def _without_views(data: SiloData, case: str) -> SiloData:
    """Return 20 made-up pairs without the pictures or texts that a case lacks, which become zeros."""
    some, none = torch.arange(20) % 3 > 0, torch.zeros(20, dtype=torch.bool)
    pictures = {"some without a picture": some, "no pictures": none, "no pairs": some}.get(case, data.has_image)
    texts = {"some without a text": some, "no texts": none, "no pairs": ~some}.get(case, data.has_text)
    assert data.image is not None  # noqa: S101  made-up data has both modalities
    assert data.text is not None  # noqa: S101
    image = torch.where(pictures.view(-1, *[1] * (data.image.ndim - 1)), data.image, 0)
    text = torch.where(texts[:, None], data.text, 0)
    return replace(data, image=image, text=text, has_image=pictures, has_text=texts)


def model_spec(*, held: Held = BOTH, classes: int = CLASSES, dropout: float = 0.0) -> ModelSpec:
    """Return the structure of towers that fit `silo_data`."""
    tower = TowerSpec("mlp", (WIDTH,), hidden=16, dropout=dropout)
    return ModelSpec({name: tower for name in ("image", "text") if getattr(held, name)}, classes=classes)


def node_spec(dropout: float = 0.0, hidden: int = 16) -> ModelSpec:
    """Return the structure of a model that fits `node_data`."""
    return ModelSpec(
        {
            "image": TowerSpec("regions", (REGIONS, NODE_WIDTH + BOX), hidden=hidden, dropout=dropout),
            "text": TowerSpec("words", (PLACES,), hidden=hidden, dropout=dropout, settings={"words": WORDS}),
        },
        classes=0,
    )


def node_data(count: int) -> SiloData:
    """Return the pairs of a silo with regions and words: an item shows some of the words, and its text names them."""
    generator = seeds.numpy_generator(0, "contract/nodes")
    looks = generator.normal(size=(WORDS, NODE_WIDTH))
    image = np.zeros((count, REGIONS, NODE_WIDTH + BOX), np.float32)
    text = np.full((count, PLACES), -1, np.int32)
    for item in range(count):
        shown = generator.choice(np.arange(3, WORDS), generator.integers(2, REGIONS + 1), replace=False)
        image[item, : len(shown), :NODE_WIDTH] = looks[shown] + 0.3 * generator.normal(size=(len(shown), NODE_WIDTH))
        corner = generator.uniform(0, 0.5, size=(len(shown), 2))
        image[item, : len(shown), NODE_WIDTH:] = np.concatenate([corner, corner + 0.4], axis=1)
        text[item, : len(shown) + 2] = [0, *sorted(shown), 1]
    there = torch.ones(count, dtype=torch.bool)
    return SiloData("silo", torch.from_numpy(image), torch.from_numpy(text), None, there, there.clone())


def lacking_nodes(case: str) -> SiloData:
    """Return the pairs of a silo that lacks something: one of `LACKING_NODES`."""
    return node_data(1) if case == "one item" else _without_views(node_data(20), case)


def loop_config(*, seed: int = 0, epochs: int = 1, rounds: int = 3, **train: Any) -> RunConfig:  # noqa: ANN401  values of [train]
    """Return a config for one silo's round. ``train`` holds values of its table; the weight decay is 0 by default."""
    return RunConfig(
        seed=seed,
        data=DataConfig(name="glyphs"),
        federated=FederatedConfig(rounds=rounds, local_epochs=epochs),
        train=TrainConfig(**{"weight_decay": 0.0, **train}),
    )


def prepared_inputs(
    local: str,
    federated: str,
    sizes: Sequence[int],
    *,
    validation: int = 6,
    held: Held = BOTH,
    single: bool = False,
    rounds: int = 3,
    train: Mapping[str, Any] | None = None,
) -> Prepared:
    """Return the inputs of a training of two methods, given by name, on made-up silos.

    The silos have ``sizes`` training items and ``validation`` validation items each. A pooled federated method gets all
    items as one silo. With ``single``, every item has one label. ``train`` holds values of ``[train]``.
    """
    resolved = load_resolved(
        {
            "data": {"name": "glyphs"},
            "model": {"hidden": 16, "dropout": 0.1},
            "local": {"name": local, "bits": BITS},
            "federated": {"name": federated, "rounds": rounds, "local_epochs": 2},
            "train": {"batch": 16, "learning_rate": 0.01, "device": "cpu", "threads": 1, **(train or {})},
            "evaluate": {"measures": ["mAP@all", "P@5"], "validation": 0.2},
        }
    )
    sizes = (sum(sizes),) if resolved.federated.traits.pooled else sizes
    data = silo_data(sum(sizes) + validation * len(sizes), single=single, held=held)
    tensors = {"labels": data.labels, "has_image": data.has_image, "has_text": data.has_text}
    tensors |= {"image": data.image, "text": data.text}
    inputs = Prepared(
        resolved=resolved,
        spec=replace(model_spec(held=held), class_head=resolved.federated.traits.class_head),
        silos=[(f"silo-{number}", size, validation) for number, size in enumerate(sizes)],
        arrays={name: tensor.numpy() for name, tensor in tensors.items() if tensor is not None},
    )
    return with_label_sums(inputs)


def with_label_sums(inputs: Prepared) -> Prepared:
    """Return the inputs with the sums of `label_sums` over the training items of their silos."""
    ends = np.cumsum([train + validation for _, train, validation in inputs.silos])
    parts = [inputs.arrays["labels"][end - train - held : end - held]
             for end, (_, train, held) in zip(ends, inputs.silos, strict=True)]  # fmt: skip
    return replace(inputs, arrays={**inputs.arrays, **label_sums(parts)})


def without(inputs: Prepared, case: str) -> Prepared:
    """Return the inputs without the first silo's ``labels``, ``all classes but one``, ``pictures`` or ``texts``."""
    arrays: Arrays = {name: array.copy() for name, array in inputs.arrays.items()}
    first = slice(0, inputs.silos[0][1] + inputs.silos[0][2])
    if case == "labels":
        arrays["labels"][first] = 0
    elif case == "all classes but one":
        arrays["labels"][first] = np.eye(CLASSES, dtype=np.float32)[0]
    elif case in {"pictures", "texts"}:
        modality = "image" if case == "pictures" else "text"
        arrays[f"has_{modality}"][first], arrays[modality][first] = False, 0
    return with_label_sums(replace(inputs, arrays=arrays))
