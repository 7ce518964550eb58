"""How many requests it takes to put the codes of a silo's items together from its answers, under each setting of a policy.

    python benchmarks/code_recovery.py [--run RUN] [--requests N] [--both [TEXT]] [--smoke]

The attacker has an ordinary token and the model, begins with the code of a text, and wants the codes of the ten
pictures of one silo that are nearest to it. Requests are codes of the attacker's choice. If a policy accepts texts and
pictures only, the attacker is assumed to make a text or a picture for each code, as whoever has the model may be able
to (the worst case). Four attacks are run against every setting:

- items like an item: searches for items like each target. The other silos, whose codes are known, tell their distances to
  its code, from which it is solved as a linear system. Only a policy with `similar = false` prevents this;
- bit by bit: inverts one bit of the query after the other, and compares each answer with the first one;
- at the edge: changes the query until the answer changes, so that an item is at the edge of a step, and inverts single
  bits there; requests are counted per item;
- spread: asks with random changes of several bits, and fits the codes to all answers (ridge regression). It averages
  any noise that differs from query to query, and its queries are not near each other if they differ in enough bits.

Where a silo does not release distances, attacks compare places, and are then repeated by an attacker who knows the
codes of all other items of the silo, between which the place of an item limits its distance. Each attack weighs what it
found against the first guess, given the noise, and against the exact codes of all other silos, which the attacker is
assumed to know as well. Of these guesses the best one is counted. If queries that are near each other are limited,
attacks are run once with one account, and once with a new account whenever a budget is spent.

With --both, each setting is attacked a second time, with all that a query can hold besides its code. Every request has a
word that the ten items have, and no other item of the silo, so that they are found however far their codes are from that of
the request. If the text has another word, too, as in --both "lighthouse meadow", their word could only order items at the
same distance. Requests also have magnitudes, by which the silo orders equals and compares the outputs of its items. Three
more attacks are then run:

- spread over half of the bits: the items are found by their word, so that their codes may be far from that of the request;
- by order values: a dishonest hub sends powers of two as the magnitudes of eight bits. The order value of an item, which its
  silo tells hubs, is the sum of those in which its code differs;
- by the order of hits: an account of an honest hub inverts one bit, and makes a text or a picture whose outputs are zero in
  all bits but another one. Distances tell the first bit, and places between items with known codes the second one.

Printed is the number of requests after which all is known that answers can tell of the ten codes, and the share of bits
of the exact codes that is then right, or else after the last request. With noise, answers tell the codes with their
noise, and more requests tell nothing more. Usefulness is measured with the run's own queries to all silos: the overlap of
the first 10 hits with those without a policy, the mean average precision of the first 20 hits, and the share of queries
that is refused if one account asks all of them.

Without --run, the demo is trained first, in about two minutes on two cores. The attacks take about a quarter of an hour.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from silohash.api.runs import TrainedRun, open_run, train
from silohash.base import seeds
from silohash.base.analysis import Analysis
from silohash.index.base import IndexManifest
from silohash.index.codes import Words, from_bytes, unpack
from silohash.index.listing import index_files
from silohash.index.store import Store
from silohash.search.bus import LocalBus, now
from silohash.search.hits import Hits, Query
from silohash.search.ledger import Ledger
from silohash.search.merge import ask
from silohash.search.node import SiloNode
from silohash.search.policy import Policy

Bits = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

TODAY_REQUESTS = 163
"""Requests by which an ordinary token recovered all codes that it was shown, without any of these settings."""

BITS = 160
TARGETS = 10
STARTS = 3
MOST_HITS = 200
WORD = "lighthouse"
FARTHEST_OFFSET = 1_000
"""Most hits of a request to the API, and the number of hits up to which an attack asks for further pages."""

WEIGHTS = (40, 16, 64, 6)
"""Numbers of bits by which the queries of the attack "spread" differ from the first one."""

QUERIES = 300
"""Queries of the measure of usefulness."""

GRID = 1.15
"""Factor between two numbers of requests after which an attack looks whether it knows the codes."""

STRICT: Mapping[str, Any] = {"rank_only": True, "accept_codes": False, "similar": False, "max_results": 20}
NEAR: Mapping[str, Any] = {"max_near_queries": 40, "near_bits": 64}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "similar = false": {"similar": False},
    "distance_step_bits = 8": {"similar": False, "distance_step_bits": 8},
    "max_near_queries = 40, near_bits = 64": {"similar": False, **NEAR},
    "rank_only": {"rank_only": True},
    "rank_only, distance_step_bits = 8": {"rank_only": True, "distance_step_bits": 8},
    "code_noise = 0.1": {"similar": False, "code_noise": 0.1},
    "code_noise = 0.2": {"similar": False, "code_noise": 0.2},
    "rank_only, code_noise = 0.1": {"rank_only": True, "code_noise": 0.1},
    "strict, without noise": {**STRICT, **NEAR},
    "strict": {**STRICT, **NEAR, "code_noise": 0.1},
}


class Silo:
    """The silo under attack, as the attacker sees it, and what it hides.

    Attributes:
        hidden: ``(N, B)`` exact bits of its pictures.
        answered_with: ``(N, B)`` bits with which it answers, which differ by the noise.
        others: ``(M, B)`` exact bits of the pictures of other silos.
        place_of: Maps the id of a picture to its row.
        asked: Number of requests.
        answered: Number of requests that were not refused.
    """

    def __init__(self, node: SiloNode, exact: Mapping[str, Bits], *, accounts: bool, text: str | None) -> None:
        """Attack a node from one account, or from a new one whenever the budget of the last one is spent.

        Every request also holds ``text`` and magnitudes, unless it is None.
        """
        loaded = node.loaded("image")
        self.node, self.hidden = node, exact[node.name]
        self.answered_with = bits_of(
            np.stack([loaded.words(name) for name in loaded.store.item_ids(loaded.index.keys)])
        )
        self.others = np.concatenate([bits for name, bits in exact.items() if name != node.name])
        self.place_of = {name: place for place, name in enumerate(loaded.store.item_ids(loaded.index.keys))}
        self.asked = self.answered = 0
        self._budget = node.policy.max_near_queries if accounts else None
        self._asked: dict[str, Any] = {"target": "image", "k": MOST_HITS}
        if text:
            magnitudes = seeds.numpy_generator(0, "magnitudes").integers(0, 256, BITS)
            self._asked |= {"own_text": text, "magnitudes": magnitudes.astype(np.uint8)}

    def ask(self, code: Bits, **options: Any) -> Hits | None:  # noqa: ANN401  options of a query
        """Return the answer to a code; None if it is refused."""
        return self._answer(code, self.node.answer, options)

    def ask_hub(self, code: Bits, **options: Any) -> Hits | None:  # noqa: ANN401  options of a query
        """Return what an honest hub makes of the answer, which is what an account sees; None if it is refused."""

        def merged(query: Query) -> Hits:
            """Return the answer of the hub."""
            return now(ask(LocalBus([self.node]), {self.node.name: query}, deadline_seconds=60))

        return self._answer(code, merged, options)

    def _answer(self, code: Bits, answer: Callable[[Query], Hits], options: Mapping[str, Any]) -> Hits | None:
        self.asked += 1
        account = 0 if self._budget is None else self.answered // self._budget
        asked = {**self._asked, "asker": f"mallory-{account}", **options}
        found = answer(query_of(code, self.node.model_digest, **asked))
        if found.missing_silos:
            return None
        self.answered += 1
        return found


def query_of(code: Bits, model_digest: str, **options: Any) -> Query:  # noqa: ANN401
    """Return a query with a code, ``(B,)``, that pretends to be a text."""
    words = from_bytes(np.packbits(code[None], axis=1, bitorder="little"), len(code))[0]
    return Query(words=words, bits=len(code), model_digest=model_digest, source="text", **options)


def bits_of(words: Words) -> Bits:
    """Return codes of ``BITS`` bits as ``(N, B)`` bits."""
    return np.asarray(unpack(words, BITS) > 0)


def observed(silo: Silo, hits: Hits, code: Bits, targets: Sequence[int], *, knows_others: bool) -> Floats:
    """Return what an answer tells of the distances of targets, ``(T,)``; NaN where it tells nothing.

    Without distances these are places. If the attacker knows all other codes, they are limits of distances.
    """
    found = np.full(len(targets), np.nan)
    places = {silo.place_of[name]: place for place, name in enumerate(hits.ids)}
    if hits.has_distances:
        for row, target in enumerate(targets):
            if target in places:
                found[row] = hits.known_distances[places[target]]
        return found
    if not knows_others:
        for row, target in enumerate(targets):
            found[row] = places.get(target, len(hits))
        return found
    wanted = set(targets)
    order = [silo.place_of[name] for name in hits.ids]
    near = (silo.answered_with[order] != code).sum(1)
    known = np.array([item not in wanted for item in order], bool)
    for row, target in enumerate(targets):
        place = places.get(target, len(order))
        before, after = near[:place][known[:place]], near[place + 1 :][known[place + 1 :]]
        low = before.max() if len(before) else np.nan
        high = after.min() if len(after) else np.nan
        found[row] = np.nanmean([low, high]) if len(before) + len(after) else np.nan
    return found


@dataclass
class Finding:
    """What an attack found.

    Attributes:
        requests: Number of requests after which all that answers can tell of the targets is known: the codes with which the
            silo answers, which are the exact ones unless there is noise. None if it is not known.
        share: Share of the bits of the exact codes that are right at the end.
        answered: Number of requests that the silo answered.
    """

    requests: int | None
    share: float
    answered: int


def evidence(change: Floats, error: Floats | float, share: float) -> Floats:
    """Return log-odds that bits of the first guess are right, from changes of distances by their inversion.

    A change is +1 if the bit was right, and -1 if not, with a normal error. Noise inverts a share of the bits.
    """
    seen = np.clip(2 * change / np.square(error), -60, 60)
    return np.asarray(np.log((1 - share) * np.exp(seen) + share) - np.log(share * np.exp(seen) + (1 - share)))


def bit_by_bit(silo: Silo, start: Bits, targets: Sequence[int], share: float, _: int, *, knows_others: bool) -> Finding:
    """Invert one bit after the other."""
    first = silo.ask(start)
    base = np.full(len(targets), np.nan)
    if first is not None:
        base = observed(silo, first, start, targets, knows_others=knows_others)
    changes = np.zeros((len(targets), len(start)))
    for bit in range(len(start)):
        code = start.copy()
        code[bit] ^= True
        hits = silo.ask(code)
        if hits is not None:
            changes[:, bit] = np.nan_to_num(observed(silo, hits, code, targets, knows_others=knows_others) - base)
    guesses = concluded(silo, start, targets, evidence(changes, 0.5, share), share)
    return finding(silo, guesses, targets, len(start) + 1)


def at_the_edge(
    silo: Silo, start: Bits, targets: Sequence[int], share: float, _: int, *, knows_others: bool
) -> Finding:
    """Bring each target to the edge of a step, and invert single bits there. Requests are counted per target."""
    changes, asked = np.zeros((len(targets), len(start))), []
    for row, target in enumerate(targets):
        began = silo.asked

        def seen(code: Bits, target: int = target) -> float:
            """Return what an answer tells of the target; infinity if it is not among the hits."""
            hits = silo.ask(code)
            if hits is None:
                return np.nan
            return float(np.nan_to_num(observed(silo, hits, code, [target], knows_others=knows_others)[0], nan=1e3))

        code = start.copy()
        before = seen(code)
        for bit in seeds.numpy_generator(row, "edge").permutation(len(start)):
            last = code.copy()
            code[bit] ^= True
            value = seen(code)
            if value != before:
                break
        up = value > before
        base_code, base = (last, before) if up else (code, value)
        for bit in range(len(start)):
            tried = base_code.copy()
            tried[bit] ^= True
            # At the upper edge of a step, only the inversion of a right bit leaves it.
            right = seen(tried) > base
            changes[row, bit] = 1.0 if right == (base_code[bit] == start[bit]) else -1.0
        asked.append(silo.asked - began)
    guesses = concluded(silo, start, targets, evidence(changes, 0.5, share), share)
    return finding(silo, guesses, targets, int(np.mean(asked)))


class Sums:
    """The sums of a linear regression of what answers tell of each target on the bits that were inverted."""

    def __init__(self, targets: int, bits: int) -> None:
        """Begin without answers."""
        self.gram, self.moments = np.zeros((targets, bits + 1, bits + 1)), np.zeros((targets, bits + 1))
        self.squares, self.numbers = np.zeros(targets), np.zeros(targets)
        self._new: list[tuple[Floats, Floats]] = []

    def add(self, flips: Floats, values: Floats) -> None:
        """Add an answer, ``(T,)``, which tells nothing of targets with NaN."""
        self._new.append((flips, values))

    def _join(self) -> None:
        """Add up the new answers, which is faster for many at once."""
        if not self._new:
            return
        flips, values = (np.stack(part) for part in zip(*self._new, strict=True))
        self._new.clear()
        for row, column in enumerate(values.T):
            told = ~np.isnan(column)
            self.gram[row] += flips[told].T @ flips[told]
            self.moments[row] += column[told] @ flips[told]
            self.squares[row] += column[told] @ column[told]
            self.numbers[row] += told.sum()

    def odds(self, share: float) -> Floats:
        """Return log-odds that the bits of the first guess are right, ``(T, B)``, see `evidence`."""
        self._join()
        bits = self.gram.shape[1] - 1
        odds = np.zeros((len(self.gram), bits))
        for row in np.flatnonzero(self.numbers > 1):
            inverse = np.linalg.inv(self.gram[row] + 1e-2 * np.eye(bits + 1))
            fit = inverse @ self.moments[row]
            residual = max(self.squares[row] - fit @ self.moments[row], 1e-3) / max(self.numbers[row] - bits - 1, 1.0)
            scale = max(float(np.median(np.abs(fit[:bits]))), 1e-6)
            error = np.sqrt(residual * np.diag(inverse)[:bits]) / scale
            odds[row] = evidence(fit[:bits] / scale, np.maximum(error, 1e-3), share)
        return odds


def spread(silo: Silo, start: Bits, targets: Sequence[int], share: float, most: int, *, weight: int) -> Finding:
    """Fit the codes to the answers to random changes of about ``weight`` bits, again and again until they are known.

    Without distances, this is done twice, with and without the knowledge of all other codes.
    """
    generator, bits = seeds.numpy_generator(weight, "spread"), len(start)
    sums = {knows: Sums(len(targets), bits) for knows in (False, True)[: 1 + silo.node.policy.rank_only]}
    look, looked, found = bits // 2, -1, Finding(None, 0.0, 0)
    for request in range(1, most + 1):
        flips = np.append(generator.random(bits) < weight / bits, True).astype(float)
        code = start ^ (flips[:bits] == 1)
        hits = silo.ask(code)
        for knows, kept in sums.items() if hits is not None else ():
            kept.add(flips, observed(silo, hits, code, targets, knows_others=knows))
        if request in (look, most):
            look = max(look + 1, int(look * GRID))
            if silo.answered == looked:
                continue
            looked = silo.answered
            guesses = [
                guess for kept in sums.values() for guess in concluded(silo, start, targets, kept.odds(share), share)
            ]
            found = finding(silo, guesses, targets, request)
            if found.requests is not None:
                break
    return found


def concluded(silo: Silo, start: Bits, targets: Sequence[int], odds: Floats, share: float) -> list[Bits]:
    """Return guesses of the targets' codes, ``(T, B)``: with and without the first guess, and with the codes of others."""
    # The attacker sees about how far the targets are from the first guess, which is right in most bits.
    wrong = float(np.mean((silo.hidden[list(targets)] != start).mean(1)))
    prior = np.log((1 - wrong) / wrong)
    first = np.where(odds + prior > 0, start, ~start)
    found = np.where(odds > 0, start, np.where(odds < 0, ~start, start))
    return [first, found, denoised(found, silo.others, max(share, 0.01))]


