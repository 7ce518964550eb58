"""Build the archive of icons: fetch the packages, read them, label and split the icons, draw them, and write the folder."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from silohash.base.cache import cache_folder
from silohash.base.files import (
    check_own_folder,
    folder_beside,
    read_json,
    read_text,
    write_bytes,
    write_json,
)
from silohash.base.forms import REINSTALL
from silohash.data.archive import multi_hot
from silohash.data.build.icons.concepts import labels_of
from silohash.data.build.icons.drawing import Drawings, draw_all, ink_of, png_of
from silohash.data.build.icons.libraries import LIBRARIES, Icon
from silohash.data.build.icons.split import split
from silohash.data.build.packages import Pin, fetch, license_of, read_lock, read_members, verified

TABLES = Path(__file__).parent
LOCK, SPLIT, FACTS, ATTRIBUTION = "icons.lock.json", "split.csv.gz", "facts.json", "ATTRIBUTION.md"
METADATA = "metadata.csv"
COLUMNS = ("file_name", "text", "labels", "split", "silo", "name", "source", "license")
ABOUT = """\
# Icons: sources and licenses

The pictures are icons of the following libraries, drawn at 64 x 64 pixels; the texts are their names and tags. `LICENSES/`
holds the license file of each package, or the file with which a package names its license. Keep this page with the pictures.

