"""Build a packed data set from the files of its official source, and compare what it writes with the published set."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import lzma
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from silohash.base.analysis import COMMON_WORDS
from silohash.base.errors import DamagedFile, MissingContent, NoEffect, SettingNeeded
from silohash.base.files import check_own_folder, folder_beside, read_json, read_toml, write_json
from silohash.base.forms import REINSTALL, detail
from silohash.base.names import listed
from silohash.data.build.packed import sets
from silohash.data.build.packed.sets import Content, Facts
from silohash.data.build.packed.sources import DOWNLOAD_AGAIN, Row, Source, read_picture

FACTS = Path(__file__).with_name("facts")
"""Folder with one folder per set: the facts of its tables, and ``facts.json`` with digests and words to count."""

BUILT = "built.json"
"""File that lists the digests of what was built. It marks the folder as one that a builder may replace."""

PLANS = read_toml(FACTS.with_name("builders.toml"), remedy=REINSTALL, missing=REINSTALL)


def build_packed(
    name: str, read: Callable[[Source, Facts], Content],
    out: Path, *, source: Path | None, registry: str, cap: int, said: Callable[[str], None],
) -> dict[str, Any]:  # fmt: skip
    """Build the folder of a packed set that `silohash.data.packed` reads, and return what is in it and what is not.

    ``said`` gets a line per step, and a warning if something differs from the published set. ``registry`` and ``cap``, which
    all builders take, must be empty.

    Raises:
        UserError: If files or rows are missing or differ, a picture is damaged, or the folder cannot be written.
    """
    if registry or cap:
        raise NoEffect(f"{name} is built as a whole from files that you have. Leave out --registry and --cap.")
    if source is None:
        raise SettingNeeded(f"Name the folder that holds the official files of {name} with --from.")
    check_own_folder(out, BUILT)
    known = read_json(FACTS / name / "facts.json", dict[str, dict[str, str]], remedy=REINSTALL, missing=REINSTALL)
    said(f"Reading {source}")
    tables = {path.stem: _facts(path) for path in sorted((FACTS / name).glob("*.xz"))}
    files = Source(source)
    try:
        content = read(files, tables)
    except (LookupError, ValueError) as error:
        raise DamagedFile(f"A file in {source} has another form ({detail(error)}). {DOWNLOAD_AGAIN}") from error
    if files.lacking:
        count, first = f"{len(files.lacking):,}", listed(files.lacking)
        raise MissingContent(f"{source} lacks {count} rows: {first}. Nothing was written. {DOWNLOAD_AGAIN}")
    with folder_beside(out) as folder:
        said(f"Writing tables and {len(content.photos):,} pictures")
        digests = {file: _write_table(folder / file, rows) for file, rows in content.tables.items()}
        _write_pictures(folder, content, PLANS[name])
        if content.texts:
            digests |= _write_words(folder / "features", content, PLANS[name], known.get("words", {}))
        for file, arrays in content.arrays.items():
            np.savez_compressed(folder / file, **arrays)  # type: ignore[arg-type]
            digests |= {f"{file}: {key}": _digest(array.tobytes()) for key, array in arrays.items()}
        write_json(folder / BUILT, digests)
    if other := [file for file, digest in digests.items() if known["sha256"].get(file) != digest]:
        said(f"warning: not equal to the published set, so results can differ from published ones: {', '.join(other)}")
    absent = {file: f"{PLANS['absent'][Path(file).stem]}; SHA-256 {digest}" for file, digest in known["absent"].items()}
    about = {f"SHA-256 of {file}": digest for file, digest in digests.items()}
    about |= {f"not built: {file}": what for file, what in absent.items()}
    return {"items": max(map(len, content.tables.values())), **about}


def _facts(path: Path) -> list[Row]:
    """Return the rows of a table of facts. A column ``row`` is filled with the rows' numbers."""
    rows: list[Row] = list(csv.DictReader(io.StringIO(lzma.decompress(path.read_bytes()).decode(), newline="")))
    return [{**row, "row": number} if "row" in row else row for number, row in enumerate(rows)]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write_table(path: Path, rows: Sequence[Row]) -> str:
    """Write a table, ``.csv`` or ``.jsonl``, and return its digest."""
    stream = io.StringIO()
    if path.suffix == ".jsonl":
        stream.writelines(f"{json.dumps(row)}\n" for row in rows)
    else:
        csv.writer(stream, lineterminator="\n").writerows([[*rows[0]], *(row.values() for row in rows)])
    path.write_bytes(stream.getvalue().encode())
    return _digest(path.read_bytes())


