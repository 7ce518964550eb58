"""What a protocol of a data set decides: which items, which labels, which splits, and how a figure is measured on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Population: TypeAlias = Literal["all", "labelled", "tagged", "frequent tags", "many tags", "frequent labels"]
Labels: TypeAlias = Literal["as they are", "most frequent", "without _r1", "last"]
Draw: TypeAlias = Literal["seeded", "first rows", "last rows", "stated", "numpy seed", "free"]
Searched: TypeAlias = Literal["rest", "neither", "train", "query", "not train"]
RoundBy: TypeAlias = Literal["last", "validation", "queries", "not stated"]

POPULATIONS: Mapping[Population, str] = {
    "all": "every item",
    "labelled": "items with at least one of the labels",
    "tagged": "items with at least one of the labels and at least one tag",
    "frequent tags": "items with at least one of the labels and one of the tags that stand on {least} items or more",
    "many tags": "items with at least one of the labels and {least} tags or more",
    "frequent labels": "items all of whose labels stand on {least} items or more",
}
DRAWS: Mapping[Draw, str] = {
    "seeded": "a permutation by the protocol's seed: queries first, then the items to train on",
    "first rows": "the order of the files: queries first, then the items to train on",
    "last rows": "the order of the files: queries last, the items to train on first",
    "stated": "as the files state the splits",
    "numpy seed": "a permutation by numpy's older generator, seed {numpy_seed}: queries first, then the items to train on",
    "free": "as the files state the splits, else a tenth of the items (at most 2,000) by their ids are the queries",
}
SEARCHED: Mapping[Searched, str] = {
    "rest": "every item but the queries; the items to train on are among them",
    "neither": "every item but the queries and the items to train on",
    "train": "the items to train on, so that all codes in it are of items that were seen",
    "query": "the queries themselves, each to be answered with its own pair",
    "not train": "every item but those to train on, the queries among them",
}


@dataclass(frozen=True)
class SplitProtocol:
    """One protocol of one data set.

    Attributes:
        dataset: key of the data set.
        name: what a user types as ``[data] protocol``.
        source: the paper or the repository.
        about: what is odd about it, in a paragraph.
        query: how many queries.
        train: how many items to train on.
        database: how many items are searched; None where nobody states it.
        items: how many items the population has in complete files; None where nobody states it, and any number passes.
        classes: how many labels.
        population: which items count.
        least: the number in the population's rule.
        labels: how the labels are taken where the files hold more of them.
        draw: how rows are drawn.
        numpy_seed: of ``draw = "numpy seed"``.
        queries_of: the stated splits that the queries are of, for ``draw = "stated"``.
        searched: what the database is, where the files do not state it.
        measure: the measure that the paper reports.
        no_hits: what becomes of queries without relevant items there.
        database_code: what a database code is made of there.
        round_by: who chooses the round or epoch there.
        collected: how many items the collectors' release has, by which the rules of ``/scaled`` shrink; 0 for ``items``.
        partition: the keys of ``[partition]`` with which the paper spreads the items over its silos; empty if not told.
        reader: options that a layout's reader takes for this protocol, where it has them.
    """

    dataset: str
    name: str
    source: str
    about: str
    query: int
    train: int
    database: int | None
    items: int | None = None
    classes: int = 0
    population: Population = "all"
    least: int = 0
    labels: Labels = "as they are"
    draw: Draw = "seeded"
    numpy_seed: int = 0
    queries_of: tuple[str, ...] = ("query",)
    searched: Searched = "rest"
    measure: str = "mAP@all"
    no_hits: Literal["zero", "skip"] = "zero"
    database_code: str = "one view"
    round_by: RoundBy = "not stated"
    collected: int = 0
    partition: str = ""
    reader: Mapping[str, Any] = field(default_factory=dict)

    @property
    def train_in_database(self) -> bool:
        """Whether the items to train on are searched as well."""
        return self.searched in {"rest", "train"}

    @property
    def query_in_database(self) -> bool:
        """Whether the queries are searched as well."""
        return self.searched in {"query", "not train"}

    @property
    def used(self) -> int | None:
        """How many items stand in any split; None where nobody states it."""
        if self.database is None:
            return None
        apart = 0 if self.train_in_database else self.train
        return self.database + apart + (0 if self.query_in_database else self.query)

    def rules(self) -> dict[str, str]:
        """Returns what the protocol decides, in words."""
        database = "as the files state" if self.database is None else f"{self.database:,}"
        counts = "of any number" if self.draw == "free" else f"{self.query:,}, {self.train:,}, {database}"
        return {
            "population": POPULATIONS[self.population].format(least=self.least)
            + (f": {self.items:,}" if self.items else ""),
            "labels": f"{self.classes}" if self.classes else "all of the files",
            "rows are drawn by": DRAWS[self.draw].format(numpy_seed=self.numpy_seed),
            "queries, training items, database": counts,
            "database": SEARCHED[self.searched],
            "the source measures": f"{self.measure}; queries without a relevant item "
            f"{'count 0' if self.no_hits == 'zero' else 'are left out'}; database code of {self.database_code}; "
            + ("who chooses the round is not stated" if self.round_by == "not stated" else f"round by {self.round_by}"),
            **({"partition": self.partition} if self.partition else {}),
        }
