"""Read a user's folder: ``metadata.csv``, ``.jsonl`` or ``.parquet``, and pictures or given features.

The metadata has the columns ``file_name`` (relative to the folder), ``text``, and optionally ``labels`` (joined with
``|``, or a list), ``id`` and ``split``. Every other column is kept and can be partitioned by. ``image.npy`` and
``text.npy`` beside it hold given features in the order of the rows; a row of NaN stands for a missing modality. An
``image.npy`` with three dimensions holds regions of pictures (`silohash.data.regions`).
``labels.txt`` lists the allowed labels, one per line. A folder without metadata has its pictures as rows, with the texts of
the files beside them (`silohash.data.formats.sidecars`). A row that cannot be used is left out and named on the archive's
card.

Names that differ only in how they were typed are one name (`silohash.base.names`): files, labels and ids. Picture files of
the same content are one picture. A query whose picture is in the database as well is left out of the queries.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from silohash.base.errors import LengthsDiffer, MissingFile, NothingUsable, OutOfRange, WrongShape
from silohash.base.files import read_npy, read_text
from silohash.base.names import canonical, canonical_path, listed, one_spelling, tidy
from silohash.base.stamps import Stamp
from silohash.base.types import Modality, Rows
from silohash.base.visible import visible
from silohash.data.archive import Archive, ArchiveCard, Features, as_texts, longest_text, multi_hot
from silohash.data.formats import doubts
from silohash.data.formats.cells import SAVE_PICTURES
from silohash.data.formats.columns import KNOWN, describe_slips
from silohash.data.formats.file_names import find_names
from silohash.data.formats.metadata import MetadataRow
from silohash.data.formats.sidecars import read_rows
from silohash.data.links import check_link
from silohash.data.pairs import PICTURE, shares
from silohash.data.pictures.checking import check_pictures, describe_assumptions
from silohash.data.pictures.reading import PictureFiles
from silohash.data.regions import Regions, given_regions
from silohash.data.splits import default_splits, splits_of

MOST_LABELS = 4096
LABELS = "labels.txt"
"""Name of the file that lists the allowed labels."""

SPLIT_OF = {"query": "query", "test": "query", "database": "database", "validation": "database", "train": "train"}
"""Values of the column ``split``, and the split that each means. Items to train on are usually searched as well."""


@dataclass(frozen=True)
class _Given:
    """Given features or regions of one modality: the file, the values, and which rows are present or broken, ``(N,)``."""

    path: Path
    values: Features | Regions
    present: npt.NDArray[np.bool_]
    broken: npt.NDArray[np.bool_]

    def taken(self, kept: Sequence[int]) -> Self:
        """Return the features or regions of some rows."""
        if isinstance(self.values, Regions):
            return replace(self, values=self.values.taken(kept))
        return replace(self, values=self.values[kept])


@dataclass(frozen=True)
class _Folder:
    """The content of a folder before bad rows are dropped: one entry per row of the metadata."""

    path: Path
    metadata: str
    rows: Sequence[MetadataRow]
    ids: Sequence[str]
    files: Sequence[str]
    given: Mapping[Modality, _Given]
    has: Mapping[Modality, npt.NDArray[np.bool_]]
    verdicts: Mapping[str, Stamp]
    hints: Mapping[str, str]
    allowed: tuple[str, ...] | None
    keep_shared_queries: bool
    search_training: bool

    @cached_property
    def copies(self) -> dict[str, str]:
        """Picture files with the content of another one, each with the first of them."""
        return doubts.copies({file: self.verdicts[file].digest for file in filter(None, self.files)})

    @cached_property
    def pictures(self) -> list[str]:
        """One file per row, by which rows of the same picture are told."""
        return [self.copies.get(file, file) for file in self.files]


def read_folder(
    path: Path,
    *,
    image: str | None = None,
    text: str | None = None,
    labels: Sequence[str] | None = None,
    follow_links: bool = False,
    keep_shared_queries: bool = False,
    search_training: bool = True,
) -> Archive:
    """Open a user's folder.

    Args:
        path: The folder.
        image: File of given picture features, relative to the folder; by default ``image.npy`` if it exists.
        text: File of given text features; by default ``text.npy`` if it exists.
        labels: The allowed labels, in the order of the columns; by default the lines of ``labels.txt`` if it exists,
            otherwise every label that occurs, in alphabetical order.
        follow_links: Whether symbolic links may lead out of the folder. Otherwise rows with such pictures are left out.
        keep_shared_queries: Whether the column ``split`` may make items of one picture queries and database. Otherwise
            such queries are left out of the queries.
        search_training: Whether items to train on are searched as well, if there is a column ``split``.

    Raises:
        UserError: If the metadata is missing or unreadable, given features do not fit it, a file other than a picture leads
            out of the folder, or no row can be used.
    """
    metadata, rows = read_rows(path, follow_links=follow_links)
    names = [row.values.get("file_name", "") for row in rows]
    found = find_names(path, names)
    files = [found[name].name for name in names]
    given: dict[Modality, _Given] = {}
    options: tuple[tuple[Modality, str | None], ...] = (("image", image), ("text", text))
    for modality, named in options:
        file = path / (named or f"{modality}.npy")
        if named is not None or file.is_file():
            check_link(path, named or file.name, follow_links=follow_links)
            given[modality] = _given(file, metadata, files, modality)
    allowed = allowed_labels(path, labels, follow_links=follow_links)
    folder = _Folder(
        path=path, metadata=metadata.name, rows=with_one_spelling(rows, allowed), ids=row_ids(rows), files=files,
        given=given, has={modality: _has(modality, rows, given) for modality, _ in options},
        verdicts=check_pictures(path, list(filter(None, files)), follow_links=follow_links),
        hints=dict(found.values()), allowed=allowed, keep_shared_queries=keep_shared_queries,
        search_training=search_training,
    )  # fmt: skip
    kept, skipped = _usable(folder)
    if not kept:
        slips = "".join(f" {sentence}" for sentence in describe_slips(_names(rows)))
        raise NothingUsable(
            f"None of the {len(rows):,} rows of {metadata} can be used. The first: {skipped[0]}.{slips}"
        )
    return _archive(_taken(folder, kept), skipped)


def _has(modality: Modality, rows: Sequence[MetadataRow], given: Mapping[Modality, _Given]) -> npt.NDArray[np.bool_]:
    if modality in given:
        return given[modality].present
    column = "file_name" if modality == "image" else "text"
    return np.array([bool(row.values.get(column)) for row in rows])


def _usable(folder: _Folder) -> tuple[list[int], list[str]]:
    """Return the rows that can be used, and one sentence per row that cannot."""
    kept: list[int] = []
    skipped: list[str] = []
    seen: dict[str, str] = {}
    for place, row in enumerate(folder.rows):
        problem = next(_problems(folder, place, seen), "")
        if problem:
            skipped.append(f"{folder.metadata}, row {row.number}: {problem}; left out")
        else:
            kept.append(place)
            seen[canonical(folder.ids[place])] = folder.ids[place]
    return kept, skipped


def _given(path: Path, metadata: Path, files: Sequence[str], modality: Modality) -> _Given:
    if not path.is_file():
        raise MissingFile(
            f"{path} is missing. Give the file of features relative to {metadata.parent}, or leave the option out."
        )
    count, values = len(files), read_npy(path, mapped=True, remedy="Write it with numpy.save.")
    if modality == "image" and values.ndim == 3 and values.size and values.dtype.kind == "f":
        every = np.ones(count, bool)
        return _Given(path, given_regions(values, path, files), every, ~every)
    if values.ndim != 2 or not values.size or values.dtype.kind not in "fiub":
        raise WrongShape(
            f"{path} holds {values.dtype} of shape {values.shape}. It must hold numbers of shape (rows, features)."
        )
    if len(values) != count:
        raise LengthsDiffer(
            f"{path} has {len(values):,} rows and {metadata} has {count:,}. "
            "The features need one row per row of the metadata, in the same order."
        )
    # A value too large for float32 becomes infinite, and its row is reported as broken.
    with np.errstate(over="ignore"):
        values = values.astype(np.float32, copy=False)
    finite = np.isfinite(values).all(axis=1)
    return _Given(path, values, finite, ~finite & ~np.isnan(values).all(axis=1))


def allowed_labels(
    folder: Path, labels: Sequence[str] | None = None, *, follow_links: bool = False
) -> tuple[str, ...] | None:
    """Return the labels that rows may have: those that are given, or those of the file `LABELS`; None for any."""
    if labels is not None:
        return _in_one_spelling(labels.split("|") if isinstance(labels, str) else labels)
    path = folder / LABELS
    if not path.is_file():
        return None
    check_link(folder, path.name, follow_links=follow_links)
    return _in_one_spelling(read_text(path, remedy="Save it as UTF-8.").splitlines())


def _in_one_spelling(labels: Iterable[str]) -> tuple[str, ...]:
    names = [name for name in map(tidy, labels) if name]
    spelling = one_spelling(Counter(names))
    return tuple(dict.fromkeys(spelling.get(name, name) for name in names))


def with_one_spelling(rows: Sequence[MetadataRow], allowed: Sequence[str] | None) -> list[MetadataRow]:
    """Return rows in which each label has one spelling: that of the allowed labels, otherwise the most frequent one."""
    uses = Counter(chain.from_iterable(row.labels for row in rows))
    spelling = one_spelling(uses)
    if allowed is not None:
        listed_as = {canonical(label): label for label in allowed}
        spelling = {label: right for label in uses if (right := listed_as.get(canonical(label), label)) != label}
    return [
        replace(row, labels=tuple(dict.fromkeys(spelling.get(label, label) for label in row.labels)))
        if not spelling.keys().isdisjoint(row.labels)
        else row
        for row in rows
    ]


def row_ids(rows: Sequence[MetadataRow]) -> list[str]:
    """Return the id of each row: its own, or the path of its picture, numbered from the second use on."""
    used: Counter[str] = Counter()
    ids = []
    for row in rows:
        identity = row.values.get("id", "")
        if not identity:
            identity = canonical_path(row.values.get("file_name", "")) or f"row-{row.number}"
            used[identity] += 1
            identity += f"#{used[identity]}" if used[identity] > 1 else ""
        ids.append(identity)
    return ids


def _problems(folder: _Folder, place: int, seen: Mapping[str, str]) -> Iterator[str]:
    row, verdict = folder.rows[place], None if "image" in folder.given else folder.verdicts.get(folder.files[place])
    if row.problem:
        yield row.problem
    for features in folder.given.values():
        if features.broken[place]:
            yield f"{features.path.name} holds NaN or infinity in some of its features"
    if verdict and verdict.problem:
        yield verdict.problem + folder.hints.get(folder.files[place], "")
    if not any(present[place] for present in folder.has.values()):
        yield "there is neither a picture nor a text"
    identity = folder.ids[place]
    if earlier := seen.get(canonical(identity)):
        written = f', written as "{visible(earlier)}"' if earlier != identity else ""
        yield f'the id "{visible(identity)}" occurs in an earlier row{written}'
    yield from problems_of_values(row, folder.allowed)


def problems_of_values(row: MetadataRow, allowed: tuple[str, ...] | None, *, needs_split: bool = True) -> Iterator[str]:
    """Yield what is wrong with the split and the labels of a row, which may be any if none are ``allowed``.

    With ``needs_split``, an empty cell in a column ``split`` is wrong, because training would not know what to do with the
    item. Where items are only searched, such an item is one of the database.
    """
    split = row.values.get("split")
    if split is not None and (split or needs_split) and split.lower() not in SPLIT_OF:
        yield f'the split "{split}" is not one of {", ".join(SPLIT_OF)}'
    if allowed is not None:
        yield from (f'the label "{label}" is not allowed' for label in row.labels if label not in allowed)


def _taken(folder: _Folder, kept: Sequence[int]) -> _Folder:
    return replace(
        folder,
        rows=[folder.rows[place] for place in kept],
        ids=[folder.ids[place] for place in kept],
        files=[folder.files[place] for place in kept],
        given={modality: given.taken(kept) for modality, given in folder.given.items()},
        has={modality: present[kept] for modality, present in folder.has.items()},
    )


def _image_values(folder: _Folder) -> Features | Regions | None:
    return folder.given["image"].values if "image" in folder.given else None


def _archive(folder: _Folder, skipped: Sequence[str]) -> Archive:
    has_image, has_text = folder.has["image"], folder.has["text"]
    image, text = folder.given.get("image"), folder.given.get("text")
    words, cut = as_texts([row.values.get("text", "") for row in folder.rows])
    pictures = _pictures(folder)
    preview = pictures if _is_shown(folder) else None
    labels, names = _labels(folder)
    splits, shared = _splits(folder)
    counts = {
        "items without a picture": (~has_image).sum(),
        "items without a text": (~has_text).sum(),
        "texts that were cut": cut,
        "queries left out because their pictures are in the database": len(shared) * (not folder.keep_shared_queries),
    }
    warnings = (
        *_warnings(folder),
        *doubts.describe_copies(folder.copies),
        *_repeated_pictures(folder, splits, shared),
        *doubts.doubts_about_labels(names, (row.labels for row in folder.rows)),
    )
    return Archive(
        ids=np.array(folder.ids, dtype=np.str_),
        image=image.values if image else pictures if has_image.any() else None,
        text=text.values if text and isinstance(text.values, np.ndarray) else words if has_text.any() else None,
        labels=labels, label_names=names, splits=splits, card=_card(folder, counts, warnings, skipped),
        columns={name: as_texts([row.values.get(name, "") for row in folder.rows])[0] for name in _further(folder.rows)}
        | ({} if preview else _shared_pictures(folder)),
        has_image=has_image, has_text=has_text, captions=words if text else None, preview=preview,
        automatic_splits=not _has_splits(folder), folder=folder.path.resolve(),
    ).with_digest()  # fmt: skip


def _card(folder: _Folder, counts: Mapping[str, int], warnings: Sequence[str], skipped: Sequence[str]) -> ArchiveCard:
    return ArchiveCard(
        name=folder.path.resolve().name,
        source="the user's own folder",
        license="the user's own",
        protocol=f"folder/{'given' if _has_splits(folder) else 'default'}-splits",
        skipped=tuple(skipped),
        notes={what: f"{count:,}" for what, count in counts.items() if count},
        warnings=tuple(warnings),
    )


def _pictures(folder: _Folder) -> PictureFiles:
    digests = [folder.verdicts[file].digest if file else "" for file in folder.files]
    return PictureFiles(folder.path, folder.files, None if "image" in folder.given else digests, folder.pictures)


def _has_splits(folder: _Folder) -> bool:
    return any("split" in row.values for row in folder.rows)


def _splits(folder: _Folder) -> tuple[dict[str, Rows], Rows]:
    """Return the splits, and the rows of the queries that the table names whose picture is in the database as well."""
    names = _picture_names(folder)
    if _has_splits(folder):
        parts = [SPLIT_OF[row.values.get("split", "database").lower()] for row in folder.rows]
        splits = splits_of(parts, search_training=folder.search_training)
        shared = doubts.queries_in_database(splits, names)
        if not folder.keep_shared_queries:
            splits["query"] = np.setdiff1d(splits["query"], shared)
        return splits, shared
    keys = [name or identity for name, identity in zip(names, folder.ids, strict=True)]
    return default_splits(keys, folder.has["image"] & folder.has["text"]), np.zeros(0, np.int64)


def _picture_names(folder: _Folder) -> list[str]:
    """Return a name per row that the rows of one picture share; empty for a row without a picture."""
    if isinstance(values := _image_values(folder), Regions):
        return [str(picture) for picture in values.pictures.tolist()]
    names = folder.pictures if any(folder.pictures) else [row.values.get(PICTURE, "") for row in folder.rows]
    return list(map(canonical_path, names))


def _is_shown(folder: _Folder) -> bool:
    """Return whether there are pictures to look at beside given features: one of every item that can be decoded."""
    return "image" in folder.given and all(folder.files) and not next(_not_shown(folder), "")


def _not_shown(folder: _Folder) -> Iterator[str]:
    if "image" in folder.given:
        yield from filter(None, (folder.verdicts[file].problem for file in filter(None, folder.files)))


def _warnings(folder: _Folder) -> Iterator[str]:
    names = _names(folder.rows)
    yield from describe_slips(names)
    yield from _absent_modalities(folder, names)
    yield from _cut_texts(folder)
    if "image" not in folder.given:
        yield from filter(None, [describe_assumptions({name: folder.verdicts[name] for name in folder.files if name})])
    several = [row.number for row in folder.rows if row.includes_rows]
    if several:
        yield (
            f"{folder.metadata}: the text of row {listed(several)} has several lines, some of which look like rows "
            "of the table. Check its quotation marks."
        )
    yield from _doubtful_values(folder)
    problem = next(_not_shown(folder), "")
    if problem or ("image" in folder.given and any(folder.files) and not all(folder.files)):
        yield f"No pictures are shown beside the given features: {problem or 'some rows do not name a picture'}."


def _doubtful_values(folder: _Folder) -> Iterator[str]:
    """Yield what is worth knowing about texts that stand for none, similar values, and columns of pictures."""
    yield from doubts.doubts_about_texts({row.number: row.values.get("text", "") for row in folder.rows})
    for column in _further(folder.rows):
        yield from doubts.doubts_about_values(column, [row.values.get(column, "") for row in folder.rows])
    for column in dict.fromkeys(row.embedded for row in folder.rows if row.embedded):
        yield f'The column "{column}" holds pictures themselves, which are not read. {SAVE_PICTURES}.'


def _repeated_pictures(folder: _Folder, splits: Mapping[str, Rows], shared: Rows) -> Iterator[str]:
    """Yield what is worth knowing about queries whose pictures are in the database as well."""
    yield from doubts.describe_shared([folder.ids[row] for row in shared.tolist()], kept=folder.keep_shared_queries)
    values = _image_values(folder)
    if isinstance(values, np.ndarray):
        held = {name: rows[folder.has["image"][rows]] for name, rows in splits.items()}
        equal = np.setdiff1d(doubts.equal_queries(values, held), shared)
        yield from doubts.describe_equal([folder.ids[row] for row in equal.tolist()])


def _absent_modalities(folder: _Folder, names: Sequence[str]) -> Iterator[str]:
    kinds: tuple[tuple[Modality, str, str], ...] = (("image", "picture", "file_name"), ("text", "text", "text"))
    for modality, what, column in kinds:
        if folder.has[modality].any():
            continue
        reason = f'{folder.metadata} does not have the column "{column}", and there is no {modality}.npy'
        if modality in folder.given:
            reason = f"{modality}.npy does not contain values"
        elif column in names:
            reason = f'the column "{column}" is empty'
        yield f"No item has a {what}: {reason}."


def _cut_texts(folder: _Folder) -> Iterator[str]:
    """Yield one sentence per column with values that `as_texts` cuts."""
    longest = longest_text(len(folder.rows))
    for column in ("text", *_further(folder.rows)):
        cut = [row.number for row in folder.rows if len(row.values.get(column, "")) > longest]
        if cut:
            where = f'{folder.metadata}, column "{column}"'
            yield f"{where}: only the first {longest:,} characters of row {listed(cut)} are used."


def _labels(folder: _Folder) -> tuple[npt.NDArray[np.uint8] | None, tuple[str, ...]]:
    of_item = [row.labels for row in folder.rows]
    if not any(of_item):
        return None, ()
    names = folder.allowed or tuple(sorted(set().union(*of_item)))
    if len(names) > MOST_LABELS:
        raise OutOfRange(
            f"{folder.path} has {len(names):,} different labels, more than {MOST_LABELS:,}. Labels are kinds that many "
            "items share, joined with |. Put free text into the column text."
        )
    return multi_hot(of_item, names), names


def _shared_pictures(folder: _Folder) -> dict[str, npt.NDArray[np.str_]]:
    """Return a column that names each item's picture beside given features, if items share some."""
    values, names = _image_values(folder), _picture_names(folder)
    shared = isinstance(values, Regions) or (values is not None and shares(names))
    return {PICTURE: np.array(names, dtype=np.str_)} if shared else {}


def _names(rows: Sequence[MetadataRow]) -> list[str]:
    names = dict.fromkeys(chain.from_iterable(dict.fromkeys(tuple(row.values) for row in rows)))
    return [*names, *(["labels"] if any(row.labels for row in rows) else [])]


def _further(rows: Sequence[MetadataRow]) -> list[str]:
    return [name for name in _names(rows) if name not in KNOWN]
