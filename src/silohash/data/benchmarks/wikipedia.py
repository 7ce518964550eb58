"""Wikipedia: its card, its layouts, and the reader of the collectors' release."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from silohash.data.archive import multi_hot
from silohash.data.benchmarks.dataset import described
from silohash.data.benchmarks.layouts import matlab_arrays, reading
from silohash.data.benchmarks.layouts.reading import layout
from silohash.data.protocols.contents import Contents

ITEMS = (2_866, 2_635)
TEST, VALIDATION = 693, 231
LIST_COLUMNS = 3


def read_collectors_files(root: Path) -> Contents:
    """Read the collectors' release: the items of the training list, then those of the test list.

    The lists state the splits ``train`` and ``query``; the protocol decides which items are searched.
    """
    lists = [reading.find_one(root, f"**/{part}set_txt_img_cat.list") for part in ("train", "test")]
    names = [line for line in reading.read_lines(reading.find_one(root, "**/categories.list")) if line]
    train, test = (read_list(path, len(names)) for path in lists)
    items = train + test
    pictures = reading.first_by(lambda path: path.stem, reading.find(root, "**/images/**/*.jpg"))
    articles = reading.first_by(lambda path: path.stem, reading.find(root, "**/texts/*.xml"))
    paths = [pictures.get(picture) for _, picture, _ in items]
    image, picture_notes = reading.check_found_pictures(root, paths, "Put the pictures into images/<category> again.")
    text, text_notes = reading.text_column([_read_article(articles.get(article)) for article, _, _ in items])
    missing = sum(article not in articles for article, _, _ in items)
    rows = np.arange(len(items), dtype=np.int64)
    return Contents(
        ids=reading.unique_ids([article for article, _, _ in items]),
        image=image,
        text=text,
        labels=multi_hot([[category - 1] for _, _, category in items], range(len(names))),
        label_names=tuple(names),
        stated={"train": rows[: len(train)], "query": rows[len(train) :]},
        notes={**picture_notes, **reading.count_notes({"items whose text is missing": missing}), **text_notes},
        columns={"picture": np.array([picture for _, picture, _ in items], np.str_)},
    )


def read_list(path: Path, categories: int) -> list[tuple[str, str, int]]:
    """Return text, picture and category, from 1, of each line.

    Raises:
        UserError: If the file cannot be read, or a line has another form.
    """
    items: list[tuple[str, str, int]] = []
    for number, line in enumerate(reading.read_lines(path), start=1):
        cells = line.split()
        if len(cells) != LIST_COLUMNS or not cells[2].isdecimal() or not 1 <= int(cells[2]) <= categories:
            expected = f"a text, a picture and a category from 1 to {categories}"
            raise reading.damaged_line(path, number, line, expected)
        items.append((cells[0], cells[1], int(cells[2])))
    return items


def _read_article(path: Path | None) -> str:
    if path is None:
        return ""
    content = reading.read_text(path)
    inner = re.search(r"<text[^>]*>(.*?)</text>", content, re.DOTALL | re.IGNORECASE)
    return reading.plain_text(inner[1] if inner else content)


def read_dscmr(root: Path, *, overlap: str = "refuse", shuffled: str = "refuse") -> Contents:
    """Read the features that DSCMR distributes; the first 231 of 693 test rows are for validation."""
    contents = matlab_arrays.read_parts(
        replace(matlab_arrays.DSCMR, items=ITEMS), root, overlap=overlap, shuffled=shuffled
    )
    query = contents.stated["query"]
    if len(query) != TEST:
        return contents
    stated = {**contents.stated, "validation": query[:VALIDATION], "query": query[VALIDATION:]}
    note = f"the first {VALIDATION} of the {TEST} test rows are for validation"
    return replace(contents, stated=stated, notes={**contents.notes, "splits": note})


WIKIPEDIA = described(
    "wikipedia",
    replace(matlab_arrays.DSCMR_LAYOUT, read=read_dscmr),
    layout("wikipedia/raw", read_collectors_files),
)
