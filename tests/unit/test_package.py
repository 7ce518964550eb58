"""The public names, and the wheel: built without a network, and complete."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import silohash

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    done = subprocess.run([*pip, "-w", str(folder), str(REPOSITORY)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.mark.whole_run
def test_wheel_holds_every_file_of_the_source(wheel: zipfile.ZipFile) -> None:
    source = REPOSITORY / "src"
    files = [p for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    expected = {p.relative_to(source).as_posix() for p in files}
    recipes = [p for p in (REPOSITORY / "recipes").rglob("*") if p.is_file()]
    expected |= {f"silohash/{p.relative_to(REPOSITORY).as_posix()}" for p in recipes}
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == expected
    assert "silohash/py.typed" in held
    assert any(name.startswith("silohash/") and name.endswith(".html") for name in held), "the report's template"


@pytest.mark.whole_run
def test_wheel_states_license_version_and_command(wheel: zipfile.ZipFile) -> None:
    names = {name.partition(".dist-info/")[2]: name for name in wheel.namelist() if ".dist-info/" in name}
    assert wheel.read(names["licenses/LICENSE"]) == (REPOSITORY / "LICENSE").read_bytes()
    about = Parser().parsestr(wheel.read(names["METADATA"]).decode())
    assert about["Version"] == silohash.__version__
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.11"
    assert b"silohash = silohash.cli:main" in wheel.read(names["entry_points.txt"])
    always = [line for line in about.get_all("Requires-Dist") or [] if "extra ==" not in line]
    assert not any(line.startswith(("torch", "faiss", "scikit-learn")) for line in always), "searching needs none"


def declared(about: Message, *, extras: bool) -> set[str]:
    """Returns the names of the distributions that the wheel asks for, without those of the extra dev."""
    lines = [line for line in about.get_all("Requires-Dist") or [] if "extra == 'dev'" not in line]
    return {normal(re.split(r"[^\w.-]", line)[0]) for line in lines if extras or "extra ==" not in line}


def normal(distribution: str) -> str:
    """Returns a distribution's name as package indexes compare it."""
    return distribution.lower().replace("_", "-")


def imported(path: Path) -> set[str]:
    """Returns the packages that a file imports from elsewhere, wherever in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names} - {*sys.stdlib_module_names, "silohash"}


@pytest.mark.whole_run
def test_what_the_source_imports_is_declared(wheel: zipfile.ZipFile) -> None:
    about = Parser().parsestr(wheel.read(next(n for n in wheel.namelist() if n.endswith("/METADATA"))).decode())
    distributions = packages_distributions()
    used = {name: path for path in (REPOSITORY / "src").rglob("*.py") for name in imported(path)}
    known = declared(about, extras=True)
    found = {name: set(map(normal, distributions.get(name, [name]))) for name in used}
    missing = {name: path for name, path in used.items() if not found[name] & known}
    assert missing == {}
    needless = known - set().union(*found.values())
    by_name = {"snowballstemmer"}  # a module per language is imported when its name is known
    others = {"tensorboard", "onnxscript", "python-multipart", "httptools"}
    assert needless <= others | by_name, "imported by other packages only"


def test_what_tests_and_benchmarks_import_is_declared() -> None:
    files = [path for folder in ("tests", "benchmarks") for path in (REPOSITORY / folder).rglob("*.py")]
    own = {"tests", "benchmarks", *(path.stem for path in files if path.parent.name == "benchmarks")}
    used = {name: path for path in files for name in imported(path) - own}
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [extras["dependencies"], *extras["optional-dependencies"].values()]
    known = {normal(Requirement(text).name) for group in groups for text in group}
    distributions = packages_distributions()
    assert {
        name: path for name, path in used.items() if not known & set(map(normal, distributions.get(name, [name])))
    } == {}
    assert {"httpx2", "numpy", "pytest", "torch"} <= set(used), "the check sees imports"


def test_versions_agree() -> None:
    citation = (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {silohash.__version__}\n" in citation
    assert silohash.__version__ in (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")


def test_constraints_pin_exactly_and_name_no_host() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert "torch==2.13.0" in pins
    assert [line for line in pins if line.count("==") != 1 or "/" in line or "@" in line or " " in line] == []


PUBLIC = {
    *("open", "train", "TrainedRun", "load_archive", "Archive", "partition", "Partition", "list_methods", "MethodCard"),
    *("evaluate_codes", "Score", "nearest", "Neighbors", "Codes", "Hits", "Hit", "UserError", "__version__"),
    *("connect", "Client", "PlausibilityWarning"),
}
IMPORT = """
import sys
before = set(sys.modules)  # measuring coverage imports some modules before
import silohash
assert set(silohash.__all__) <= set(dir(silohash))
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""
SWITCHES = """
import os, silohash
print(*(os.environ[name] for name in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY")))
"""
HEAVY = {"torch", "numba", "numpy", "pydantic", "PIL", "pyarrow", "matplotlib", "typer", "typing"}


def test_the_package_runs_as_a_module() -> None:
    said = subprocess.run([sys.executable, "-m", "silohash", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.strip().endswith(silohash.__version__)


def test_the_public_names_are_these() -> None:
    assert sorted(PUBLIC) == silohash.__all__
    for name in PUBLIC:
        value = getattr(silohash, name)
        assert value is getattr(silohash, name)
        assert isinstance(value, str) or value.__doc__
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        _ = silohash.opne


def test_type_checkers_see_what_is_imported() -> None:
    tree = ast.parse(Path(silohash.__file__).read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    seen = {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == silohash._DEFINED_IN
    assert set(seen) == PUBLIC - {"__version__"}


@pytest.mark.whole_run
def test_importing_the_package_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert HEAVY & set(done.stdout.split()) == set()


@pytest.mark.whole_run
@pytest.mark.parametrize(("before", "after"), [(None, "1"), ("", "1"), ("0", "0"), ("false", "false"), ("1", "1")])
def test_importing_the_package_switches_reports_off_unless_the_user_decided(before: str | None, after: str) -> None:
    names = ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    given = dict.fromkeys(names, before) if before is not None else {}
    done = subprocess.run(
        [sys.executable, "-c", SWITCHES], capture_output=True, text=True, timeout=300, env=environment | given
    )
    assert done.stdout.split() == [after, after], done.stderr
