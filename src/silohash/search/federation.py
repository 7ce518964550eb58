"""Search a federation: encode a query once per model, ask all silos over the bus, and merge their answers.

A silo that is absent, late, refuses, or sends something that cannot be used is listed in ``missing_silos`` with the reason.
The others are searched without it.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from silohash.base.errors import EmptyInput, NotFound, OutOfRange, Unavailable, UnknownWords, UserError
from silohash.base.types import Modality, Target, Task
from silohash.evaluate.calibration import Calibration
from silohash.features.text import BagOfWords
from silohash.features.truncation import Unread, unread_end
from silohash.index.codes import word_count, word_type
from silohash.index.source import find_file
from silohash.search import requests
from silohash.search.bus import Bus, answers_to
from silohash.search.composed import Composed, parsed_text, parts_of
from silohash.search.fields import MOST_CHARACTERS
from silohash.search.hits import Hits, Query, SearchOptions, changed
from silohash.search.merge import ask, ask_newest
from silohash.search.policy import MEASURED, Source
from silohash.search.reasons import Reason
from silohash.search.unknown_words import query_words

if TYPE_CHECKING:
    from silohash.features.base import Value
    from silohash.run.folder import Run

DEADLINE_SECONDS = 10.0

WITHOUT_WORDS = Reason("It does not compare words, and the model does not know any word of the text.", "no_code")
NO_ITEM = "No item that was searched has all of its words in its id, or in what its silo releases."


@dataclass(frozen=True)
class Encoded:
    """The codes of a query.

    Attributes:
        codes: Maps each silo to the code with which it is searched.
        missing: Maps each silo without a code to the reason.
        unknown_words: Words of the query that do not occur in any training text.
        unread: The end of the query that the text model did not read; None if it read all of it.
        known: Share of the query that the model knows, from 0 to 1.
        modality: What the query is, to know how sure hits are; None if that is not known, as for a picture with words.
        scored: Modality of the items that silos score, the other one than that of the query; None to compare codes only.
        content: What silos of other machines score with, as in `Query`.
        nodes: Maps each silo of this process to what it scores with, as in `Query`.
        source: What the codes were made from, as in `Query`.
        text: The text of the query as it was typed; None if it does not have one.
        unencoded: Why the model cannot encode the text, so that silos find it by the words of their items alone and
            the codes only name the models. None if it can.
    """

    codes: Mapping[str, requests.Code]
    missing: Mapping[str, str] = field(default_factory=dict)
    unknown_words: tuple[str, ...] = ()
    unread: Unread | None = None
    known: float = 1.0
    modality: Modality | None = None
    scored: Modality | None = None
    content: np.ndarray | None = None
    nodes: Mapping[str, Mapping[str, np.ndarray] | None] = field(default_factory=dict)
    source: Source | None = None
    text: str | None = None
    unencoded: UnknownWords | None = None

    def texts(self, *, here: bool, sent: bool) -> dict[str, Any]:
        """Return the texts of the query to a silo, which is in this process, or on another machine and sent the text."""
        short = None if self.text is None else self.text[:MOST_CHARACTERS]
        return {"own_text": self.text if here else None, "text": short if sent else None}

    def without_words(self, worded: Collection[str], *, here: bool) -> set[str]:
        """Return the silos that do not compare the words of a text, because they are not sent it."""
        return set() if here or self.text is None else {*self.codes} - {*worded}

    def only_with_words(self, silos: Collection[str]) -> Encoded:
        """Return a query that no code stands for, without silos that are not sent its words."""
        codes = {silo: code for silo, code in self.codes.items() if silo not in silos}
        return replace(self, codes=codes, missing={**self.missing, **dict.fromkeys(silos, WITHOUT_WORDS)})


Encode: TypeAlias = Callable[[], Encoded]


class Federation:
    """Search the silos of a federation with the model of a run.

    Subclasses know the silos: `silohash.search.silos.RunSearch` those of this process, and
    `silohash.service.backends.HubBackend` those of other machines.

    Attributes:
        run: The run.
        bus: The bus to the silos.
        silos: Names of the silos.
        folders: Folders on this machine in which the picture files of each silo may lie.
        deadline_limits: The shortest and the longest deadline, in seconds, that a search may have of its own.
        silos_are_here: Whether the silos are in this process, so that words of queries do not leave it.
    """

    folders: Mapping[str, tuple[Path, ...]]
    deadline_limits = (0.1, 60.0)
    silos_are_here = False

    def __init__(self, run: Run, silos: Iterable[str], bus: Bus, *, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        """Search with the model of a run, whose indexes are not needed.

        The answers to one request are awaited for ``deadline_seconds``, unless it has a deadline of its own.
        """
        self.run, self.bus, self.silos, self.folders = run, bus, tuple(sorted(silos)), {}
        self._deadline_seconds = deadline_seconds
        self._encoder = cache(lambda name: self.run.model.encoder(name))  # loading one takes longer than encoding
        self._secret = secrets.token_bytes(32)

    async def search(self, request: requests.SearchRequest) -> Hits:
        """Return the nearest items of the silos. If silos use different models, each is searched with a code of its own.

        Silos that do not answer are listed in ``missing_silos`` with the reason. If the model scores pairs, each silo scores
        the items that it finds by their codes. A text then finds pictures, and a picture texts, unless another target is
        wished for, which is found by codes. If nothing is searched for, the items that pass the filters are listed.

        Raises:
            NotFound: If a silo in ``request.silos`` does not exist.
            OutOfRange: If the deadline is beyond the limits.
            UnknownWords: If no training text held any word of the text, and no item with all of its words is found.
            UserError: If the request cannot be encoded.
        """
        silos, deadline = self._chosen(request.silos), self._deadline(request)
        if request.value is None:
            browse = requests.Browse(**request.values(), request_id=self._request_id())
            return replace(await ask_newest(self.bus, silos, browse, deadline_seconds=deadline), folders=self.folders)
        if isinstance(request.value, requests.Code):
            encoded = Encoded(dict.fromkeys(silos, request.value), modality=request.value.modality, source="code")
            return await self._found(encoded, request, deadline)
        encode = partial(self._encode, request.value, request.modality, silos, request.target)
        return await self._found(await self._run_encoding(encode, request.modality), request, deadline)

    async def similar(self, silo: str, name: str, options: SearchOptions, by: Modality | None = None) -> Hits:
        """Return the items nearest to an item of a silo, without the item itself.

        The code of the modality ``by`` is searched for; by default that of the picture, if the item has one. Only the silo
        of the item learns who asks. All silos get the code with a pseudonym, for their limits, which changes when this
        process is started again.

        Raises:
            NotFound: If there is no such silo or item, or the item does not have the code.
            OutOfRange: If the deadline is beyond the limits.
            Unavailable: If the silo does not answer.
        """
        silos, end = self._chosen(options.silos), time.monotonic() + self._deadline(options)
        request = requests.CodeRequest(name, by, options.asker, self._request_id(), self._digest_for(silo))
        code = await self._answer(silo, request, _left(end))
        assert isinstance(code, requests.Code)  # noqa: S101  the bus checks it
        digest = hashlib.blake2b(options.asker.encode(), key=self._secret, digest_size=8)
        pseudonym = f"pseudonym-{digest.hexdigest()}" if options.asker else ""
        page = partial(without_item, silo=silo, name=name, offset=options.offset, k=options.k)
        progress = options.progress
        told = None if progress is None else lambda hits: progress(page(hits))
        wider = replace(options, offset=0, k=options.reach + 1, asker=pseudonym, progress=told)
        encoded = Encoded(dict.fromkeys(silos, code), modality=code.modality, source="item")
        return page(await self._found(encoded, wider, _left(end)))

    async def item(self, silo: str, name: str, *, asker: str = "") -> requests.Item:
        """Return what a silo releases of one item to an account or program, for its limits and its audit log.

        Raises:
            NotFound: If there is no such silo or item.
            Unavailable: If the silo does not answer.
        """
        item = await self._answer(silo, requests.ItemRequest(name, asker, self._request_id()), self._deadline_seconds)
        assert isinstance(item, requests.Item)  # noqa: S101  the bus checks it
        return self._placed(item)

    async def status(self) -> requests.FederationStatus:
        """Return the state of the federation. A silo that does not answer is listed with the reason."""
        return self._described(await self._summaries(self.silos, self._deadline_seconds))

    def _captions(self) -> Iterable[str]:
        """Return captions to take known words from, if no word of a query is known."""
        return ()

    def _digests(self, silo: str) -> Sequence[str]:
        """Return the digests of the models with which a silo can be searched, as far as they are known."""
        return ()

    def _request_id(self) -> str:
        """Return the id of the request that is being answered, for the logs of silos."""
        return ""

    def _with_scoring(self, encoded: Encoded, value: Value, modality: Modality) -> Encoded:
        """Return a query with what its silos score their items with."""
        return encoded

    async def _run_encoding(self, encode: Encode, modality: Modality) -> Encoded:
        """Encode a query of a modality."""
        return encode()

    async def _refusals(self, encoded: Encoded, deadline: float) -> Mapping[str, str]:
        """Return the silos that are not sent what they would score their items with, with the reasons."""
        return {}

    async def _sent_words(self, encoded: Encoded, options: SearchOptions, deadline: float) -> frozenset[str]:
        """Return the silos of other machines that are sent the text of a query."""
        return frozenset()

    async def _summaries(self, silos: Sequence[str], deadline: float) -> tuple[requests.SiloStatus, ...]:
        """Ask silos for their summaries, and return these in the same order."""
        request = requests.StatusRequest(self._request_id())
        replies = await answers_to(self.bus, dict.fromkeys(silos, request), deadline)
        found = []
        for silo in silos:
            answer = replies.answers.get(silo)
            if isinstance(answer, requests.SiloStatus):
                found.append(replace(answer, examples=tuple(map(self._placed, answer.examples))))
            else:
                reason = answer.reason if isinstance(answer, requests.Refusal) else replies.reasons[silo]
                found.append(requests.SiloStatus(name=silo, reason=reason, reachable=False))
        return tuple(found)

    def _described(self, silos: tuple[requests.SiloStatus, ...]) -> requests.FederationStatus:
        """Return the state of the federation with the summaries of its silos."""
        record, model = self.run.model.record.config, self.run.model
        data = record["data"]
        return requests.FederationStatus(
            name=self.run.name, silos=silos, bits=model.bits, inputs=model.modalities_of_queries(vectors=False),
            vectors=model.modalities_of_queries(vectors=True),
            archive=str(data.get("name") or data.get("path") or "").rpartition("/")[2],
            local_method=record["local"]["name"], federated_method=record["federated"]["name"],
            rounds=tuple(self.run.rounds()), chosen_round=model.record.round, codes=model.record.codes,
        )  # fmt: skip

    def _placed(self, item: requests.Item) -> requests.Item:
        """Return an item with the path of its picture file, if that lies on this machine."""
        folders = self.folders.get(item.silo, ())
        return replace(item, path=find_file(folders, item.payload.get("file"))) if folders else item

    def _chosen(self, silos: Sequence[str] | None) -> tuple[str, ...]:
        check_silos(silos, self.silos)
        return tuple(silo for silo in self.silos if silos is None or silo in silos)

    def _encode(self, value: Value | Composed, modality: Modality, silos: Sequence[str], target: Target) -> Encoded:
        """Return a query with its code for each silo. It is encoded once per model."""
        scores_pairs = self.run.model.record.spec.scores_pairs
        values, text, weight = parts_of(value, modality, scores_pairs=scores_pairs)
        [*first, modality] = values
        asked, featurizer = values[modality], self.run.model.featurizers.get(modality)

        @cache
        def encoded_by(name: str) -> requests.Code:
            """Return the code by a model."""
            found = self._encoder(name).encode_all(values, weight)
            magnitudes = None if found.magnitudes is None else found.magnitudes[0]
            return requests.Code(
                words=found.words[0], bits=found.bits, model_digest=found.model_digest, magnitudes=magnitudes
            )

        try:
            unknown = query_words(featurizer, asked, self._captions)
            codes, missing = self._codes(silos, encoded_by)
        except UnknownWords as error:
            codes, missing = self._codes(silos, self._nothing_for)
            words = featurizer.query_words(asked).unknown if isinstance(featurizer, BagOfWords) else ()
            if isinstance(value, Composed):
                shown = self._encode(value.picture, "image", silos, target)
                return replace(shown, unknown_words=words, modality=None, text=text)
            return Encoded(codes, missing, words, known=0.0, modality="text", source="text", text=text, unencoded=error)
        source: Source = "text" if isinstance(value, str) else "vector" if isinstance(value, np.ndarray) else "picture"
        known = featurizer.known_share(asked) if isinstance(featurizer, BagOfWords) else 1.0
        judged, unread = None if first else modality, unread_end(featurizer, asked)
        encoded = Encoded(codes, missing, unknown, unread, known, judged, source=source, text=text)
        if not scores_pairs or target == modality:
            return encoded
        scored: Modality = "image" if modality == "text" else "text"
        return self._with_scoring(replace(encoded, scored=scored), asked, modality)

    def _codes(
        self, silos: Sequence[str], code_of: Callable[[str], requests.Code]
    ) -> tuple[dict[str, requests.Code], dict[str, str]]:
        """Return the code for each silo, given that of each model by its name, and the reasons for silos without a model."""
        codes: dict[str, requests.Code] = {}
        missing: dict[str, str] = {}
        for silo in silos:
            try:
                name = self._model_of(silo)
            except UserError as error:
                missing[silo] = Reason(str(error), "no_code")
            else:
                codes[silo] = code_of(name)
        return codes, missing

    def _nothing_for(self, name: str) -> requests.Code:
        """Return a code of a model that stands for nothing."""
        bits = self.run.model.bits
        words = np.zeros(word_count(bits), word_type(bits))
        return requests.Code(words=words, bits=bits, model_digest=self.run.model.digest(name))

    def _calibration(self, encoded: Encoded, options: SearchOptions) -> Calibration | None:
        """Return what distances say about the hits of a search; None if that is not known, or scores order the hits."""
        if encoded.modality is None or encoded.scored is not None:
            return None
        task = f"{encoded.modality[0]}2{options.target if options.target == 'item' else options.target[0]}"
        return self.run.model.record.calibration.get(cast(Task, task))

    def _model_of(self, silo: str) -> str:
        """Return the name of the model that searches a silo: its personal model, or the one that built its index."""
        model = self.run.model
        if not model.personalized or silo in model.names or not (digests := self._digests(silo)):
            return model.deployed_by(silo)
        for digest in digests:
            with suppress(UserError):
                return model.name_of(digest)
        return model.name_of(digests[0])

    def _digest_for(self, silo: str) -> str:
        """Return the digest of the model with which a silo is searched; empty if it is not known."""
        try:
            return self.run.model.digest(self._model_of(silo)) if silo in self.silos else ""
        except UserError:
            return ""

    def _deadline(self, options: SearchOptions) -> float:
        """Return the deadline of a search in seconds, after checking it."""
        seconds, (least, most) = options.deadline_seconds, self.deadline_limits
        if seconds is None:
            return self._deadline_seconds
        if not isinstance(seconds, float | int) or not least <= seconds <= most:
            raise OutOfRange(f"The deadline is {seconds!r} seconds. Choose {least:g} to {most:g} seconds.")
        return seconds

    async def _answer(
        self, silo: str, request: requests.CodeRequest | requests.ItemRequest, deadline: float
    ) -> requests.Answer:
        """Return the answer of one silo."""
        check_silos((silo,), self.silos)
        replies = await answers_to(self.bus, {silo: request}, deadline)
        answer = replies.answers.get(silo)
        if isinstance(answer, requests.Refusal) and answer.not_found:
            raise NotFound(answer.reason)
        if answer is None or isinstance(answer, requests.Refusal):
            reason = replies.reasons[silo] if answer is None else answer.reason
            raise Unavailable(f"The silo {silo} cannot be searched: {reason}")
        return answer

    async def _found(self, encoded: Encoded, options: SearchOptions, deadline: float) -> Hits:
        """Send a query to all silos that have a code, and return the requested page of the merged answers."""
        end = time.monotonic() + deadline
        # Half of the time is left for the search, if a silo does not state whether it accepts more than a code.
        refusals = await self._refusals(encoded, deadline / 2)
        worded = await self._sent_words(encoded, options, deadline / 4)
        by_code_only = encoded.without_words(worded, here=self.silos_are_here)
        if encoded.unencoded is not None:
            encoded, by_code_only = encoded.only_with_words(by_code_only), set()
            options = replace(options, radius_bits=None)
        judge = partial(
            Hits.judged, calibration=self._calibration(encoded, options), known=encoded.known, bar=options.bar
        )
        told, progress = partial(_told, encoded, refusals, by_code_only, self.folders, judge), options.progress
        if progress is not None:
            options = replace(options, progress=lambda hits: progress(told(hits)))
        queries = self._queries(encoded, options, set(refusals), worded)
        left = deadline if encoded.content is None and not worded else _left(end)
        hits = told(await ask(self.bus, queries, deadline_seconds=left))
        if encoded.unencoded is not None and not (hits or options.offset) and (hits.answered or not queries):
            raise UnknownWords(
                f"{encoded.unencoded} {NO_ITEM if queries else 'No silo compares the words of the text.'}"
            )
        return hits

    def _queries(
        self, encoded: Encoded, options: SearchOptions, compare_codes: Collection[str], worded: Collection[str]
    ) -> dict[str, Query]:
        """Return the query of each silo. Those with the same one share the object, and so its encoding as a message."""
        scoring = set(encoded.codes).difference(compare_codes) if encoded.scored else set()
        values = {**options.values(), "request_id": self._request_id(), "source": encoded.source}
        if scoring:
            # A silo that compares codes finds what the others score, so that the answers can be merged.
            values["target"] = encoded.scored
        distinct: dict[tuple[int, bool, bool], Query] = {}
        queries: dict[str, Query] = {}
        for silo, code in encoded.codes.items():
            which = id(code), silo in scoring, silo in worded
            if which not in distinct:
                distinct[which] = Query(
                    words=code.words,
                    bits=code.bits,
                    model_digest=code.model_digest,
                    magnitudes=code.magnitudes if encoded.source in MEASURED else None,
                    content=encoded.content if silo in scoring else None,
                    nodes=encoded.nodes.get(silo),
                    **(encoded.texts(here=self.silos_are_here, sent=silo in worded) | values),
                )
            queries[silo] = distinct[which]
        return queries


def _told(
    encoded: Encoded,
    refusals: Mapping[str, str],
    by_code_only: Collection[str],
    folders: Mapping[str, tuple[Path, ...]],
    judge: Callable[[Hits], Hits],
    hits: Hits,
) -> Hits:
    """Return merged answers with what is known of the query, of its silos and of how sure the hits are."""
    stated = {
        silo: " ".join(filter(None, (hits.limited_silos.get(silo), reason)))
        for silo, reason in refusals.items()
        if silo not in hits.missing_silos
    }
    text, excluded = parsed_text(encoded.text or "")
    return changed(
        judge(hits) if encoded.unencoded is None else judge(hits).by_words(),
        missing_silos=dict(sorted({**hits.missing_silos, **encoded.missing}.items())),
        limited_silos=dict(sorted({**hits.limited_silos, **stated}.items())),
        unknown_words=encoded.unknown_words,
        unread=encoded.unread,
        folders=folders,
        text=text,
        excluded_words=excluded,
        by_code_only=tuple(sorted({*by_code_only} - hits.missing_silos.keys())),
    )


def _left(end: float) -> float:
    """Return the number of seconds until a value of the monotonic clock, at least 0."""
    return max(0.0, end - time.monotonic())


def check_silos(wanted: Collection[str] | None, known: Sequence[str]) -> None:
    """Check that the silos of a filter exist; None stands for all.

    Raises:
        NotFound: If one does not exist.
        UserError: If none is wanted.
    """
    for name in wanted or ():
        if name not in known:
            raise NotFound(f'There is no silo "{name}". Choose from: {", ".join(known)}.')
    if wanted is not None and not wanted:
        raise EmptyInput(f"No silo is selected. Choose from: {', '.join(known)}.")


def without_item(hits: Hits, silo: str, name: str, *, offset: int, k: int) -> Hits:
    """Return a page of hits without one item, out of at least the nearest ``offset + k + 1`` hits."""
    others = [place for place, hit in enumerate(zip(hits.silos, hits.ids, strict=True)) if hit != (silo, name)]
    kept = hits.taken(others[offset : offset + k])
    left_out = Counter(hits.left_out)
    left_out.update(int(hits.places[place]) for place in others[offset + k :])
    last = kept.places[-1] if kept.places else -1
    return replace(kept, left_out={place: count for place, count in sorted(left_out.items()) if place <= last})
