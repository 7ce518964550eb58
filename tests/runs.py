"""Tiny archives, configs and runs for tests of the loop: a run of these takes a fraction of a second."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import typer
from matplotlib.figure import Figure

from silohash.methods.local.base import SiloData
from silohash.methods.local.label_counts import federation_labels, label_sums
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.report import plots
from silohash.report.style import page_svg
from silohash.run.config.load import load_config, load_resolved, resolve
from silohash.run.config.sections import RunConfig
from silohash.run.events import Observer
from silohash.run.folder import Run
from silohash.testing.check import same_arrays as same_arrays
from silohash.testing.inputs import loop_config as loop_config
from silohash.testing.inputs import with_label_sums
from silohash.testing.loop import Records as Records
from silohash.testing.loop import run_loop as run_loop
from silohash.training import experiment
from silohash.training.prepared import Prepared

WORDS = ("parrot", "harbour", "violin", "glacier", "kitchen", "tram", "orchard", "desert")
WIDTH = 16
BITS = 16


def labels_of(count: int, classes: int = 6, *, seed: int = 0, single: bool = False) -> np.ndarray:
    """Returns ``(count, classes)`` multi-hot labels, one or up to three a row."""
    generator = np.random.default_rng(seed)
    labels = np.zeros((count, classes), np.uint8)
    labels[np.arange(count), generator.integers(0, classes, count)] = 1
    if not single:
        labels |= (generator.random((count, classes)) < 0.15).astype(np.uint8)
    return labels


def views_of(labels: np.ndarray, width: int = WIDTH, *, seed: int, noise: float = 0.5) -> np.ndarray:
    """Returns ``(count, width)`` float32 vectors that follow the labels."""
    mixing = np.random.default_rng(seed).normal(size=(labels.shape[1], width))
    noises = np.random.default_rng(seed + 1).normal(size=(len(labels), width))
    return (labels @ mixing + noise * noises).astype(np.float32)


def write_archive(
    folder: Path, *, count: int = 120, single: bool = False, image: str | None = "given", text: str | None = "given",
    seed: int = 0, labeled: bool = True, places: int = 3,
) -> Path:  # fmt: skip
    """Writes a folder that the folder reader understands; a sixth asks, the rest is database and trained on.

    Args:
        image: ``"given"`` for ``image.npy``, or None.
        text: ``"given"`` for ``text.npy`` with captions beside, ``"words"`` for strings, or None.
        single: whether every item has one label only.
        labeled: whether the labels, which decide the content, are written too.
        places: number of values of the column ``place``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    labels = labels_of(count, seed=seed, single=single)
    rows = []
    for number, row in enumerate(labels):
        words = " ".join(WORDS[column] for column in np.flatnonzero(row))
        rows.append(
            {
                "id": f"item-{number:03d}",
                "text": f"{words} number {number}" if text else "",
                "labels": "|".join(WORDS[column] for column in np.flatnonzero(row)) if labeled else "",
                "split": "query" if number % 6 == 0 else "train",
                "place": f"place-{number % places}",
            }
        )
    write_metadata(folder, rows)
    if image == "given":
        np.save(folder / "image.npy", views_of(labels, seed=seed + 10))
    if text == "given":
        np.save(folder / "text.npy", views_of(labels, seed=seed + 20))
    return folder


