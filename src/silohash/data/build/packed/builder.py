"""Build a packed data set from the files of its official source, and compare what it writes with the published set.

The facts of a set are its tables with digests in place of texts, and a column ``photo`` with the file of each picture.
"""

import csv
import hashlib
import io
import json
import lzma
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from silohash.base.analysis import COMMON_WORDS, WORDS, words_of
from silohash.base.errors import DamagedFile, MissingContent, NoEffect, SettingNeeded
from silohash.base.files import check_own_folder, folder_beside, read_json, read_toml, write_json
from silohash.base.forms import REINSTALL, detail, of_json, reading
from silohash.base.names import listed
from silohash.data.benchmarks.coco import elements
from silohash.data.benchmarks.layouts.reading import find, find_one, first_by, read_lines
from silohash.data.benchmarks.wikipedia import read_list
from silohash.data.formats.matlab import open_mat
from silohash.data.pictures.reading import PictureFiles

Row: TypeAlias = dict[str, Any]
Contents: TypeAlias = dict[str, Any]
"""The rows of each table, by its file, and the arrays of each ``.npz`` file."""
Fill: TypeAlias = Callable[[Path, Contents], Iterable[str]]

FACTS = Path(__file__).with_name("facts")
"""Folder with one folder per set: the facts of its tables, and ``facts.json`` with the digests of the published files."""

BUILT = "built.json"
"""File that lists the digests of what was built. It marks the folder as one that a builder may replace."""

PLANS = read_toml(FACTS.with_name("builders.toml"), remedy=REINSTALL, missing=REINSTALL)

DOWNLOAD_AGAIN = "Download it again."

LOOK, LARGEST_DISTANCE = (5, 8), 4
"""Width and height to which `look_of` reduces a picture, and the number of bits in which copies of a photo may differ. Other
photos differ in 15 bits on average."""

SCENE_STEP, BLUE, SIDES = 150, "#0099ff", ("width", "height")
"""Distance between the left edges of the boxes of a scene, in pixels, what its source calls blue, and a photo's sides."""


def build_packed(
    name: str, fill: Fill | None,
    out: Path, *, source: Path | None, registry: str, cap: int, said: Callable[[str], None],
) -> dict[str, Any]:  # fmt: skip
    """Build the folder of a packed set that `silohash.data.packed` reads, and return what is in it and what is not.

    ``fill`` replaces the digests in the facts with texts and files of the folder ``source``, or with empty ones, adds other
    contents, and returns the texts whose words are the vocabulary. ``said`` gets a line per step, and a warning if something
    differs from the published set. ``registry`` and ``cap``, which all builders take, must be empty.

    Raises:
        UserError: If files or rows are missing or differ, a picture is damaged, or the folder cannot be written.
    """
    if registry or cap:
        raise NoEffect(f"{name} is built as a whole from files that you have. Leave out --registry and --cap.")
    if source is None:
        raise SettingNeeded(f"Name the folder that holds the official files of {name} with --from.")
    check_own_folder(out, BUILT)
    plan, made, path = PLANS[name], PLANS["absent"], FACTS / name / "facts.json"
    known = read_json(path, dict[str, dict[str, str]], remedy=REINSTALL, missing=REINSTALL)
    said(f"Reading {source}")
    pictures = pictures_in(source)
    contents = _filled(name, fill, source, pictures)
    with folder_beside(out) as folder:
        said("Writing tables and pictures")
        _write_pictures(folder, [(pictures[row.pop("photo")], row) for row in contents.get(plan["photos"], [])], plan)
        digests = dict(pair for file, content in contents.items() for pair in _write(folder / file, file, content))
        write_json(folder / BUILT, digests)
    if other := [file for file, digest in digests.items() if known["sha256"].get(file) != digest]:
        said(f"warning: not equal to the published set, so results can differ from published ones: {', '.join(other)}")
    built = {f"SHA-256 of {file}": digest for file, digest in digests.items()}
    absent = {f"not built: {file}": f"{made[file]}; SHA-256 {digest}" for file, digest in known["absent"].items()}
    return {"items": len(contents[plan["items"]]), **built, **absent}


