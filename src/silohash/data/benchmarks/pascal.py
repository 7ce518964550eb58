"""Pascal Sentence: its card, its layouts, and the reader of the collectors' release."""

from pathlib import Path

import numpy as np

from silohash.data.archive import multi_hot
from silohash.data.benchmarks.dataset import described
from silohash.data.benchmarks.layouts import reading
from silohash.data.benchmarks.layouts.matlab_arrays import DSCMR_LAYOUT
from silohash.data.benchmarks.layouts.reading import layout
from silohash.data.protocols.contents import Contents


def read_collectors_files(root: Path, *, captions: str = "all") -> Contents:
    """Read the collectors' release: one folder per class, with a picture and five sentences per item."""
    sentence_files = _by_class(root, "**/sentence/*/*.txt")
    files = _by_class(root, "**/dataset/*/*.jpg")
    keys = sorted({*files, *sentence_files})
    sentences = [
        [line for line in reading.read_lines(sentence_files[k]) if line] if k in sentence_files else [] for k in keys
    ]
    items = reading.spread_captions(keys, sentences, captions)
    chosen = [keys[row] for row in items.rows]
    names = tuple(sorted({key.split("/")[0] for key in keys}))
    paths = [files.get(key) for key in chosen]
    image, picture_notes = reading.check_found_pictures(root, paths, "Put the pictures into dataset/<class> again.")
    without = reading.count_notes({"pictures without a sentence": len(keys) - len(sentence_files)})
    return Contents(
        ids=items.ids,
        image=image,
        text=items.text,
        labels=multi_hot([[key.split("/")[0]] for key in chosen], names),
        label_names=names,
        notes={"captions": captions, **picture_notes, **without, **items.notes},
        columns={"picture": np.array(chosen, np.str_)},
    )


def _by_class(root: Path, pattern: str) -> dict[str, Path]:
    """Return ``class/stem`` -> file, of the folder nearest to the root that matches."""
    files = reading.find(reading.find_one(root, pattern).parents[1], "/".join(pattern.split("/")[-2:]))
    return reading.first_by(lambda path: f"{path.parent.name}/{path.stem}", files)


PASCAL_SENTENCE = described("pascal-sentence", DSCMR_LAYOUT, layout("pascal-sentence/raw", read_collectors_files))
