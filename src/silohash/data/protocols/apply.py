"""Choose a protocol by name and apply it to the contents of a data set's files.

``NAME`` alone is the protocol as published; it rejects files of another size. Two suffixes mark a departure from it:
``NAME/scaled`` splits the available items in the same proportions and shrinks the thresholds of the population's rule
alike; ``NAME/drawn`` chooses by the seed the rows that the files should state or that their order should decide.
``NAME/drawn/scaled`` combines both. The protocol ``default`` accepts files of any size.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from silohash.base.errors import NoEffect, ProtocolUnmet, UnknownName
from silohash.base.registry import suggestion
from silohash.base.seeds import numpy_generator, published_permutation
from silohash.base.types import Rows
from silohash.data.pairs import PICTURE, groups_of
from silohash.data.protocols.contents import Contents, Population, population_of
from silohash.data.protocols.rule import Searched, SplitProtocol
from silohash.data.splits import default_splits

DEFAULT = "default"
SCALED = "scaled"
DRAWN = "drawn"


@dataclass(frozen=True)
class Choice:
    """A protocol and the suffixes that the user gave it.

    ``overlapping`` names the data set's protocols that search the queries as well, for an error's advice.
    """

    protocol: SplitProtocol
    scaled: bool = False
    drawn: bool = False
    overlapping: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The protocol's name with its suffixes in a fixed order."""
        suffixes = [suffix for suffix, wanted in ((DRAWN, self.drawn), (SCALED, self.scaled)) if wanted]
        return "/".join([self.protocol.name, *suffixes])

    def __str__(self) -> str:
        """Return how an error names the protocol."""
        return f'Protocol "{self.protocol.name}" of {self.protocol.dataset}'


@dataclass(frozen=True)
class Split(Population):
    """The items that a protocol selects, what it keeps of them, and their splits.

    Attributes:
        splits: ``query``, ``database`` and ``train`` as sorted positions in ``rows``.
        columns: Further columns of ``rows``.
        protocol: The protocol's name with the sizes, as recorded in every result.
        query_in_database: Whether queries are searched as well.
    """

    splits: Mapping[str, Rows]
    columns: Mapping[str, npt.NDArray[np.str_]]
    protocol: str
    query_in_database: bool


def with_default(protocols: Iterable[SplitProtocol]) -> dict[str, SplitProtocol]:
    """Return a data set's protocols by name, with the protocol ``default`` added."""
    by_name = {protocol.name: protocol for protocol in protocols}
    default = SplitProtocol(
        dataset=next(iter(by_name.values())).dataset,
        name=DEFAULT,
        source="silohash",
        about="For files of any size. Nothing is left out, and sizes are not compared with published ones.",
        query=0,
        train=0,
        database=None,
        draw="free",
    )
    return {**by_name, DEFAULT: default}


def choose(protocols: Mapping[str, SplitProtocol], name: str) -> Choice:
    """Return a data set's protocol by the name that a user gave, with its suffixes.

    Raises:
        UserError: If there is no such protocol or suffix, or the protocol does not allow the suffix. The error suggests the
            nearest name.
    """
    first, *suffixes = name.split("/")
    if first not in protocols:
        dataset = next(iter(protocols.values())).dataset
        near = suggestion(first, protocols)
        raise UnknownName(f'{dataset} has no protocol "{first}"{near}; it has: {", ".join(protocols)}.')
    for suffix in suffixes:
        if suffix not in {SCALED, DRAWN}:
            near = suggestion(suffix, [SCALED, DRAWN])
            raise UnknownName(
                f'Protocol "{name}" has an unknown suffix "/{suffix}"{near}. The suffixes are /{SCALED} and /{DRAWN}.'
            )
    if suffixes and first == DEFAULT:
        raise NoEffect(f'Protocol "{name}": "{DEFAULT}" accepts files of any size. Remove "/{suffixes[0]}".')
    overlapping = tuple(one.name for one in protocols.values() if one.query_in_database)
    return Choice(protocols[first], scaled=SCALED in suffixes, drawn=DRAWN in suffixes, overlapping=overlapping)


def apply(contents: Contents, choice: Choice, seed: int = 0, sample: int = 0) -> Split:
    """Select a protocol's items and labels among the contents of files, and split them.

    The seed is for drawn rows. The default 0 gives the same split to everyone. With a ``sample``, at most so many of the
    items are kept, evenly spaced in each split.

    Raises:
        UserError: If the files' size or labels do not match the protocol, or the files do not state what it needs.
    """
    protocol = choice.protocol
    population = population_of(contents, protocol, scaled=choice.scaled)
    if protocol.draw == "free":
        return _collect(contents, choice, population, _sampled(_free(contents, population.rows), sample))
    groups = _group(contents, population.rows)
    sizes = _sizes(choice, groups.size, len(contents))
    if protocol.draw == "stated" and not choice.drawn:
        splits = _stated(contents, choice, groups)
    else:
        splits = groups.rows_of(_draw(choice, groups.size, sizes, seed))
    return _collect(contents, choice, population, _sampled(splits, sample))


