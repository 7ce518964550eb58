"""The wheel: built without a network, and whole."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import silohash

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    done = subprocess.run([*pip, "-w", str(folder), str(REPOSITORY)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_wheel_holds_every_file_of_the_source(wheel: zipfile.ZipFile) -> None:
    source = REPOSITORY / "src"
    files = [p for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    expected = {p.relative_to(source).as_posix() for p in files}
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == expected
    assert "silohash/py.typed" in held
    assert any(name.startswith("silohash/") and name.endswith(".html") for name in held), "the report's template"


def test_wheel_states_licence_version_and_command(wheel: zipfile.ZipFile) -> None:
    names = {name.partition(".dist-info/")[2]: name for name in wheel.namelist() if ".dist-info/" in name}
    assert wheel.read(names["licenses/LICENSE"]) == (REPOSITORY / "LICENSE").read_bytes()
    about = Parser().parsestr(wheel.read(names["METADATA"]).decode())
    assert about["Version"] == silohash.__version__
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.11"
    assert b"silohash = silohash.cli:main" in wheel.read(names["entry_points.txt"])
    always = [line for line in about.get_all("Requires-Dist") or [] if "extra ==" not in line]
    assert not any(line.startswith(("torch", "faiss", "scikit-learn")) for line in always), "searching needs none"


def test_constraints_pin_exactly_and_name_no_host() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert "torch==2.13.0" in pins
    assert [line for line in pins if line.count("==") != 1 or "/" in line or "@" in line or " " in line] == []
