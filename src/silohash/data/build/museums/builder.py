"""Build the archive of museums from the files that these publish: read them as ``museums.toml`` says, and fetch pictures."""

import csv
import io
import re
import shutil
from codecs import iterdecode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

from silohash.base.cache import cache_folder
from silohash.base.errors import MissingFile, NoEffect, NothingUsable
from silohash.base.files import check_own_folder, folder_beside, read_toml, write_bytes
from silohash.base.forms import REINSTALL, any_json, of_value, reading
from silohash.base.names import listed
from silohash.data.benchmarks.layouts.reading import find, plain_text
from silohash.data.build.archive import BuiltSet
from silohash.data.build.fetching import Polite
from silohash.data.build.icons.builder import Row, as_csv, capped, facts_of
from silohash.data.build.icons.concepts import frequent, keys_of, read_table, said_by, singular
from silohash.data.build.icons.libraries import words_of
from silohash.data.formats.metadata import LARGEST_FIELD_BYTES
from silohash.data.pictures.reading import decode

TABLES, LIST = Path(__file__).parent, "pictures.csv"
MUSEUMS = of_value(read_toml(TABLES / "card.toml", remedy=REINSTALL, missing=REINSTALL), BuiltSet)
LEAST_ITEMS, LEAST_SILOS, CAP, MOST_BYTES, SIDE, QUALITY = 300, 3, 4_000, 1 << 24, 224, 90
"""Objects and museums that a label needs, objects per museum if the user does not choose their number, size of the largest
picture, longer side of its thumbnail in pixels, and the thumbnail's quality as JPEG."""

Record: TypeAlias = Mapping[str, Any]


