"""Arrays of pictures or features with tags and labels, in MATLAB or HDF5 files, as hashing papers distribute them.

The axes of the arrays are detected (`silohash.data.formats.matlab`), the number of items is the size that all arrays
share, and files whose rows are in another order than the others' are rejected unless ``shuffled = "accept"``. With
``overlap = "accept"``, more than 1 % of the queries may occur in the database as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from silohash.base.errors import ChoiceNeeded, FilesDiffer, MissingFile, OrderDiffers, WrongShape
from silohash.base.types import Rows
from silohash.data.archive import Features, Pictures
from silohash.data.benchmarks.layouts import checks, reading
from silohash.data.benchmarks.layouts.reading import Layout, layout
from silohash.data.catalogue import check_option
from silohash.data.formats.matlab import Swap, Variable, open_mat
from silohash.data.protocols.contents import Contents
from silohash.data.splits import rest_searched


@dataclass(frozen=True)
class Named:
    """Where a variable is found: the name of its file, and its possible names there, the preferred one first."""

    file: str
    variables: tuple[str, ...]


class MatFolder:
    """A folder of MATLAB and HDF5 files. Each file is opened once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open = cache(open_mat)

    def variable(self, named: Named, *, near: Path | None = None) -> Variable:
        """Open a variable of a file anywhere in the folder; ``near`` is preferred as in `find_file`."""
        return self.variable_in(need_file(self.root, named.file, near=near), named.variables)

    def variable_beside(self, path: Path, named: Named, *, other_order: str = "") -> Variable:
        """Open a variable of a file in the same folder as another.

        ``other_order`` is the file's name in the other order of rows (plain or ``-rand``), which must not be used instead.

        Raises:
            UserError: If there is no such file. If there is one in the other order of rows, it explains the difference.
        """
        found = path.parent / named.file
        if found.is_file():
            return self.variable_in(found, named.variables)
        if other_order and (path.parent / other_order).is_file():
            raise OrderDiffers(
                f"{path.name} and {other_order} have their rows in different orders: files with -rand are shuffled, those "
                f"without are not. Add {named.file} to {path.parent}."
            )
        raise MissingFile(
            f"{named.file} is missing in {path.parent}. It must come from the same folder of the same source as "
            f"{path.name}, whose rows may be shuffled."
        )

    def optional(self, named: Named, *, near: Path) -> Variable | None:
        """Open a variable, or return None if there is no such file, or if ``near`` itself lacks the variable."""
        path = find_file(self.root, named.file, near=near)
        if path is None or (path == near and not self._open(path).has(*named.variables)):
            return None
        return self.variable_in(path, named.variables)

    def variable_in(self, path: Path, names: tuple[str, ...]) -> Variable:
        """Open the first of several variables that a file has."""
        return self._open(path).variable(*names)


def find_file(root: Path, *names: str, near: Path | None = None) -> Path | None:
    """Find a file by the first of several names that occurs anywhere in a folder.

    If there are several, exactly one of them must be in the folder of the file ``near``.

    Raises:
        UserError: If the name occurs more than once, in the folder of ``near`` or, if it does not occur there, in ``root``.
    """
    for name in names:
        found = sorted(path for path in root.rglob(name) if path.is_file())
        if near is not None:
            found = [path for path in found if path.parent == near.parent] or found
        if len(found) > 1:
            listed = ", ".join(str(path.relative_to(root)) for path in found)
            raise ChoiceNeeded(f"{root} holds {name} more than once: {listed}. Name the folder of one source.")
        if found:
            return found[0]
    return None


def need_file(root: Path, *names: str, near: Path | None = None) -> Path:
    """Find a file as `find_file` does; it must be present.

    Raises:
        UserError: If there is no such file, or there are several.
    """
    found = find_file(root, *names, near=near)
    if found is None:
        raise MissingFile(f"{' or '.join(names)} is missing in {root}. Add it beside the other files.")
    return found


