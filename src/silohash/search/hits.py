"""Queries and their results. One silo and many silos give results of the same form."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_type_hints, overload

import numpy as np
import numpy.typing as npt
from pydantic import Field
from pydantic.fields import FieldInfo

from silohash.base.errors import WrongShape
from silohash.base.types import Modality, Target
from silohash.evaluate.calibration import Calibration, Strength
from silohash.index.codes import Magnitudes
from silohash.index.source import find_file
from silohash.search import fields, options
from silohash.search.filters import Condition, conditions_of, labeled
from silohash.search.order import BY_CODE, EXACT, matched_words, place_in_tier, window_of
from silohash.search.policy import Alteration, Source
from silohash.search.released import Hit
from silohash.search.table import as_frame, as_html, as_text

if TYPE_CHECKING:
    import pandas

    from silohash.features.truncation import Unread


COLUMNS = (
    *("ids", "distances", "silos", "payloads", "found_by", "ranks", "scores", "order_values"),
    *("cosines", "probabilities", "strengths", "tiers", "matched"),
)
"""The attributes of `Hits` with one value per hit. Those after ``payloads`` may be missing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchOptions:
    """Set what a search finds, and how much of it is returned.

    Attributes:
        target: What to find: "item" for items by the nearer of their two codes, "image" or "text" for one of them alone.
        k: Number of hits.
        offset: Number of nearest items to skip, for the pages after the first.
        radius_bits: Maximum distance of a hit; None for no limit.
        label: If set, only items with this label are searched.
        where: Conditions on released columns, all of which must be true (`silohash.search.filters`). Texts are parsed.
        facets: Columns whose values are counted among the items that pass the filters; "silo" counts the items of each.
        facet_values: Number of the most frequent values of each, at least 1.
        newest_by: Column of dates by which items are listed if nothing is searched for, newest first, those without a date
            last; None for the order in which they were indexed.
        previews: Whether hits carry the small pictures that silos release.
        asker: Name of the account or program that asks, for the limits and the audit logs of silos; empty if unknown.
        silos: Names of the silos to search; None for all.
        candidates: Number of pictures or texts that a silo of this process finds by their codes and then scores, at least 1.
        deadline_seconds: Time limit for the answers of the silos; None for that of the federation, which has limits for it.
        bar: Lowest probability of a hit that is close; None for the distance that validation found.
        share_words: Whether a text may be sent to silos of other machines that match its words, if the hub allows it, too.
        progress: Gets the merged answers so far, without silos that have not answered yet, possibly in another thread.
    """

    target: Target = "item"
    k: options.K = 10
    offset: options.Offset = 0
    radius_bits: options.RadiusBits = None
    label: options.Label = None
    where: options.Where = ()
    facets: options.Facets = ()
    facet_values: options.FacetValues = 10
    newest_by: options.NewestBy = None
    previews: bool = True
    asker: Annotated[fields.Text, fields.Sometimes] = ""
    silos: Annotated[tuple[str, ...] | None, fields.Unsent] = None
    candidates: Annotated[int, fields.Unsent] = options.CANDIDATES
    deadline_seconds: options.DeadlineSeconds = None
    bar: options.Bar = None
    progress: Annotated[options.Progress | None, fields.Unsent] = None
    share_words: options.ShareWords = False

    def __post_init__(self) -> None:
        """Parse the conditions, and check all options (`check_options`)."""
        object.__setattr__(self, "where", conditions_of(self.where))
        object.__setattr__(self, "facets", tuple(self.facets))
        options.check_options(self.values())

    def values(self) -> dict[str, Any]:
        """Return the options by their names."""
        return {name: getattr(self, name) for name in OPTIONS}

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """All conditions that items must meet, with the one on their labels."""
        return (*self.where, *labeled(self.label))

    @property
    def reach(self) -> int:
        """The number of nearest items that the page needs: offset + k."""
        return self.offset + self.k


OPTIONS = tuple(each.name for each in dataclasses.fields(SearchOptions))
HeldT = TypeVar("HeldT", bound="SearchOptions | Hits")


def changed(value: HeldT, **values: object) -> HeldT:
    """Return a copy of a query or a result with other values of some attributes.

    `dataclasses.replace` would set and check all values again, which takes ten times as long.
    """
    copied = object.__new__(type(value))
    copied.__dict__.update(value.__dict__, **values)
    return copied


