"""FashionVC and Ssense: their cards, and the layout in which SHDCH distributes both."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.base.errors import WrongShape
from silohash.data.benchmarks.dataset import described
from silohash.data.benchmarks.layouts import checks
from silohash.data.benchmarks.layouts.matlab_arrays import ArrayFiles, Named, read_pictures
from silohash.data.benchmarks.layouts.reading import layout
from silohash.data.catalogue import check_option
from silohash.data.formats.matlab import Swap
from silohash.data.protocols.contents import Contents
from silohash.data.splits import rest_searched


def read_shdch(
    items: int,
    coarse: int,
    fine: int,
    usual_queries: int,
    root: Path,
    *,
    labels: str = "fine",
    swap: Swap = "auto",
    shuffled: str = "refuse",
    queries: int | None = None,
) -> Contents:
    """Read ``image.mat``, ``tag.mat`` and ``label.mat`` as SHDCH distributes them; the first rows are queries.

    ``items`` and ``usual_queries`` are the published numbers. The columns of the ``coarse`` classes come first in
    ``label.mat``, then those of the ``fine`` ones.
    """
    kept = {"fine": slice(coarse, None), "coarse": slice(coarse), "both": slice(None)}
    check_option("labels", labels, tuple(kept))
    files = ArrayFiles(
        image=Named("image.mat", ("Image",)),
        text=Named("tag.mat", ("Tag",)),
        labels=Named("label.mat", ("Label",)),
        items=(items,),
    )
    contents = read_pictures(files, root, swap=swap, shuffled=shuffled)
    every = _check_columns(contents, coarse, fine)
    columns, hierarchy_notes = _hierarchy(every, coarse)
    names = checks.numbered("coarse", coarse) + checks.numbered("fine", fine)
    first = usual_queries if queries is None else queries
    states = 0 < first < len(contents)
    none_stated = f"none stated, because {len(contents):,} items are not more than the {first:,} first rows for queries"
    return replace(
        contents,
        labels=every[:, kept[labels]],
        label_names=names[kept[labels]],
        columns=columns,
        stated=rest_searched(len(contents), np.arange(first)) if states else {},
        notes={**contents.notes, **hierarchy_notes, **({} if states else {"splits": none_stated})},
    )


def _check_columns(contents: Contents, coarse: int, fine: int) -> npt.NDArray[np.uint8]:
    labels = contents.labels
    if labels is None or labels.shape[1] != coarse + fine:
        found = 0 if labels is None else labels.shape[1]
        raise WrongShape(
            f"label.mat: Label has {found} columns, but {coarse} coarse and {fine} fine classes are "
            f"{coarse + fine} columns. Check that it is the label.mat of this data set."
        )
    return labels


def _hierarchy(labels: npt.NDArray[np.uint8], coarse: int) -> tuple[dict[str, npt.NDArray[np.str_]], dict[str, str]]:
    """Return each item's coarse and fine class as columns, if it has one of each, and notes on exceptions."""
    levels = {"coarse": labels[:, :coarse], "fine": labels[:, coarse:]}
    single = np.logical_and(*((part.sum(axis=1) == 1) for part in levels.values()))
    notes = {}
    if not single.all():
        notes["items without exactly one coarse and one fine class"] = f"{int((~single).sum()):,}"
    parents = levels["fine"].T.astype(np.int64) @ levels["coarse"]
    several = np.flatnonzero((parents > 0).sum(axis=1) > 1).tolist()
    if several:
        numbers = ", ".join(map(str, several))
        advice = "check that the first columns are the coarse classes"
        notes["fine classes in several coarse ones"] = f"{len(several)}: {numbers}; {advice}"
    columns = {
        level: np.array([f"{level} {number}" for number in part.argmax(axis=1)], np.str_)
        for level, part in levels.items()
    }
    return (columns if single.all() else {}), notes


FASHIONVC = described("fashionvc", layout("shdch", partial(read_shdch, 19_862, 8, 27, 3_000), coarse=8, fine=27))
SSENSE = described("ssense", layout("shdch", partial(read_shdch, 15_696, 4, 28, 2_000), coarse=4, fine=28))
