"""What policies keep of the codes of items, with real processes: a NATS server, two silos with policies, and a hub.

An ordinary client tries to put the code of an item together, bit by bit, as the hub's API lets it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np
import pytest

from silohash.base.errors import Unavailable
from silohash.index.store import Store
from silohash.search.fields import hexadecimal
from tests.nats import needs_nats
from tests.processes import STARTED_SECONDS, Processes, federation_of
from tests.served import served_run

pytestmark = [needs_nats, pytest.mark.whole_run, pytest.mark.timeout(600)]

OPEN, CLOSED = "silo-1", "silo-2"
NEAR = 6
POLICIES = {CLOSED: f"rank_only = true\nsimilar = false\nmax_near_queries = {NEAR}\nnear_bits = 4\ncode_noise = 0.2\n"}


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    run = served_run(tmp_path_factory.mktemp("trained"))
    with federation_of(run, tmp_path_factory.mktemp("federation"), OPEN, CLOSED, policies=POLICIES) as started:
        yield started


def index_of(processes: Processes, silo: str) -> Store:
    return Store(processes.federation.folder / "runs" / silo / "index" / silo / "image.sqlite")


def inverted(words: np.ndarray, *places: int) -> np.ndarray:
    """Returns a code with some bits inverted."""
    changed, width = words.copy(), 8 * words.itemsize
    for place in places:
        changed[place // width] ^= words.dtype.type(1 << place % width)
    return changed


def found_by_code(processes: Processes, words: np.ndarray, store: Store) -> dict[str, Any]:
    """Returns what the hub answers to a code."""
    bits, model = store.manifest.bits, store.manifest.model_digest
    code = {"hex": hexadecimal(words, bits), "bits": bits, "model_digest": model}
    content = json.dumps({"code": code, "find": "image", "k": 100}).encode()
    return processes.client._request("POST", "/api/v1/search", content, "application/json")


def bits_that_distances_tell(processes: Processes, silo: str, store: Store) -> int:
    """Returns how many bits of an item's code are known after one query per bit, from a start that differs in two bits."""
    target = store.item_ids(np.sort(np.concatenate([keys for keys, _ in store.codes()]))[:1])[0]
    exact = store.words([target])[0]
    start = inverted(exact, 1, 6)

    def distance(words: np.ndarray) -> int | None:
        hits = found_by_code(processes, words, store)["hits"]
        return next((hit["distance_bits"] for hit in hits if (hit["silo"], hit["id"]) == (silo, target)), None)

    before, told = distance(start), 0
    for bit in range(store.manifest.bits):
        after = distance(inverted(start, bit))
        if before is not None and after is not None:
            told += (after < before) == (bit in (1, 6))
    return told


def audited(processes: Processes, silo: str) -> list[dict[str, Any]]:
    """Returns the lines of the audit log of a silo."""
    path = processes.federation.folder / "runs" / silo / "audit" / f"{silo}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_code_is_recovered_from_distances_only_where_they_are_released(processes: Processes) -> None:
    with index_of(processes, OPEN) as store:
        assert bits_that_distances_tell(processes, OPEN, store) == store.manifest.bits
    with index_of(processes, CLOSED) as store:
        assert bits_that_distances_tell(processes, CLOSED, store) == 0


def test_near_queries_are_limited_also_after_the_silo_was_started_again(processes: Processes) -> None:
    with index_of(processes, CLOSED) as store:
        start, bits = store.words(store.item_ids(next(store.codes())[0][-1:]))[0], store.manifest.bits
        answers = [found_by_code(processes, inverted(start, bit), store) for bit in range(bits)]
        refused = [answer["missing_silos"][CLOSED] for answer in answers if answer["missing_silos"]]
        assert len(refused) >= bits - NEAR
        assert all(f"{NEAR} different searches near each other" in reason for reason in refused)
        hits = [hit for answer in answers for hit in answer["hits"] if hit["silo"] == CLOSED]
        assert {hit["distance_bits"] for hit in hits} <= {None}
        processes.stop(CLOSED)
        processes.start(CLOSED)
        processes.until(processes.whole, STARTED_SECONDS)
        assert CLOSED in found_by_code(processes, inverted(start, bits - 1, 0), store)["missing_silos"]
    place = processes.federation.folder / "runs" / CLOSED / "ledger" / f"{CLOSED}.sqlite"
    assert place.stat().st_mode & 0o077 == 0


def test_the_page_of_an_item_sends_its_code_to_nobody_unasked(processes: Processes) -> None:
    item = next(hit for hit in processes.client.search("red square", k=20) if hit.silo == OPEN)
    before = {silo: len(audited(processes, silo)) for silo in (OPEN, CLOSED)}

    def show(path: str, **parameters: str) -> list[str]:
        address = f"{processes.client.url}{path}?{urlencode(parameters)}"
        with urlopen(address, timeout=60) as answer:  # noqa: S310  an address of this test
            assert answer.status == 200
        return [
            f"{silo} {line['request']}"
            for silo in (OPEN, CLOSED)
            for line in audited(processes, silo)[before[silo] :]
            if line["request"] != "status"
        ]

    assert show("/item", silo=OPEN, id=item.id) == [f"{OPEN} item"]
    likes = show("/", like=item.id, of=OPEN, by="image")
    assert sorted(likes)[:3] == [f"{OPEN} code", f"{OPEN} item", f"{OPEN} item"]
    with index_of(processes, CLOSED) as store:
        name = store.item_ids(next(store.codes())[0][:1])[0]
    with pytest.raises(Unavailable, match="does not allow searching for items like an item"):
        processes.client.similar(CLOSED, name)
