"""What a machine can do after `pip install .` without extras: everything but training.

A run is trained and indexed here, and used in an environment that has neither torch nor any other optional package.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from silohash.base.optional import EXTRAS
from tests.pictures import COLORS
from tests.plain_install import plain_install
from tests.runs import silohash, tiny_config, write_metadata

pytestmark = pytest.mark.whole_run

SLOW_TO_IMPORT = ("torch", "numba", "scipy", "pyarrow", "matplotlib", "sklearn", "silohash.run.config.load")
"""Modules that a search must not import, because it would spend most of its time on them."""

RUN_COMMANDS = """
import contextlib, io, json, sys
from silohash.cli import main
answers = []
for arguments in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["silohash", *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code or 0
    answers.append({"code": code, "out": out.getvalue(), "err": err.getvalue(), "modules": sorted(sys.modules)})
json.dump(answers, sys.stdout)
"""


class Plain:
    """The environment without extras."""

    def __init__(self, python: Path) -> None:
        self.python = python

    def commands(self, *commands: list[object]) -> list[dict[str, Any]]:
        """Return code, output and imported modules of some commands, run one after another in one process."""
        given = json.dumps([[str(argument) for argument in command] for command in commands])
        environment = {**os.environ, "PYTHONPATH": "", "COLUMNS": "200"}
        done = subprocess.run(
            [self.python, "-c", RUN_COMMANDS], input=given, capture_output=True, text=True, timeout=600, env=environment
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Plain:
    return Plain(plain_install(tmp_path_factory.mktemp("plain") / "venv", repository))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a trained and indexed run on 24 pictures with texts, beside its config and its archive."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "archive" / "files").mkdir(parents=True)
    rows = []
    for number in range(24):
        name = list(COLORS)[number % 3]
        noise = np.random.default_rng(number).integers(-25, 25, (20, 20, 3))
        picture = np.clip(np.array(COLORS[name]) + noise, 0, 255).astype(np.uint8)
        Image.fromarray(picture).save(folder / "archive" / "files" / f"{number}.png")
        rows.append({"file_name": f"files/{number}.png", "text": f"one {name} square", "labels": name})
    write_metadata(folder / "archive", rows)
    config = tiny_config(
        folder / "archive",
        features={"image": {"size": 16, "cache": False}},
        partition={"silos": 2},
        federated={"name": "fedcafe", "rounds": 8, "local_epochs": 6, "min_count": 1},
        train={"batch": 8},
    )
    (folder / "run.toml").write_text(config.to_toml(), encoding="utf-8")
    done = silohash("train", folder / "run.toml", "--out", folder / "run")
    assert done.code == 0, done.err
    assert silohash("index", folder / "run").code == 0
    return folder


def test_the_environment_has_no_optional_package(plain: Plain) -> None:
    source = "import importlib.util, sys; print([n for n in sys.argv[1:] if importlib.util.find_spec(n)])"
    done = subprocess.run([plain.python, "-c", source, *EXTRAS], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "[]", done.stderr


def test_searches_by_words_and_by_a_picture(plain: Plain, trained: Path) -> None:
    run, picture = trained / "run", trained / "archive" / "files" / "2.png"
    words, image, lines = plain.commands(
        ["search", run, "a blue square", "-k", "5", "--json"],
        ["search", run, "--image", picture, "-k", "5", "--json"],
        ["search", run, "green"],
    )
    for answer, arguments in ((words, ["a blue square"]), (image, ["--image", picture])):
        assert answer["code"] == 0, answer["err"]
        with_torch = silohash("search", run, *arguments, "-k", "5", "--json").document()
        assert json.loads(answer["out"])["hits"] == with_torch["hits"]
        assert not json.loads(answer["out"])["missing_silos"]
    assert lines["code"] == 0
    assert "green" in lines["out"]
    for answer in (words, image, lines):
        assert [name for name in SLOW_TO_IMPORT if name in answer["modules"]] == []


def test_everything_but_training(plain: Plain, trained: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained / "run", tmp_path / "run"))
    shutil.rmtree(run / "index")
    answers = plain.commands(
        ["doctor"],
        ["list"],
        ["data", "check", trained / "archive"],
        ["partition", trained / "run.toml"],
        ["index", run],
        ["search", run, "a red square", "-k", "4", "--json"],
        ["encode", run, "--modality", "image", "--out", tmp_path / "codes.npz"],
        ["evaluate", run, "--json"],
        ["report", run, "--out", tmp_path / "report.html"],
        ["compare", run, trained / "run"],
    )
    for answer in answers:
        assert answer["code"] == 0, answer["err"]
    assert re.search(r"^torch +missing: training;", answers[0]["out"], flags=re.MULTILINE)
    found = silohash("search", trained / "run", "a red square", "-k", "4", "--json").document()
    assert json.loads(answers[5]["out"])["hits"] == found["hits"]
    assert (tmp_path / "report.html").stat().st_size > 1_000


def test_commands_that_train_say_what_to_install(plain: Plain, trained: Path, tmp_path: Path) -> None:
    run, config = trained / "run", trained / "run.toml"
    study = tmp_path / "study.toml"
    study.write_text(f'[base]\nrecipe = "{config}"\n[[axes]]\nname = "bits"\nkey = "local.bits"\nvalues = [16, 32]\n')
    answers = plain.commands(
        ["train", config, "--out", tmp_path / "new"],
        ["resume", run],
        ["demo", "--out", tmp_path / "demo"],
        ["study", study, "--out", tmp_path / "study"],
        ["sweep", config, "--over", "local.bits=16,32", "--out", tmp_path / "sweep"],
        ["reproduce", "fedcafe/table2", "--out", tmp_path / "table"],
        ["export", run, "--onnx"],
        ["new", tmp_path / "new.toml"],
    )
    for answer in answers:
        assert answer["code"] == 2, answer
        last, key = answer["err"].splitlines()[-2:]
        assert re.fullmatch(r"silohash: .* needs torch, which is not installed: pip install 'silohash\[train\]'", last)
        assert key == "  [dependency-missing]"
    assert {path.name for path in tmp_path.iterdir()} == {"study.toml"}


def test_a_run_without_onnx_files_says_what_to_install(plain: Plain, trained: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained / "run", tmp_path / "run"))
    for file in (run / "model").glob("*.onnx"):
        file.unlink()
    [answer] = plain.commands(["search", run, "a red square"])
    assert answer["code"] == 2
    says = r"has no ONNX files, so encoding with it needs torch, .* 'silohash\[train\]'\n  \[dependency-missing\]$"
    assert re.search(says, answer["err"].rstrip("\n"))
    assert silohash("search", run, "a red square").code == 0