def write_metadata(folder: Path, rows: list[dict[str, str]]) -> None:
    """Writes ``metadata.csv``."""
    with (folder / "metadata.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def tiny(archive: Path, **sections: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a small config's tables; ``sections`` go over its own, key by key."""
    value: dict[str, dict[str, Any]] = {
        "data": {"path": str(archive)},
        "model": {"hidden": 16, "dropout": 0.1},
        "partition": {"kind": "iid", "silos": 3},
        "local": {"name": "dcmh", "bits": BITS},
        "federated": {"name": "fedavg", "rounds": 3, "local_epochs": 2},
        "train": {"batch": 16, "learning_rate": 0.005, "device": "cpu", "threads": 1},
        "evaluate": {"measures": ["mAP@all", "P@5"], "validation": 0.2},
    }
    for name, section in sections.items():
        value[name] = {**value.get(name, {}), **section} if isinstance(section, Mapping) else section
    return value


def tiny_config(archive: Path, **sections: Mapping[str, Any]) -> RunConfig:
    """Returns `tiny` as a config."""
    return load_config(tiny(archive, **sections))


def write_config(path: Path, archive: Path, **sections: Mapping[str, Any]) -> Path:
    """Writes `tiny` as a TOML file."""
    path.write_text(tiny_config(archive, **sections).to_toml(), encoding="utf-8")
    return path


def train(archive: Path, out: Path, *observers: Observer, **sections: Mapping[str, Any]) -> Run:
    """Trains a tiny run."""
    return experiment.train(resolve(tiny_config(archive, **sections)), out, observers=observers)


def silo_data(
    count: int = 40, *, classes: int = 6, single: bool = False, image: bool = True, text: bool = True, seed: int = 0
) -> SiloData:
    """Returns a silo's pairs."""
    labels = labels_of(count, classes, seed=seed, single=single)
    return SiloData(
        name="silo",
        image=torch.from_numpy(views_of(labels, seed=10)) if image else None,
        text=torch.from_numpy(views_of(labels, seed=20)) if text else None,
        labels=torch.from_numpy(labels).float(),
        has_image=torch.full((count,), image),
        has_text=torch.full((count,), text),
        federation=federation_labels(label_sums([labels]), 0, torch.device("cpu")),
    )


def model_spec(*, image: bool = True, text: bool = True, classes: int = 6, dropout: float = 0.0) -> ModelSpec:
    """Returns towers that fit `silo_data`."""
    tower = TowerSpec("mlp", (WIDTH,), hidden=16, dropout=dropout)
    return ModelSpec({name: tower for name, there in (("image", image), ("text", text)) if there}, classes=classes)


def same_files(first: Path, second: Path) -> bool:
    """Tells whether two folders hold the same files, byte for byte."""
    names = [sorted(path.relative_to(folder) for path in folder.rglob("*")) for folder in (first, second)]
    if names[0] != names[1] or not names[0]:
        return False
    return all(
        (first / name).is_dir() or (first / name).read_bytes() == (second / name).read_bytes() for name in names[0]
    )


@dataclass(frozen=True)
class Said:
    """What a command answered, what it said beside, and its exit code."""

    code: int
    out: str
    err: str

    def document(self) -> Any:
        """Returns the one JSON document on standard output; NaN is no JSON."""

        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is no JSON")

        return json.loads(self.out, parse_constant=refuse)


commands = cache(typer.main.get_command)
"""The commands of an application. To put them together takes longer than most commands that tests run."""


drawings: dict[tuple[str, str], str] = {}
"""Drawings that commands have made in this process, by title and class."""


def drawn_once(figure: Figure, title: str, salt: Sequence[str], *, css_class: str = "plot") -> str:
    """Returns the drawing of a figure, or an earlier one with the same title.

    Drawings take most of the time of a report. They are tested with the reports, in ``tests/unit/report``.
    """
    key = title, css_class
    if key not in drawings:
        drawings[key] = page_svg(figure, title, salt, css_class=css_class)
    return drawings[key]


def silohash(*arguments: object) -> Said:
    """Runs a command of the command line in this process."""
    from silohash.cli import main

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        mock.patch.object(sys, "argv", ["silohash", *map(str, arguments)]),
        mock.patch.object(typer.main, "get_command", commands),
        mock.patch.object(plots, "page_svg", drawn_once),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Said(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


def prepared(
    sizes: Sequence[int] = (30, 20, 10), *, validation: int = 6, image: bool = True, text: bool = True,
    single: bool = False, **sections: Mapping[str, Any],
) -> Prepared:  # fmt: skip
    """Returns training inputs of made-up silos of some sizes, without an archive."""
    resolved = load_resolved(tiny(Path("none"), **{"partition": {"silos": len(sizes)}, **sections}))
    total = sum(sizes) + validation * len(sizes)
    data = silo_data(total, single=single, image=image, text=text)
    arrays = {"labels": data.labels, "has_image": data.has_image, "has_text": data.has_text}
    arrays |= {name: values for name, values in (("image", data.image), ("text", data.text)) if values is not None}
    inputs = Prepared(
        resolved=resolved,
        spec=replace(model_spec(image=image, text=text), class_head=resolved.federated.traits.class_head),
        silos=[(f"silo-{number}", size, validation) for number, size in enumerate(sizes)],
        arrays={name: array.numpy() for name, array in arrays.items()},
    )
    return with_label_sums(inputs)
