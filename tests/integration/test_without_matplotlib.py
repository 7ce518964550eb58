"""A run on the embedded archive, except its report, where neither matplotlib nor fontTools can be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole_run

RUN = """
import sys
sys.modules["matplotlib"] = sys.modules["fontTools"] = None
import silohash
recipe, folder = sys.argv[1:]
small = ["data.options={faces=1, limit=300}", "features.text.buckets=64", "model.hidden=16", "local.bits=16"]
small += ["train.workers=1", "local.item_bits=8", "federated.rounds=1", "federated.local_epochs=1"]
run = silohash.train(recipe, folder, overrides=small, report=False)
picture = run.archive.image.picture(0)
print(len(run.search("arrow", k=3)), len(run.search(image=picture, k=3)))
print(len(run.encode(modality="image").ids) == len(run.archive), len(run.evaluate()) > 0)
"""


def test_training_searching_and_encoding_need_no_fonts(tmp_path: Path, repository: Path) -> None:
    command = [sys.executable, "-c", RUN, str(repository / "recipes" / "demo.toml"), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3", "3", "True", "True"]
