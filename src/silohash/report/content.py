"""The content of a report, as plain values: `gather` fills them in, `page` draws them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from silohash.base.types import MethodCard, ResultRow, Task
from silohash.evaluate.measures import by_pairs
from silohash.report.plots import LabelTable, RadiusCurve, RoundCurve

SHARES_A_LABEL = "A result is relevant if it shares a label with the query."
OWN_PARTNER = (
    "The items of the split query were searched. A result is relevant if it is the query's own partner: a text of the "
    "picture, or the picture of the text."
)

WarningKind: TypeAlias = Literal["training", "rejected update", "skipped rows", "archive"]


@dataclass(frozen=True)
class ReportWarning:
    """A fact that a reader needs to know before trusting the figures."""

    kind: WarningKind
    text: str


@dataclass(frozen=True, kw_only=True)
class ExampleItem:
    """One item of the archive, as an example search shows it.

    Attributes:
        item_id: The item's id.
        silo: The name of the silo that holds the item.
        text: The item's text, possibly shortened; empty if it has none.
        picture: A thumbnail as a ``data:`` URI; empty if the item does not have a picture.
        labels: The names of the item's labels.
    """

    item_id: str
    silo: str
    text: str = ""
    picture: str = ""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ExampleHit:
    """One result of an example search.

    Attributes:
        item: The item that was found.
        distance_bits: Hamming distance between its code and the query's code.
        rank: Rank within its own silo, where silos deploy different models; None where distances give the order.
        relevant: Whether the item is relevant to the query (`Examples.relevant`); None if this is unknown.
    """

    item: ExampleItem
    distance_bits: int
    rank: int | None = None
    relevant: bool | None = None


@dataclass(frozen=True, kw_only=True)
class ExampleSearch:
    """One query and the first results over all silos.

    Attributes:
        task: Direction of the search, for example ``t2i``.
        query: The item that served as the query.
        hits: The results, nearest first.
        ties_at_cut: Number of further items at the same distance (or rank) as the last result.
    """

    task: Task
    query: ExampleItem
    hits: tuple[ExampleHit, ...] = ()
    ties_at_cut: int = 0


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The example searches of one run.

    Attributes:
        drawn: How the queries were chosen, as one sentence.
        relevant: What is searched and which results are relevant, as sentences.
        searches: The searches, grouped by task.
    """

    drawn: str = ""
    relevant: str = SHARES_A_LABEL
    searches: tuple[ExampleSearch, ...] = ()

    @property
    def by_pairs(self) -> bool:
        """Whether only a query's own partner is relevant."""
        return self.relevant == OWN_PARTNER

    @property
    def silos(self) -> list[str]:
        """The names of all silos whose items are shown, in order of first appearance."""
        items = [item for search in self.searches for item in (search.query, *(hit.item for hit in search.hits))]
        return list(dict.fromkeys(item.silo for item in items))


@dataclass(frozen=True, kw_only=True)
class SiloSummary:
    """One silo of a run.

    Attributes:
        name: The silo's name.
        items: Number of items of all splits.
        train: Number of training items.
        lacks: What was withheld from the silo: pictures, texts or pairs; empty if it lacks nothing.
        drift: Total variation distance, from 0 to 1, between the silo's label distribution and that of all silos;
            None without labels.
        rejected: Number of rounds in which the silo's update was rejected.
        warnings: Number of warnings about the silo.
    """

    name: str
    items: int
    train: int
    lacks: str = ""
    drift: float | None = None
    rejected: int = 0
    warnings: int = 0


@dataclass(frozen=True, kw_only=True)
class MethodRun:
    """One run of one method.

    Attributes:
        name: The run's name in tables and legends; equals `ResultRow.run` of its rows.
        rows: The run's figures.
        curve: Loss and validation score per round.
        radius_curves: Precision and recall by radius, one curve per task.
        cards: The cards of the local and the federated method.
    """

    name: str
    rows: tuple[ResultRow, ...] = ()
    curve: RoundCurve | None = None
    radius_curves: tuple[RadiusCurve, ...] = ()
    cards: tuple[MethodCard, ...] = ()

    @property
    def needs_label_at_query(self) -> bool:
        """Whether the method uses the label of the query, which no real search has."""
        return any(card.needs_label_at_query for card in self.cards) or any(row.oracle for row in self.rows)


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """Everything that a report shows.

    Attributes:
        title: For example "glyphs, 5 silos".
        facts: What was run, name -> value, in order: data, partition, methods, bits, seed, digest and so on.
        runs: One run, or several runs to compare.
        digest: Digest of the configuration.
        validation: Name of the validation score, for example "mAP@all of held-back queries".
        label_table: Number of items per silo and label; None without labels.
        examples: Example searches; None if the run has none.
        silos: One summary per silo.
        warnings: Warnings about the archive, skipped rows, rejected updates and warnings during training.
        unmeasured: Why the first run has no figures, as a sentence; empty if it has them.
    """

    title: str
    facts: Mapping[str, str]
    runs: tuple[MethodRun, ...]
    digest: str = ""
    validation: str = "mAP"
    label_table: LabelTable | None = None
    examples: Examples | None = None
    silos: tuple[SiloSummary, ...] = ()
    warnings: tuple[ReportWarning, ...] = field(default=())
    unmeasured: str = ""

    @property
    def rows(self) -> list[ResultRow]:
        """The figures of all runs."""
        return [row for run in self.runs for row in run.rows]

    @property
    def pairs(self) -> bool:
        """Whether some figures judge by pairs."""
        return any(by_pairs(row.measure) for row in self.rows)

    @property
    def fair_rows(self) -> list[ResultRow]:
        """The figures of the runs whose method does not use the label of the query."""
        return [row for run in self.runs if not run.needs_label_at_query for row in run.rows]
