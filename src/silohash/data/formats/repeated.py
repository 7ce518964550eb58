"""Find pictures that occur several times: copies of a file, and pictures of queries that are in the database as well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from silohash.base.types import Rows
from silohash.base.visible import visible
from silohash.data.archive import Features
from silohash.data.formats.doubts import listed, quoted

ONE_SPLIT = "Put all items of a picture into one split"
HEAD = 16
"""Number of features by which rows are compared before whole rows are."""


def copies(digests: Mapping[str, str]) -> dict[str, str]:
    """Return the files with the same content as another one, each with the first of them in alphabetical order.

    Args:
        digests: The digest of each file; empty if it could not be read.

    Example:
        >>> copies({"b.png": "1", "a.png": "1", "c.png": "2"})
        {'b.png': 'a.png'}
    """
    first: dict[str, str] = {}
    names = {file: first.setdefault(digests[file], file) for file in sorted(digests) if digests[file]}
    return {file: name for file, name in names.items() if file != name}


def queries_in_database(splits: Mapping[str, Rows], names: Sequence[str]) -> Rows:
    """Return the rows of the queries whose picture is that of an item of the database, sorted.

    Args:
        splits: Rows of ``query`` and ``database``.
        names: One name per item, which items of the same picture share; empty for an item without a picture.
    """
    database = {names[row] for row in splits["database"].tolist()} - {""}
    return np.array([row for row in splits["query"].tolist() if names[row] in database], np.int64)


def equal_queries(values: Features, splits: Mapping[str, Rows]) -> Rows:
    """Return the rows of the queries whose features equal those of an item of the database bit for bit, sorted.

    Rows in which all features are equal, such as zeros, are not compared.

    Args:
        values: ``(N, D)`` features.
        splits: Rows of ``query`` and ``database``.
    """
    head = np.ascontiguousarray(values[:, :HEAD])
    heads = head.view(np.dtype((np.void, head.dtype.itemsize * head.shape[1]))).reshape(-1)
    query, database = splits["query"], splits["database"]
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
    """Yield a sentence if pictures of queries are in the database as well.

    Args:
        ids: The ids of these queries.
        kept: Whether they remain queries.
    """
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
