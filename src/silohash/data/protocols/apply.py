"""The named protocols of the data sets in circulation, and how one is applied to what a reader found.

``NAME`` alone is the protocol as it is published, and refuses files of another size. Two endings say in what a figure
departs from it: ``NAME/scaled`` splits what is there in the same proportions (the numbers in its population's rules
shrink alike), and ``NAME/drawn`` draws by the seed what the files would have to state, or what their order would decide.
Both may be joined: ``NAME/drawn/scaled``. The protocol ``default`` takes files of any size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Features, Texts
from silohash.data.benchmarks.protocol_tables import MIRFLICKR, NUS_WIDE
from silohash.data.benchmarks.protocol_tables_more import COCO, FASHIONVC, IAPR, PASCAL, SSENSE, WIKIPEDIA
from silohash.data.benchmarks.raw import Raw
from silohash.data.protocols.population import Population, population_of
from silohash.data.protocols.rule import SplitProtocol
from silohash.data.splits import default_splits
from silohash.registry import suggestion
from silohash.seeds import numpy_generator, published_permutation
from silohash.types import Rows, UserError

DEFAULT = "default"
SCALED = "scaled"
DRAWN = "drawn"
PICTURE = "picture"
"""The column that tells which items belong to one picture; such items are counted and drawn together."""


def _table(protocols: tuple[SplitProtocol, ...]) -> dict[str, SplitProtocol]:
    free = SplitProtocol(
        dataset=protocols[0].dataset,
        name=DEFAULT,
        source="silohash",
        about="For files of any size: nothing is left out, and nothing is compared with published sizes.",
        query=0,
        train=0,
        database=None,
        draw="free",
    )
    return {protocol.name: protocol for protocol in (*protocols, free)}


PROTOCOLS: Mapping[str, Mapping[str, SplitProtocol]] = {
    protocols[0].dataset: _table(protocols)
    for protocols in (MIRFLICKR, NUS_WIDE, IAPR, COCO, WIKIPEDIA, FASHIONVC, SSENSE, PASCAL)
}
"""Data set -> protocol's name -> protocol."""


@dataclass(frozen=True)
class Choice:
    """A protocol as a user names it.

    Attributes:
        protocol: the protocol; rows are drawn by the seed where ``drawn`` is.
        scaled: whether files of another size are split in the same proportions.
        drawn: whether rows are drawn where the protocol says otherwise.
    """

    protocol: SplitProtocol
    scaled: bool = False
    drawn: bool = False

    @property
    def name(self) -> str:
        """What the user typed, in the usual order."""
        endings = [ending for ending, wanted in ((DRAWN, self.drawn), (SCALED, self.scaled)) if wanted]
        return "/".join([self.protocol.name, *endings])


@dataclass(frozen=True)
class Split:
    """What a protocol makes of a reader's items.

    Attributes:
        rows: the rows that are used, ascending.
        splits: ``query``, ``database`` and ``train`` as positions in ``rows``, sorted.
        labels: ``(len(rows), C)`` uint8 multi-hot, or None.
        label_names: C names.
        text: the texts of ``rows``, from which tags that do not count are taken out, or None.
        columns: further columns of ``rows``.
        protocol: the protocol's name with the sizes, as it stands in every result.
        query_in_database: whether queries are searched as well.
        notes: what was left out and what was not as published.
    """

    rows: Rows
    splits: Mapping[str, Rows]
    labels: npt.NDArray[np.uint8] | None
    label_names: tuple[str, ...]
    text: Texts | Features | None
    columns: Mapping[str, npt.NDArray[np.str_]]
    protocol: str
    query_in_database: bool
    notes: Mapping[str, str]


def protocol_of(dataset: str, name: str) -> Choice:
    """Finds a protocol by what a user types.

    Raises:
        UserError: if the data set has no such protocol or there is no such ending; names the nearest.
    """
    known = PROTOCOLS[dataset]
    first, *endings = name.split("/")
    if first not in known:
        raise UserError(f'{dataset} has no protocol "{first}"{suggestion(first, known)}; it has: {", ".join(known)}.')
    for ending in endings:
        if ending not in {SCALED, DRAWN}:
            near = suggestion(ending, [SCALED, DRAWN])
            raise UserError(
                f'protocol "{name}": there is no ending "/{ending}"{near}; there are /{SCALED} and /{DRAWN}.'
            )
    if endings and first == DEFAULT:
        raise UserError(f'protocol "{name}": "{DEFAULT}" takes files of any size; leave "/{endings[0]}" out.')
    return Choice(known[first], scaled=SCALED in endings, drawn=DRAWN in endings)