def build_museums(
    out: Path, *, source: Path | None, registry: str, cap: int, said: Callable[[str], None],
    tables: Path = TABLES, polite: Polite | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Build the folder from the museums' files in ``source``, and return the numbers of its items.

    The other arguments are those of `silohash.data.build.icons.builder.build_icons`; ``polite`` fetches the pictures.
    Thumbnails are kept in the cache folder, so an interrupted build continues.

    Raises:
        UserError: If files are missing or damaged, a host gives nothing, or the folder cannot be written.
    """
    if registry:
        raise NoEffect("Museums do not publish packages of npm. Leave out --registry.")
    museums = read_toml(tables / "museums.toml", remedy=REINSTALL, missing=REINSTALL)
    check_own_folder(out, LIST)
    said("Reading the files of the museums")
    rows = _chosen(museums, source, tables, cap or CAP)
    before = {_first(row, "file_name"): _values(row, "bytes", "sha256") for row in _records(out, LIST, {})}
    write_bytes(out / LIST, as_csv([_noted(row, before) for row in rows]))
    left = _fetch(rows, museums, polite or Polite(), said)
    noted = [_noted(row, {} if _kept(row) else before) for row in rows]
    rows = list(filter(_kept, noted))
    with folder_beside(out) as folder:
        for row in rows:
            (folder / row["silo"]).mkdir(exist_ok=True)
            shutil.copyfile(_kept(row)[0], folder / row["file_name"])
        (folder / "metadata.csv").write_bytes(as_csv(rows))
        (folder / LIST).write_bytes(as_csv(noted))
    changed = sum(before.get(row["file_name"], [])[1:] not in ([], [row["sha256"]]) for row in rows)
    if changed:
        said(f"warning: {changed:,} pictures are not those of {LIST}, so results cannot be compared with former ones")
    return {**facts_of(rows), "left out": dict(left), "changed pictures": changed}


def _chosen(museums: Mapping[str, Record], source: Path | None, tables: Path, cap: int) -> list[Row]:
    """Return the rows of at most so many objects per museum, with the labels that enough objects and museums have."""
    lacking = [one["where"] for one in museums.values() if source is None or not find(source, one["files"])]
    if source is None or lacking:
        raise MissingFile(f"Download the following, and name their folder with --from: {'; '.join(lacking)}.")
    keys = keys_of(read_table(tables / "concepts.txt"), of_names=False)
    every = {row["file_name"]: row for silo in museums for row in _rows(silo, museums[silo], source, keys)}
    found = {name: frozenset(row["labels"].split("|")) for name, row in every.items()}
    chosen = capped(labels := frequent(found, LEAST_ITEMS, LEAST_SILOS), museums, cap)
    if unusable := museums.keys() - {every[name]["silo"] for name in chosen}:
        raise NothingUsable(f"{source} has no usable objects of {listed(sorted(unusable))}. Download complete files.")
    return [{**row, "labels": "|".join(sorted(labels[name]))} for name, row in every.items() if name in chosen]


def _rows(silo: str, museum: Record, source: Path, keys: Mapping[str, set[str]]) -> Iterator[Row]:
    """Yield a row for each object that has an open license, a title, a picture, and key words of labels."""
    given = {word for key in keys for word in key.split("-")} if museum["title"] in museum["terms"] else set[str]()
    for record in _records(source, museum["files"], museum["only"]):
        title, labels = plain_text(_first(record, museum["title"])), said_by(_values(record, *museum["terms"]), keys)
        image = _first(record, museum["image"])
        if not title or not labels or not image:
            continue
        # Some museums state nationality, years and role in parentheses behind the name of an artist, and after them.
        artist, name = _first(record, museum["artist"]).partition("(")[0], _first(record, museum["id"])
        group = " ".join(["museums-1", *words_of(artist), "|", *words_of(title)])
        share = int(sha256(group.encode()).hexdigest()[:8], 16) / 2**32
        words = [word for word in title.split() if given.isdisjoint(map(singular, words_of(word)))]
        yield {
            "file_name": f"{silo}/{re.sub('[^a-zA-Z0-9.-]', '_', name)}.jpg",
            "text": " ".join([*words, *map(plain_text, _values(record, *museum["text"]))]),
            "labels": "|".join(labels), "silo": silo, "name": name, "license": "CC0-1.0",
            "split": "query" if share < 0.1 else "database" if share < 0.3 else "train",
            "source": museum["address"].format(image),
        }  # fmt: skip


def _records(folder: Path, pattern: str, only: Record) -> Iterator[Record]:
    """Yield rows of CSV files, JSON objects, or those of lines, that have one of the possible values of each field."""
    csv.field_size_limit(LARGEST_FIELD_BYTES)
    for path in find(folder, pattern):
        with reading(path, remedy="Download it again."), path.open("rb") as stream:
            lines = [stream.read()] if path.suffix == ".json" else filter(bytes.strip, stream)
            found = csv.DictReader(iterdecode(lines, "utf-8-sig")) if path.suffix == ".csv" else map(any_json, lines)
            yield from (one for one in found if all(_first(one, key) in values for key, values in only.items()))


def _values(record: Record, *paths: str) -> list[str]:
    """Return the values at paths of a record, as texts."""
    every: list[str] = []
    for path in paths:
        ends: list[Any] = [record]
        for key in path.split("."):
            some = ends[int(key) :][:1] if key.isdecimal() else [one.get(key) for one in ends if isinstance(one, dict)]
            ends = [one for value in some for one in (value if isinstance(value, list) else [value]) if one]
        every += map(str, ends)
    return every


def _first(record: Record, path: str) -> str:
    return next(iter(_values(record, path)), "")


def _fetch(rows: list[Row], museums: Mapping[str, Record], polite: Polite, said: Callable[[str], None]) -> Counter[str]:
    """Fetch the pictures that are not kept, and keep their thumbnails. Return how many are left out for what reason."""
    hosts, left = {host for museum in museums.values() for host in museum["hosts"]}, Counter[str]()
    said(f"Fetching from {', '.join(sorted(hosts))}, at most one file per second each. If interrupted, run it again.")
    lacking = sorted((row for row in rows if not _kept(row)), key=lambda row: sha256(row["source"].encode()).digest())
    for number, row in enumerate(lacking):
        if number % 100 == 0:
            said(f"{number:,} of {len(lacking):,} pictures, {left.total():,} of them left out")
        museum, stream = museums[row["silo"]], io.BytesIO()
        try:
            content = polite.fetch(row["source"], MOST_BYTES, museum["hosts"])
            if "picture" in museum:
                content = polite.fetch(_first(any_json(content), museum["picture"]), MOST_BYTES, museum["hosts"])
            thumbnail = decode(content, at_least_pixels=SIDE)
        except ValueError as error:
            left[str(error)] += 1
            continue
        thumbnail.thumbnail((SIDE, SIDE))
        thumbnail.save(stream, "JPEG", quality=QUALITY)
        write_bytes(Path(f"{_place(row)}-{len(content)}-{sha256(content).hexdigest()}.jpg"), stream.getvalue())
    if left.total() == len(rows):
        raise NothingUsable(f"No picture can be fetched: {dict(left)}. Run the command again later.")
    return left


def _place(row: Row) -> Path:
    """Return how the path of a thumbnail in the cache begins. The size and the SHA-256 of its picture follow."""
    name = sha256(row["source"].encode()).hexdigest()[:32]
    return cache_folder() / "museums" / name[:2] / name


def _kept(row: Row) -> list[Path]:
    """Return the thumbnail of a picture if it was fetched."""
    return list(_place(row).parent.glob(f"{_place(row).name}-*-*.jpg"))


def _noted(row: Row, before: Mapping[str, list[str]]) -> Row:
    """Return a row with size and digest of its picture, as the list of an earlier build or the kept thumbnail has them."""
    kept = next((path.stem.split("-")[1:] for path in _kept(row)), ["", ""])
    size, digest = before.get(row["file_name"]) or kept
    return {**row, "bytes": size, "sha256": digest}
