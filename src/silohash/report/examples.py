"""Example searches of a run, with pictures: drawn, searched and stored with the run as ``examples.json``.

The queries are a random draw with the run's seed, so good and bad answers are shown alike. The codes are those that the
figures were computed from, and the results are merged as in a search across silos. A model that scores pairs scores all
items, and partners of the query after the first results are shown with their rank. The file holds thumbnails and texts, so
that a report can be made without the model.
"""

import base64
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from silohash.base import seeds
from silohash.base.files import MEASURE_AGAIN, read_json, write_json
from silohash.base.forms import check_version, damaged
from silohash.base.types import Rows, Task, database_modalities, database_target, is_across, is_unified, query_modality
from silohash.data.archive import Archive
from silohash.evaluate.items import ItemCodes
from silohash.index.codes import Words
from silohash.measure.evaluation import Evaluator
from silohash.report.style import short
from silohash.run.indexing import display_text
from silohash.search.hits import Hits
from silohash.search.merge import merge
from silohash.search.order import question_key, tie_order
from silohash.search.policy import Policy, policy_of

FORMAT_VERSION = 1
SEARCHES_PER_TASK = 3
HITS_PER_SEARCH = 5
MOST_TASKS = 2
MOST_CHARACTERS = 240
PICTURE_PIXELS = 160
"""Longest side of a thumbnail."""

PHOTO_PIXELS = 64
"""Pictures with a longer side than this are stored as JPEG, smaller ones without loss as PNG."""

SHARES_A_LABEL = "A result is relevant if it shares a label with the query."
OWN_PARTNER = (
    "The items of the split query were searched. A result is relevant if it is the query's own partner: a text of the "
    "picture, or the picture of the text."
)

SCORED = " Every item was scored with the query by the model of the query's silo, without a first stage by codes."

_DATA_URI = re.compile(r"data:image/(png|jpeg);base64,[A-Za-z0-9+/]+=*")


@dataclass(frozen=True, kw_only=True)
class ExampleItem:
    """One item of the archive, as an example search shows it: its text may be shortened, its picture is a ``data:`` URI."""

    item_id: str
    silo: str
    text: str = ""
    picture: str = ""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ExampleHit:
    """One result of an example search.

    Attributes:
        distance_bits: Hamming distance between its code and the query's code; None if the silo does not release it as it is.
        rank: Rank within its own silo, where silos deploy different models, or rank by score, from 1; None where distances
            give the order.
        relevant: Whether the item is relevant to the query (`Examples.relevant`); None if this is unknown.
        score: Score of the pair; None if the model has codes only.
    """

    item: ExampleItem
    distance_bits: int | None
    rank: int | None = None
    relevant: bool | None = None
    score: float | None = None

    @property
    def nearness(self) -> str:
        """The score, or else the distance, in words; empty if it is not released."""
        bits = "" if self.distance_bits is None else f"{self.distance_bits} bit{'s' if self.distance_bits != 1 else ''}"
        return bits if self.score is None else f"score {self.score:.3f}"


