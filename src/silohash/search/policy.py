"""What a silo releases in a search: to whom how often, how many items, up to which distance, and which fields of them.

A policy is a TOML file per silo, ``RUN/policies/SILO.toml``. Its keys are the attributes of `Policy`, each optional::

    max_results = 100
    fields = ["caption", "labels"]
    approve = "approved.txt"

A silo without a file has the default policy.
"""

import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from silohash.base import errors
from silohash.base.files import read_text, read_toml
from silohash.base.registry import suggestion
from silohash.base.types import MODALITIES, Modality
from silohash.index.base import FIELDS, MOST_COLUMNS
from silohash.search.fields import MOST_CHARACTERS
from silohash.search.filters import SILO

Source: TypeAlias = Literal["text", "picture", "vector", "code", "item"]
"""What the code of a query was made from; "item" for the code of an item of a silo."""

MEASURED: tuple[Source, ...] = ("text", "picture")
"""What a hub encodes by itself. Magnitudes of its outputs are used only with these, because nobody chooses them freely."""

Alteration: TypeAlias = Literal["rounded", "noised", "ranks"]
"""What a silo did to its distances: rounded them, measured them to noised codes, or released ranks only."""

SIMILAR_REFUSED = "Its policy does not allow searching for items like an item."
CODES_REFUSED = "Its policy allows searches with texts and pictures only, not with codes or vectors."
CONTENT_REFUSED = "It compared codes only, because its policy does not accept the words and regions of queries."
FILTERED_NEAREST = "Its policy limits what answers tell of codes, so it filtered its nearest {:,} items only."
NOT_COUNTED = "Its policy limits what answers tell, so it does not count values."
BROWSING_REFUSED = "Its policy releases only items near a query, so it does not list them."
LIMITED = ("queries_per_minute", "queries_per_day", "near_queries")
MINUTE_SECONDS = 60
DAY_SECONDS = 86_400


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Set the limits of a silo. They are applied by the silo's own node, before anything leaves it.

    Attributes:
        max_results: Maximum number of items per query, over all its pages; at least 1.
        max_distance_bits: Maximum distance of an item that is released, at least 0; None for no limit.
        fields: Released fields, a subset of `FIELDS`. If empty, only ids and distances are released.
        columns: Names of the further columns of the archive that are released, by which searches can filter.
        modalities: Modalities whose index may be searched. If empty, the silo does not answer queries.
        distance_step_bits: Released distances are rounded to the middle of steps of this many bits, at least 1. At 4, the
            distances 0 to 3 become 1, and 4 to 7 become 5. At 1 they are exact.
        max_queries_per_minute: Maximum number of queries per asker and minute, at least 1; None for no limit.
        max_queries_per_day: Maximum number of queries per asker and day, at least 1; None for no limit.
        approve: File with the ids of the items that may be released, one per line. Others are withheld and only counted.
            None releases all items. `read_policy` takes a relative path as relative to the folder of the policy.
        audit_sync_seconds: Time after which a line of the audit log is on the disk; at 0, answers wait for the disk.
        accept_query_content: Whether hubs on other machines may send the words of a text or the regions of a picture, with
            which a silo whose model scores pairs scores its items. If false, they send codes only.
        accept_query_words: Whether hubs on other machines may send the text of a query, whose words are compared with ids
            and released fields. If false, they send codes only.
        rank_only: Whether items are released in order, but without distances and ties. Their ranks are merged.
        code_noise: Share of the bits of each code that are inverted before it is searched or released, at least 0 and below
            0.5. The same bits of a code are inverted each time. At 0 codes are exact.
        max_near_queries: Maximum number of different queries per asker within ``near_bits`` of each other in ``near_days``
            days, at least 1; None for no limit.
        near_bits: Distance up to which two queries are near each other, at least 0; None for a quarter of the code.
        near_days: Number of days for which the codes of queries are remembered, at least 1.
        accept_codes: Whether to answer queries that are a code or a vector, and not a text or a picture that a hub encoded.
        similar: Whether to release the code of an item to find items like it, and to answer queries with such codes. None
            for true unless ``rank_only`` is set, because other silos may release their distances to the code.
        url: Address of an item at the silo's own site, with ``{id}`` in place of its id; empty if there is none.
        rights: What others may do with the items.
        contact: Whom to ask about the items.
    """

    max_results: int = 1000
    max_distance_bits: int | None = None
    fields: tuple[str, ...] = FIELDS
    columns: tuple[str, ...] = ()
    modalities: tuple[Modality, ...] = MODALITIES
    distance_step_bits: int = 1
    max_queries_per_minute: int | None = None
    max_queries_per_day: int | None = None
    approve: Path | None = None
    audit_sync_seconds: float = 1.0
    accept_query_content: bool = False
    accept_query_words: bool = False
    rank_only: bool = False
    code_noise: float = 0.0
    max_near_queries: int | None = None
    near_bits: int | None = None
    near_days: int = 30
    accept_codes: bool = True
    similar: bool | None = None
    url: str = ""
    rights: str = ""
    contact: str = ""

    def __post_init__(self) -> None:
        """Check the limits.

        Raises:
            UserError: If a number is out of range, or a name is unknown.
        """
        for name in ("max_results", "distance_step_bits", "near_days"):
            _check_number(name, getattr(self, name), least=1)
        for name in ("max_distance_bits", "near_bits", *map("max_{}".format, LIMITED)):
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name), least=int(not name.endswith("_bits")))
        if self.similar is None:
            object.__setattr__(self, "similar", not self.rank_only)
        for name in ("accept_query_content", "accept_query_words", "rank_only", "accept_codes", "similar"):
            if not isinstance(getattr(self, name), bool):
                raise errors.WrongType(f"{name} is {getattr(self, name)!r}. Set it to true or false.")
        _check_number("audit_sync_seconds", self.audit_sync_seconds, what="a number of seconds of at least 0")
        _check_number("code_noise", self.code_noise, below=0.5, what="a number of at least 0 and below 0.5")
        if self.near_bits is not None and self.max_near_queries is None:
            raise errors.NoEffect(
                "near_bits is set without max_near_queries, which limits such queries. Set both or neither."
            )
        if self.rank_only and self.similar:
            raise errors.ConflictingOptions(
                "rank_only is true, but with similar = true other silos may release their distances to the codes of items. "
                "Set similar to false."
            )
        if self.accept_query_content and self.alterations:
            raise errors.ConflictingOptions(
                f"accept_query_content is true, but scores would reveal more than distances with distance_step_bits = "
                f"{self.distance_step_bits}, rank_only = {self.rank_only} and code_noise = {self.code_noise}. Leave out one."
            )
        _check_about(self.about)
        object.__setattr__(self, "approve", _checked_path("approve", self.approve))
        object.__setattr__(self, "fields", _checked_names("fields", self.fields, FIELDS))
        object.__setattr__(self, "columns", _checked_columns(self.columns))
        object.__setattr__(self, "modalities", _checked_names("modalities", self.modalities, MODALITIES))

    @property
    def alterations(self) -> tuple[Alteration, ...] | None:
        """What an answer states about its distances, see `Hits`; None if they are exact. Items are then not scored."""
        applied: dict[Alteration, bool] = {
            "rounded": self.distance_step_bits > 1, "noised": self.code_noise > 0, "ranks": self.rank_only
        }  # fmt: skip
        return tuple(name for name, applies in applied.items() if applies) or None

    @property
    def about(self) -> dict[str, str]:
        """What it tells of all items."""
        return {name: value for name in ("url", "rights", "contact") if (value := getattr(self, name))}

    @property
    def limits_codes(self) -> bool:
        """Whether it limits what answers tell of codes."""
        return self.alterations is not None or self.max_near_queries is not None

    @property
    def stored(self) -> tuple[str, ...]:
        """What an index stores of items to show: the released fields and further columns."""
        return (*self.fields, *self.columns)

    def refusal_to_use(self, columns: Iterable[str]) -> str:
        """Return why a search cannot use some columns, whether they exist or not; empty if it can."""
        for name in columns:
            if name not in self.stored or name == "preview":
                released = ", ".join(each for each in self.stored if each != "preview") or "nothing else"
                return f'Its policy does not release "{name}", so a search cannot use it. It releases: {released}.'
        return ""

    def countable(self, columns: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the columns whose values are counted, and the reasons for leaving out others."""
        if self.limits_codes or self.max_distance_bits is not None:  # counts are of all items
            return [], [NOT_COUNTED]
        hidden = [name for name in columns if name != SILO and self.refusal_to_use([name])]
        reasons = [f'Its policy does not release "{name}", so it does not count its values.' for name in hidden]
        return [name for name in columns if name not in hidden], reasons

    def refusal_to_score(self, *, sent: bool, scores: bool) -> list[str]:
        """Return the reason for comparing codes only although a query asks for scores, if there is one to give.

        Args:
            sent: Whether the query was sent with words or regions.
            scores: Whether the model of the silo can score items.
        """
        if sent and not self.accept_query_content:
            return [CONTENT_REFUSED]
        if sent and not scores:
            return ["It compared codes only, because its model cannot score items."]
        # Scores are neither rounded nor noised, and would tell more than the distances.
        if self.distance_step_bits > 1:
            return ["It rounds distances, so it does not release scores."]
        return ["It does not release distances as they are, and thus no scores."] if self.alterations else []

    @property
    def needs_ledger(self) -> bool:
        """Whether the silo needs a secret, or remembers queries (`silohash.search.ledger`)."""
        return self.rank_only or self.code_noise > 0 or self.max_near_queries is not None

    @property
    def refused_sources(self) -> dict[Source | None, str]:
        """Maps what a query must not be made from, as the hub states it, to the reason; None stands for no statement."""
        items: dict[Source | None, str] = {} if self.similar else {"item": SIMILAR_REFUSED}
        codes: tuple[Source | None, ...] = () if self.accept_codes else (None, "code", "vector")
        return items | dict.fromkeys(codes, CODES_REFUSED)

    def released(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of an item's payload that may be released.

        Example:
            >>> Policy(fields=("caption",)).released({"caption": "two parrots", "labels": ["bird"]})
            {'caption': 'two parrots'}
        """
        fields, columns = self.fields, payload.get("columns", {})
        released = {name: value for name, value in payload.items() if name in fields}
        further = {name: columns[name] for name in self.columns if name in columns}
        return released | {"columns": further} if further else released

    def radius_bits(self, requested_bits: int | None) -> int | None:
        """Return the radius of a search: the smaller of the requested radius and the policy's, None if neither is set."""
        # The largest distance in the step of a requested radius, which so reveals no more.
        step = self.distance_step_bits
        widened = None if requested_bits is None else requested_bits // step * step + step - 1
        return min((limit for limit in (widened, self.max_distance_bits) if limit is not None), default=None)

    def reached(self, wanted: int, radius_bits: int | None, released: int) -> list[str]:
        """Return the reason for releasing fewer items than wanted within a radius, if it is a limit."""
        if released == self.max_results < wanted:
            return [f"It limits results to {released:,} per query."]
        limit = self.max_distance_bits
        if limit is not None and released < wanted and (radius_bits is None or limit < radius_bits):
            return [f"It limits results to a distance of {limit} bits."]
        return []


def read_policy(path: Path) -> Policy:
    """Read a policy from a TOML file.

    Raises:
        UserError: If the file is not TOML, a key is unknown, or a value is not allowed.
    """
    values = read_toml(path, remedy="Correct the policy.")
    known = [entry.name for entry in fields(Policy)]
    for name in values:
        if name not in known:
            raise errors.UnknownOption(
                f'The policy {path} has the unknown key "{name}"{suggestion(name, known)}; its keys are: {", ".join(known)}.'
            )
    try:
        policy = Policy(**values)
        return policy if policy.approve is None else replace(policy, approve=path.parent / policy.approve)
    except errors.UserError as error:
        raise errors.InvalidFile(f"The policy {path} is not valid: {error}") from error


def policy_of(folder: Path, silo: str) -> Policy:
    """Return the policy of a silo: that of ``folder/SILO.toml``, or the default policy without such a file.

    Raises:
        UserError: If the file is not valid.
    """
    path = folder / f"{silo}.toml"
    return read_policy(path) if path.exists() else Policy()


def check_policy_files(folder: Path, silos: Collection[str]) -> None:
    """Check that every policy file belongs to a silo, so that a misspelled name does not leave a silo unprotected.

    Raises:
        UserError: If a file is named after an unknown silo.
    """
    for path in sorted(folder.glob("*.toml")):
        if path.stem not in silos:
            raise errors.UnknownName(
                f"The policy {path} does not belong to an indexed silo{suggestion(path.stem, silos)}. "
                f"Name it after one of: {', '.join(sorted(silos))}."
            )


def _check_about(about: Mapping[str, object]) -> None:
    """Check what a policy tells of all items."""
    for name, value in about.items():
        begins = ("https://", "http://") if name == "url" else ("",)
        if not isinstance(value, str) or len(value) > MOST_CHARACTERS or not value.startswith(begins):
            raise errors.WrongForm(f"{name} is {value!r}. Set it to a text, and url to one with https:// or http://.")


def _check_number(name: str, value: object, *, least: int = 0, below: float = math.inf, what: str = "") -> None:
    """Check a number: a whole one, or any if the error says ``what`` it must be."""
    if not isinstance(value, int | float if what else int) or isinstance(value, bool) or not least <= value < below:
        raise errors.OutOfRange(f"{name} is {value!r}. Set it to {what or f'a whole number of at least {least}'}.")


def _checked_path(name: str, value: object) -> Path | None:
    if value is None or isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value:
        raise errors.WrongType(f"{name} is {value!r}. Set it to the path of a text file with one id per line.")
    return Path(value)


def _checked_names(key: str, names: object, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return a list of names as a tuple, after checking that each of them is known."""
    if not isinstance(names, list | tuple):
        raise errors.WrongType(f"{key} is {names!r}. Set it to a list of names out of: {', '.join(known)}.")
    for name in names:
        if name not in known:
            near = suggestion(name, known) if isinstance(name, str) else ""
            raise errors.UnknownName(f"{key} has the unknown name {name!r}{near}; choose from: {', '.join(known)}.")
    return tuple(names)


def _checked_columns(names: object) -> tuple[str, ...]:
    """Return the names of further columns as a tuple, after checking that they are not those of fields."""
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise errors.WrongType(f"columns is {names!r}. Set it to a list of names of columns of the archive.")
    if known := [name for name in names if name in FIELDS]:
        raise errors.ConflictingOptions(f'columns has "{known[0]}", which is a field. Add it to fields instead.')
    if len(names) > MOST_COLUMNS:
        raise errors.OutOfRange(f"columns has {len(names)} names. Set it to at most {MOST_COLUMNS}.")
    return tuple(names)


@dataclass
class _Window:
    """The queries of each asker in the current minute or day."""

    name: str
    seconds: int
    most: int | None
    number: int = -1
    counts: dict[str, int] = field(default_factory=dict)

    def enter(self, now: float) -> None:
        """Forget the counts if a new window has begun."""
        number = int(now // self.seconds)
        if number != self.number:
            self.number, self.counts = number, {}


class Quota:
    """Count queries per asker. Minutes and days are those of UTC, and counts begin at 0 when the process starts."""

    def __init__(
        self, per_minute: int | None = None, per_day: int | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """Set the limits per asker; None for no limit. ``clock`` returns the time in seconds."""
        windows = (_Window("minute", MINUTE_SECONDS, per_minute), _Window("day", DAY_SECONDS, per_day))
        self._windows = [window for window in windows if window.most is not None]
        self._clock = clock
        self._lock = threading.Lock()

    def admit(self, asker: str) -> None:
        """Count a query of an asker. A query that is refused does not count.

        Raises:
            LimitReached: If the asker has reached a limit.
        """
        if not self._windows:
            return
        with self._lock:
            now = self._clock()
            for window in self._windows:
                window.enter(now)
                if window.counts.get(asker, 0) == window.most:
                    queries = "query" if window.most == 1 else "queries"
                    raise errors.LimitReached(
                        f"It limits each asker to {window.most:,} {queries} per {window.name}. Try again later."
                    )
            # Counted only when no window refuses, so that a refusal in one does not use up another.
            for window in self._windows:
                window.counts[asker] = window.counts.get(asker, 0) + 1


class Approvals:
    """Read the list of approved items, again whenever the file has changed. Without the file, no item is approved."""

    def __init__(self, path: Path) -> None:
        """Use a file. It is read when it is first needed."""
        self._path = path
        self._signature: tuple[int, int, int] | None = None
        self._ids: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def ids(self) -> frozenset[str]:
        """Return the ids of the approved items.

        Raises:
            UserError: If the file cannot be read as UTF-8 text.
        """
        with self._lock:
            try:
                about = self._path.stat()
            except FileNotFoundError:
                self._signature, self._ids = None, frozenset()
                return self._ids
            except OSError as error:
                raise errors.UnreadableFile(
                    f"{self._path} cannot be read ({error}). Check the list of approved items."
                ) from error
            # A file that is replaced within one tick of the clock differs in its number or size.
            signature = (about.st_ino, about.st_size, about.st_mtime_ns)
            if signature != self._signature:
                self._ids = frozenset(line.strip() for line in read_text(self._path).splitlines() if line.strip())
                self._signature = signature
            return self._ids
