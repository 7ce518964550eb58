"""The benchmarks import names that exist, and pass the arguments that the package's functions take."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
FILES = sorted(FOLDER.glob("*.py"))


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yields (module, name) of everything that a file imports from the package."""
    for node in ast.walk(tree):
        module = (isinstance(node, ast.ImportFrom) and node.module) or ""
        if module.startswith("silohash"):
            yield from ((module, alias.name) for alias in node.names)


def keywords(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yields (function, keyword) of every call by a plain name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield from ((node.func.id, keyword.arg) for keyword in node.keywords if keyword.arg)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_names_and_keywords_exist(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {name: importlib.import_module(module).__dict__.get(name) for module, name in imported(tree)}
    assert found
    assert [name for name, value in found.items() if value is None] == []
    for function, keyword in keywords(tree):
        if callable(found.get(function)):
            parameters = inspect.signature(found[function]).parameters
            open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
            assert keyword in parameters or open_ended, f"{function}({keyword}=...)"
