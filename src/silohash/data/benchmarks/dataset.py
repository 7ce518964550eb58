"""A benchmark: its facts, finding and reading its files, opening it as an archive under a protocol, and inspecting it."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from silohash.base.arrays import whole
from silohash.base.errors import FilesDiffer, MissingFile, UnknownName, UserError
from silohash.base.files import digest_arrays, digest_json, read_json, read_npy, read_toml
from silohash.base.forms import REINSTALL, of_value
from silohash.base.registry import suggestion
from silohash.base.types import Rows
from silohash.data import ARCHIVES
from silohash.data.archive import Archive, ArchiveCard, Features, Pictures
from silohash.data.benchmarks.layouts.reading import Layout
from silohash.data.catalogue import check_options
from silohash.data.pictures.reading import PictureFiles
from silohash.data.protocols.apply import DEFAULT, Choice, apply, choose, with_default
from silohash.data.protocols.contents import Contents
from silohash.data.protocols.rule import SplitProtocol
from silohash.data.regions import Regions

VARIABLE = "SILOHASH_DATA"
CHECKSUMS = "checksums.json"
PROTOCOLS = Path(__file__).with_name("protocols.toml")
DATASETS = read_toml(PROTOCOLS.with_name("datasets.toml"), remedy=REINSTALL, missing=REINSTALL)
AUTO = "auto"
OPTIONS = ("root", "layout", "protocol", "seed", "sample", "text_features")
"""Options of every data set; each layout's reader has more."""

RESEARCH_ONLY = "not stated with the files; the pictures belong to their authors, for research only"
"""The license of data sets whose distributors state none."""

Option: TypeAlias = "str | int | float | bool | None"
"""The type of an option's value."""


def published(dataset: str) -> tuple[SplitProtocol, ...]:
    """Return the published protocols of a data set, in the order of ``protocols.toml``."""
    return tuple(of_value(facts, SplitProtocol) for facts in facts_of(dataset))


def facts_of(dataset: str) -> list[dict[str, Any]]:
    """Return the fields of each protocol: those that the data set states for all, those of the source, and its own."""
    sources, of_dataset = _facts()["sources"], _facts()[dataset]
    shared = {"dataset": dataset, "database": None, "note": "", **of_dataset}
    found = []
    for own in shared.pop("protocols"):
        source = sources.get(own.get("from"), {})
        facts = {**shared, **source, **own}
        facts["about"] = facts["about"].format(note=facts.pop("note"), source=source.get("about", ""))
        found.append({name: value for name, value in facts.items() if name != "from"})
    return found


@cache
def _facts() -> dict[str, Any]:
    return read_toml(PROTOCOLS, remedy=REINSTALL, missing=REINSTALL)


def folder_of(key: str, root: str = "") -> Path:
    """Return the folder of a data set's files: the given one, or ``$SILOHASH_DATA/<key>`` if present, or ``data/<key>``."""
    if root:
        return Path(root).expanduser()
    named = os.environ.get(VARIABLE)
    if named and (Path(named) / key).is_dir():
        return Path(named) / key
    return Path("data") / key


def missing_files(key: str, folder: Path, layouts: Sequence[Layout]) -> str:
    """Return a text that lists each layout's required files, which of them are missing, and where they belong."""
    state = "does not contain a complete layout" if folder.is_dir() else "does not exist"
    lines = [
        f"The files of {key} are missing: {folder.resolve()} {state}. Put the files of one layout there, or name the "
        f'folder that holds them: root = "..." in [data.options], or {VARIABLE} for the folder above {key}/.'
    ]
    for layout in layouts:
        lines.append(f"  layout {layout.name}: {layout.summary}")
        missing = layout.missing(folder)
        for need in layout.needs:
            if not need.optional:
                lines.append(f"    {'missing' if need in missing else 'present'}  {need.pattern}  ({need.what})")
    return "\n".join(lines)


def text_features_path(key: str, folder: Path, name: str) -> Path:
    """Return the path of the user's text features, which is relative to the folder of a data set.

    Raises:
        UserError: If the file does not exist; says what to put there.
    """
    path = folder / name
    if not path.is_file():
        raise MissingFile(
            f"The text features {name} of {key} are missing: {path.resolve()} does not exist. Put a NumPy file (.npy) of "
            "numbers there, with one row per item in the order of the files, or remove the option text_features."
        )
    return path


def read_text_features(path: Path, items: int) -> Features:
    """Return a user's text features, ``(items, V)``.

    Raises:
        UserError: If the file is damaged, or does not hold one row of numbers per item.
    """
    found = read_npy(path, mapped=True, remedy="Write it again with numpy.save.")
    if found.ndim != 2 or len(found) != items or found.dtype.kind not in "fiub":
        raise FilesDiffer(
            f"{path} holds {found.dtype} of shape {found.shape}, and the files list {items:,} items. Give one row of "
            "numbers per item, in the order of the files."
        )
    return found