def _filled(name: str, fill: Fill | None, source: Path, pictures: Mapping[str, Path]) -> Contents:
    """Return the facts of a set filled from its source, with word counts; check that the source lacks nothing."""
    plan = PLANS[name]
    contents: Contents = {path.stem: facts(f"{name}/{path.stem}") for path in sorted((FACTS / name).glob("*.xz"))}
    try:
        vocabulary = fill(source, contents) if fill else ()
    except (LookupError, ValueError) as error:
        raise DamagedFile(f"A file in {source} has another form ({detail(error)}). {DOWNLOAD_AGAIN}") from error
    photos, items, column = contents.get(plan["photos"], []), contents[plan["items"]], plan.get("text", "")
    lacking = [f"photo of {row[next(iter(row))]}" for row in photos if row["photo"] not in pictures]
    lacking += [f"{column} of {row[next(iter(row))]}" for row in items if column and not row[column]]
    if lacking:
        raise MissingContent(f"{source} lacks {len(lacking):,} parts: {listed(lacking)}. {DOWNLOAD_AGAIN}")
    return contents | (_counted([row[column] for row in items], vocabulary, plan) if column else {})


def facts(table: str) -> list[Row]:
    """Read the facts of a table, named with its set, such as ``coco18/pairs.csv``."""
    path = FACTS / f"{table}.xz"
    with reading(path, remedy=REINSTALL, missing=REINSTALL):
        return list(csv.DictReader(io.StringIO(lzma.decompress(path.read_bytes()).decode(), newline="")))


def pictures_in(source: Path) -> dict[str, Path]:
    """Return the picture files in a folder and those below it by their names."""
    return first_by(lambda path: path.name, find(source, "**/*.[jp][pn]g"))


def digest_of(*texts: str) -> str:
    """Return a digest of the letters and digits of texts. Case, spaces and punctuation, which copies change, do not count.

    Example:
        >>> digest_of('A sign  reading "Stop".') == digest_of("a sign reading ''stop''")
        True
    """
    # The probability that any of 600,000 texts has the digest of one of 12,000 others by chance is below 1 %.
    plain = "".join(filter(str.isalnum, "".join(texts).lower()))
    return hashlib.sha256(plain.encode()).hexdigest()[:10]


def look_of(picture: Image.Image) -> int:
    """Return 32 bits that say which gray cells are darker than their right neighbor. Copies in other sizes differ in few."""
    gray = np.asarray(picture.convert("L").resize(LOOK), np.int16)
    return int.from_bytes(np.packbits(np.diff(gray, axis=1) > 0).tobytes())


def _picture(path: Path) -> Image.Image:
    return PictureFiles(path.parent, [path.name]).picture(0)


