"""Build the archive of icons: fetch the packages, read them, label and split the icons, draw them, and write the folder."""

import csv
import gzip
import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

from silohash.base.cache import cache_folder
from silohash.base.errors import MissingContent
from silohash.base.files import check_own_folder, folder_beside, read_json
from silohash.base.forms import REINSTALL
from silohash.base.names import listed
from silohash.base.optional import require
from silohash.data.archive import multi_hot
from silohash.data.build.icons.concepts import Labels, labels_of
from silohash.data.build.icons.libraries import COLORED, LIBRARIES, Icon
from silohash.data.build.packages import Pin, fetch, license_of, read_members, verified
from silohash.data.pictures.formats import open_picture

TABLES = Path(__file__).parent
LOCK, SPLIT, FACTS, ATTRIBUTION = "icons.lock.json", "split.csv.gz", "facts.json", "ATTRIBUTION.md"
ABOUT = """\
# Icons: sources and licenses

The pictures are icons of the following libraries, drawn at 64 x 64 pixels; the texts are their names and tags. `LICENSES/`
holds the license file of each package, or the file with which it names its license. Keep this page with the pictures.

"""

SIZE, DRAWN_SIZE = 64, 128
"""Side of a picture, and height of a drawing before it is reduced, in pixels."""

GRAY_STEP = 17
"""Difference of two of the 16 gray levels of a picture without colors."""

Row: TypeAlias = dict[str, str]


def build_icons(
    out: Path, *, source: Path | None, registry: str, cap: int, said: Callable[[str], None], tables: Path = TABLES
) -> dict[str, Any]:
    """Build the folder, and return the numbers of its items.

    Packages are kept in the cache folder, so an interrupted download can be continued.

    Args:
        out: The folder, which is replaced if an earlier call wrote it.
        source: Folder that holds the packages as ``npm pack`` names them; None to download them.
        registry: Address of the npm registry; empty for the one that the user's npm is set up for.
        cap: Largest number of items per library; 0 for all.
        said: Gets a line per step.
        tables: Folder of the lock, the concepts, the split and the expected numbers.

    Raises:
        UserError: If a package cannot be fetched or is not the pinned one, a license is missing or another one, or the
            folder cannot be written.
    """
    check_own_folder(out, ATTRIBUTION)
    require("resvg_py", "Drawing icons")
    pins = read_json(tables / LOCK, list[Pin], remedy=REINSTALL, missing=REINSTALL)
    packages = source or cache_folder() / "packages"
    if source is None:
        fetch(pins, packages, registry, said)
    paths = verified(pins, packages)
    licenses = {pin: license_of(pin, path) for pin, path in paths.items()}
    every, labels = labeled_icons(paths, tables)
    chosen = capped(map(attrgetter("key"), every), LIBRARIES, cap)
    icons = [icon for icon in every if icon.key in chosen]
    rows = _rows(icons, labels, pins, tables / SPLIT)
    with folder_beside(out) as folder:
        _write_tables(folder, rows, licenses)
        for silo, some in groupby(icons, key=attrgetter("silo")):
            said(f"Drawing the icons of {silo}")
            (folder / silo).mkdir()
            for icon in some:
                picture = Image.fromarray(draw(icon.svg, color=silo in COLORED))
                picture.save(folder / f"{icon.key}.png", optimize=True)
    facts = facts_of(rows)
    if not cap and facts != read_json(tables / FACTS, dict[str, Any], remedy=REINSTALL, missing=REINSTALL):
        said(f"warning: the items are not those that {FACTS} states, so results cannot be compared with published ones")
    return facts


def labeled_icons(paths: Mapping[Pin, Path], tables: Path) -> tuple[list[Icon], Labels]:
    """Return the icons in the packages that have labels, in the order of the libraries, and their labels by their keys."""
    icons: list[Icon] = []
    for silo, read in LIBRARIES.items():
        parts = [read_members(path, pin.files) for pin, path in paths.items() if silo in pin.used_by]
        icons += read(silo, {name: content for part in parts for name, content in part.items()}) if parts else ()
    labels = labels_of(icons, tables)
    return [icon for icon in icons if icon.key in labels], labels


