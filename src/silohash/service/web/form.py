"""The search form: what an address of the page asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from starlette.datastructures import ImmutableMultiDict

from silohash.base.errors import OutOfRange, WrongType
from silohash.base.types import Target
from silohash.search.filters import LABELS, MOST_CONDITIONS, SILO, Condition, labeled
from silohash.search.hits import SearchOptions
from silohash.search.inputs import target_named
from silohash.service.web.page_templates import address

FARTHEST_OFFSET = 10_000
"""Most items that a page of results may skip."""

LONGEST_TEXT = 2_000
LONGEST_NAME = 1_000
MOST_SILOS = 1_000
MOST_BITS = 256

PAGE_HITS = 24
"""Number of hits per page. It divides by two, three, four and six, so that rows are full on most screens."""

LAST_PAGE = FARTHEST_OFFSET // PAGE_HITS
Parameters: TypeAlias = ImmutableMultiDict[str, Any]
"""The parameters of an address or of a sent form: texts, or files."""


@dataclass(frozen=True, kw_only=True)
class SearchForm:
    """Hold what a page of results was asked for.

    Attributes:
        picture: Name of a kept picture to search for.
        like: Id of an item whose code to search for, unless there are words or a picture. Its silo is ``of``.
        by: The modality of the code; that of the picture if the item has one and this is empty.
        silos: Names of the silos to search; all if empty.
        labels: The labels of the items to search; all if empty.
        any_label: Whether one of the labels suffices.
        where: Conditions on columns of the items, see `silohash.search.filters`.
        within_bits: Maximum distance of a hit; None for no limit.
        browse: Whether to list all items if there are no words, picture or filter.
        page: Number of the page, from 1.
        at: Number of an item among the results, from 1, of which the page of the item tells; None on pages of results.
    """

    text: str = ""
    picture: str = ""
    like: str = ""
    of: str = ""
    by: str = ""
    find: Target = "item"
    silos: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    any_label: bool = False
    where: tuple[Condition, ...] = ()
    within_bits: int | None = None
    browse: bool = False
    page: int = 1
    at: int | None = None

    @classmethod
    def read(cls, parameters: Parameters) -> SearchForm:
        """Return the form of an address or a sent form. Empty fields have their defaults, and three add a condition."""
        where = [*map(Condition.of, _texts(parameters, "where", MOST_CONDITIONS + 1))]
        added = [_text(parameters.get(name), name, LONGEST_NAME) for name in ("column", "operator", "value")]
        where += [Condition.of("".join(added))] if added[-1] else []
        text = _text(parameters.get("q"), "q", LONGEST_TEXT)
        picture, *like = (_text(parameters.get(name), name, LONGEST_NAME) for name in ("picture", "like", "of", "by"))
        return cls(
            text=text,
            picture=picture,
            **{} if text or picture else dict(zip(("like", "of", "by"), like, strict=True)),
            find=target_named(_text(parameters.get("find"), "find", LONGEST_NAME) or "item"),
            silos=_texts(parameters, "silo", MOST_SILOS),
            labels=_texts(parameters, "label", MOST_CONDITIONS + 1),
            any_label=parameters.get("any") == "1",
            where=tuple(dict.fromkeys(where)),
            browse=parameters.get("browse") == "1",
            within_bits=_number(parameters.get("within"), "within", 0, MOST_BITS),
            page=_number(parameters.get("page"), "page", 1, LAST_PAGE) or 1,
            at=_number(parameters.get("at"), "at", 1, FARTHEST_OFFSET),
        )

    @property
    def searches(self) -> bool:
        """Whether there is something to search for."""
        return bool(self.text or self.picture or self.like)

    @property
    def asks(self) -> bool:
        """Whether there are items to show: those that are found, or those that pass the filters."""
        return bool(self.searches or self.silos or self.labels or self.where or self.browse)

    @property
    def filtered(self) -> bool:
        """Whether a filter is set."""
        return self != replace(self, find="item", silos=(), labels=(), where=(), within_bits=None)

    def address(self, **changes: Any) -> str:  # noqa: ANN401  values of fields
        """Return the address of the form with some fields changed. The page is the first unless it is given."""
        form = replace(self, **{"page": 1, "at": None, **changes})
        return address(
            "/",
            picture=form.picture,
            like=form.like,
            of=form.of,
            by=form.by,
            q=form.text,
            find="" if form.find == "item" else form.find,
            silo=form.silos,
            label=form.labels,
            any="1" if form.any_label and form.labels else "",
            where=form.where,
            within=form.within_bits,
            browse="" if replace(form, browse=False).asks else "1" if form.browse else "",
            page=None if form.page == 1 else form.page,
            at=form.at,
        )

    def toggled(self, column: str, value: str) -> tuple[str, bool]:
        """Return the address with a value of a column as a filter or, if it is one, without it, and whether it is one."""
        name = {SILO: "silos", LABELS: "labels"}.get(column, "where")
        each, held = value if name != "where" else Condition(column, "=", (value,)), getattr(self, name)
        rest = tuple(other for other in held if other != each)
        is_set = len(rest) < len(held)
        return self.address(**{name: rest if is_set else (*held, each)}, browse=True), is_set

    def options(self) -> SearchOptions:
        """Return the options of the search, for one hit more than a page shows, or for an item and those beside it."""
        skipped, k = ((self.page - 1) * PAGE_HITS, PAGE_HITS + 1) if self.at is None else (max(self.at - 2, 0), 3)
        labels = (Condition(LABELS, "=", self.labels),) if self.any_label and self.labels else labeled(self.labels)
        return SearchOptions(
            target=self.find,
            k=k,
            offset=skipped,
            radius_bits=self.within_bits if self.searches else None,
            where=(*self.where, *labels),
            silos=self.silos or None,
        )


def _texts(parameters: Parameters, name: str, most: int) -> tuple[str, ...]:
    """Return the different texts of a field that can be repeated."""
    texts = (_text(each, name, LONGEST_NAME) for each in parameters.getlist(name)[:most])
    return tuple(dict.fromkeys(filter(None, texts)))


def _text(value: object, name: str, longest: int) -> str:
    """Return a text without white space around it."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise WrongType(f'The field "{name}" holds a file. Send a text.')
    text = value.strip()
    if len(text) > longest:
        raise OutOfRange(f'The field "{name}" has {len(text):,} characters. Send at most {longest:,}.')
    return text


def _number(value: object, name: str, least: int, most: int) -> int | None:
    """Return a whole number; None for an empty field."""
    text = _text(value, name, LONGEST_NAME)
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and least <= int(text) <= most):
        raise OutOfRange(f'The field "{name}" is "{text[:20]}". Send a whole number from {least} to {most:,}.')
    return int(text)