def _write(path: Path, name: str, content: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401  rows, arrays or lines
    """Write rows (``.csv``, ``.jsonl``), arrays (``.npz``) or lines (``.txt``), and yield names and digests."""
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".npz":
        np.savez_compressed(path, **content)
        yield from ((f"{name}: {key}", hashlib.sha256(array.tobytes()).hexdigest()) for key, array in content.items())
        return
    stream = io.StringIO()
    if path.suffix == ".csv":
        csv.writer(stream, lineterminator="\n").writerows([[*content[0]], *(row.values() for row in content)])
    else:
        stream.writelines(f"{one if path.suffix == '.txt' else json.dumps(one)}\n" for one in content)
    path.write_bytes(written := stream.getvalue().encode())
    yield name, hashlib.sha256(written).hexdigest()


def _write_pictures(folder: Path, photos: Sequence[tuple[Path, Row]], plan: Mapping[str, Any]) -> None:
    """Write the photos scaled, as separate files if their rows name any, or else packed in one."""
    files: list[bytes] = []
    for path, row in photos:
        size = tuple(plan.get("size") or (int(row["width"]), int(row["height"])))
        picture, stream = _picture(path).resize(size, Image.Resampling.LANCZOS), io.BytesIO()
        (picture.quantize(plan["colors"]) if "colors" in plan else picture).save(stream, **plan["save"])
        files.append(stream.getvalue())
        if "file" in row:
            (folder / "images").mkdir(exist_ok=True)
            (folder / "images" / Path(row["file"]).name).write_bytes(files.pop())
    if files:
        data, offsets = np.frombuffer(b"".join(files), np.uint8), np.cumsum([0, *map(len, files)], dtype=np.int64)
        np.savez(folder / "images-000.npz", data=data, offsets=offsets, row=np.arange(len(files), dtype=np.int32))


def _counted(texts: Sequence[str], vocabulary: Iterable[str], plan: Mapping[str, Any]) -> Contents:
    """Return the words of a vocabulary's texts, and their counts in other texts, ``(N, V)`` uint8."""
    words = partial(_words, every=plan.get("every_word", False))
    frequency = Counter(word for text in vocabulary for word in set(words(text)))
    columns = sorted(word for word, number in frequency.items() if number >= plan["least"])
    place = {word: number for number, word in enumerate(columns)}
    counts = np.zeros((len(texts), len(columns)), np.uint8)
    for count, text in zip(counts, texts, strict=True):
        for word in filter(place.__contains__, words(text)):
            count[place[word]] += 1
    return {"features/vocab.txt": columns, "features/text_bow.npz": {"bow": counts}}


def _words(text: str, *, every: bool) -> list[str]:
    """Return the words that are counted. The published sets drop every 's, also that of 'slide."""
    found = words_of(text.lower().replace("'s", ""), WORDS)
    return [word for word in found if every or (len(word) > 1 and word.isalpha() and word not in COMMON_WORDS)]


def fill_texts(rows: Iterable[Row], column: str, texts: Iterable[tuple[str, str]]) -> None:
    """Replace the digests in a column by the texts, given with the file of their picture. Those not found become empty."""
    known: dict[str, list[str]] = {}
    for file, text in texts:
        known.setdefault(digest_of(file, text), []).append(text)  # captions of a photo may differ in punctuation only
    for row in rows:
        row[column] = found.pop(0) if (found := known.get(row[column])) else ""


def coco18(source: Path, contents: Contents) -> list[str]:
    """Find each row's photo by its caption and, among photos with equal captions, by its look."""
    rows, pictures = contents["pairs.csv"], pictures_in(source)
    found: dict[str, dict[str, str]] = {row["caption"]: {} for row in rows}
    for file, text in _coco_captions(source):
        if (digest := digest_of(text)) in found and file in pictures:
            found[digest].setdefault(file, text)
    for row in rows:
        look, candidates = int(row["photo"], 16), found[row["caption"]]
        near = sorted(((look_of(_picture(pictures[file])) ^ look).bit_count(), file) for file in candidates)
        row["photo"] = near[0][1] if near and near[0][0] <= LARGEST_DISTANCE else ""
        row["caption"] = candidates.get(row["photo"], "")
    return [row["caption"] for row in rows if row["split"] != "query"]


def fashion(source: Path, contents: Contents) -> list[str]:
    """Find the products by their numbers and titles."""
    rows, (names, *products) = contents["pairs.csv"], _cells(source, "styles.csv")
    # The source writes masterCategory for master_category, and titles with commas without quotation marks.
    names = [re.sub("([A-Z])", r"_\1", name).lower() for name in names]
    known = {(line[0], ",".join(line[len(names) - 1 :]).strip()): line for line in products}
    fill_texts(rows, "title", known)
    for row in rows:
        product = dict(zip(names, known.get((row["source_id"], row["title"]), []), strict=False))
        row |= {column: product[column] for column in row if column in product}
    return [row["title"] for row in rows if row["split"] != "query"]


def flickr8k(source: Path, contents: Contents) -> list[str]:
    """Find the captions by their photos, in the collectors' file or in that of Kaggle."""
    tokens = find(source, "**/Flickr8k.token.txt")
    lines = [line.split("\t") for line in read_lines(tokens[0])] if tokens else _cells(source, "captions.txt")
    texts = ((file.partition("#")[0], " ".join(",".join(text).split())) for file, *text in lines)
    fill_texts(contents["captions.csv"], "caption", texts)
    train = {row["file"] for row in contents["images.csv"] if row["split"] == "train"}
    return [row["caption"] for row in contents["captions.csv"] if row["file"] in train]


def wiki_sift_lda(source: Path, contents: Contents) -> list[str]:
    """Take the items and their categories from the collectors' lists, and the features."""
    names = [line for line in read_lines(find_one(source, "**/categories.list")) if line]
    features, arrays = open_mat(find_one(source, "**/raw_features.mat")), contents.setdefault("wiki.npz", {})
    items: list[Row] = contents.setdefault("items.csv", [])
    classes: list[Row] = [{"label": label, "name": name} for label, name in enumerate(names)]
    for part in ("train", "test"):
        pairs = read_list(find_one(source, f"**/{part}set_txt_img_cat.list"), len(names))
        for row, (text, picture, category) in enumerate(pairs):
            items.append({"split": part, "row": row, "text_id": text, "image_id": picture, "label": category - 1})
        for modality in ("image", "text"):
            variable = features.variable(f"{modality[0].upper()}_{part[:2]}")
            arrays[f"{modality}_{part}"] = variable.array(len(pairs)).astype(np.float32)
        arrays[f"label_{part}"] = labels = np.array([category - 1 for *_, category in pairs], np.int64)
        for known, count in zip(classes, np.bincount(labels, minlength=len(names)).tolist(), strict=True):
            known[part] = count
    contents["classes.csv"] = classes
    return []


def coco_mini(source: Path, contents: Contents) -> list[str]:
    """Find the captions by their photos, and take the boxes of the photos that have regions. The words are coco18's."""
    images, captions = contents["images.csv"], list(_coco_captions(source))
    fill_texts(contents["captions.csv"], "caption", captions)
    kinds = {int(row["category_id"]): {"category": row["name"], **row} for row in contents["categories.csv"]}
    objects = {row["file"]: list[Row]() for row in images}
    for file, one in _annotations(source, "instances"):
        if file in objects:
            kind = {key: kinds[one["category_id"]][key] for key in ("category", "supercategory")}
            box = {"bbox": [round(value, 2) for value in one["bbox"]], "area": round(one["area"], 1)}
            objects[file].append({"category_id": one["category_id"], **kind, **box, "iscrowd": one["iscrowd"]})
    contents["regions.jsonl"] = [
        {"file": row["file"], **{side: int(row[f"original_{side}"]) for side in SIDES}, "regions": objects[row["file"]]}
        for row in images
        if row["has_regions"] == "1"
    ]
    known = {digest_of(text): text for _, text in captions}
    return [known.get(row["caption"], "") for row in facts("coco18/pairs.csv") if row["split"] != "query"]


def nlvr_graphs(source: Path, contents: Contents) -> list[str]:
    """Find the scenes by their sentences, and take their objects, with the boxes in the first of six orders."""
    path = find_one(source, "**/dev.json")
    with reading(path, remedy=DOWNLOAD_AGAIN):
        lines = [of_json(line, dict[str, Any]) for line in path.read_bytes().splitlines() if line.strip()]
    scenes = {one["identifier"]: one for one in lines}
    rows = contents["pairs.jsonl"] = contents.pop("pairs.csv")
    fill_texts(rows, "sentence", ((key, " ".join(one["sentence"].split())) for key, one in scenes.items()))
    for row in rows:
        row |= _scene(scenes[row["id"]]) if row["sentence"] else {}
    return [row["sentence"] for row in rows]


def _scene(one: Row) -> Row:
    """Return the columns that a scene's structured representation and its votes give."""
    votes, regions = list(one["evals"].values()), []
    for box, thing in ((box, thing) for box, things in enumerate(one["structured_rep"]) for thing in things):
        size, color = thing["size"], thing["color"].lower().replace(BLUE, "blue")
        place = [SCENE_STEP * box + thing["x_loc"], thing["y_loc"], size, size]
        regions.append({"box": box, "shape": thing["type"], "colour": color, "size": size, "bbox": place})
    return {"true": one["label"] == "true", "votes_true": votes.count("true"), "votes": len(votes), "regions": regions}


def _annotations(source: Path, kind: str) -> Iterator[tuple[str, Any]]:
    """Yield the photo's file and the entry of each of COCO's annotations of a kind, ``captions`` or ``instances``."""
    for part in ("train2017", "val2017"):
        for one in elements(find_one(source, f"**/{kind}_{part}.json"), "annotations"):
            yield f"{one['image_id']:012}.jpg", one


def _coco_captions(source: Path) -> Iterator[tuple[str, str]]:
    """Yield the photo's file and the text of each caption of COCO."""
    return ((file, " ".join(one["caption"].split())) for file, one in _annotations(source, "captions"))


def _cells(source: Path, name: str) -> list[list[str]]:
    """Return the cells of the lines of a CSV file that are not empty."""
    path = find_one(source, f"**/{name}")
    with reading(path, remedy=DOWNLOAD_AGAIN), path.open(encoding="utf-8-sig", newline="") as stream:
        return list(filter(None, csv.reader(stream)))


COCO18 = partial(build_packed, "coco18", coco18)
FASHION = partial(build_packed, "fashion", fashion)
FLICKR8K_1K = partial(build_packed, "flickr8k-1k", flickr8k)
CLOTHING10 = partial(build_packed, "clothing10", None)
WIKI_SIFT_LDA = partial(build_packed, "wiki-sift-lda", wiki_sift_lda)
COCO_MINI = partial(build_packed, "coco-mini", coco_mini)
NLVR_GRAPHS = partial(build_packed, "nlvr-graphs", nlvr_graphs)
