"""A run on the embedded archive, except its report, where neither matplotlib, fontTools nor torch's compiler is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole_run

RUN = """
import sys
for name in ("matplotlib", "fontTools", "torch._dynamo"):  # torch's compiler takes as long to import as torch
    sys.modules[name] = None
import silohash
recipe, folder = sys.argv[1:]
small = ["data.options={faces=1, limit=300}", "features.text.buckets=64", "model.hidden=16", "local.bits=16"]
small += ["train.workers=1", "local.item_bits=8", "federated.rounds=1", "federated.local_epochs=1"]
run = silohash.train(recipe, folder, overrides=small, report=False)
picture = run.archive.image.picture(0)
print(len(run.search("arrow", k=3)), len(run.search(image=picture, k=3)))
print(len(run.encode(modality="image").ids) == len(run.archive), len(run.evaluate()) > 0)
"""


def test_training_searching_and_encoding_need_neither_fonts_nor_a_compiler(tmp_path: Path, repository: Path) -> None:
    command = [sys.executable, "-c", RUN, str(repository / "recipes" / "demo.toml"), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3", "3", "True", "True"]