@dataclass(frozen=True, kw_only=True)
class ExampleSearch:
    """One query and its first results over all silos, nearest first, and how many further items are as near as the last.

    In a search by score, partners of the query that come later follow.
    """

    task: Task
    query: ExampleItem
    hits: tuple[ExampleHit, ...] = ()
    ties_at_cut: int = 0


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The example searches of one run by task, and how queries were drawn and what is relevant, as sentences."""

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


def draw_examples(evaluator: Evaluator) -> Examples:
    """Search the silos of a run with `SEARCHES_PER_TASK` of its own queries per task. Equal runs give equal searches."""
    searches: list[ExampleSearch] = []
    rule = evaluator.rules[0]
    for task in _tasks(evaluator):
        queries = evaluator.asked(rule, task)
        order = seeds.numpy_generator(evaluator.run.config.seed, f"examples/{task}").permutation(queries)
        search = _search if evaluator.scores is None else _scored_search
        searches += [search(evaluator, int(row), task) for row in order[:SEARCHES_PER_TASK]]
    drawn = (
        f"The queries were drawn at random from all {len(rule.queries):,} queries with the run's seed "
        f"({evaluator.run.config.seed}). They were not selected by their results."
    )
    drawn += SCORED if evaluator.scores is not None else ""
    relevant = SHARES_A_LABEL if rule.by == "labels" else OWN_PARTNER
    return Examples(drawn=drawn, relevant=relevant, searches=tuple(searches))


def _tasks(evaluator: Evaluator) -> list[Task]:
    """Return at most `MOST_TASKS` of the measured tasks: searches for items, or else searches across modalities."""
    tasks = evaluator.rules[0].tasks(evaluator.modalities)
    items = [task for task in tasks if database_target(task) == "item" and not is_unified(task)]
    across = [task for task in tasks if is_across(task)]
    return sorted(items or across or tasks, reverse=True)[:MOST_TASKS]


def _search(evaluator: Evaluator, row: int, task: Task) -> ExampleSearch:
    place = {str(evaluator.run.archive.ids[item]): int(item) for item in evaluator.rules[0].database}
    hits = merged_hits(evaluator, row, task)
    ranks = hits.ranks or (None,) * len(hits)
    numbers = {silo.name: number for number, silo in enumerate(evaluator.run.partition.silos)}
    found = (
        replace(_hit(evaluator, row, task, place[item], numbers[silo], distance), rank=rank)
        for item, silo, distance, rank in zip(hits.ids, hits.silos, hits.distances, ranks, strict=True)
    )
    return _searched_by(evaluator, row, task, found, hits.ties_at_cut)


def _scored_search(evaluator: Evaluator, row: int, task: Task) -> ExampleSearch:
    """Score all items with one item of the archive, and keep the first results and, of pairs, all that are relevant."""
    assert evaluator.scores is not None  # noqa: S101  the model scores pairs
    rule, query, asked = evaluator.rules[0], np.array([row]), query_modality(task)
    model = evaluator.run.model.deployed_by(_asking(evaluator, row, task))
    items = evaluator.searched(rule, task)
    items = items if rule.ranks_own_item(task) else items[items != row]
    scores = evaluator.scores.of_model(task, model, query, items).values[0]
    order = np.argsort(-scores, kind="stable")
    late = rule.by != "labels"  # a label can be that of most items
    kept = [
        rank
        for rank, place in enumerate(order)
        if rank < HITS_PER_SEARCH or (late and rule.is_relevant(row, int(items[place])))
    ]
    rows, owners = items[order[kept]], evaluator.holdings.owner[database_modalities(task)[0]]
    words = evaluator.codes.words(model, asked, query, "query")[0]
    bits = evaluator.run.config.local.bits
    distances = distances_to(words, evaluator.database_codes.of_model(task, model, rows), bits)
    hits = (
        replace(
            _hit(evaluator, row, task, int(item), int(owners[item]), int(distance)),
            rank=rank + 1,
            score=float(scores[order[rank]]),
        )
        for item, distance, rank in zip(rows, distances, kept, strict=True)
    )
    ties = int((scores[order[HITS_PER_SEARCH:]] == scores[order[:HITS_PER_SEARCH]][-1]).sum())
    return _searched_by(evaluator, row, task, hits, ties)


def _asking(evaluator: Evaluator, row: int, task: Task) -> str:
    return str(evaluator.run.partition.silos[evaluator.holdings.owner[query_modality(task)][row]].name)


def _searched_by(evaluator: Evaluator, row: int, task: Task, hits: Iterable[ExampleHit], ties: int) -> ExampleSearch:
    asked, archive = query_modality(task), evaluator.run.archive
    query = _item(archive, row, _asking(evaluator, row, task), pictured=asked == "image")
    if asked == "text":
        query = replace(query, text=_one_line(archive.caption(row)))  # as it was sent
    return ExampleSearch(task=task, query=query, hits=tuple(hits), ties_at_cut=ties)


def _hit(evaluator: Evaluator, row: int, task: Task, item: int, number: int, distance: int | None) -> ExampleHit:
    silo = evaluator.run.partition.silos[number].name
    # A task that searches pictures can find a result by its picture, which is therefore shown.
    pictured = "image" in database_modalities(task) and item in evaluator.holdings.rows_of(number, "image")
    return ExampleHit(
        item=_item(evaluator.run.archive, item, silo, pictured=pictured),
        distance_bits=distance,
        relevant=evaluator.rules[0].is_relevant(row, item),
    )


def merged_hits(evaluator: Evaluator, row: int, task: Task, k: int = HITS_PER_SEARCH) -> Hits:
    """Return the k nearest items over all silos, in the order in which a search across silos lists them."""
    run, asked = evaluator.run, query_modality(task)
    query = np.array([row])
    models = {silo.name: run.model.deployed_by(silo.name) for silo in run.partition.silos}
    codes = {name: evaluator.codes.words(model, asked, query, "query")[0] for name, model in models.items()}
    by_rank = len(set(models.values())) > 1
    key = question_key(b"", [codes[name] for name in sorted(codes)] if by_rank else [next(iter(codes.values()))])
    parts = []
    for number, rows in _searched(evaluator, row, task):
        name = run.partition.silos[number].name
        distances = distances_to(codes[name], evaluator.database_codes.of_silo(task, number, rows), evaluator.bits)
        parts.append(nearest(distances, [str(item) for item in run.archive.ids[rows]], name, k, key))
    return merge(parts, k=k, key=key, by_rank=by_rank)


def _searched(evaluator: Evaluator, row: int, task: Task) -> Iterator[tuple[int, Rows]]:
    """Yield the position and the database rows of every silo that holds a searched modality."""
    rule = evaluator.rules[0]
    searched = evaluator.searched(rule, task)
    for number in range(len(evaluator.run.partition.silos)):
        rows = np.intersect1d(evaluator.holdings.items_of(number, database_modalities(task)), searched)
        if not rule.ranks_own_item(task):
            rows = rows[rows != row]
        if len(rows):
            yield number, rows


def distances_to(
    query: npt.NDArray[np.unsignedinteger[Any]], database: Words | ItemCodes, bits: int
) -> npt.NDArray[np.integer[Any]]:
    """Return the distances in bits between a query ``(W,)`` and the items of a silo, ``(n,)``."""
    if isinstance(database, ItemCodes):
        return np.asarray(database.distances(query[None], bits)[0])
    return np.asarray(np.bitwise_count(database ^ query).sum(axis=1, dtype=np.int64))


def nearest(distances: npt.NDArray[np.integer[Any]], ids: Sequence[str], silo: str, k: int, key: bytes) -> Hits:
    """Return the k items of one silo that are nearest to a query, from the distances ``(n,)`` and ids of its n items.

    The key orders items at equal distance.
    """
    order = np.lexsort((np.asarray(ids), tie_order([silo] * len(ids), ids, key), distances))[:k]
    counts = Counter(distances.tolist())
    left_out = counts[int(distances[order[-1]])] - int((distances[order] == distances[order[-1]]).sum())
    return Hits(
        ids=tuple(ids[place] for place in order),
        distances=tuple(int(distances[place]) for place in order),
        silos=(silo,) * len(order),
        payloads=({},) * len(order),
        left_out={int(distances[order[-1]]): left_out} if left_out else {},
    )


def _one_line(text: str) -> str:
    return short(" ".join(text.split()), MOST_CHARACTERS)


def _item(archive: Archive, row: int, silo: str, *, pictured: bool) -> ExampleItem:
    pictures = archive.pictures() if pictured else None
    return ExampleItem(
        item_id=str(archive.ids[row]),
        silo=silo,
        text=_one_line(display_text(archive, row)),
        picture=data_uri(pictures.picture(row)) if pictures is not None else "",
        labels=tuple(archive.labels_of(row)),
    )


def released(examples: Examples, policies: Path) -> Examples:
    """Return the part of the examples that the silos' policies (``SILO.toml`` in a folder) release, as a search would.

    In a search for items, hits of a silo whose policy excludes one modality are left out.

    Raises:
        UserError: If a policy is not valid.
    """
    found = {silo: policy_of(policies, silo) for silo in examples.silos}
    return replace(examples, searches=tuple(_released_search(search, found) for search in examples.searches))


def _released_search(search: ExampleSearch, policies: Mapping[str, Policy]) -> ExampleSearch:
    searched = set(database_modalities(search.task))
    kept: list[ExampleHit] = []
    for hit in search.hits:
        policy = policies[hit.item.silo]
        limit = policy.radius_bits(None)
        shown_of_silo = sum(other.item.silo == hit.item.silo for other in kept)
        within = limit is None or hit.distance_bits is None or hit.distance_bits <= limit
        if searched <= set(policy.modalities) and shown_of_silo < policy.max_results and within:
            distance = hit.distance_bits if policy.alterations is None else None
            kept.append(replace(hit, item=_released_item(hit.item, policy), distance_bits=distance))
    return replace(search, query=_released_item(search.query, policies[search.query.silo]), hits=tuple(kept))


def _released_item(item: ExampleItem, policy: Policy) -> ExampleItem:
    fields = policy.fields
    return replace(
        item,
        text=item.text if "caption" in fields else "",
        picture=item.picture if "preview" in fields else "",
        labels=item.labels if "labels" in fields else (),
    )


def data_uri(picture: Image.Image) -> str:
    """Return a thumbnail of a picture as a ``data:`` URI, at most `PICTURE_PIXELS` on its longest side."""
    thumbnail = picture if picture.mode in {"L", "RGB"} else picture.convert("RGB")
    photo = max(thumbnail.size) > PHOTO_PIXELS
    if max(thumbnail.size) > PICTURE_PIXELS:
        thumbnail = thumbnail.copy()
        thumbnail.thumbnail((PICTURE_PIXELS, PICTURE_PIXELS))
    stream = io.BytesIO()
    if photo:
        thumbnail.save(stream, format="JPEG", quality=82, optimize=True)
    else:
        thumbnail.save(stream, format="PNG", optimize=True)
    kind = "jpeg" if photo else "png"
    return f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"


def write_examples(path: Path, examples: Examples) -> None:
    """Write ``examples.json``, either completely or not at all."""
    write_json(path, {"format_version": FORMAT_VERSION, **asdict(examples)})


@dataclass(frozen=True)
class _StoredExamples:
    format_version: int
    drawn: str
    searches: tuple[ExampleSearch, ...]
    relevant: str


def read_examples(path: Path) -> Examples | None:
    """Read ``examples.json``; None if the run has none.

    Raises:
        UserError: If the file is damaged, or a picture in it is not an embedded PNG or JPEG.
    """
    if not path.exists():
        return None
    stored = read_json(path, _StoredExamples, remedy=MEASURE_AGAIN)
    check_version(path, stored.format_version, FORMAT_VERSION, MEASURE_AGAIN)
    examples = Examples(drawn=stored.drawn, relevant=stored.relevant, searches=stored.searches)
    for search in examples.searches:
        for item in (search.query, *(hit.item for hit in search.hits)):
            if item.picture and not _DATA_URI.fullmatch(item.picture):
                raise damaged(path, f'the picture of "{item.item_id}" is not embedded', MEASURE_AGAIN)
    return examples
