from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from silohash.base.types import UserError
from silohash.search.policy import Policy
from silohash.service.items import change as module
from silohash.service.items.change import ModelChange, successor_of
from silohash.service.models import Progress, SiloModels
from tests.silos import made_up_codes, made_up_node

WORDS = made_up_codes(20, 16, 1)


class Built:
    """A successor whose index is finished when a test says so."""

    def __init__(self, *, alone: bool = False) -> None:
        self.finished, self.is_searched_alone, self.silo = False, alone, "north"
        self.new = SimpleNamespace(index_folder=Path("new"))

    def progress(self) -> Progress:
        return Progress(frozenset({"new"}))


class Kept:
    def __init__(self) -> None:
        self.events: list[object] = []

    def follow(self, successor: object) -> None:
        self.events.append(successor)

    def drop_old(self) -> None:
        self.events.append("dropped")


@pytest.fixture
def built() -> Built:
    return Built()


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: Built) -> Callable[..., Any]:
    new = made_up_node(tmp_path / "new", "north", WORDS, 16, model="new")
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(module, "successor_of", lambda config, policy: built)
    monkeypatch.setattr(module, "open_silo_node", lambda run, silo, policy: new)

    def make(next_run: Path | None, hours: float = 1.0, *, kept: Kept | None = None) -> tuple[Any, ...]:
        clock = [0.0]
        old = made_up_node(tmp_path / "old", "north", WORDS, 16, model="old")
        models = SiloModels(old, clock=lambda: clock[0])
        config: Any = SimpleNamespace(next_run=next_run, keep_old_hours=hours)
        keeper = kept or Kept()
        change = ModelChange(config, models, kept, lambda _: keeper, ThreadPoolExecutor(1))  # type: ignore[arg-type, return-value]
        return change, models, keeper, clock

    return make


def test_the_new_index_is_opened_and_the_old_one_closed_later(begin: Callable[..., Any], built: Built) -> None:
    change, models, keeper, clock = begin(Path("new"))
    assert keeper.events == [built]
    assert models.progress().digests == {"new"}
    change.look()
    assert [node.model_digest for node in models.nodes] == ["old"]
    built.finished = True
    change.look()
    assert [node.model_digest for node in models.nodes] == ["old", "new"]
    clock[0] = 3_599.0
    change.look()
    assert len(models.nodes) == 2
    oldest = models.nodes[0]
    assert oldest.codes == len(WORDS)
    clock[0] = 3_600.0
    change.look()
    assert oldest.codes == 0, "a closed index does not take memory"
    assert [node.model_digest for node in models.nodes] == ["new"]
    assert keeper.events == [built, "dropped"]
    assert change.successor is None
    change.look()


def test_a_new_run_is_found_in_the_config(
    begin: Callable[..., Any], built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, logged = Kept(), []
    monkeypatch.setattr(module, "log_event", lambda event, **fields: logged.append((event, fields)))
    change, _, _, _ = begin(None, kept=kept)
    change.look()
    assert (change.successor, kept.events) == (None, [])

    def broken() -> Any:
        raise UserError("north.toml is not valid.")

    asyncio.run(change.reload(broken))
    assert change.successor is None
    assert [event for event, _ in logged] == ["the config cannot be read again"]
    asyncio.run(change.reload(lambda: SimpleNamespace(next_run=Path("new"), keep_old_hours=1.0)))
    assert (change.successor, kept.events) == (built, [built])
    logged.clear()
    asyncio.run(change.reload(lambda: SimpleNamespace(next_run=Path("newer"), keep_old_hours=1.0)))
    assert kept.events == [built], "one change at a time"
    [(event, fields)] = logged
    assert event == "the config cannot be read again"
    assert "next_run was changed while the silo changes to the model of new" in fields["reason"]


def test_a_change_that_is_over_is_not_begun_again(begin: Callable[..., Any], built: Built) -> None:
    built.is_searched_alone = True
    change, _, keeper, _ = begin(Path("new"), kept=Kept())
    assert (change.successor, keeper.events) == (None, [])


def test_a_successor_needs_a_new_run(tmp_path: Path) -> None:
    config: Any = SimpleNamespace(next_run=None)
    with pytest.raises(UserError, match="does not name a new run"):
        successor_of(config, Policy())