def axis_notes(variables: Mapping[str, Variable], rows: int) -> dict[str, str]:
    """Return notes for the card on fields of structs, and on matrices whose items are not along the first axis."""
    notes = {}
    for what, variable in variables.items():
        if "/" in variable.name:
            notes[f"{what}: variable"] = f"{variable}, a field of a struct"
        if variable.row_axis(rows) and len(variable.shape) == 2:
            notes[f"{what}: axes"] = f"{variable} holds the items along its second axis; transposed"
    return notes


RAND = "-rand"
"""Ending of the names of files whose rows are shuffled."""


@dataclass(frozen=True)
class ArrayFiles:
    """The variables of a data set's arrays: pictures or their features, tags or features of texts, labels, and names.

    ``items`` are the published numbers of items and ``classes`` the published number of classes, empty or 0 if there is
    none.
    """

    image: Named
    text: Named
    labels: Named
    names: Named | None = None
    items: tuple[int, ...] = ()
    classes: int = 0

    @property
    def columns(self) -> dict[str, Named]:
        """The variables that every distribution has."""
        return {"image": self.image, "text": self.text, "labels": self.labels}


@dataclass(frozen=True)
class PartFiles:
    """The variables of a distribution in two parts: items to search and train on, and queries.

    ``items`` are the published numbers of items in both parts together, and ``queries`` those of queries. Labels may be
    ``class_numbers`` instead of columns of 0 and 1.
    """

    database: ArrayFiles
    test: ArrayFiles
    items: tuple[int, ...] = ()
    queries: tuple[int, ...] = ()
    class_numbers: bool = False


def read_pictures(files: ArrayFiles, root: Path, *, swap: Swap = "auto", shuffled: str = "refuse") -> Contents:
    """Read pictures, tags, labels and, if present, names, each from a file of its own or all from one.

    With ``swap = "auto"``, height and width are swapped in files that MATLAB wrote, and in others if the pictures lie on
    their side.
    """
    return _contents(_open(root, files), files, shuffled=shuffled, swap=swap)


def read_features(
    files: ArrayFiles, features: Sequence[str], root: Path, *, rand: str = "auto", shuffled: str = "refuse"
) -> Contents:
    """Read picture features with the tags, labels and names of the same folder and the same order of rows.

    ``files`` and ``features``, the possible names of the file of picture features, lack the ending ``.mat``. With
    ``rand = "auto"``, the files named ``-rand`` are used if they are the ones present.
    """
    path, end, other = _choose_order(root, features, rand)
    folder = MatFolder(root)
    variables = {"image": folder.variable_in(path, files.image.variables)}
    for what, named in (("text", files.text), ("labels", files.labels)):
        renamed = replace(named, file=f"{named.file}{end}.mat")
        variables[what] = folder.variable_beside(path, renamed, other_order=f"{named.file}{other}.mat")
    if files.names and (path.parent / f"{files.names.file}{end}.mat").is_file():
        variables["names"] = folder.variable_beside(path, replace(files.names, file=f"{files.names.file}{end}.mat"))
    return _contents(variables, files, shuffled=shuffled)


def read_with_last_queries(
    files: ArrayFiles, queries: int, root: Path, *, overlap: str = "refuse", shuffled: str = "refuse"
) -> Contents:
    """Read features, texts and labels whose last rows are the queries, if there are more items than queries."""
    variables = _open(root, files)
    contents = _contents(variables, files, shuffled=shuffled)
    if len(contents) <= queries:
        return contents
    stated = rest_searched(len(contents), np.arange(len(contents) - queries, len(contents)))
    columns = [column for column in (contents.image, contents.text) if isinstance(column, np.ndarray)]
    repeated = checks.check_repeated(columns, stated, overlap=overlap, where=str(variables["image"].file.path))
    return replace(contents, stated=stated, notes={**contents.notes, **repeated})


