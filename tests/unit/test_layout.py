"""The layout holds: imports go one way, searching needs no torch, and the promises that the source itself shows."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import silohash

ROOT = Path(silohash.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# A part may import those above it.
ORDER = (
    *("types", "seeds", "registry", "files"),
    *("index", "evaluate", "data", "features", "models", "exchange", "local", "federated"),
    *("runtime", "search", "report", "study", "service", "cli"),
)
NEVER_TORCH = ("index", "evaluate", "search")
WITHOUT_TORCH = ("types", "seeds", "registry", "files", "data", "features", *NEVER_TORCH, "cli")

BLOCKED = """
import importlib, sys
sys.modules["torch"] = None
for name in sys.argv[1:]:
    importlib.import_module(name)
    assert sys.modules["torch"] is None
"""
COMMAND = """
import sys
sys.modules["torch"] = None
from silohash.cli import app
app(sys.argv[1:])
"""


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    parts = ("silohash", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields (line, "package.module.name") of every import, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            stem = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{stem}.{alias.name}") for alias in node.names)


def objections(part: str, tree: ast.AST) -> Iterator[str]:
    """Yields what is wrong with a file's imports."""
    for line, name in imports(tree):
        first, *rest = name.split(".")
        if not first:
            yield f"line {line}: a relative import; write it in full"
        elif first == "silohash" and rest and rest[0] in ORDER:
            if ORDER.index(rest[0]) > ORDER.index(part):
                yield f"line {line}: {part} imports {rest[0]}, which stands below it"
        elif first == "torch" and part in NEVER_TORCH:
            yield f"line {line}: {part} imports torch"
        elif first in {"pickle", "cloudpickle", "dill", "shelve", "marshal"}:
            yield f"line {line}: {first} can run code when it reads"


def test_every_part_has_its_place() -> None:
    parts = {part_of(path) for path in FILES} - {"__init__", "__main__", "py"}
    assert parts <= set(ORDER), f"give a place in ORDER to {parts - set(ORDER)}"


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_go_upwards_only(path: Path) -> None:
    part = part_of(path)
    allowed = "cli" if part == "__main__" else "types" if part == "__init__" else part
    assert list(objections(allowed, ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    ("part", "source", "count"),
    [
        ("index", "import torch", 1),
        ("index", "def f():\n    from torch import nn", 1),
        ("index", "from silohash import cli", 1),
        ("data", "import silohash.runtime.config", 1),
        ("data", "from silohash.index.codes import pack", 0),
        ("data", "from . import folder", 1),
        ("data", "import torch, pickle", 1),
        ("cli", "from silohash.runtime import config", 0),
    ],
)
def test_the_check_of_imports_sees(part: str, source: str, count: int) -> None:
    assert len(list(objections(part, ast.parse(source)))) == count


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("part", WITHOUT_TORCH)
def test_part_imports_where_there_is_no_torch(part: str) -> None:
    modules = [module_of(path) for path in FILES if part_of(path) == part and path.stem != "__main__"]
    assert modules, f"there is no {part}"
    done = run(BLOCKED, *modules)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["list"], ["list", "--json"], ["doctor"]])
def test_commands_that_need_no_torch_run_without_it(arguments: list[str]) -> None:
    done = run(COMMAND, *arguments)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Yields every call with what is called as it is written, without what a chain of calls begins with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def keyword(call: ast.Call, name: str) -> str:
    return next((ast.unparse(k.value) for k in call.keywords if k.arg == name), "")


def promises_broken(where: str, tree: ast.AST) -> Iterator[str]:
    """Yields calls that break a promise: one training loop, one source of randomness, nothing unpickled."""
    for name, call in calls(tree):
        last = name.rsplit(".", 1)[-1]
        if last == "backward" and where != "runtime/silo.py":
            yield f"line {call.lineno}: only runtime/silo.py calls backward()"
        if where != "seeds.py" and (
            name in {"torch.manual_seed", "torch.seed", "np.random.default_rng", "random.Random"}
            or (name.startswith(("np.random.", "numpy.random.", "random.")) and last.islower())
        ):
            yield f"line {call.lineno}: {name}: randomness comes from seeds.py only"
        if name in {"np.load", "numpy.load"} and keyword(call, "allow_pickle") != "False":
            yield f"line {call.lineno}: {name} without allow_pickle=False"
        if name == "torch.load" and keyword(call, "weights_only") != "True":
            yield f"line {call.lineno}: torch.load without weights_only=True"


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_promises_hold_in_the_source(path: Path) -> None:
    where = path.relative_to(ROOT).as_posix()
    assert list(promises_broken(where, ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    ("where", "source", "count"),
    [
        ("local/x.py", "loss.sum().backward()", 1),
        ("runtime/silo.py", "loss.backward()", 0),
        ("data/x.py", "np.random.shuffle(rows)", 1),
        ("data/x.py", "np.random.default_rng(0)", 1),
        ("data/x.py", "generator.shuffle(rows)", 0),
        ("data/x.py", "np.load(path)", 1),
        ("data/x.py", "np.load(path, allow_pickle=False)", 0),
        ("models/x.py", "torch.load(path, weights_only=False)", 1),
        ("models/x.py", "torch.manual_seed(0)", 1),
        ("seeds.py", "torch.manual_seed(0)", 0),
    ],
)
def test_the_check_of_promises_sees(where: str, source: str, count: int) -> None:
    assert len(list(promises_broken(where, ast.parse(source)))) == count
