"""The words of an index file: which items hold a word in their id or in a field of their payload.

They are in a full-text table (SQLite FTS5) beside the codes, which stores words and keys but not the texts. A payload holds
only what the silo's policy released when the item was added. Each field is a column, so that a policy which releases less by
now also hides the words of the others.

A key is never given to another item. The words of a removed item therefore remain until the file is compacted, as its code
does, and callers ignore keys of items that do not exist. Compacting writes the table again.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from silohash.base.analysis import Analysis, analyze
from silohash.index.base import Keys
from silohash.index.database import Database
from silohash.index.items import Row

FIELDS_WITH_WORDS = ("caption", "labels", "file")
"""The fields of a payload whose words are stored."""

# Terms hold letters, marks and digits alone, so the tokenizer `ascii` divides at the spaces between them and nowhere else.


class ItemWords:
    """Read and write the words of an open index file. Callers provide the transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, rows: Iterable[Row]) -> None:
        """Insert the words of new items."""
        analysis = self._database.head.manifest.analysis
        insertion = "INSERT INTO words (rowid, id, caption, labels, file, whole) VALUES (?, ?, ?, ?, ?, ?)"
        values = ((key, *_columns(name, text, analysis)) for key, name, text in rows)
        self._database.connection.executemany(insertion, values)

    def rewrite(self, rows: Iterable[Row]) -> None:
        """Replace all words by those of the given items."""
        self._database.connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
        self.write(rows)

    def keys_with(self, term: str, fields: Collection[str]) -> Keys:
        """Return the keys of the items with a term in their id or in one of some fields, in ascending order."""
        columns = ["id", *(name for name in FIELDS_WITH_WORDS if name in fields)]
        return self._selected(
            "SELECT rowid AS key FROM words WHERE words MATCH ?", f'{{{" ".join(columns)}}} : "{term}"'
        )

    def keys_of_text(self, name: str, terms: Sequence[str]) -> Keys:
        """Return the keys of the items with an id, and of those whose whole caption has some terms, in ascending order."""
        either = "SELECT key FROM items WHERE id = ? UNION ALL SELECT rowid FROM words WHERE words MATCH ?"
        return self._selected(either, name, f'whole : "{_digest(terms)}"')

    def _selected(self, keys: str, *values: str) -> Keys:
        # One text with all keys is read in a fraction of the time of as many rows.
        query = f"SELECT group_concat(key) FROM ({keys})"  # noqa: S608  one of two literals
        [found] = self._database.connection.execute(query, values).fetchone()
        return np.sort(np.fromstring(found or "", np.int64, sep=","))


def _columns(name: str, payload: str | None, analysis: Analysis) -> tuple[str, ...]:
    """Return what the columns of the table hold of an item: its terms by field, and the digest of its whole caption."""
    stored = json.loads(payload) if payload else {}
    caption = analyze(str(stored.get("caption") or ""), analysis)
    labels = (_joined_terms(str(label), analysis) for label in stored.get("labels") or ())
    terms = (
        " ".join(analyze(name, analysis)), " ".join(caption), " ".join(labels),
        " ".join(analyze(str(stored.get("file") or ""), analysis)),
    )  # fmt: skip
    return *terms, _digest(caption) if caption else ""


@lru_cache(maxsize=1 << 16)
def _joined_terms(label: str, analysis: Analysis) -> str:
    """Return the terms of a label. Many items have the same labels."""
    return " ".join(analyze(label, analysis))


def _digest(terms: Sequence[str]) -> str:
    return blake2b(" ".join(terms).encode(), digest_size=8).hexdigest()