def read_parts(files: PartFiles, root: Path, *, overlap: str = "refuse", shuffled: str = "refuse") -> Contents:
    """Read features, texts and labels of two parts: the first is searched and trained on, the second holds the queries."""
    folder = MatFolder(root)
    first = folder.variable(files.database.image).file.path
    parts = [
        {what: folder.variable_beside(first, named) for what, named in part.columns.items()}
        for part in (files.database, files.test)
    ]
    counts = [checks.common_rows({str(variable): variable.shape for variable in part.values()}) for part in parts]
    where = {what: str(variable) for what, variable in parts[0].items()}
    joined = {what: _join([part[what] for part in parts], counts) for what in where}
    image, text = (checks.as_features(joined[what], where[what]) for what in ("image", "text"))
    numbers = files.class_numbers and (joined["labels"].ndim == 1 or joined["labels"].shape[1] == 1)
    as_labels = checks.from_class_numbers if numbers else checks.as_labels
    labels, label_notes = as_labels(joined["labels"], where["labels"])
    stated = rest_searched(sum(counts), np.arange(counts[0], sum(counts)))
    compared: dict[str, np.ndarray] = {where["image"]: image, where["text"]: text, where["labels"]: labels}
    notes = {
        **label_notes,
        **axis_notes(parts[0], counts[0]),
        **checks.size_notes(sum(counts), files.items),
        **checks.size_notes(counts[1], files.queries, "queries"),
        **checks.check_aligned(compared, shuffled=shuffled),
        **checks.check_repeated((image, text), stated, overlap=overlap, where=str(first)),
    }
    names = checks.numbered("class", labels.shape[1])
    return Contents(checks.row_ids(sum(counts)), image, text, labels, names, stated=stated, notes=notes)


def _choose_order(root: Path, features: Sequence[str], rand: str) -> tuple[Path, str, str]:
    """Return the file of features, and the endings of the names of files in its order of rows and in the other."""
    check_option("rand", rand, ("auto", "yes", "no"))
    plain = find_file(root, *(f"{stem}.mat" for stem in features)) if rand != "yes" else None
    mixed = find_file(root, *(f"{stem}{RAND}.mat" for stem in features)) if rand != "no" else None
    if plain is not None and mixed is not None:
        raise ChoiceNeeded(
            f"{plain.name} and {mixed.name} hold the same items in different orders. Set rand = no for the first, or "
            "rand = yes for the second."
        )
    if plain is not None:
        return plain, "", RAND
    if mixed is None:
        raise MissingFile(f"{' or '.join(f'{stem}.mat' for stem in features)} is missing in {root}. Add it.")
    return mixed, RAND, ""


def _join(variables: Sequence[Variable], counts: Sequence[int]) -> np.ndarray:
    arrays = [variable.array(count) for variable, count in zip(variables, counts, strict=True)]
    if arrays[0].shape[1:] != arrays[1].shape[1:]:
        raise FilesDiffer(f"{variables[0]} and {variables[1]} differ in their columns. Take all files from one source.")
    return np.concatenate(arrays)


def _open(root: Path, files: ArrayFiles) -> dict[str, Variable]:
    folder = MatFolder(root)
    near = need_file(root, files.image.file)
    variables = {what: folder.variable(named, near=near) for what, named in files.columns.items()}
    names = folder.optional(files.names, near=near) if files.names else None
    return variables if names is None else {**variables, "names": names}


class _Image(NamedTuple):
    """The image column, and the rows and values by which it is compared with texts and labels."""

    column: Pictures | Features
    rows: Rows
    values: np.ndarray
    least: int
    notes: Mapping[str, str]


def _contents(
    variables: Mapping[str, Variable], files: ArrayFiles, *, shuffled: str, swap: Swap | None = None
) -> Contents:
    """Read the arrays; ``swap`` is given if the images are pictures, and None if they are features."""
    rows = checks.common_rows({str(variable): variable.shape for variable in variables.values()})
    where = {what: str(variable) for what, variable in variables.items()}
    labels, label_notes = checks.as_labels(variables["labels"].array(rows), where["labels"])
    text = checks.as_features(variables["text"].array(rows), where["text"])
    ids, id_notes = _ids(variables.get("names"), rows)
    if swap is None:
        features = checks.as_features(variables["image"].array(rows), where["image"])
        image = _Image(features, np.arange(rows), features, checks.LEAST_ROWS, {})
    else:
        image = _pictures(variables["image"], rows, swap)
    texts, classes = text[image.rows], labels[image.rows]
    compared: dict[str, np.ndarray] = {where["image"]: image.values, where["text"]: texts, where["labels"]: classes}
    notes = {
        **axis_notes(variables, rows),
        **checks.size_notes(rows, files.items),
        **checks.size_notes(labels.shape[1], (files.classes,) if files.classes else (), "classes"),
        **label_notes,
        **id_notes,
        **image.notes,
        **checks.check_aligned(compared, shuffled=shuffled, least=image.least),
        "order of classes": "as in the file, which does not name them",
    }
    names = checks.numbered("class", labels.shape[1])
    return Contents(ids=ids, image=image.column, text=text, labels=labels, label_names=names, notes=notes)


