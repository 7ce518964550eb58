"""The event loop of the service's processes."""

from __future__ import annotations

import asyncio

import pytest

from silohash.service import event_loop as module
from silohash.service.event_loop import run_loop

pytestmark = pytest.mark.whole_run

uvloop = pytest.importorskip("uvloop")


async def note_loop(loops: list[asyncio.AbstractEventLoop]) -> None:
    loops.append(asyncio.get_running_loop())


@pytest.mark.parametrize("installed", [True, False])
def test_the_loop_is_that_of_uvloop_where_it_is_installed(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "installed", lambda _: installed)
    loops: list[asyncio.AbstractEventLoop] = []
    run_loop(note_loop(loops))
    assert isinstance(loops[0], uvloop.Loop) == installed
    assert loops[0].is_closed()


def test_an_error_of_the_coroutine_leaves_the_loop() -> None:
    async def fail() -> None:
        raise OSError("the port is taken")

    with pytest.raises(OSError, match="the port is taken"):
        run_loop(fail())
