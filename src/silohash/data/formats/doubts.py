"""Name what is probably not meant in a table of metadata.

These are labels that look alike, hold several labels or stand for none, copies of a picture file, and pictures of queries
that are in the database as well.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from silohash.base.analysis import SPACELESS, script_of
from silohash.base.names import describe_near, listed, similar, tidy
from silohash.base.types import Rows
from silohash.base.visible import visible
from silohash.data.archive import Features
from silohash.data.formats.cells import WRITE_LABELS

MOST_VALUES = 10_000
"""Number of different values of a column up to which they are compared."""

LARGEST_SHARE = 0.5
"""Number of different values of a column, per item, up to which they are taken for groups of items."""

NOTHING = frozenset({"", "nan", "none", "null", "nil", "n/a", "#n/a", "na", "<na>", "nat", "-", "--", "?", "undefined"})
"""How programs and people write that there is no value, in lowercase."""

LONGEST_NOTHING = max(map(len, NOTHING)) + len("['']")
SEPARATOR = re.compile(r"[,;/|\uff0c\u3001\uff1b\uff5c\u00a6\u061b\u060c&+ ]|\\\\")
"""Characters that may separate labels within one."""

CERTAIN = frozenset(";|\uff1b\uff5c\u00a6\u061b")
"""Those that names do not contain otherwise."""

LIST = re.compile(r"""\[\s*['"].*\]""", re.DOTALL)
"""A text that looks like a list of texts."""

FEWEST_TEXTS, OWN_WORDS = 20, 0.9
"""Number of texts, and share of them that are one word of their own, from which they are doubted."""

FLAGS = ({"0", "1"}, {"False", "True"})


def stands_for_nothing(value: str) -> bool:
    """Return whether a value is a word for a missing value."""
    return 0 < len(value) <= LONGEST_NOTHING and value.strip("[](){}'\" ").casefold() in NOTHING


def quoted(values: Sequence[str]) -> str:
    """Return the first names of a list in quotation marks, and how many more there are."""
    return listed([f'"{visible(value)}"' for value in values])


def doubts_about_labels(names: Collection[str], of_item: Iterable[Sequence[str]] = ()) -> Iterator[str]:
    """Yield a sentence per kind of labels that are probably not meant, given all names and the labels of each item."""
    if near := describe_near("labels", names):
        yield near
    nothing = list(filter(stands_for_nothing, names))
    for separator, joined in joined_labels([name for name in names if name not in nothing]).items():
        yield (
            f'These labels contain "{separator}" and may be several labels each: {quoted(joined)}. {WRITE_LABELS} '
            "if they are."
        )
    if set(names) in FLAGS and any(len(labels) > 1 for labels in of_item):
        yield (
            f"All labels are {' or '.join(sorted(names))}, and some items have both. Write the names of the labels if these "
            "are values for each label."
        )
    if nothing:
        yield (
            f"These labels look like missing values, but count as labels: {quoted(nothing)}. Leave the cells empty if the "
            "items have no labels."
        )


def doubts_about_texts(texts: Mapping[int, str]) -> Iterator[str]:
    """Yield a sentence per finding about texts, by the numbers of their rows.

    These are texts that stand for none, lists that cannot be read, and texts of which nearly all are a word of their own.
    """
    if nothing := [number for number, text in texts.items() if stands_for_nothing(text)]:
        yield (
            f"The texts of some rows look like missing values, but count as texts: row {listed(nothing)}. Leave the cells "
            "empty if the items have no text."
        )
    if lists := [number for number, text in texts.items() if LIST.fullmatch(text)]:
        yield f"The texts of some rows look like lists that cannot be read: row {listed(lists)}. Write one row per text."
    yield from _doubts_about_words(list(filter(None, texts.values())))


def _doubts_about_words(texts: Sequence[str]) -> Iterator[str]:
    words = (text.casefold() for text in texts if len(text.split()) == 1 and not SPACELESS & set(map(script_of, text)))
    own = [word for word, count in Counter(words).items() if count == 1]
    if len(texts) >= FEWEST_TEXTS and len(own) > OWN_WORDS * len(texts):
        yield (
            f"Nearly every text is a single word of its own: {quoted(own)}. Texts that share no words do not teach a model "
            "what words mean. Use a column with sentences, or a published network that reads texts."
        )


def doubts_about_values(column: str, values: Sequence[str]) -> Iterator[str]:
    """Yield a sentence if values that divide the items into groups look similar. If most differ, they are not groups."""
    different = set(values)
    if len(different) <= min(MOST_VALUES, LARGEST_SHARE * len(values)) and (
        near := describe_near(f'values of column "{column}"', different)
    ):
        yield near


def joined_labels(names: Collection[str]) -> dict[str, list[str]]:
    """Return the labels that are probably several, by the character between them.

    A part of such a label is a label by itself, or a part of another one. Between spaces, all parts are labels.

    Example:
        >>> joined_labels(["bird", "bird; tree", "rock, paper", "sea"])
        {';': ['bird; tree']}
    """
    parts: dict[str, dict[str, list[str]]] = {}
    for name in names:
        for separator in dict.fromkeys(SEPARATOR.findall(name)):
            parts.setdefault(separator, {})[name] = [similar(part) for part in name.split(separator) if tidy(part)]
    whole = Counter(map(similar, names))
    found = {}
    for separator, of_name in parts.items():
        uses = whole + Counter(part for split in of_name.values() for part in dict.fromkeys(split))
        joined = [name for name, split in of_name.items() if _may_be_several(separator, split, whole, uses)]
        if joined:
            found[separator] = joined
    return found


def _may_be_several(separator: str, parts: Sequence[str], whole: Mapping[str, int], uses: Mapping[str, int]) -> bool:
    """Return whether parts may be labels; ``whole`` counts the labels that look like a part, ``uses`` parts as well."""
    if separator == " ":
        known = all(part in whole for part in parts)
    else:
        known = separator in CERTAIN or any(uses[part] > 1 for part in parts)
    return known and len(parts) > 1


ONE_SPLIT = "Put all items of a picture into one split"
HEAD = 16
"""Number of features by which rows are compared before whole rows are."""


def copies(digests: Mapping[str, str]) -> dict[str, str]:
    """Return the files with the digest of another one, each with the first of them in alphabetical order.

    Example:
        >>> copies({"b.png": "1", "a.png": "1", "c.png": "2"})
        {'b.png': 'a.png'}
    """
    first: dict[str, str] = {}
    names = {file: first.setdefault(digests[file], file) for file in sorted(digests) if digests[file]}
    return {file: name for file, name in names.items() if file != name}


def queries_in_database(splits: Mapping[str, Rows], names: Sequence[str]) -> Rows:
    """Return the rows of the queries whose picture is that of an item of the database, sorted.

    Items of the same picture share a name. It is empty for an item without a picture.
    """
    database = {names[row] for row in splits["database"].tolist()} - {""}
    return np.array([row for row in splits["query"].tolist() if names[row] in database], np.int64)


def equal_queries(values: Features, splits: Mapping[str, Rows]) -> Rows:
    """Return the rows of the queries whose features ``(N, D)`` equal those of an item of the database bit for bit, sorted.

    Rows in which all features are equal, such as zeros, are not compared.
    """
    head = np.ascontiguousarray(values[:, :HEAD])
    heads = head.view(np.dtype((np.void, head.dtype.itemsize * head.shape[1]))).reshape(-1)
    query, database = splits["query"], splits["database"]
    # Few rows agree in their first numbers, so that few are compared as a whole.
    among = database[np.isin(heads[database], heads[query])]
    known = {values[row].tobytes() for row in among.tolist() if (values[row] != values[row, 0]).any()}
    return np.array([row for row in query.tolist() if values[row].tobytes() in known], np.int64)


def describe_copies(found: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence if there are copies, as of `copies`."""
    if found:
        pairs = [f'"{visible(copy)}" (of "{visible(name)}")' for copy, name in found.items()]
        files = "file is a copy" if len(found) == 1 else "files are copies"
        yield f"{len(found):,} picture {files} of another one: {listed(pairs)}. A picture and its copies count as one."


def describe_shared(ids: Sequence[str], *, kept: bool) -> Iterator[str]:
    """Yield a sentence if pictures of queries, whose ids are given, are in the database as well."""
    if ids:
        outcome = (
            f"{ONE_SPLIT}, or measures count the picture as its own answer"
            if kept
            else f"They are left out of the queries. {ONE_SPLIT}, or set keep_shared_queries = true in [data.options]"
        )
        yield f"The pictures of some queries ({len(ids):,}) are in the database as well: {quoted(ids)}. {outcome}."


def describe_equal(ids: Sequence[str]) -> Iterator[str]:
    """Yield a sentence if the features of queries, whose ids are given, equal those of items of the database."""
    if ids:
        yield (
            f"The picture features of some queries ({len(ids):,}) equal those of an item of the database: {quoted(ids)}. "
            f"{ONE_SPLIT} if these are the same pictures."
        )
