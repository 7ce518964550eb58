"""MATLAB lists of picture files with tags and labels, as torchcmh distributes them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from silohash.data.benchmarks.layouts import checks, reading
from silohash.data.benchmarks.layouts.alignment import pair_notes
from silohash.data.benchmarks.layouts.base import Layout, Need
from silohash.data.benchmarks.layouts.matlab_files import MatFolder, Named, axis_notes, need_file
from silohash.data.protocols.contents import Contents


def read_picture_lists(
    published: Mapping[int, tuple[int, ...]], endings: tuple[str, ...], root: Path, *, pictures: str = ""
) -> Contents:
    """Read ``imgList.mat``, ``tagList.mat`` and ``labelList.mat``, all with the same ending, and check the pictures.

    ``published`` holds the published numbers of items by number of classes. The first of the endings, such as ``21`` in
    ``imgList21.mat``, that is found is read.
    """
    listed = need_file(root, *(f"imgList{ending}.mat" for ending in endings))
    end = listed.stem.removeprefix("imgList")
    folder = MatFolder(root)
    names = folder.variable_in(listed, ("FAll", "imgs"))
    variables = {
        "text": folder.variable(Named(f"tagList{end}.mat", ("YAll", "tags")), near=listed),
        "labels": folder.variable(Named(f"labelList{end}.mat", ("LAll", "labels")), near=listed),
    }
    rows = checks.common_rows({str(variable): variable.shape for variable in variables.values()})
    listed_names = names.file.strings(names.name, rows=rows)
    joined = [str(name) if listed_names.ndim == 1 else "/".join(name) for name in listed_names]
    paths = [path.replace("\\", "/").lstrip("/") for path in joined]
    labels, label_notes = checks.as_labels(variables["labels"].array(rows), str(variables["labels"]))
    text = checks.as_features(variables["text"].array(rows), str(variables["text"]))
    remedy = (
        f"Set pictures to the folder that the names in {listed.name} are relative to. The first name is {paths[0]}."
    )
    image, picture_notes = reading.check_picture_files(root / pictures, paths, remedy)
    return Contents(
        ids=reading.unique_ids(paths),
        image=image,
        text=text,
        labels=labels,
        label_names=checks.numbered("class", labels.shape[1]),
        notes={
            **label_notes,
            **axis_notes({"names": names, **variables}, rows),
            **picture_notes,
            **pair_notes(text, labels),
            **checks.size_notes(rows, published.get(labels.shape[1], ())),
        },
    )


def picture_list_layout(published: Mapping[int, tuple[int, ...]], *, endings: tuple[str, ...] = ("",)) -> Layout:
    """Return the layout of torchcmh's lists; the arguments are those of `read_picture_lists`."""
    end = "" if endings == ("",) else "*"
    return Layout(
        name="torchcmh",
        summary="torchcmh: imgList.mat, tagList.mat and labelList.mat, and the pictures as files",
        needs=(
            Need(f"**/imgList{end}.mat", "FAll or imgs: the pictures' names"),
            Need(f"**/tagList{end}.mat", "YAll or tags: the tags"),
            Need(f"**/labelList{end}.mat", "LAll or labels: the labels"),
        ),
        read=partial(read_picture_lists, published, endings),
        options={"pictures": "the folder that the names are relative to, itself relative to the data set's folder"},
    )