def apply(raw: Raw, choice: Choice, seed: int = 0) -> Split:
    """Chooses the population, the labels and the splits.

    Args:
        raw: every item of the files.
        choice: the protocol.
        seed: of the rows that are drawn; 0 for everyone who means the same split.

    Raises:
        UserError: if the files are of another size or have other labels than the protocol, or do not state what it
            needs.
    """
    protocol = choice.protocol
    population = population_of(raw, protocol, scaled=choice.scaled)
    groups = _groups(raw, population.rows)
    sizes = _sizes(choice, groups.count, len(raw))
    if protocol.draw == "free":
        drawn = _free(raw, population.rows)
    elif protocol.draw == "stated" and not choice.drawn:
        drawn = _stated(raw, choice, groups)
    else:
        drawn = groups.rows_of(_drawn(choice, groups.count, sizes, seed))
    return _split(raw, choice, population, drawn)


@dataclass(frozen=True)
class _Groups:
    """The population's rows, and the group that each belongs to: the items of one picture, or the item alone."""

    rows: Rows
    group: Rows
    count: int

    def rows_of(self, splits: Mapping[str, Rows]) -> dict[str, Rows]:
        """Returns the rows of each split's groups, ascending."""
        return {name: self.rows[np.isin(self.group, groups)] for name, groups in splits.items()}

    def counted(self, rows: Rows) -> int:
        """Returns how many groups some rows are of."""
        return len(np.unique(self.group[np.isin(self.rows, rows)]))


