"""The JSON documents of the API. `silohash.service.web.api` describes what each call takes and returns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict
from typing_extensions import TypedDict

from silohash.base.errors import BitsDiffer, OneInputNeeded
from silohash.base.types import Modality, Target
from silohash.evaluate.calibration import Strength
from silohash.index.codes import byte_count
from silohash.search.composed import ABOUT_REGION, ABOUT_WEIGHT, TEXT_WEIGHT
from silohash.search.fields import MOST_FACET_VALUES, words_of
from silohash.search.filters import MOST_CONDITIONS, MOST_FACETS, conditions_of, labeled
from silohash.search.hits import Hits, SearchOptions, described
from silohash.search.released import shown_of
from silohash.search.requests import Code
from silohash.service.web.form import FARTHEST_OFFSET, LONGEST_NAME, LONGEST_TEXT, MOST_BITS, MOST_SILOS

MOST_HITS = 200
"""Most hits per page of results."""

_TEXTS = json.loads(Path(__file__).with_name("documents.json").read_text(encoding="utf-8"))
ABOUT: Mapping[str, str] = _TEXTS["about"]
"""The longer descriptions of fields, by their documents and names."""
EXAMPLES: Mapping[str, JsonDict] = _TEXTS["examples"]

Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]


Several = Annotated[list[Name], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]
"""Names, or one name."""


class Options(BaseModel):
    """What to find, and how much of it to return."""

    model_config = ConfigDict(extra="forbid")

    find: Target = Field("item", description=ABOUT["Options.find"])
    k: int = Field(10, ge=1, le=MOST_HITS, description=described("k"))
    offset: int = Field(0, ge=0, le=FARTHEST_OFFSET, description=described("offset"))
    radius_bits: int | None = Field(None, ge=0, le=MOST_BITS, description=described("radius_bits"))
    label: Several = Field(
        [], max_length=MOST_CONDITIONS, description=f"{described('label')} Several: with all of them."
    )
    where: Several = Field([], max_length=MOST_CONDITIONS, description=f"{described('where')} Several: all of them.")
    facets: Several = Field([], max_length=MOST_FACETS, description=described("facets"))
    facet_values: int = Field(10, ge=1, le=MOST_FACET_VALUES, description=described("facet_values"))
    newest_by: Name | None = Field(None, description=described("newest_by"))
    silo: list[Name] | None = Field(None, min_length=1, max_length=MOST_SILOS, description=ABOUT["Options.silo"])
    previews: bool = Field(True, description="Include the small pictures that silos release, as data URLs.")
    deadline_seconds: float | None = Field(None, description=described("deadline_seconds"))
    bar: float | None = Field(None, ge=0, le=1, description=described("bar"))
    share_words: bool = Field(False, description=described("share_words"))

    def options(self, asker: str) -> SearchOptions:
        """Return the options for a backend, with the name of the asker."""
        silos = None if self.silo is None else tuple(self.silo)
        shared = self.model_dump(include={*SearchOptions().values()} - {"label", "where"})
        where = (*conditions_of(self.where), *labeled(self.label))
        return SearchOptions(target=self.find, silos=silos, asker=asker, where=where, **shared)


class TextOptions(Options):
    """A search for words."""

    text: str | None = Field(None, min_length=1, max_length=LONGEST_TEXT, description=ABOUT["TextOptions.text"])


class SimilarOptions(Options):
    """A search for items like one item."""

    of_silo: Name = Field(description="The silo that holds the item.")
    of_id: Name = Field(description="The id of the item.")
    by: Modality | None = Field(None, description=ABOUT["SimilarOptions.by"])


class PictureOptions(Options):
    """A search for a picture, alone or together with words."""

    text: str | None = Field(None, min_length=1, max_length=LONGEST_TEXT, description="Words to search for as well.")
    text_weight: float = Field(TEXT_WEIGHT, ge=0, le=1, description=ABOUT_WEIGHT)
    region: str | None = Field(None, max_length=100, description=ABOUT_REGION, examples=["0.1,0.2,0.5,0.9"])

    drawing: bool = Field(False, description=ABOUT["PictureOptions.drawing"])


class AddressOptions(PictureOptions):
    """A search for a picture at an address."""

    address: str = Field(max_length=2000, description="Address of the picture, at a host that the service allows.")


class VectorOptions(Options):
    """A search for a feature vector."""

    of: Modality = Field("image", description="What the vector describes: an image or a text.")


class CodeDocument(BaseModel):
    """A code, as the hexadecimal digits of its bytes. Bit j is bit j % 8 of byte j // 8, counted from the lowest."""

    model_config = ConfigDict(extra="forbid")

    hex: str = Field(pattern=r"^([0-9a-f]{2})+$", max_length=MOST_BITS // 4, examples=["5f00a1c290e47b33"])
    bits: int = Field(ge=8, le=MOST_BITS, examples=[64])
    model_digest: Name = Field(examples=["dcc6263db1af9e1c24bf2c12c595fa8e"])

    def code(self) -> Code:
        """Return the code for a backend.

        Raises:
            UserError: If the number of digits does not fit the number of bits, or bits beyond the last are set.
        """
        digits = 2 * byte_count(self.bits)
        if len(self.hex) != digits:
            raise BitsDiffer(f"A code of {self.bits} bits has {digits} hexadecimal digits, not {len(self.hex)}.")
        return Code(words=words_of(self.hex, self.bits), bits=self.bits, model_digest=self.model_digest)


class SearchDocument(Options):
    """A search for words or for a code."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLES["search"]]})

    text: str | None = Field(None, min_length=1, max_length=LONGEST_TEXT, description="The words to search for.")
    code: CodeDocument | None = Field(None, description="The code to search for, in place of words.")

    def value(self) -> str | Code | None:
        """Return the words or the code; None to list items.

        Raises:
            UserError: If both are given.
        """
        if self.text is not None and self.code is not None:
            raise OneInputNeeded(
                "Search for exactly one of a text, a picture, a vector and a code; a text and a code was given."
            )
        return self.text if self.code is None else self.code.code()


class HitDocument(TypedDict):
    """One found item."""

    id: str
    silo: str
    distance_bits: Annotated[int | None, Field(description=ABOUT["HitDocument.distance_bits"])]
    score: Annotated[float | None, Field(description=ABOUT["HitDocument.score"])]
    rank: Annotated[int | None, Field(description=ABOUT["HitDocument.rank"])]
    found_by: Annotated[tuple[Modality, ...], Field(description="The sides of the item at this distance.")]
    probability: Annotated[float | None, Field(description=ABOUT["HitDocument.probability"])]
    strength: Annotated[Strength | None, Field(description=ABOUT["HitDocument.strength"])]
    matched: Annotated[tuple[str, ...], Field(description="Words of the query in its id or in a released field.")]
    caption: Annotated[str, Field(description="The text of the item; empty if its silo does not release it.")]
    labels: tuple[str, ...]
    preview: Annotated[str | None, Field(description=ABOUT["HitDocument.preview"])]
    columns: Annotated[dict[str, str], Field(description="Its values in further columns that its silo releases.")]


def _hit_documents(hits: Hits) -> list[HitDocument]:
    """Return the documents of all hits. They are made from the columns, because making a `Hit` of each takes longer."""
    none = (None,) * len(hits)
    columns = zip(
        *(hits.ids, hits.silos, hits.distances, hits.scores or none, hits.ranks or none, hits.found),
        *(hits.probabilities or none, hits.strengths or none),
        hits.matched_words,
        map(shown_of, hits.payloads),
        strict=True,
    )
    names = tuple(HitDocument.__annotations__)
    return [cast(HitDocument, dict(zip(names, (*values, *shown), strict=True))) for *values, shown in columns]


class UnreadDocument(BaseModel):
    """The end of a query that the text model did not read, because the query is too long."""

    text: str
    limit: int = Field(description="Number of words or word pieces after which the model stops.")
    unit: str = Field(description='"words" or "word pieces"; the latter include those that mark the ends of a text.')


class ResultsDocument(BaseModel):
    """The found items in order, and what is missing from the answer."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLES["results"]]})

    order: str = Field(description=ABOUT["ResultsDocument.order"])
    hits: list[HitDocument]
    silos_asked: int
    silos_answered: int
    missing_silos: dict[str, str] = Field(description="Silos that did not answer, with the reason.")
    limited_silos: dict[str, str] = Field(description="Silos that released less than requested, with the reason.")
    nothing_close: bool = Field(description="Whether it is known that no hit is close to the query.")
    by_code_only: list[str] = Field(description="Silos that did not compare the words of the text.")
    facets: dict[str, dict[str, int]] | None = Field(description=ABOUT["ResultsDocument.facets"])
    ties_at_cut: int = Field(description="Number of further items at the place of the last hit.")
    unknown_words: list[str] = Field(description="Words that carry no weight.")
    excluded_words: list[str] = Field(description="Words whose items are left out by the silos that compare words.")
    unread: UnreadDocument | None = Field(description="The end of a query that is longer than the text model reads.")
    model_digests: list[str] = Field(description="The models whose codes were compared.")

    @classmethod
    def of(cls, hits: Hits, *, asked: int) -> ResultsDocument:
        """Return the document of a result of ``asked`` silos. Its values are not checked again, which would take longer."""
        return cls.model_construct(
            order=hits.order, hits=_hit_documents(hits), silos_asked=asked,
            silos_answered=asked - len(hits.missing_silos), missing_silos=dict(hits.missing_silos),
            limited_silos=dict(hits.limited_silos), nothing_close=hits.nothing_close,
            by_code_only=list(hits.by_code_only),
            facets=None if hits.facets is None else {name: dict(counts) for name, counts in hits.facets.items()},
            ties_at_cut=hits.ties_at_cut, unknown_words=list(hits.unknown_words),
            excluded_words=list(hits.excluded_words),
            unread=None if hits.unread is None else UnreadDocument.model_construct(**asdict(hits.unread)),
            model_digests=sorted(hits.model_digests),
        )  # fmt: skip


class ItemDocument(BaseModel):
    """What a silo releases of one item."""

    model_config = ConfigDict(from_attributes=True, json_schema_extra={"examples": [EXAMPLES["item"]]})

    id: str
    silo: str
    modalities: list[Modality] = Field(description="The modalities of which the silo has a code of the item.")
    caption: str
    labels: list[str]
    preview: str | None = Field(validation_alias="preview_url")
    columns: dict[str, str] = Field(description="Its values in further columns that its silo releases.")


class SiloDocument(BaseModel):
    """The state of one silo."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    reachable: bool
    reason: str = Field(description="Why it cannot be searched, or only in part; empty if it can.")
    items: dict[Modality, int] = Field(description="Number of codes per modality.")
    model_digest: str
    version: str = Field(description="Version of silohash at the silo; empty if it is not known.")
    releases: list[str] = Field(description="The fields of an item that the silo releases.", validation_alias="fields")
    about: dict[str, str] = Field(description="What it tells of all items: url (with {id}), rights and contact.")


class StatusDocument(BaseModel):
    """The state of the federation."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    archive: str
    bits: int = Field(description="Code length.")
    inputs: list[Modality] = Field(description="What can be searched with: texts, and pictures.")
    vectors: list[Modality] = Field(description="What can be searched with by its feature vector.")
    silos: list[SiloDocument]
    rounds: Annotated[int, BeforeValidator(len)] = Field(description="Number of training rounds on record.")


class HealthDocument(BaseModel):
    """The state of the process."""

    status: Literal["ok"] = "ok"


class ReadyDocument(BaseModel):
    """Whether searches can be answered."""

    status: Literal["ready", "no silo answers"]
    silos: list[str] | None = Field(default=None, description=ABOUT["ReadyDocument.silos"])
    missing_silos: dict[str, str] | None = Field(default=None, description=ABOUT["ReadyDocument.missing_silos"])


class ErrorPart(BaseModel):
    """What went wrong."""

    status: int = Field(examples=[404])
    code: str = Field(examples=["not_found"], description="A stable name of the kind of error.")
    message: str = Field(examples=['There is no silo "east". Choose from: north, south.'])
    key: str | None = Field(None, examples=["not-found"], description="The key of the error, which is more exact.")


class ErrorDocument(BaseModel):
    """The document of every error."""

    error: ErrorPart