def described(option: str) -> str:
    """Return the description of an option of a search, as the command line and the API show it."""
    marks = get_args(get_type_hints(SearchOptions, include_extras=True)[option])
    return next(mark.description for mark in marks if isinstance(mark, FieldInfo) and mark.description)


@dataclass(frozen=True, kw_only=True, eq=False)
class Query(SearchOptions):
    """Hold one code and the options of a search, which is what a silo is asked.

    Attributes:
        words: ``(W,)`` packed code.
        bits: Code length.
        model_digest: Digest of the model that computed the code. A silo answers only if its codes have the same digest.
        tie_key: Key of the order among items at the same distance. It is set by `ask`.
        content: The words of a text or the regions of a picture as the model's featurizer gives them, ``(1, ...)``, for
            silos of other machines whose policies accept them. A silo computes ``nodes`` from them. None to compare codes
            only.
        nodes: The words of a text or the regions of a picture, encoded for silos of this process whose models score pairs;
            None to compare codes only. They are never sent to another machine.
        request_id: Id of the request in the logs of the hub, for the logs of silos; empty if there is none.
        seconds_left: Time for which the sender of the query waited when it was sent; None if it was not sent, or by a hub
            that does not tell.
        magnitudes: ``(bits,)`` magnitudes of the outputs whose signs are the code, which order items at the same distance;
            None to order them by a keyed hash alone. Silos ignore them unless the code was made from a text or a picture.
        source: What the code was made from, for silos that do not accept all queries; None if the hub does not tell.
        text: The text of the query as it was typed, for silos of other machines whose policies accept it, which match its
            words (`silohash.search.composed`). None to compare codes only.
        own_text: The same for silos of this process. It is never sent to another machine.
    """

    bits: fields.Bits
    words: Annotated[npt.NDArray[np.unsignedinteger], fields.CODE]
    model_digest: fields.Model
    previews: bool = False
    tie_key: Annotated[bytes, fields.KEY] = b""
    content: Annotated[np.ndarray | None, fields.CONTENT, fields.Sometimes] = None
    nodes: Annotated[Mapping[str, np.ndarray] | None, fields.Unsent] = None
    request_id: Annotated[fields.RequestId, fields.Sometimes] = ""
    seconds_left: fields.SecondsLeft = None
    source: Annotated[Source | None, fields.Sometimes] = None
    magnitudes: Annotated[Magnitudes | None, fields.MAGNITUDES, fields.Sometimes] = None
    text: Annotated[fields.Text | None, fields.Sometimes] = None
    own_text: Annotated[str | None, fields.Unsent] = None

    def __post_init__(self) -> None:
        """Check the code and the options.

        Raises:
            UserError: If there is not exactly one code, the magnitudes are not its, or an option is not valid.
        """
        words = np.asarray(self.words)
        if words.ndim == 2 and len(words) == 1:
            object.__setattr__(self, "words", words[0])
        elif words.ndim != 1:
            raise WrongShape(f"The query's words have the shape {words.shape}. Search for one code at a time.")
        if self.magnitudes is not None and (self.magnitudes.shape != (self.bits,) or self.magnitudes.dtype != np.uint8):
            raise WrongShape(f"The query's magnitudes have the shape {self.magnitudes.shape}. Give one uint8 per bit.")
        super().__post_init__()

    @property
    def asks_for_scores(self) -> bool:
        """Whether silos whose models score pairs are to score what they find."""
        return self.nodes is not None or self.content is not None

    @property
    def window(self) -> int:
        """The number of nearest items that are ordered by outputs; 0 without the query's magnitudes."""
        return 0 if self.magnitudes is None else window_of(self.k)

    @property
    def most_hits(self) -> int:
        """The largest number of hits in the answer of a silo."""
        return max(self.reach, self.window)


