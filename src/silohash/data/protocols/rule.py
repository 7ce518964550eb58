"""The rules of a protocol: which items and labels it uses, how it splits them, and what its source measures."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from silohash.base.files import read_toml
from silohash.base.forms import REINSTALL

Population: TypeAlias = Literal["all", "labeled", "tagged", "frequent tags", "many tags", "frequent labels"]
Labels: TypeAlias = Literal["as they are", "most frequent", "without _r1", "last"]
Draw: TypeAlias = Literal["seeded", "first rows", "last rows", "stated", "numpy seed", "free"]
Searched: TypeAlias = Literal["rest", "neither", "train", "query", "not train"]
RoundBy: TypeAlias = Literal["last", "validation", "queries", "not stated"]

_WORDS = read_toml(Path(__file__).with_name("rules.toml"), remedy=REINSTALL, missing=REINSTALL)
POPULATIONS: Mapping[Population, str] = _WORDS["population"]
DRAWS: Mapping[Draw, str] = _WORDS["draw"]
SEARCHED: Mapping[Searched, str] = _WORDS["searched"]


@dataclass(frozen=True)
class SplitProtocol:
    """One protocol of one data set.

    Attributes:
        name: The value of ``[data] protocol``.
        source: The paper or the repository that the protocol comes from.
        about: What a reader should know about it, in one paragraph.
        database: Number of searched items; None if no source states it.
        items: Size of the population in complete files; None if no source states it, in which case any size passes.
        classes: Number of labels; 0 for all labels of the files.
        labels: Which labels are kept if the files hold more than ``classes``.
        queries_of: The stated splits that make up the queries, for ``draw = "stated"``.
        searched: What the database consists of, unless the files state it.
        no_hits: How the source treats queries without a relevant item.
        database_code: What the source computes a database code from.
        round_by: How the source chooses the round or epoch that it reports.
        collected: Size of the collectors' release, by which ``/scaled`` shrinks ``least``; 0 to keep ``least``.
        partition: The keys of ``[partition]`` that the source describes; empty if it describes none.
        reader: Options passed to the layout's reader, if it has them.
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
        """Whether the training items are searched as well."""
        return self.searched in {"rest", "train"}

    @property
    def query_in_database(self) -> bool:
        """Whether the queries are searched as well."""
        return self.searched in {"query", "not train"}

    @property
    def used(self) -> int | None:
        """Number of items in any split; None if the size of the database is not stated."""
        if self.database is None:
            return None
        extra_train = 0 if self.train_in_database else self.train
        extra_query = 0 if self.query_in_database else self.query
        return self.database + extra_train + extra_query

    def rules(self) -> dict[str, str]:
        """Return what the protocol decides, in words, as lines of a card."""
        population = POPULATIONS[self.population].format(least=self.least)
        no_hits = "count as 0" if self.no_hits == "zero" else "are left out"
        chosen = "choice of the round not stated" if self.round_by == "not stated" else f"round by {self.round_by}"
        lines = {
            "population": f"{population}: {self.items:,}" if self.items else population,
            "labels": str(self.classes or "all labels of the files"),
            "rows are chosen by": DRAWS[self.draw].format(numpy_seed=self.numpy_seed),
            "queries, training items, database": self._sizes(),
            "database": SEARCHED[self.searched],
            "the source measures": f"{self.measure}; queries without a relevant item {no_hits}; "
            f"database code of {self.database_code}; {chosen}",
        }
        return lines | ({"partition": self.partition} if self.partition else {})

    def _sizes(self) -> str:
        if self.draw == "free":
            return "any number"
        database = "as the files state" if self.database is None else f"{self.database:,}"
        return f"{self.query:,}, {self.train:,}, {database}"