def capped(keys: Iterable[str], silos: Iterable[str], cap: int) -> set[str]:
    """Return at most so many keys of each silo, chosen by their digests; all if ``cap`` is 0."""
    order = sorted(keys, key=lambda key: hashlib.sha256(key.encode()).digest())
    return {key for silo in silos for key in [one for one in order if one.startswith(f"{silo}/")][: cap or None]}


def _rows(icons: Sequence[Icon], labels: Labels, pins: Sequence[Pin], split: Path) -> list[Row]:
    """Return the rows of the table. The split is stored for more icons than have labels."""
    parts = dict(line.split(",") for line in gzip.decompress(split.read_bytes()).decode().splitlines())
    if lacking := [icon.key for icon in icons if icon.key not in parts]:
        raise MissingContent(f"{split} lacks the icons {listed(lacking)}. {REINSTALL}")
    # The first package of a library has its pictures, others have words.
    source = {silo: next(pin for pin in pins if silo in pin.used_by) for silo in LIBRARIES}
    return [
        {
            "file_name": f"{icon.key}.png", "text": icon.text, "labels": "|".join(sorted(labels[icon.key])),
            "split": parts[icon.key], "silo": icon.silo, "name": icon.name, "source": str(source[icon.silo]),
            "license": source[icon.silo].license,
        }
        for icon in icons
    ]  # fmt: skip


def _write_tables(folder: Path, rows: Sequence[Row], licenses: Mapping[Pin, bytes]) -> None:
    for pin, content in licenses.items():
        path = folder / "LICENSES" / pin.tarball.removesuffix(".tgz") / pin.license_file
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    (folder / ATTRIBUTION).write_text(ABOUT + "".join(f"- {pin}: {pin.attribution}\n" for pin in licenses), "utf-8")
    names = sorted({label for row in rows for label in row["labels"].split("|")})
    (folder / "labels.txt").write_text("\n".join(names) + "\n", "utf-8")
    (folder / "metadata.csv").write_bytes(as_csv(rows))


def as_csv(rows: Sequence[Row]) -> bytes:
    """Return rows as a table with a header."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([[*rows[0]], *(row.values() for row in rows)])
    return stream.getvalue().encode()


def facts_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the numbers of items and labels, the mean share of relevant items per query, and the digest of the table."""
    of_item = [row["labels"].split("|") for row in rows]
    names = sorted({label for labels in of_item for label in labels})
    labels, part = multi_hot(of_item, names).astype(np.float32), np.array([row["split"] for row in rows])
    relevant = labels[part == "query"] @ labels[part != "query"].T > 0
    return {
        "items": len(rows),
        "labels": len(names),
        "labels per item": round(float(labels.sum(axis=1).mean()), 2),
        "splits": dict(Counter(row["split"] for row in rows)),
        "items per silo": dict(Counter(row["silo"] for row in rows)),
        "random mAP": round(float(relevant.mean()), 4),
        "queries without a relevant item": int((~relevant.any(axis=1)).sum()),
        "sha256 of metadata.csv": hashlib.sha256(as_csv(rows)).hexdigest(),
    }


def draw(svg: str, *, color: bool) -> npt.NDArray[np.uint8]:
    """Draw an icon on a white square: ``(64, 64)`` gray, or ``(64, 64, 3)`` in color."""
    from resvg_py import svg_to_bytes

    svg = svg.replace("currentColor", "#000")
    content = svg_to_bytes(svg_string=svg, height=DRAWN_SIZE, background="#ffffff", skip_system_fonts=True)
    with open_picture(content) as opened:
        drawn = opened.convert("RGB" if color else "L")
    side = max(drawn.size)
    square = Image.new(drawn.mode, (side, side), "white")
    square.paste(drawn, ((side - drawn.width) // 2, (side - drawn.height) // 2))
    picture = np.asarray(square.resize((SIZE, SIZE), Image.Resampling.LANCZOS))
    return picture if color else np.round(picture / GRAY_STEP).astype(np.uint8) * np.uint8(GRAY_STEP)