def denoised(found: Bits, others: Bits, share: float) -> Bits:
    """Return the most likely codes if codes are like those of other silos, and noise inverted a share of the bits."""
    similar = (2.0 * found - 1) @ (2.0 * others - 1).T
    weights = similar / 2 * np.log((1 - share) / share)
    weights = np.exp(weights - weights.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    expected = np.clip(weights @ others, 0.02, 0.98)
    odds = np.log(expected / (1 - expected)) + np.where(found, 1, -1) * np.log((1 - share) / share)
    return np.asarray(odds > 0)


def finding(silo: Silo, guesses: Sequence[Bits], targets: Sequence[int], requests: int) -> Finding:
    """Judge the guesses, of which the attacker is granted the best."""
    hidden, told = silo.hidden[list(targets)], silo.answered_with[list(targets)]
    known = any((guess == told).all() for guess in guesses)
    right = max(float((guess == hidden).mean()) for guess in guesses)
    return Finding(requests if known else None, right, silo.answered)


def like_an_item(silo: Silo, start: Bits, targets: Sequence[int], share: float, _: int) -> Finding:
    """Search for items like an item. Other silos tell their distances to its code, and their own codes are known."""
    guesses, pages = [], []
    for target in targets if silo.node.policy.similar else ():
        words = silo.node.code(str(target), "image").words
        distances = (bits_of(words[None])[0] != silo.others).sum(1)
        order = np.argsort(distances, kind="stable")
        for page in range(1, 1 + FARTHEST_OFFSET // MOST_HITS):
            near = order[: page * MOST_HITS]
            signs = 2.0 * silo.others[near] - 1
            guess = np.linalg.lstsq(signs, len(start) - 2.0 * distances[near], rcond=1e-6)[0] > 0
            if ((guess != silo.others[near]).sum(1) == distances[near]).all() and page * MOST_HITS > len(start):
                break
        guesses.append(guess)
        pages.append(page)
    found = np.stack(guesses) if guesses else np.tile(start, (len(targets), 1))
    return finding(
        silo, [found, denoised(found, silo.others, max(share, 0.01))], targets, round(float(np.mean(pages or [0])))
    )


def by_order_values(silo: Silo, start: Bits, targets: Sequence[int], share: float, _: int) -> Finding:
    """Ask with powers of two as the magnitudes of eight bits, and read the bits of each target from its order value."""
    odds = np.zeros((len(targets), len(start)))
    for first in range(0, len(start), 8):
        group = np.arange(first, min(first + 8, len(start)))
        magnitudes = np.zeros(len(start), np.uint8)
        magnitudes[group] = 1 << (group - first)
        hits = silo.ask(start, magnitudes=magnitudes)
        if hits is None or hits.order_values is None:
            continue
        values = {silo.place_of[name]: value for name, value in zip(hits.ids, hits.order_values, strict=True)}
        for row, target in enumerate(targets):
            if target in values:
                odds[row, group] = np.where(values[target] >> (group - first) & 1, -10.0, 10.0)
    return finding(silo, concluded(silo, start, targets, odds, share), targets, -(-len(start) // 8))


def by_order_of_hits(silo: Silo, start: Bits, targets: Sequence[int], share: float, _: int) -> Finding:
    """Invert one bit, and read another one from the place of each target between the items whose codes are known."""
    odds, half = np.zeros((len(targets), len(start))), -(-len(start) // 2)
    plain: dict[str, Any] = {"own_text": None}  # items with the words of a query are not ordered by outputs
    first = silo.ask_hub(start, **plain, magnitudes=None)
    base = np.full(len(targets), np.nan)
    if first is not None:
        base = observed(silo, first, start, targets, knows_others=False)
    if first is not None and first.has_distances:
        plain["radius_bits"] = first.known_distances[-1] - 1  # few enough items that the page shows all of them
    for inverted in range(half):
        code, single = start.copy(), min(half + inverted, len(start) - 1)
        code[inverted] ^= True
        magnitudes = np.zeros(len(start), np.uint8)
        magnitudes[single] = 255
        hits = silo.ask_hub(code, **plain, magnitudes=magnitudes)
        if hits is None:
            continue
        change = observed(silo, hits, code, targets, knows_others=False) - base
        odds[:, inverted] = evidence(np.nan_to_num(change), 0.5, share)
        order = [silo.place_of[name] for name in hits.ids]
        known = ~np.isin(order, list(targets))
        equal = silo.answered_with[order, single] == code[single]
        for row, target in enumerate(targets):
            if target in order:
                place = order.index(target)
                wrong, right = (known & ~equal)[:place].sum(), (known & equal)[place:].sum()
                odds[row, single] = 10.0 * np.sign(right - wrong)
    return finding(silo, concluded(silo, start, targets, odds, share), targets, half + 1)


ATTACKS: Mapping[str, Callable[..., Finding]] = {
    "items like an item": like_an_item,
    "bit by bit": partial(bit_by_bit, knows_others=False),
    "at the edge": partial(at_the_edge, knows_others=False),
    **{f"spread over {weight} bits": partial(spread, weight=weight) for weight in WEIGHTS},
    "bit by bit, known others": partial(bit_by_bit, knows_others=True),
    "at the edge, known others": partial(at_the_edge, knows_others=True),
}
ATTACKS_WITH_BOTH: Mapping[str, Callable[..., Finding]] = {
    "by order values": by_order_values,
    "by the order of hits": by_order_of_hits,
    **ATTACKS,
    "spread over half of the bits": partial(spread, weight=BITS // 2),
}


class World:
    """A run whose silos are opened with a policy at a time.

    Attributes:
        exact: Maps each silo to the bits of its pictures, ``(N, B)``.
        magnitudes: ``(N, B)`` magnitudes of the outputs of the pictures of the largest silo.
        queries: ``(Q, B)`` codes of query texts.
        labels: Maps the id of each item to its labels, ``(C,)``.
    """

    def __init__(self, run: TrainedRun, queries: int) -> None:
        """Read the codes of a run."""
        archive = run.archive
        rows = archive.split("query")
        rows = seeds.numpy_generator(0, "queries").permutation(rows)[:queries]
        codes = run.encode(modality="text")
        place = {str(name): number for number, name in enumerate(codes.ids)}
        rows = np.array([row for row in rows if str(archive.ids[row]) in place])
        labels = archive.required_labels("so the results cannot be judged.")
        self.folder, self.digest = run.folder, codes.model_digest
        self.queries = bits_of(codes.words[[place[str(archive.ids[row])] for row in rows]])
        self.asked_labels = labels[rows]
        self.labels = {str(name): labels[row] for row, name in enumerate(archive.ids)}
        self.exact, sizes = {}, {}
        for silo, modality, path in index_files(run.folder / "index"):
            if modality == "image":
                with Store(path) as store:
                    keys, words = (np.concatenate(parts) for parts in zip(*store.codes(), strict=True))
                    self.exact[silo], stored = bits_of(words), store.magnitudes()
                    if stored is not None:
                        sizes[silo] = stored[1][np.searchsorted(stored[0], keys)]
        self.largest = max(self.exact, key=lambda name: len(self.exact[name]))
        self.magnitudes = sizes[self.largest]

    def nodes(self, policy: Policy) -> list[SiloNode]:
        """Open the silos with a policy, each with a secret and a budget of its own, in memory."""
        stores: dict[str, dict[Any, Store]] = {}
        for silo, modality, path in index_files(self.folder / "index"):
            stores.setdefault(silo, {})[modality] = Store(path)
        return [SiloNode(silo, held, policy, prepared=True) for silo, held in stores.items()]

    def attacked(self, policy: Policy, folder: Path, targets: Sequence[int]) -> SiloNode:
        """Return the largest silo with a policy and its pictures alone, of which only the targets have a caption."""
        manifest = IndexManifest(model_digest=self.digest, bits=BITS, modality="image", analysis=Analysis())
        store = Store.create(folder / "image.sqlite", manifest, magnitudes=True)
        words = from_bytes(np.packbits(self.exact[self.largest], axis=1, bitorder="little"), BITS)
        captions = [json.dumps({"caption": WORD} if row in targets else {}) for row in range(len(words))]
        store.add([str(row) for row in range(len(words))], words, captions, magnitudes=self.magnitudes)
        ledger = Ledger() if policy.needs_ledger else None
        if ledger is not None:
            ledger.secret = bytes(32)  # the same ranks and noise for all attacks
        return SiloNode(self.largest, {"image": store}, policy, ledger=ledger, prepared=True)

    def found(self, nodes: Sequence[SiloNode]) -> list[Hits]:
        """Return the first 20 hits of each query over silos. Each asker asks one query."""
        answers = []
        for number, code in enumerate(self.queries):
            query = query_of(code, self.digest, k=20, asker=f"reader-{number}")
            answers.append(now(ask(LocalBus(nodes), {node.name: query for node in nodes}, deadline_seconds=60)))
        return answers

    def precision(self, answers: Sequence[Hits]) -> float:
        """Return the mean average precision of the hits, in which items that share a label are relevant."""
        values = []
        for labels, hits in zip(self.asked_labels, answers, strict=True):
            relevant = np.array([bool((self.labels[name] & labels).any()) for name in hits.ids], bool)
            ranks = np.flatnonzero(relevant) + 1
            values.append(float(np.mean(np.arange(1, len(ranks) + 1) / ranks)) if len(ranks) else 0.0)
        return float(np.mean(values))

    def refused(self, policy: Policy) -> float:
        """Return the share of the queries that are refused if one asker asks all of them, at one silo."""
        node = self.nodes(policy)[0]
        answers = [node.answer(query_of(code, self.digest, k=20, asker="reader")) for code in self.queries]
        node.close()
        return float(np.mean([bool(answer.missing_silos) for answer in answers]))


def overlap(answers: Sequence[Hits], plain: Sequence[Hits]) -> float:
    """Return the mean share of the first 10 hits that are also among the first 10 without a policy."""

    def shared(first: Hits, second: Hits) -> float:
        """Return the share of one query."""
        pairs = [set(zip(hits.silos[:10], hits.ids[:10], strict=True)) for hits in (first, second)]
        return len(pairs[0] & pairs[1]) / 10

    return float(np.mean([shared(*both) for both in zip(answers, plain, strict=True)]))


def attacked(
    world: World,
    policy: Policy,
    attack: Callable[..., Finding],
    most: int,
    starts: int,
    *,
    accounts: bool,
    text: str | None = None,
) -> list[Finding]:
    """Run an attack on the largest silo from several starts, which are query texts."""
    hidden, findings = world.exact[world.largest], []
    for start in world.queries[:starts]:
        with tempfile.TemporaryDirectory() as folder:
            targets = np.argsort((hidden != start).sum(1), kind="stable")[:TARGETS].tolist()
            node = world.attacked(policy, Path(folder), targets)
            silo = Silo(node, world.exact, accounts=accounts, text=text)
            findings.append(attack(silo, start, targets, policy.code_noise, most))
            node.close()
    return findings


def main() -> None:
    """Attack each setting, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, metavar="RUN", help="folder of the demo's run, which is trained otherwise")
    parser.add_argument("--requests", type=int, default=100 * TODAY_REQUESTS, help="most requests of an attack")
    parser.add_argument("--starts", type=int, default=STARTS, help="number of texts to begin with")
    parser.add_argument("--settings", nargs="*", default=[*SETTINGS], choices=[*SETTINGS], help="only these settings")
    about_text = "attack a second time, with magnitudes and a text"
    parser.add_argument("--both", nargs="?", const=WORD, metavar="TEXT", help=about_text)
    parser.add_argument("--smoke", action="store_true", help="few requests, to check that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.requests, options.starts = 400, 1
    with tempfile.TemporaryDirectory() as folder:
        run = open_run(options.run) if options.run else train("recipes/demo.toml", Path(folder) / "run", report=False)
        table(World(run, 20 if options.smoke else QUERIES), options)


def table(world: World, options: argparse.Namespace) -> None:
    """Print one line per setting and attack, and the best attack of each setting."""
    plain = world.found(world.nodes(Policy()))
    nearest = [
        np.sort((world.exact[world.largest] != start).sum(1))[:TARGETS].mean()
        for start in world.queries[: options.starts]
    ]
    print(f"The first guess is right in {100 * (1 - np.mean(nearest) / BITS):.1f} % of the bits.\n")
    texts = (None, options.both) if options.both else (None,)
    heads = ["best attack", "requests until all is told", "bits right"]
    second = [f"{head}, with both" for head in heads] if options.both else []
    columns = ["setting", "accounts", *heads, *second, "overlap@10", "mAP@20", "refused"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for name in options.settings:
        policy = Policy(**SETTINGS[name])
        answers = world.found(world.nodes(policy))
        use = (f"{100 * overlap(answers, plain):.0f} %", f"{100 * world.precision(answers):.1f} %")
        refused = f"{100 * world.refused(policy):.0f} %"
        for accounts in (False, True) if policy.max_near_queries else (False,):
            found = [best_attack(world, name, options, accounts=accounts, text=text) for text in texts]
            needed = max((-(-answered // (policy.max_near_queries or 1)) for *_, answered in found)) if accounts else 1
            cells = (name, f"{needed:,}", *(cell for row, _ in found for cell in row), *use, refused)
            print(f"| {' | '.join(cells)} |", flush=True)


def best_attack(
    world: World, name: str, options: argparse.Namespace, *, accounts: bool, text: str | None
) -> tuple[tuple[str, str, str], int]:
    """Run the attacks on a setting. Return the best one, the requests that it took, the bits, and the answered requests."""
    policy, results, most = Policy(**SETTINGS[name]), {}, options.requests
    for attack, run in (ATTACKS_WITH_BOTH if text else ATTACKS).items():
        if "known" in attack and not policy.rank_only:
            continue  # distances say it all
        findings = attacked(world, policy, run, most, options.starts, accounts=accounts, text=text)
        results[attack] = summary(findings)
        case = f"{name}, {'many' if accounts else 'one'}{', both' if text else ''}"
        print(f"<!-- {case}: {attack}: {results[attack]} -->", file=sys.stderr)
        # A worse attack is not of interest.
        most = min(most, results[attack][0] or most)
    best = min(results, key=lambda attack: (results[attack][0] or np.inf, -results[attack][1]))
    requests, _, answered = results[best]
    share = max(right for _, right, _ in results.values())
    number = f"{requests:,}" if requests else f"not in {options.requests:,}"
    return (best, number, f"{100 * share:.1f} %"), answered


def summary(findings: Sequence[Finding]) -> tuple[int | None, float, int]:
    """Return the mean over starts: requests if all codes were found, the share of right bits, and the answered requests."""
    numbers = [found.requests for found in findings if found.requests is not None]
    known = round(float(np.mean(numbers))) if len(numbers) == len(findings) else None
    return known, float(np.mean([found.share for found in findings])), max(found.answered for found in findings)


if __name__ == "__main__":
    main()