def _ids(variable: Variable | None, rows: int) -> tuple[npt.NDArray[np.str_], dict[str, str]]:
    """Return the names of the items as ids, or row numbers if there are no names."""
    if variable is None:
        return checks.row_ids(rows), {"ids": "row numbers, because the files do not contain names"}
    names = variable.strings(rows)
    if names.ndim != 1:
        raise WrongShape(
            f"{variable.file.path}: {variable.name} holds several names per item. Use a file with one name per item."
        )
    ids = reading.unique_ids(names.tolist())
    return ids, reading.count_notes({"repeated names": int((ids != names).sum())})


def _pictures(variable: Variable, rows: int, swap: Swap) -> _Image:
    """Open pictures. In files that Python wrote, the pictures themselves show which axis is the height."""
    file = variable.file
    pictures = variable.pictures(rows, swap=swap)
    sampled, small = checks.thumbnails(pictures)
    turned = checks.look_turned(small)
    notes = {}
    if swap == "auto" and turned and file.kind != "v7.3" and pictures.size[0] == pictures.size[1]:
        pictures = variable.pictures(rows, swap="yes")
        notes["image: orientation"] = "height and width swapped, because the pictures lay on their side"
    elif turned:
        notes["image: orientation"] = "the pictures seem to lie on their side; see the option swap"
    notes["image: axes"] = f"{variable}, stored as {pictures.axes.order} in a file of kind {file.kind}"
    if file.kind == "v5":
        notes["image: memory"] = f"{variable} is held in memory, because files of version 5 to 7 cannot be read in part"
    return _Image(pictures, sampled, small, checks.LEAST_PICTURES, notes)


def _stem_files(stem: str, end: str, image: Named, items: tuple[int, ...], classes: int) -> ArrayFiles:
    text, labels, names = (Named(f"{stem}-{name.lower()}{end}", (name,)) for name in ("YAll", "LAll", "FAll"))
    return ArrayFiles(image, text, labels, names, items, classes)


def picture_layout(name: str, stem: str, *, items: tuple[int, ...], classes: int) -> Layout:
    """Return the layout of DCMH's four files of one stem: pictures, tags, labels and names."""
    files = _stem_files(stem, ".mat", Named(f"{stem}-iall.mat", ("IAll",)), items, classes)
    return layout("dcmh", partial(read_pictures, files), name, stem=stem)


def feature_layout(name: str, stem: str, features: tuple[str, ...], *, items: tuple[int, ...], classes: int) -> Layout:
    """Return the layout of picture features with the tags and labels of the same folder, as UCCH distributes them.

    ``features`` are the possible endings of the name of the file of features, the shortest last.
    """
    files = _stem_files(stem, "", Named("", ("XAll",)), items, classes)
    read = partial(read_features, files, tuple(f"{stem}-{part}" for part in features))
    return layout("features", read, name, stem=stem, features=features[-1])


def _dscmr_part(part: str) -> ArrayFiles:
    return ArrayFiles(
        image=Named(f"{part}_img.mat", (f"{part}_img",)),
        text=Named(f"{part}_txt.mat", (f"{part}_txt",)),
        labels=Named(f"{part}_img_lab.mat", (f"{part}_img_lab", f"{part}_lab")),
    )


DSCMR = PartFiles(database=_dscmr_part("train"), test=_dscmr_part("test"), class_numbers=True)
DSCMR_LAYOUT = layout("dscmr", partial(read_parts, DSCMR))
"""The layout of DSCMR's six files of features."""