def _groups(raw: Raw, rows: Rows) -> _Groups:
    if PICTURE not in raw.columns:
        return _Groups(rows, np.arange(len(rows)), len(rows))
    _, first, of_row = np.unique(raw.columns[PICTURE][rows], return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    return _Groups(rows, order[of_row], len(first))


@dataclass(frozen=True)
class _Sizes:
    """How many queries, items to train on and items to search; None for all that remain."""

    query: int
    train: int
    database: int | None


def _sizes(choice: Choice, found: int, in_files: int) -> _Sizes:
    """Checks the population's size, and returns the splits' sizes, scaled where that is wanted."""
    protocol = choice.protocol
    if protocol.draw == "free":
        return _Sizes(0, 0, None)
    expected = protocol.items
    if expected is not None and found != expected and not choice.scaled:
        raise UserError(
            f'Protocol "{protocol.name}" of {protocol.dataset} expects {expected:,} items and found {found:,} of '
            f"{in_files:,} in the files ({protocol.rules()['population']}). Bring the complete files, or set protocol = "
            f'"{choice.name}/{SCALED}" to split what is there in the same proportions, or protocol = "{DEFAULT}".'
        )
    share = _share(protocol, found) if choice.scaled else 1.0
    spare = None if protocol.database is None or protocol.used == expected else max(1, round(protocol.database * share))
    sizes = _Sizes(max(1, round(protocol.query * share)), max(1, round(protocol.train * share)), spare)
    if sizes.query + sizes.train > found:
        remedy = "Bring more" if choice.scaled else f'Set protocol = "{choice.name}/{SCALED}" or "{DEFAULT}"'
        raise UserError(
            f'Protocol "{choice.name}" of {protocol.dataset} needs {sizes.query:,} queries and {sizes.train:,} items to '
            f"train on, and the files hold {found:,} items that count. {remedy}."
        )
    return sizes


def _share(protocol: SplitProtocol, found: int) -> float:
    """Returns by what the published sizes are multiplied; they never grow where the population's size is not known."""
    if protocol.items is not None:
        return found / protocol.items
    return min(1.0, found / max(1, protocol.query + protocol.train, protocol.used or 0))


def _drawn(choice: Choice, count: int, sizes: _Sizes, seed: int) -> dict[str, Rows]:
    """Returns positions among the population's groups."""
    protocol = choice.protocol
    order = np.arange(count)
    if protocol.draw in {"seeded", "stated"} or choice.drawn:
        order = numpy_generator(seed, f"protocol/{protocol.dataset}").permutation(count)
    elif protocol.draw == "numpy seed":
        order = published_permutation(protocol.numpy_seed, count)
    elif protocol.draw == "last rows":
        order = np.roll(order, sizes.query)
    query, rest = order[: sizes.query], order[sizes.query :]
    train = rest[: sizes.train]
    searched = {
        "rest": rest,
        "neither": rest[sizes.train :],
        "train": train,
        "query": query,
        "not train": np.concatenate([query, rest[sizes.train :]]),
    }[protocol.searched]
    database = searched if sizes.database is None else searched[: sizes.database]
    return {"query": query, "database": database, "train": train}


def _stated(raw: Raw, choice: Choice, groups: _Groups) -> dict[str, Rows]:
    """Returns the rows of the splits that the files state; checks their sizes."""
    protocol = choice.protocol
    stated = {name: np.intersect1d(rows, groups.rows) for name, rows in raw.stated.items()}
    if not len(stated.get("query", [])) or not (set(stated) & {"train", "database"}):
        raise UserError(
            f'Protocol "{protocol.name}" of {protocol.dataset} takes the splits that the files state, and these state '
            f'{", ".join(raw.stated) or "none"}. Set protocol = "{choice.name}/{DRAWN}" to draw as many rows by the seed.'
        )
    query = np.unique(np.concatenate([stated.get(name, groups.rows[:0]) for name in protocol.queries_of]))
    train = stated.get("train", stated.get("database", query[:0]))
    derived = {
        "rest": np.setdiff1d(groups.rows, query),
        "neither": np.setdiff1d(groups.rows, np.union1d(query, train)),
        "train": train,
        "query": query,
        "not train": np.setdiff1d(groups.rows, train),
    }
    # The database that the files state goes before, but for a protocol that searches the training items or the queries.
    named = protocol.searched in {"train", "query"} or "database" not in stated
    database = derived[protocol.searched] if named else stated["database"]
    if not protocol.query_in_database and len(np.intersect1d(query, database)):
        overlapping = [p.name for p in PROTOCOLS[protocol.dataset].values() if p.query_in_database]
        advice = f"Set protocol = {' or '.join(overlapping)}" if overlapping else "Use other lists"
        raise UserError(
            f'Protocol "{protocol.name}" of {protocol.dataset} has no queries in the database, and '
            f"{len(np.intersect1d(query, database)):,} of the {len(query):,} that the files state are. {advice}, or "
            f'"{protocol.name}/{DRAWN}".'
        )
    splits = {"query": query, "database": database, "train": train}
    if not choice.scaled:
        _check_stated(choice, groups, splits)
    return splits


def _check_stated(choice: Choice, groups: _Groups, splits: Mapping[str, Rows]) -> None:
    protocol = choice.protocol
    expected = {"query": protocol.query, "train": protocol.train, "database": protocol.database}
    for name, rows in splits.items():
        number = expected[name]
        if number is not None and groups.counted(rows) != number:
            raise UserError(
                f'Protocol "{protocol.name}" of {protocol.dataset} expects {number:,} items in "{name}", and the files '
                f"state {groups.counted(rows):,}. Bring the files that it is named after, or set protocol = "
                f'"{choice.name}/{SCALED}" to take the stated splits as they are, or "{choice.name}/{DRAWN}" to draw.'
            )


def _free(raw: Raw, rows: Rows) -> dict[str, Rows]:
    query = raw.stated.get("query", rows[:0])
    if not len(query):
        keys = raw.columns.get(PICTURE, raw.ids)
        found = default_splits(keys[rows].tolist(), (raw.has("image") & raw.has("text"))[rows])
        return {name: rows[positions] for name, positions in found.items()}
    rest = np.setdiff1d(rows, query)
    train = np.intersect1d(raw.stated.get("train", rest), rest)
    database = np.intersect1d(raw.stated.get("database", rest), rest)
    return {"query": query, "database": database, "train": train}


def _split(raw: Raw, choice: Choice, population: Population, drawn: Mapping[str, Rows]) -> Split:
    protocol = choice.protocol
    rows = np.unique(np.concatenate([drawn[name] for name in ("query", "database", "train")]))
    splits = {name: np.searchsorted(rows, np.sort(of_split)) for name, of_split in drawn.items()}
    at = np.searchsorted(population.rows, rows)
    notes = dict(population.notes)
    both = np.intersect1d(raw.stated.get("query", rows[:0]), raw.stated.get("database", rows[:0]))
    if protocol.draw == "free" and len(both):
        notes["queries taken out of the stated database"] = f"{len(both):,}"
    left = len(raw) - len(rows)
    if left:
        notes["items left out"] = f"{left:,} of {len(raw):,}"
    sizes = f"{len(splits['train'])}-{len(splits['database'])}"
    return Split(
        rows=rows,
        splits=splits,
        labels=None if population.labels is None else population.labels[at],
        label_names=population.label_names,
        text=None if population.text is None else population.text[at],
        columns={name: column[rows] for name, column in raw.columns.items()},
        protocol=f"{protocol.dataset}/{choice.name}/{len(rows)}/{sizes}",
        query_in_database=bool(len(np.intersect1d(splits["query"], splits["database"]))),
        notes=notes,
    )
