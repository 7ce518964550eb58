"""Silos that score their items for a hub: processes on 127.0.0.1 with a NATS server between them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from silohash.api.runs import open_run
from silohash.run.config.toml import to_toml
from silohash.search.policy import CONTENT_REFUSED
from tests.nats import needs_nats
from tests.processes import Processes, federation_of
from tests.regions import matching_config, write_region_set
from tests.runs import silohash

pytestmark = [needs_nats, pytest.mark.whole_run, pytest.mark.timeout(900)]

ACCEPTING, REFUSING = ("silo-1", "silo-2"), "silo-3"
TEXT = "A dog and a cat and a boat."


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SILOHASH_DATA", str(write_region_set(folder / "data", pictures=60)))
        (folder / "run.toml").write_text(to_toml(matching_config(partition={"silos": 3}, federated={"rounds": 1})))
        said = silohash("train", folder / "run.toml", "--out", folder / "run")
        assert said.code == 0, said.err
        yield folder / "run"


@pytest.fixture(scope="module")
def processes(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    policies = dict.fromkeys(ACCEPTING, "accept_query_content = true\n")
    folder = tmp_path_factory.mktemp("federation")
    with federation_of(run, folder, *ACCEPTING, REFUSING, policies=policies, text=TEXT) as started:
        yield started


def test_silos_that_accept_words_score_and_the_others_compare_codes(run: Path, processes: Processes) -> None:
    with open_run(run) as opened:
        expected = opened.search(TEXT, k=12)
    assert expected.order == "score"
    scored = processes.client.search(TEXT, k=12, silos=list(ACCEPTING))
    assert scored.order == "score"
    assert scored.limited_silos == {}
    best = [(hit.silo, hit.id) for hit in expected if hit.silo != REFUSING]
    assert [(hit.silo, hit.id) for hit in scored][: len(best)] == best
    every = processes.client.search(TEXT, k=12)
    assert every.order == "rank"
    assert every.limited_silos == {REFUSING: CONTENT_REFUSED}
    assert every.missing_silos == {}
    assert set(every.silos) == {*ACCEPTING, REFUSING}
    found = [(hit.silo, hit.id) for hit in every if hit.silo != REFUSING]
    assert found == [(hit.silo, hit.id) for hit in scored][: len(found)]
    log = processes.federation.folder / "runs" / REFUSING / "audit" / f"{REFUSING}.jsonl"
    searches = [entry for entry in map(json.loads, log.read_text().splitlines()) if entry["request"] == "search"]
    assert searches
    assert not any(entry["with_content"] for entry in searches)
    assert "Traceback" not in processes.logs()
