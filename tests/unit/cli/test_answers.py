"""What a program that runs the commands can rely on: one JSON document, and an end by Ctrl-C that can be gone on from."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from silohash.config.load import load_config
from silohash.runtime.run import Run
from tests.runs import silohash, write_archive, write_config

QUICK = {"federated": {"rounds": 1, "local_epochs": 1}}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("data") / "archive", text="words")


@pytest.mark.whole_run
def test_json_is_one_document_and_nothing_else(tmp_path: Path, archive: Path) -> None:
    config = write_config(tmp_path / "run.toml", archive, **QUICK)
    commands = [
        ("train", config, "--out", tmp_path / "out", "--json"),
        ("resume", tmp_path / "out", "--json"),
        ("evaluate", tmp_path / "out", "--json"),
        ("index", tmp_path / "out", "--json"),
        ("search", tmp_path / "out", "parrot", "--json"),
        ("partition", config, "--json"),
        ("data", "check", archive, "--json"),
        ("list", "--json"),
        ("doctor", "--json"),
    ]
    for command in commands:
        said = silohash(*command)
        assert said.code == 0, said
        assert said.document()["schema"] == 1, command
    found = silohash("search", tmp_path / "out", "parrot", "-k", 3, "--json").document()
    assert len(found["hits"]) == 3
    assert set(found["hits"][0]) >= {"id", "silo", "distance_bits", "caption", "labels"}


LISTENING = """
import signal
from silohash.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in the background deaf to Ctrl-C
main()
"""


@pytest.mark.whole_run
def test_ctrl_c_leaves_a_resumable_run(archive: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path / "run.toml", archive, federated={"rounds": 200, "local_epochs": 4})
    out = tmp_path / "out"
    command = [sys.executable, "-c", LISTENING, "train", str(config), "--out", str(out)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as process:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if (out / "checkpoint" / "state.json").exists():
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        said, beside = process.communicate(timeout=60)
    assert process.returncode == 130, beside
    assert said == ""
    assert "Traceback" not in beside
    assert "interrupted" in beside.splitlines()[-1]
    assert "silohash resume" in beside.splitlines()[-1]
    assert [path.name for path in out.iterdir() if path.name.endswith((".part", ".old"))] == []
    done = len(Run(out).rounds())
    assert 1 <= done < 200
    assert Run(out).config == load_config(config)