@dataclass(frozen=True, kw_only=True, repr=False)
class Hits:
    """Search results in order, with what they leave out. Results of one silo and of several silos have the same form.

    Items are ordered by distance, by outputs if all silos with hits know those of their items, by score if their silos
    scored them, or by rank if silos use different models. A result can be iterated over and indexed, which gives `Hit`
    objects. It prints as a table, and a notebook shows it with its previews.

    Attributes:
        ids: Ids of the items within their silos.
        distances: Distances in bits, in ascending order unless there are scores, ranks or merged cosines; None for the hits
            of a silo that releases ranks only.
        silos: Name of the silo that holds each item.
        payloads: What the silo released of each item.
        found_by: For each item, the modalities whose code is at the item's distance; empty if this is not known.
        left_out: Maps a place (a distance or a rank, see `order.place_in_tier`) to the number of items known to be at it but
            not among the hits, up to the place of the last hit.
        missing_silos: Maps a silo that did not answer to the reason.
        limited_silos: Maps a silo that released fewer items than requested to the reason.
        model_digests: Digests of the models whose codes were compared.
        ranks: For each item, one plus the number of items of its own silo that are strictly nearer, in ascending order. If
            several silos scored with the same model, the number of their items with a higher score is divided by the number
            of these silos. None if items are ordered by distance or by score.
        scores: The score of each item, in descending order; None if silos compared codes only.
        order_values: For each item, what orders it among those at its distance or rank, in ascending order. Silos tell it to
            a hub, which does not pass it on. None if only a keyed hash orders them.
        cosines: For each item, the cosine of its outputs and the query's (`output_cosines`). Merged results are ordered by
            them, descending, and have None for the items beyond the window and where the hub does not tell. The items of a
            silo are ordered by distance all the same, and those that cannot reach the page have an empty payload.
        probabilities: For each item, the probability that it is right; None without a calibration.
        strengths: For each item, how sure it is; None without a calibration.
        step_bits: The silo rounded the distances to the middle of steps of this many bits, beginning at 0.
        searched: Number of items among which the hits are the nearest; 0 if it is not known.
        edition: State of the silo's items, which changes whenever one of them was replaced or removed.
        unknown_words: Words of the query that no training text held. They do not carry weight.
        unread: The end of a query that is longer than the text model reads. None if all of it was read.
        folders: Folders on this machine in which the picture files of each silo may lie.
        alterations: What a silo did to its distances before it released them; None if they are exact. In merged results only
            whether some silos released ranks.
        tiers: For each item, what it has of the words of the query (`silohash.search.order`), in ascending order; None if no
            silo matched words.
        matched: For each item, the words that it has, as a sum of ``2 ** place`` over their places in the query; None if no
            silo matched words.
        text: The text whose words silos matched; empty if there is none.
        excluded_words: The words whose items silos left out, unless they are in ``by_code_only``.
        by_code_only: Names of the silos that did not match its words, because their policies do not accept them.
        facets: Maps each column whose values were counted to its most frequent values with their numbers of items; None if
            this was not requested.
        newest: Whether nothing was searched for, so that the hits are listed from new to old and do not have distances.
        applied: Number of the query's conditions (``where``) that the silo applied, which must be all.
    """

    ids: tuple[fields.Text, ...] = ()
    distances: tuple[fields.Count | None, ...] = ()
    silos: Annotated[tuple[str, ...], fields.Unsent] = ()
    payloads: Annotated[tuple[Mapping[str, Any], ...], fields.PAYLOADS] = ()
    found_by: Annotated[tuple[tuple[Modality, ...], ...], fields.FOUND_BY] = ()
    left_out: Annotated[Mapping[int, int], fields.LEFT_OUT] = field(default_factory=dict)
    missing_silos: Annotated[Mapping[str, str], fields.Unsent] = field(default_factory=dict)
    limited_silos: Annotated[Mapping[str, str], fields.LIMITED] = field(default_factory=dict)
    model_digests: Annotated[frozenset[str], fields.MODELS] = frozenset()
    ranks: Annotated[tuple[int, ...] | None, fields.Unsent] = None
    scores: Annotated[tuple[fields.Score, ...] | None, fields.Sometimes] = None
    order_values: Annotated[tuple[fields.Count, ...] | None, fields.Sometimes] = None
    cosines: Annotated[tuple[fields.Count | None, ...] | None, fields.Sometimes] = None
    probabilities: Annotated[tuple[float | None, ...] | None, fields.Unsent] = None
    strengths: Annotated[tuple[Strength | None, ...] | None, fields.Unsent] = None
    step_bits: Annotated[int, Field(ge=1, lt=fields.MOST_ITEMS), fields.Sometimes] = 1
    searched: Annotated[fields.Count, fields.Sometimes] = 0
    edition: Annotated[fields.Text, fields.Sometimes] = field(default="", compare=False)
    unknown_words: Annotated[tuple[str, ...], fields.Unsent] = ()
    unread: Annotated[Unread | None, fields.Unsent] = None
    folders: Annotated[Mapping[str, tuple[Path, ...]], fields.Unsent] = field(default_factory=dict)
    alterations: Annotated[tuple[Alteration, ...] | None, fields.Sometimes] = None
    tiers: Annotated[tuple[Annotated[int, Field(ge=EXACT, le=BY_CODE)], ...] | None, fields.Sometimes] = None
    matched: Annotated[tuple[fields.Count, ...] | None, fields.Sometimes] = None
    text: Annotated[str, fields.Unsent] = ""
    excluded_words: Annotated[tuple[str, ...], fields.Unsent] = ()
    by_code_only: Annotated[tuple[str, ...], fields.Unsent] = ()
    applied: Annotated[fields.Count, fields.Sometimes] = 0
    facets: Annotated[Mapping[str, Mapping[str, int]] | None, fields.FACETS, fields.Sometimes] = None
    newest: Annotated[bool, fields.Unsent] = False

    def __len__(self) -> int:
        """Return the number of hits."""
        return len(self.ids)

    def __iter__(self) -> Iterator[Hit]:
        """Iterate over the hits in order."""
        return (self._hit(position) for position in range(len(self)))

    @overload
    def __getitem__(self, position: int) -> Hit:
        """Return one hit."""

    @overload
    def __getitem__(self, position: slice) -> list[Hit]:
        """Return the hits of a slice."""

    def __getitem__(self, position: int | slice) -> Hit | list[Hit]:
        """Return one hit, or a list of hits for a slice."""
        positions = range(len(self))[position]
        return self._hit(positions) if isinstance(positions, int) else [self._hit(p) for p in positions]

    def __repr__(self) -> str:
        """Return the hits as an aligned table."""
        return as_text(self)

    def _repr_html_(self) -> str:
        """Return the hits as an HTML table with previews, for notebooks."""
        return as_html(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table with a row per hit (`as_frame`)."""
        return as_frame(self)

    @property
    def places(self) -> Sequence[float]:
        """The values that order the hits, ascending: ranks, cosines or scores with the opposite sign, or distances."""
        if self.ranks is not None:
            return self.ranks
        if self.cosines is not None:
            near = zip(self.known_distances, self.cosines, strict=True)
            return [distance if cosine is None else -1 - cosine for distance, cosine in near]
        if self.scores is not None:
            return [-score for score in self.scores]
        return self.known_distances if self.has_distances else range(1, len(self) + 1)

    @property
    def by_distance(self) -> Hits:
        """The same result without cosines, as a silo orders it."""
        return self if self.cosines is None else changed(self, cosines=None)

    @property
    def known_distances(self) -> list[int]:
        """The distances in bits of the hits that have one."""
        return [distance for distance in self.distances if distance is not None]

    @property
    def values(self) -> tuple[int, ...]:
        """The order values, which are all 0 if there are none."""
        return self.order_values or (0,) * len(self)

    @property
    def in_tiers(self) -> tuple[int, ...]:
        """The tiers, which are all `BY_CODE` if no silo matched words."""
        return self.tiers or (BY_CODE,) * len(self)

    @property
    def held_words(self) -> tuple[int, ...]:
        """The words that items have, which are all 0 if no silo matched words."""
        return self.matched or (0,) * len(self)

    @property
    def matched_words(self) -> tuple[tuple[str, ...], ...]:
        """The words of the query that each item has, as they were typed."""
        return tuple(matched_words(self.text, words) for words in self.held_words)

    @property
    def steps(self) -> list[tuple[int, float]]:
        """The tier and the place of each hit, in ascending order."""
        return list(zip(self.in_tiers, self.places, strict=True))

    @property
    def places_in_tiers(self) -> list[int]:
        """The tier and the place of each hit as one number (`order.place_in_tier`), unless scores order the hits."""
        return [place_in_tier(tier, int(place)) for tier, place in self.steps]

    @property
    def has_distances(self) -> bool:
        """Whether every hit has a distance. Those of a silo that releases ranks only do not."""
        return None not in self.distances

    @property
    def some_ranks_only(self) -> bool:
        """Whether a silo released ranks only, possibly without a hit on this page."""
        return "ranks" in (self.alterations or ()) or not self.has_distances

    @property
    def found(self) -> tuple[tuple[Modality, ...], ...]:
        """The modalities by which each item was found, with an empty tuple per item if this is not known."""
        return self.found_by or ((),) * len(self)

    @property
    def ties_at_cut(self) -> int:
        """The number of further items at the place of the last hit; 0 if scores order the hits."""
        if not len(self) or self.order == "score":
            return 0
        return self.left_out.get(self.places_in_tiers[-1], 0)

    @property
    def nothing_close(self) -> bool:
        """Whether it is known that no hit is close to the query."""
        return bool(self.strengths) and all(strength == "none" for strength in self.strengths or ())

    def judged(self, calibration: Calibration | None, *, known: float = 1.0, bar: float | None = None) -> Hits:
        """Return the same result with how sure each hit is, if that is known.

        Args:
            calibration: What a distance says about a hit; None if it is not known.
            known: Share of the query that the model knows, from 0 to 1.
            bar: Lowest probability of a hit that is close; None for the distance of the calibration.

        A hit with all words of the query is strong, whatever its distance.
        """
        if calibration is None:
            return self
        judged: list[tuple[float | None, Strength | None]] = [
            (None, "strong" if tier < BY_CODE else None)
            if distance is None or tier < BY_CODE
            else calibration.judged(distance, searched=self.searched, known=known, bar=bar)
            for distance, tier in zip(self.distances, self.in_tiers, strict=True)
        ]
        return changed(self, probabilities=tuple(p for p, _ in judged), strengths=tuple(s for _, s in judged))

    @property
    def answered(self) -> bool:
        """Whether at least one silo answered, possibly without a hit. If not, ``missing_silos`` has all reasons."""
        return bool(self.model_digests)

    @property
    def order(self) -> Literal["distance", "outputs", "score", "rank", "words", "newest"]:
        """What orders the hits of a merged result."""
        if self.newest:
            return "newest"
        if self.ranks is not None:
            return "rank"
        if self.cosines is not None:
            return "outputs"
        if self.scores is not None:
            return "score"
        return "distance" if self.has_distances else "words"

    @property
    def comparable(self) -> bool:
        """Whether distances and scores of different silos are comparable. If not, ranks give the order."""
        return self.ranks is None

    def taken(self, positions: list[int], *, left_out: Mapping[int, int] | None = None) -> Hits:
        """Return the same result with only the hits at the given positions, in the given order.

        ``left_out`` replaces the former value unless it is None.
        """
        columns = {name: getattr(self, name) for name in COLUMNS}
        taken: dict[str, Any] = {
            name: tuple(map(column.__getitem__, positions)) for name, column in columns.items() if column
        }
        return changed(self, left_out=self.left_out if left_out is None else left_out, **taken)

    def by_words(self) -> Hits:
        """Return only the hits with all words of the query, without the distances, for a query that no code stands for."""
        found = self.taken([place for place, tier in enumerate(self.in_tiers) if tier < BY_CODE], left_out={})
        return changed(found, distances=(None,) * len(found), found_by=(), ranks=None)

    def page(self, offset: int) -> Hits:
        """Return the same result without its first ``offset`` hits."""
        return self.taken(list(range(min(offset, len(self)), len(self))))

    def _hit(self, position: int) -> Hit:
        payload = self.payloads[position]
        return Hit(
            id=self.ids[position], silo=self.silos[position], payload=payload,
            path=find_file(self.folders.get(self.silos[position], ()), payload.get("file")),
            distance_bits=self.distances[position], score=None if self.scores is None else self.scores[position],
            rank=None if self.ranks is None else self.ranks[position], found_by=self.found[position],
            probability=None if self.probabilities is None else self.probabilities[position],
            strength=None if self.strengths is None else self.strengths[position],
            matched=matched_words(self.text, self.held_words[position]),
        )  # fmt: skip


def silent(silo: str, reason: str) -> Hits:
    """Return the result of a silo that does not answer."""
    return Hits(missing_silos={silo: reason})