def compare_checksums(folder: Path, found: Mapping[str, str]) -> dict[str, str]:
    """Return whether each digest is ``as noted`` in ``checksums.json``, ``differs`` or is ``not noted``, if it exists."""
    path = folder / CHECKSUMS
    if not path.exists():
        return {}
    noted = read_json(path, dict[str, str], remedy="Rewrite it with --write-checksums.")
    return {
        name: "not noted" if name not in noted else "as noted" if noted[name] == digest else "differs"
        for name, digest in found.items()
    }


@dataclass(frozen=True)
class Dataset:
    """The facts about a published data set: what it holds, who collected and published it where, and under which license.

    The ``key`` is the value of ``[data] name``. The ``layouts`` are the sets of files in which it is distributed; ``auto``
    reads the first complete one. The ``published`` protocols are by default those of ``protocols.toml``, and the default
    protocol is used if none is named.
    """

    key: str
    title: str
    summary: str
    source: str
    layouts: tuple[Layout, ...]
    license: str = RESEARCH_ONLY
    published: tuple[SplitProtocol, ...] = ()
    default_protocol: str = DEFAULT

    def __post_init__(self) -> None:
        object.__setattr__(self, "published", self.published or published(self.key))

    @cached_property
    def protocols(self) -> Mapping[str, SplitProtocol]:
        """Its protocols by name, including ``default``."""
        return with_default(self.published)

    def protocol(self, name: str) -> Choice:
        """Return a protocol by its name and suffixes; the usual protocol for an empty name."""
        return choose(self.protocols, name or self.default_protocol)

    def layout(self, name: str, folder: Path) -> Layout:
        """Return a layout whose files are present: by name, or the first complete one for ``auto``.

        Raises:
            UserError: If there is no such layout, or its files are missing.
        """
        wanted = [layout for layout in self.layouts if name in {layout.name, AUTO}]
        if not wanted:
            known = [layout.name for layout in self.layouts]
            near = suggestion(name, [*known, AUTO])
            raise UnknownName(f'{self.key} has no layout "{name}"{near}; it has: {", ".join(known)}, or {AUTO}.')
        for layout in wanted:
            if not layout.missing(folder):
                return layout
        raise MissingFile(missing_files(self.key, folder, wanted))

    def read(self, *, root: str = "", layout: str = AUTO, choice: Choice | None = None, **reader: Option) -> Contents:
        """Read the files, before a protocol chooses among their items.

        The arguments are those of a call. The protocol ``choice`` has defaults for the options of the reader.

        Raises:
            UserError: If there is no such layout or option, or the files are missing or damaged.
        """
        folder = folder_of(self.key, root)
        known = list(dict.fromkeys([*OPTIONS, *(option for one in self.layouts for option in one.options)]))
        check_options(self.key, reader, known)
        chosen = self.layout(layout, folder)
        check_options(f"The layout {chosen.name} of {self.key}", reader, tuple(chosen.options))
        defaults = choice.protocol.reader if choice is not None else {}
        return chosen.read(folder, **{name: defaults[name] for name in defaults if name in chosen.options} | reader)

    def __call__(
        self,
        *,
        root: str = "",
        layout: str = AUTO,
        protocol: str = "",
        seed: int = 0,
        sample: int = 0,
        text_features: str = "",
        **reader: Option,
    ) -> Archive:
        """Read the files and apply a protocol, which opens the data set as an archive.

        The files are in ``root``, by default ``$SILOHASH_DATA/<key>``, or else ``./data/<key>``. Without names, the first
        complete layout and the usual protocol are taken. The seed of rows that a protocol draws is separate from the run's
        seed, so that all runs have the same queries. With a ``sample``, at most so many items are kept. The file
        ``text_features`` in the same folder, an ``.npy`` array with one row per item in the order of the files, replaces the
        texts. ``reader`` has options of the layout's reader.

        Raises:
            UserError: If files are missing or damaged, or do not match the protocol.
        """
        choice = self.protocol(protocol)
        whole("sample", sample, 0)
        path = text_features_path(self.key, folder_of(self.key, root), text_features) if text_features else None
        contents = self.read(root=root, layout=layout, choice=choice, **reader)
        texts = read_text_features(path, len(contents)) if path else None
        return self.archive(contents, choice, seed=seed, sample=sample, texts=texts)

    def archive(
        self, contents: Contents, choice: Choice, *, seed: int = 0, sample: int = 0, texts: Features | None = None
    ) -> Archive:
        """Make an archive of the files' contents under a protocol, which the items must match, or of a sample of them.

        Text features ``(N, V)`` take the place of the texts, from which the protocol may have chosen the items.
        """
        split = apply(contents, choice, seed, sample)
        everything = len(split.rows) == len(contents)
        prefix = "as published, " if choice.scaled or choice.drawn else ""
        rules = {f"{prefix}{name}": words for name, words in choice.protocol.rules().items()}
        return Archive(
            ids=contents.ids[split.rows], image=contents.image if everything else _select(contents.image, split.rows),
            text=split.text if texts is None else np.ascontiguousarray(texts[split.rows]), labels=split.labels,
            label_names=split.label_names, splits=split.splits,
            card=ArchiveCard(
                name=self.key,
                source=f"{self.title}: {self.source}",
                license=self.license,
                protocol=split.protocol + (f"/seed{seed}" if seed else ""),
                notes={"about the protocol": choice.protocol.about, **rules, **contents.notes, **split.notes},
            ),
            columns=split.columns, has_image=contents.has("image")[split.rows],
            has_text=(contents if texts is None else replace(contents, text=texts)).has("text")[split.rows],
            query_in_database=split.query_in_database,
        ).with_digest()  # fmt: skip


