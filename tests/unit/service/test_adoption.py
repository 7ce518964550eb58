from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from silohash.base.errors import UserError
from silohash.service import adoption as module
from silohash.service.adoption import ADOPTED, AdoptingBackend
from silohash.service.backend import SearchOptions, SearchRequest
from silohash.service.config import HubConfig

NOW = datetime(2027, 1, 31, tzinfo=UTC)


class Made:
    """A backend of one run."""

    def __init__(self, name: str, *, having: int = 0, silos: int = 4) -> None:
        self.name, self.having, self.silos = name, having, silos
        self.events: list[str] = []

    def __getattr__(self, name: str) -> Any:
        async def answer(*_: Any, **__: Any) -> str:
            return f"{self.name} {name}"

        return answer

    async def silos_with_model(self) -> dict[str, bool]:
        return {f"silo-{number}": number < self.having for number in range(self.silos)}

    def warm_up(self) -> None:
        self.events.append("warm")

    def close(self) -> None:
        self.events.append("closed")


def config(folder: Path, **values: Any) -> HubConfig:
    (folder / "next").mkdir(exist_ok=True)
    (folder / "next" / "config.toml").touch()
    (folder / "config.toml").touch()
    bus = {"servers": ["tls://nats.example.org:4222"], "key": "hub.key"}
    silos = {f"silo-{number}": "U" + "ABCD"[number] * 55 for number in range(4)}
    given = {"federation": "f", "run": folder, "bus": bus, "silos": silos, "deadline_seconds": 0.01, **values}
    return HubConfig.model_validate({"next_run": folder / "next", **given})


def adopt(backend: AdoptingBackend, now: datetime = NOW) -> bool:
    return asyncio.run(backend.adopt(now))


def backends(settings: HubConfig, having: int) -> tuple[Any, Any, AdoptingBackend]:
    made: dict[str, Any] = {settings.run.name: Made("old"), "next": Made("new", having=having)}
    return made[settings.run.name], made["next"], AdoptingBackend(settings, lambda run: made[run.folder.name])


@pytest.mark.parametrize(("share", "needed"), [(1.0, 4), (0.75, 3), (0.7, 3), (0.01, 1)])
def test_the_new_model_is_used_when_enough_silos_have_it(tmp_path: Path, share: float, needed: int) -> None:
    for having in range(5):
        (tmp_path / "next" / ADOPTED).unlink(missing_ok=True)
        old, new, backend = backends(config(tmp_path, next_share=share), having)
        assert adopt(backend) is (having >= needed)
        assert (backend.current is new) is (having >= needed)
        assert (tmp_path / "next" / ADOPTED).exists() is (having >= needed)
        assert old.events == (["closed"] if having >= needed else [])
        assert new.events == (["warm"] if having >= needed else [])


def test_the_new_model_is_used_at_a_time(tmp_path: Path) -> None:
    settings = config(tmp_path, next_at=NOW)
    _, new, backend = backends(settings, 0)
    assert not adopt(backend, NOW - timedelta(seconds=1))
    assert adopt(backend, NOW)
    assert backend.current is new
    assert adopt(backend), "there is nothing left to change"


def test_each_call_is_answered_by_one_backend(tmp_path: Path) -> None:
    _, _, backend = backends(config(tmp_path), 4)

    async def calls() -> list[Any]:
        found = [
            await backend.search(SearchRequest(text="red")),
            await backend.similar("silo-0", "a", SearchOptions()),
            await backend.item("silo-0", "a"),
            await backend.status(),
        ]
        return [str(each) for each in found]

    names = ("search", "similar", "item", "status")
    assert asyncio.run(calls()) == [f"old {name}" for name in names]
    adopt(backend)
    assert asyncio.run(calls()) == [f"new {name}" for name in names]


def test_a_change_outlives_the_process(tmp_path: Path) -> None:
    settings = config(tmp_path)
    made: Any = lambda run: Made(run.folder.name)  # noqa: E731
    backend = AdoptingBackend(settings, made)
    assert (backend.current.name, backend.following.name) == (tmp_path.name, "next")  # type: ignore[attr-defined, union-attr]
    (tmp_path / "next" / ADOPTED).touch()
    backend = AdoptingBackend(settings, made)
    assert (backend.current.name, backend.following) == ("next", None)  # type: ignore[attr-defined]
    backend = AdoptingBackend(settings.model_copy(update={"next_run": None}), made)
    assert (backend.current.name, backend.following) == (tmp_path.name, None)  # type: ignore[attr-defined]


def test_another_run_is_not_taken_for_the_one_that_the_hub_waits_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings, other = config(tmp_path), tmp_path / "other"
    _, new, backend = backends(settings, 4)
    for changed in (other, None):
        backend.reload(lambda changed=changed: settings.model_copy(update={"next_run": changed}))  # type: ignore[misc]
        assert "Start the hub again to use another run." in str(vars(caplog.records[-1])["fields"])

    async def one_look() -> None:
        task = asyncio.create_task(backend.keep_looking())
        while backend.following is not None:
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(asyncio.wait_for(one_look(), 60))
    assert backend.current is new
    assert ((tmp_path / "next" / ADOPTED).exists(), other.exists()) == (True, False)


def test_a_new_run_is_found_in_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    settings = config(tmp_path)
    made: Any = lambda run: Made(run.folder.name, having=4)  # noqa: E731
    backend = AdoptingBackend(settings.model_copy(update={"next_run": None}), made)

    def broken() -> HubConfig:
        raise UserError("hub.toml is not valid.")

    async def run() -> None:
        task = asyncio.create_task(backend.keep_looking())
        backend.reload(broken)
        await asyncio.sleep(0.05)
        assert backend.current.name == tmp_path.name  # type: ignore[attr-defined]
        backend.reload(lambda: settings)
        while backend.following is not None:
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(asyncio.wait_for(run(), 60))
    assert backend.current.name == "next"  # type: ignore[attr-defined]
    backend.reload(lambda: settings)
    assert backend.following is None
