"""Make the facts of the builders of packed data sets from published sets, and store them in the package.

Only who changes a published set runs this. No text and no picture becomes a fact, only digests.

Usage: python -m tests.packed_facts FOLDER-OF-DATA-SETS
"""

from __future__ import annotations

import csv
import hashlib
import json
import lzma
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from silohash.data.build import BUILDERS
from silohash.data.build.packed.builder import FACTS, digest_of, look_of
from silohash.data.pictures.reading import PackedPictures

PACKED = tuple(name for name in BUILDERS.table if name not in {"icons", "museums"})
"""The sets whose facts are stored."""

FILLED = ("row", "source_id", "split", "title", "photo")
"""Columns of the products of which there are facts. The source fills the others."""

NOT_MADE = {"text_bow.npz", "region_pca256.npz"}
"""Arrays that are not listed as absent: one is built, and one does not belong to the set."""


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a table of a published set, ``.csv`` or ``.jsonl``."""
    with path.open(encoding="utf-8", newline="") as stream:
        return [json.loads(line) for line in stream] if path.suffix == ".jsonl" else list(csv.DictReader(stream))


def tables_of(name: str, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Returns the rows of each table of facts of a set, given the published set's folder."""
    tables = {path.name: read_rows(path) for path in sorted(folder.glob("*.csv")) if path.name != "hierarchy.csv"}
    if name == "coco18":
        pictures = PackedPictures(folder)
        for place, row in enumerate(tables["pairs.csv"]):
            row |= {"caption": digest_of(row["caption"]), "photo": f"{look_of(pictures.picture(place)):08x}"}
    elif name == "fashion":
        for row in tables["pairs.csv"]:
            key = row["source_id"]
            row |= {"title": digest_of(key, row["title"]), "photo": f"{key}.jpg"}
            row |= dict.fromkeys(set(row) - set(FILLED), "")
    elif name == "clothing10":
        for row in tables["images.csv"]:
            row["photo"] = f"{row['source_id']}.jpg"
    elif name == "nlvr-graphs":
        tables["pairs.csv"] = [
            {
                **{key: row[key] for key in ("id", "group", "file")},
                "sentence": digest_of(row["id"], row["sentence"]),
                "photo": f"dev-{row['id']}-0.png",
            }
            for row in read_rows(folder / "pairs.jsonl")
        ]
    elif name == "wiki-sift-lda":
        return {}
    else:
        for row in tables["captions.csv"]:
            row["caption"] = digest_of(row["file"], row["caption"])
        for row in tables["images.csv"]:
            row["photo"] = row["file"]
    return tables


def digests_of(folder: Path, outputs: Iterable[str]) -> dict[str, dict[str, str]]:
    """Returns the digests of what a builder writes, of arrays by key, and of what none makes."""
    known = {file: hashlib.sha256((folder / file).read_bytes()).hexdigest() for file in outputs}
    for file in filter(Path.is_file, (folder / "features/text_bow.npz", folder / "wiki.npz")):
        with np.load(file) as arrays:
            name = file.relative_to(folder).as_posix()
            known |= {f"{name}: {key}": hashlib.sha256(arrays[key].tobytes()).hexdigest() for key in arrays.files}
    absent = [path for path in sorted(folder.glob("features/*.np[yz]")) if path.name not in NOT_MADE]
    by_file = {f"features/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest() for path in absent}
    return {"sha256": known, "absent": by_file}


def store_facts(data: Path, facts: Path = FACTS, names: Iterable[str] = PACKED) -> None:
    """Writes the facts of sets, given the folder above the published ones."""
    for name in names:
        tables = tables_of(name, data / name)
        (facts / name).mkdir(parents=True, exist_ok=True)
        for file, rows in tables.items():
            store_table(facts / name / f"{file}.xz", rows)
        outputs = {"nlvr-graphs": {"pairs.jsonl"}, "wiki-sift-lda": {"items.csv", "classes.csv"}}.get(name, set(tables))
        outputs |= {path.relative_to(data / name).as_posix() for path in (data / name).glob("*/vocab.txt")}
        outputs |= {path.name for path in (data / name).glob("regions.jsonl")}
        about = digests_of(data / name, sorted(outputs))
        (facts / name / "facts.json").write_text(json.dumps(about, indent=1) + "\n")


def store_table(path: Path, rows: list[Mapping[str, Any]]) -> None:
    """Writes a table of facts."""
    with lzma.open(path, "wt", preset=9 | lzma.PRESET_EXTREME, encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    store_facts(Path(sys.argv[1]))