"""

Row: TypeAlias = dict[str, str]
Said: TypeAlias = Callable[[str], None]


def build_icons(
    out: Path, *, packages: Path | None, registry: str, cap: int, said: Said, tables: Path = TABLES
) -> dict[str, Any]:
    """Build the folder, and return the numbers of its items.

    An interrupted call leaves the packages and drawings that it finished in the cache, and the next call uses them.

    Args:
        out: The folder, which is replaced if an earlier call wrote it.
        packages: Folder that holds the packages as ``npm pack`` names them; None to download them.
        registry: Address of the npm registry; empty for the one of the user's npm.
        cap: Largest number of items per library; 0 for all.
        said: Gets a line per step.
        tables: Folder of the lock, the concepts, the split and the expected numbers.

    Raises:
        UserError: If a package cannot be fetched or is not the pinned one, a license is missing or another one, or the
            folder cannot be written.
    """
    check_own_folder(out, ATTRIBUTION)
    pins, cache = read_lock(tables / LOCK), cache_folder() / "build"
    if packages is None:
        packages = cache / "packages"
        fetch(pins, packages, registry, said)
    paths = verified(pins, packages)
    licenses = {pin: license_of(pin, read_members(paths[pin.package], pin.license_file)) for pin in pins}
    icons = [icon for silo in LIBRARIES for icon in _read(silo, paths)]
    labels = labels_of(icons, tables)
    icons = [icon for icon in icons if icon.key in labels]
    parts = _stored_split(tables / SPLIT)
    known = parts.keys() == labels.keys()
    pictures = _draw(_capped(icons, cap) if known else icons, cache / "drawings", said)
    if not known:
        said("Splitting the icons")
        parts = split(icons, labels, np.stack([ink_of(pictures[icon.key]) for icon in icons]))
    origin = {pin.silo: pin for pin in pins}
    rows = [_row(icon, labels[icon.key], parts[icon.key], origin[icon.silo]) for icon in _capped(icons, cap)]
    said(f"Writing {len(rows):,} items to {out}")
    _write(out, rows, pictures, licenses)
    facts = facts_of(rows)
    if not cap and facts != _stored_facts(tables / FACTS):
        said(
            f"warning: the items differ from those of this version of silohash ({FACTS}), so results cannot be compared"
        )
    return facts


def _read(silo: str, paths: Mapping[str, Path]) -> Iterator[Icon]:
    files = {
        name: content
        for package, wanted in LIBRARIES[silo].packages.items()
        for name, content in read_members(paths[package], wanted).items()
    }
    return LIBRARIES[silo].read(silo, files)


def _draw(icons: Sequence[Icon], cache: Path, said: Said) -> dict[str, Drawings]:
    """Return the picture of each icon by its key."""
    pictures: dict[str, Drawings] = {}
    for silo, some in _by_silo(icons):
        drawn = draw_all(some, cache, color=LIBRARIES[silo].color, said=said)
        pictures.update(zip((icon.key for icon in some), drawn, strict=True))
    return pictures


def _by_silo(icons: Sequence[Icon]) -> Iterator[tuple[str, list[Icon]]]:
    for silo in LIBRARIES:
        if some := [icon for icon in icons if icon.silo == silo]:
            yield silo, some


def _capped(icons: Sequence[Icon], cap: int) -> list[Icon]:
    """Return at most so many icons of each silo, chosen by the digest of their keys; all if ``cap`` is 0."""
    chosen = {
        icon.key
        for _, some in _by_silo(icons)
        for icon in sorted(some, key=lambda one: hashlib.sha256(one.key.encode()).digest())[: cap or None]
    }
    return [icon for icon in icons if icon.key in chosen]


def _row(icon: Icon, labels: frozenset[str], part: str, pin: Pin) -> Row:
    values = (
        f"{icon.key}.png", icon.text, "|".join(sorted(labels)), part, icon.silo, icon.name,
        f"{pin.package} {pin.version}", pin.license,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def _write(out: Path, rows: Sequence[Row], pictures: Mapping[str, Drawings], licenses: Mapping[Pin, bytes]) -> None:
    with folder_beside(out) as folder:
        for silo in LIBRARIES:
            (folder / silo).mkdir()
        for row in rows:
            (folder / row["file_name"]).write_bytes(png_of(pictures[row["file_name"].removesuffix(".png")]))
        for pin, content in licenses.items():
            path = folder / "LICENSES" / pin.silo / Path(pin.license_file).name
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
        lines = "".join(f"- `{pin.silo}` ({pin.package} {pin.version}): {pin.attribution}\n" for pin in licenses)
        (folder / ATTRIBUTION).write_text(ABOUT + lines, "utf-8")
        names = sorted({label for row in rows for label in row["labels"].split("|")})
        (folder / "labels.txt").write_text("\n".join(names) + "\n", "utf-8")
        (folder / METADATA).write_bytes(_table(COLUMNS, rows))


def _table(columns: Sequence[str], rows: Sequence[Row]) -> bytes:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue().encode()


def facts_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the numbers of items and labels, the mean share of relevant items per query, and the digest of the metadata."""
    of_item = [row["labels"].split("|") for row in rows]
    names = sorted(set().union(*of_item))
    labels = multi_hot(of_item, names).astype(np.float32)
    part = np.array([row["split"] for row in rows])
    related = labels[part == "query"] @ labels[part != "query"].T > 0
    counts = Counter((row["silo"], row["split"]) for row in rows)
    return {
        "items": len(rows),
        "labels": len(names),
        "labels per item": round(float(labels.sum(axis=1).mean()), 2),
        "splits": dict(sorted(Counter(part.tolist()).items())),
        "silos": {
            silo: {split: counts[silo, split] for split in ("train", "database", "query")}
            for silo in LIBRARIES
            if any(row["silo"] == silo for row in rows)
        },
        "random mAP": round(float(related.mean()), 4),
        "queries without a relevant item": int((~related.any(axis=1)).sum()),
        "sha256 of metadata.csv": hashlib.sha256(_table(COLUMNS, rows)).hexdigest(),
    }


def _stored_facts(path: Path) -> dict[str, Any] | None:
    return read_json(path, dict[str, Any], remedy=REINSTALL) if path.is_file() else None


def _stored_split(path: Path) -> dict[str, str]:
    """Return the stored split of each icon by its key. It is empty if there is none."""
    if not path.is_file():
        return {}
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    return dict(line.rsplit(",", 1) for line in lines)


def renew(built: Path, tables: Path = TABLES) -> None:
    """Store the split and the numbers of a complete build, after the rules or tables have changed.

    Pictures may differ between processors in their last gray level, so that everyone uses the split that one of them made.
    """
    rows = list(csv.DictReader(io.StringIO(read_text(built / METADATA))))
    lines = "".join(f"{row['silo']}/{row['name']},{row['split']}\n" for row in rows)
    write_bytes(tables / SPLIT, gzip.compress(lines.encode(), mtime=0))
    write_json(tables / FACTS, facts_of(rows))