def _write_pictures(folder: Path, content: Content, plan: Mapping[str, Any]) -> None:
    """Write the pictures scaled, packed or as separate files."""
    per_file = plan.get("per_file", len(content.photos) or 1)
    for number, start in enumerate(range(0, len(content.photos), per_file)):
        some = content.photos[start : start + per_file]
        files = [_encoded(path, (int(row["width"]), int(row["height"])), plan) for path, row in some]
        if "per_file" in plan:
            data, row = np.frombuffer(b"".join(files), np.uint8), np.arange(start, start + len(some), dtype=np.int32)
            offsets = np.cumsum([0, *map(len, files)], dtype=np.int64)
            np.savez(folder / f"images-{number:03}.npz", data=data, offsets=offsets, row=row)
            continue
        (folder / "images").mkdir()
        for (_, row_of_file), file in zip(some, files, strict=True):
            (folder / "images" / row_of_file["file"]).write_bytes(file)


def _encoded(path: Path, size: tuple[int, int], plan: Mapping[str, Any]) -> bytes:
    """Return the content of a picture's file, scaled."""
    picture, stream = read_picture(path, 2 * min(size)), io.BytesIO()
    scaled = picture.resize(size, Image.Resampling.LANCZOS)
    (scaled.quantize(plan["colors"]) if "colors" in plan else scaled).save(stream, **plan["save"])
    return stream.getvalue()


def _write_words(folder: Path, content: Content, plan: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, str]:
    """Write the vocabulary, counted or known as ``all``, and the word counts. Return their digests."""
    words = partial(_words, every=plan.get("every_word", False))
    frequency = Counter(word for text, decides in content.texts if decides for word in set(words(text)))
    counted = sorted(word for word in frequency if frequency[word] >= plan.get("least", 2))
    vocabulary = known["all"].split() if known else counted
    column = {word: number for number, word in enumerate(vocabulary)}
    counts = np.zeros((len(content.texts), len(column)), np.uint8)
    for row, (text, _) in enumerate(content.texts):
        for word in filter(column.__contains__, words(text)):
            counts[row, column[word]] += 1
    folder.mkdir()
    np.savez_compressed(folder / "text_bow.npz", bow=counts)
    (folder / "vocab.txt").write_bytes(lines := "".join(f"{word}\n" for word in vocabulary).encode())
    return {"features/vocab.txt": _digest(lines), "features/text_bow.npz: bow": _digest(counts.tobytes())}


def _words(text: str, *, every: bool) -> list[str]:
    """Return the words of a text that are counted."""
    found = re.findall("[a-z]+|[0-9]+", re.sub("'s?", "", text.lower()))
    return [word for word in found if every or (len(word) > 1 and word.isalpha() and word not in COMMON_WORDS)]


BUILD_COCO18 = partial(build_packed, "coco18", sets.coco18)
BUILD_FASHION = partial(build_packed, "fashion", sets.fashion)
BUILD_FLICKR8K_1K = partial(build_packed, "flickr8k-1k", sets.flickr8k)
BUILD_CLOTHING10 = partial(build_packed, "clothing10", sets.clothing10)
BUILD_WIKI_SIFT_LDA = partial(build_packed, "wiki-sift-lda", sets.wiki_sift_lda)
BUILD_COCO_MINI = partial(build_packed, "coco-mini", sets.coco_mini)
BUILD_NLVR_GRAPHS = partial(build_packed, "nlvr-graphs", sets.nlvr_graphs)
