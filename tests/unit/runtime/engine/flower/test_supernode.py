"""The SuperNode's process ends when the SuperNode does."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")

from silohash.runtime.engine.flower import supernode


class Ended(BaseException):
    """Takes the place of the end of the process."""


def lose() -> None:
    raise ConnectionError("lost the server")


@pytest.mark.parametrize("program", [lambda: None, lose])
def test_process_ends_when_the_server_is_lost(
    program, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    statuses = []

    def end(status: int) -> None:
        statuses.append(status)
        raise Ended

    monkeypatch.setattr(supernode, "flower_supernode", program)
    monkeypatch.setattr(supernode.os, "_exit", end)
    with pytest.raises(Ended):
        supernode.main()
    assert statuses == [1]
    assert ("lost the server" in capfd.readouterr().err) == (program is lose)


def test_thread_that_goes_on_does_not_keep_the_process() -> None:
    code = (
        "import threading, time\nfrom silohash.runtime.engine.flower import supernode\n"
        "supernode.flower_supernode = lambda: threading.Thread(target=time.sleep, args=(600,)).start()\nsupernode.main()"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 1
