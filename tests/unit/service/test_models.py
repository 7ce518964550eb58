from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base.errors import UserError
from silohash.search.hits import Query
from silohash.search.policy import Policy
from silohash.search.requests import CodeRequest, ItemRequest, StatusRequest
from silohash.search.wire import encode_request, respond
from silohash.service.models import SiloModels
from tests.silos import made_up_codes, made_up_node

WORDS = made_up_codes(20, 16, 1)


def query(model: str) -> Query:
    return Query(words=WORDS[0], bits=16, model_digest=model, target="image")


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def models(tmp_path: Path, clock: list[float]) -> SiloModels:
    limited = Policy(max_queries_per_minute=2)
    old = made_up_node(tmp_path / "old", "north", WORDS, 16, limited, model="old")
    new = made_up_node(tmp_path / "new", "north", WORDS, 16, limited, model="new")
    models = SiloModels(old, clock=lambda: clock[0])
    models.add(new)
    return models


def test_a_request_is_answered_by_the_index_of_its_model(models: SiloModels) -> None:
    old, new = models.nodes
    for request, node in (
        (query("old"), old),
        (query("new"), new),
        (query("other"), old),
        (CodeRequest("1", model_digest="new"), new),
        (CodeRequest("1", model_digest="old"), old),
        (CodeRequest("1"), old),
        (ItemRequest("1"), old),
        (StatusRequest(), new),
    ):
        assert models.choose(request) is node, request
    for model in ("old", "new"):
        response = respond(old, encode_request(query(model)), choose=models.choose)
        assert response.answer is not None
        assert response.answer.model_digests == {model}  # type: ignore[union-attr]


def test_the_summary_lists_both_models(models: SiloModels) -> None:

    old, new = models.nodes
    assert (old.status().models, new.status().models) == (("old", "new"), ("new", "old"))
    assert models.drop_oldest() is old
    assert new.status().models == ("new",)
    assert models.choose(query("old")) is new
    old.close()


def test_both_models_share_the_limits_of_an_asker(models: SiloModels) -> None:
    old, new = models.nodes
    assert not old.answer(query("old")).missing_silos
    assert not new.answer(query("new")).missing_silos
    for node, model in ((old, "old"), (new, "new")):
        assert node.answer(query(model)).missing_silos


def test_queries_with_a_model_that_is_being_built_are_told_how_far_it_is(tmp_path: Path) -> None:
    models = SiloModels(made_up_node(tmp_path, "north", WORDS, 16, model="old"))
    models.unready = {"new": "It is still encoding its items.", "old": "", "": ""}.__getitem__
    for request in (query("new"), CodeRequest("1", model_digest="new")):
        with pytest.raises(UserError, match="still encoding its items"):
            models.choose(request)
    assert models.choose(StatusRequest()).model_digest == "old"


def test_the_time_without_a_query_to_the_old_model_is_measured(
    tmp_path: Path, models: SiloModels, clock: list[float]
) -> None:
    clock[0] = 10.0
    assert models.unused_seconds() == 10.0
    models.choose(query("new"))
    models.choose(StatusRequest())
    assert models.unused_seconds() == 10.0
    models.choose(query("old"))
    assert models.unused_seconds() == 0.0
    clock[0] = 14.0
    assert models.unused_seconds() == 4.0
    models.drop_oldest().close()
    assert models.unused_seconds() is None
    models.close()