def described(key: str, *layouts: Layout) -> Dataset:
    """Return the data set whose facts ``datasets.toml`` states."""
    return Dataset(key=key, layouts=layouts, **DATASETS[key])


def benchmark(name: str) -> Dataset | None:
    """Return the data set of a name, or None if it is not the name of an archive whose files the user provides."""
    opener = ARCHIVES.resolve(name) if name in ARCHIVES.names() else None
    return opener if isinstance(opener, Dataset) else None


def benchmarks() -> dict[str, Dataset]:
    """Return the archives whose files the user provides, by name. Those of packages that are broken are left out."""
    found: dict[str, Dataset] = {}
    for name in ARCHIVES.names():
        with suppress(UserError):
            if dataset := benchmark(name):
                found[name] = dataset
    return found


@dataclass(frozen=True)
class SelectedPictures:
    """Some of a column's pictures: those in the rows ``(n,)`` int64."""

    column: Pictures
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    def picture(self, row: int) -> Image.Image:
        """Decode one picture."""
        return self.column.picture(int(self.rows[row]))

    def digest(self) -> str:
        """Return a digest of the column's content and of the rows."""
        return digest_json([self.column.digest(), digest_arrays({"rows": self.rows})])


def _select(column: Pictures | Features | Regions | None, rows: Rows) -> Pictures | Features | Regions | None:
    if column is None:
        return None
    if isinstance(column, PictureFiles | Regions):
        return column.taken(rows)
    return column[rows] if isinstance(column, np.ndarray) else SelectedPictures(column, rows)


@dataclass(frozen=True)
class Inspection:
    """The findings about the files of the layout that was read, and the archive under the protocol that was chosen.

    Attributes:
        overlaps: Number of items that two stated splits share, by their names, such as ``query and database``.
        mismatches: Protocol -> None if the files match it, else the reason why they do not.
    """

    layout: str
    contents: Contents
    overlaps: Mapping[str, int]
    mismatches: Mapping[str, str | None]
    archive: Archive


def inspect(dataset: Dataset, *, root: str = "", layout: str = AUTO, protocol: str = "") -> Inspection:
    """Read a data set's files and try every protocol on them.

    If ``protocol`` is empty, the usual one is chosen or, if that does not match, the first that does. The other arguments
    are those of a call of the data set.

    Raises:
        UserError: If files are missing or damaged, do not belong together, or do not match the requested protocol.
    """
    choice = dataset.protocol(protocol)
    contents = dataset.read(root=root, layout=layout, choice=choice)
    mismatches = {name: _mismatch(dataset, name, contents) for name in dataset.protocols}
    if not protocol and mismatches[choice.name] is not None:
        choice = dataset.protocol(next((name for name, reason in mismatches.items() if reason is None), DEFAULT))
    found = {}
    for one, other in combinations(contents.stated, 2):
        both = len(np.intersect1d(contents.stated[one], contents.stated[other]))
        if both and {one, other} != {"train", "database"}:
            found[f"{one} and {other}"] = both
    return Inspection(
        layout=dataset.layout(layout, folder_of(dataset.key, root)).name,
        contents=contents,
        overlaps=found,
        mismatches=mismatches,
        archive=dataset.archive(contents, choice),
    )


def _mismatch(dataset: Dataset, name: str, contents: Contents) -> str | None:
    try:
        apply(contents, dataset.protocol(name))
    except UserError as error:
        return str(error)
    return None