def _sampled(splits: Mapping[str, Rows], sample: int) -> Mapping[str, Rows]:
    """Return splits of at most ``sample`` rows in all, with as many from each; all rows if it is 0."""
    if not sample:
        return splits
    each = max(1, sample // len(splits))
    places = [np.linspace(0, len(rows) - 1, min(len(rows), each)).astype(np.int64) for rows in splits.values()]
    kept = np.concatenate([rows[some] for rows, some in zip(splits.values(), places, strict=True)])
    return {name: np.intersect1d(rows, kept) for name, rows in splits.items()}


class _Groups(NamedTuple):
    """The population's rows and the group of each: the items of one picture, or a single item."""

    rows: Rows
    group: Rows
    size: int

    def rows_of(self, splits: Mapping[str, Rows]) -> dict[str, Rows]:
        """Return the rows of each split's groups, ascending."""
        return {name: self.rows[np.isin(self.group, groups)] for name, groups in splits.items()}


def _group(contents: Contents, rows: Rows) -> _Groups:
    if PICTURE not in contents.columns:
        return _Groups(rows, np.arange(len(rows)), len(rows))
    first, group = groups_of(contents.columns[PICTURE][rows])
    return _Groups(rows, group, len(first))


class _Sizes(NamedTuple):
    """Numbers of queries, training items and searched items; None for all that remain."""

    query: int
    train: int
    database: int | None


def _sizes(choice: Choice, found: int, in_files: int) -> _Sizes:
    protocol = choice.protocol
    if protocol.items is not None and found != protocol.items and not choice.scaled:
        raise ProtocolUnmet(
            f"{choice} expects {protocol.items:,} items and found {found:,} of {in_files:,} in the files "
            f"({protocol.rules()['population']}). Use the complete files, or set protocol = "
            f'"{choice.name}/{SCALED}" to split the available items in the same proportions, or protocol = "{DEFAULT}".'
        )
    sizes = _wanted_sizes(choice, found)
    if sizes.query + sizes.train > found:
        remedy = "Add more items" if choice.scaled else f'Set protocol = "{choice.name}/{SCALED}" or "{DEFAULT}"'
        raise ProtocolUnmet(
            f'Protocol "{choice.name}" of {protocol.dataset} needs {sizes.query:,} queries and {sizes.train:,} training '
            f"items, but its population holds only {found:,} items. {remedy}."
        )
    return sizes


def _wanted_sizes(choice: Choice, found: int) -> _Sizes:
    """Return the published sizes, scaled to the items that were found if that is wanted."""
    protocol = choice.protocol
    database = None if protocol.used == protocol.items else protocol.database
    if not choice.scaled:
        return _Sizes(protocol.query, protocol.train, database)
    at_most = max(1, protocol.query + protocol.train, protocol.used or 0)
    share = min(1.0, found / at_most) if protocol.items is None else found / protocol.items
    query, train = (max(1, round(size * share)) for size in (protocol.query, protocol.train))
    return _Sizes(query, train, None if database is None else max(1, round(database * share)))


def _draw(choice: Choice, count: int, sizes: _Sizes, seed: int) -> dict[str, Rows]:
    order = _order(choice, count, sizes.query, seed)
    query, train = order[: sizes.query], order[sizes.query :][: sizes.train]
    return {"query": query, "database": _searched(choice, order, query, train)[: sizes.database], "train": train}


def _searched(choice: Choice, rows: Rows, query: Rows, train: Rows) -> Rows:
    left_out: dict[Searched, Rows] = {"rest": query, "neither": np.union1d(query, train), "not train": train}
    rule = choice.protocol.searched
    if rule in left_out:
        return rows[~np.isin(rows, left_out[rule])]
    return train if rule == "train" else query


def _order(choice: Choice, count: int, queries: int, seed: int) -> Rows:
    """Return the groups in the order in which queries and then training items are taken."""
    protocol = choice.protocol
    if protocol.draw in {"seeded", "stated"} or choice.drawn:
        return numpy_generator(seed, f"protocol/{protocol.dataset}").permutation(count)
    if protocol.draw == "numpy seed":
        return published_permutation(protocol.numpy_seed, count)
    # The last rows come first, because queries are taken first.
    return np.roll(np.arange(count), queries if protocol.draw == "last rows" else 0)


def _stated(contents: Contents, choice: Choice, groups: _Groups) -> dict[str, Rows]:
    """Return the rows of the splits that the files state, after checking their sizes."""
    protocol = choice.protocol
    stated = {name: np.intersect1d(rows, groups.rows) for name, rows in contents.stated.items()}
    if not len(stated.get("query", [])) or not {"train", "database"} & set(stated):
        raise ProtocolUnmet(
            f"{choice} uses the splits that the files state, and these state {', '.join(contents.stated) or 'none'}. "
            f'Set protocol = "{choice.name}/{DRAWN}" to draw as many rows by the seed.'
        )
    none = groups.rows[:0]
    query = np.unique(np.concatenate([stated.get(name, none) for name in protocol.queries_of]))
    train = stated.get("train", stated.get("database", none))
    database = _searched(choice, groups.rows, query, train)
    if choice.protocol.searched not in {"train", "query"}:
        database = stated.get("database", database)
    splits = {"query": query, "database": database, "train": train}
    _check_overlap(choice, splits)
    if not choice.scaled:
        protocol = choice.protocol
        expected = {"query": protocol.query, "train": protocol.train, "database": protocol.database}
        for name, rows in splits.items():
            found = len(np.unique(groups.group[np.isin(groups.rows, rows)]))
            if expected[name] not in {None, found}:
                raise ProtocolUnmet(
                    f'{choice} expects {expected[name]:,} items in "{name}", but the files state {found:,}. Use the files '
                    f'that the protocol is named after, or set protocol = "{choice.name}/{SCALED}" to accept the stated '
                    f'splits, or "{choice.name}/{DRAWN}" to draw rows.'
                )
    return splits


def _check_overlap(choice: Choice, splits: Mapping[str, Rows]) -> None:
    both = len(np.intersect1d(splits["query"], splits["database"]))
    if choice.protocol.query_in_database or not both:
        return
    advice = f"Set protocol = {' or '.join(choice.overlapping)}" if choice.overlapping else "Use other lists"
    raise ProtocolUnmet(
        f"{choice} does not search its queries, but {both:,} of the {len(splits['query']):,} queries that the files "
        f'state are in the database. {advice}, or "{choice.protocol.name}/{DRAWN}".'
    )


def _free(contents: Contents, rows: Rows) -> dict[str, Rows]:
    """Return the stated splits without their overlap, or the splits of an archive that states none."""
    query = contents.stated.get("query", rows[:0])
    if not len(query):
        keys = contents.columns.get(PICTURE, contents.ids)
        found = default_splits(keys[rows].tolist(), (contents.has("image") & contents.has("text"))[rows])
        return {name: rows[positions] for name, positions in found.items()}
    rest = np.setdiff1d(rows, query)
    train = np.intersect1d(contents.stated.get("train", rest), rest)
    database = np.intersect1d(contents.stated.get("database", rest), rest)
    return {"query": query, "database": database, "train": train}


def _collect(contents: Contents, choice: Choice, population: Population, chosen: Mapping[str, Rows]) -> Split:
    protocol = choice.protocol
    rows = np.unique(np.concatenate([chosen[name] for name in ("query", "database", "train")]))
    splits = {name: np.searchsorted(rows, np.sort(of_split)) for name, of_split in chosen.items()}
    within = np.searchsorted(population.rows, rows)
    sizes = f"{len(splits['train'])}-{len(splits['database'])}"
    return Split(
        rows=rows,
        splits=splits,
        labels=None if population.labels is None else population.labels[within],
        label_names=population.label_names,
        text=None if population.text is None else population.text[within],
        columns={name: column[rows] for name, column in contents.columns.items()},
        protocol=f"{protocol.dataset}/{choice.name}/{len(rows)}/{sizes}",
        query_in_database=bool(len(np.intersect1d(splits["query"], splits["database"]))),
        notes={**population.notes, **_left_out(contents, protocol, len(rows))},
    )


def _left_out(contents: Contents, protocol: SplitProtocol, used: int) -> dict[str, str]:
    """Return notes on the items that are in no split, and on stated queries removed from the database."""
    none = np.zeros(0, np.int64)
    both = np.intersect1d(contents.stated.get("query", none), contents.stated.get("database", none))
    notes = {}
    if protocol.draw == "free" and len(both):
        notes["queries removed from the stated database"] = f"{len(both):,}"
    if used < len(contents):
        notes["items left out"] = f"{len(contents) - used:,} of {len(contents):,}"
    return notes
