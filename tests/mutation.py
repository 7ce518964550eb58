"""Change one operator or constant at a time, and count which changes the module's own tests notice.

Each change is made in a copy of the package, and only the test file that mirrors the module is run. The sample depends
on the seed and the sources alone. mutmut and cosmic-ray do not fit: mutmut runs functions through trampolines, which
numba cannot compile, and both run the whole suite unless each module is configured by hand.

    python tests/mutation.py                         a hundred changes in thirty modules
    python tests/mutation.py --only search/merge.py --changes 50
"""

from __future__ import annotations

import argparse
import ast
import multiprocessing
import os
import queue
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "src" / "silohash"
SWAPPED = {
    "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*", "**": "*", "@": "+", "&": "|", "|": "&", "^": "|",
    "<<": ">>", ">>": "<<", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not",
    "is not": "is", "in": "not in", "not in": "in", "and": "or", "or": "and",
}  # fmt: skip
OPERATOR = re.compile(r"is\s+not|not\s+in|\bis\b|\bin\b|\band\b|\bor\b|\*\*|//|<<|>>|[<>=!]=|[-+*/%@&|^<>]")
VISUAL = {
    "alpha", "color", "figsize", "fontsize", "labelsize", "linewidth", "linewidths", "ls", "lw", "markersize", "mew", "ms",
    "pad", "xytext",
}  # fmt: skip
"""Keyword arguments that only change how a plot looks, which people judge, not tests."""
SECONDS = 180
SURVIVED, CAUGHT, BROKEN = "survived", "caught", "broken"


@dataclass(frozen=True)
class Change:
    """A replacement of a part of a module's source text.

    Attributes:
        module: Path of the module inside the package.
        start: First character that is replaced.
        end: First character after the replaced part.
        text: The replacement.
    """

    module: str
    start: int
    end: int
    text: str

    def apply(self, source: str) -> str:
        """Return the changed source."""
        return source[: self.start] + self.text + source[self.end :]

    def describe(self, source: str) -> str:
        """Return one line that says what is changed where."""
        line = source.count("\n", 0, self.start) + 1
        whole = source.splitlines()[line - 1].strip()
        return f"{self.module}:{line}  {source[self.start : self.end]!r} -> {self.text!r}  in  {whole}"


class Offsets:
    """Positions in a source text from the lines and UTF-8 columns of its tree."""

    def __init__(self, source: str) -> None:
        self.lines = source.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def of(self, line: int, column: int) -> int:
        """Return the position of a character."""
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.expr) -> tuple[int, int]:
        """Return the first position of a node, and the first one after it."""
        return self.of(node.lineno, node.col_offset), self.of(node.end_lineno or 0, node.end_col_offset or 0)


def neighbors(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the operands on both sides of each operator of an expression."""
    if isinstance(node, ast.BinOp):
        yield node.left, node.right
    elif isinstance(node, ast.Compare):
        yield from pairwise([node.left, *node.comparators])
    elif isinstance(node, ast.BoolOp):
        yield from pairwise(node.values)


def other_constant(value: object) -> str | None:
    """Return another constant of the same type, as source text; None for strings and the like."""
    if isinstance(value, bool):
        return str(not value)
    if isinstance(value, int):
        return str(value + 1)
    return repr(value * 2 + 1) if isinstance(value, float) else None


def meaningless(node: ast.AST) -> Iterator[ast.AST | None]:
    """Yield the parts of a node in which a change means nothing: annotations, decorators, texts, looks of plots."""
    if isinstance(node, ast.Call):
        yield from (argument.value for argument in node.keywords if argument.arg in VISUAL)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.returns
        yield from (each.annotation for each in ast.walk(node.args) if isinstance(each, ast.arg))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield from node.decorator_list
    if isinstance(node, ast.AnnAssign):
        yield node.annotation
    for_checkers = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    for_types = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("cast", "TypeVar"))
    if for_checkers or for_types or isinstance(node, ast.JoinedStr):
        yield node


def ignored(tree: ast.Module) -> set[ast.AST]:
    """Return the nodes in which a change means nothing."""
    parts = (part for node in ast.walk(tree) for part in meaningless(node) if part is not None)
    return {below for part in parts for below in ast.walk(part)}


def changes_of(module: str, source: str) -> list[Change]:
    """Return every change of one operator or constant of a module, in the order of the text."""
    tree, offsets, found = ast.parse(source), Offsets(source), set()
    without = ignored(tree)
    for node in ast.walk(tree):
        if node in without:
            continue
        for left, right in neighbors(node):
            start, end = offsets.span(left)[1], offsets.span(right)[0]
            match = OPERATOR.search(source, start, end)
            if match and (text := SWAPPED.get(" ".join(match.group().split()))):
                found.add(Change(module, match.start(), match.end(), text))
        if isinstance(node, ast.Constant) and (text := other_constant(node.value)):
            found.add(Change(module, *offsets.span(node), text))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            found.add(Change(module, offsets.span(node)[0], offsets.span(node.operand)[0], ""))
    return sorted((c for c in found if compiles(c, source)), key=lambda change: (change.start, change.end))


def compiles(change: Change, source: str) -> bool:
    """Tell whether the changed source is still a program, and another one."""
    try:
        return ast.dump(ast.parse(change.apply(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def own_tests(module: str) -> Path:
    """Return the test file that mirrors a module."""
    path = Path(module)
    return REPOSITORY / "tests" / "unit" / path.parent / f"test_{path.stem}.py"


def sample(only: Sequence[str], modules: int, changes: int, seed: int) -> list[Change]:
    """Return randomly chosen changes, spread evenly over randomly chosen modules that have a test file."""
    draw = random.Random(seed)
    names = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
    candidates = [name for name in names if own_tests(name).is_file() and (not only or name.startswith(tuple(only)))]
    sites = {name: changes_of(name, (PACKAGE / name).read_text(encoding="utf-8")) for name in candidates}
    enough = [name for name in candidates if len(sites[name]) >= (1 if only else 5)]
    chosen = sorted(draw.sample(enough, min(modules, len(enough))))
    drawn: list[Change] = []
    for number, name in enumerate(chosen):
        share = changes * (number + 1) // len(chosen) - changes * number // len(chosen)
        drawn += sorted(draw.sample(sites[name], min(share, len(sites[name]))), key=lambda change: change.start)
    return drawn


def run_tests(copy: str, test_file: str) -> None:
    """Run a test file against a copy of the package, in a process of its own; its exit code is pytest's."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.chdir(REPOSITORY)
    sys.dont_write_bytecode = True
    os.environ.update(PYTHONPATH=copy, PYTHONDONTWRITEBYTECODE="1")
    # The folder of this program is not kept, because its module nats would stand for the package of that name.
    sys.path[:] = [copy, *(path for path in sys.path if path != str(Path(__file__).parent))]
    import pytest

    options = ["-x", "-p", "no:cacheprovider", "-p", "no:randomly", f"--timeout={SECONDS}"]
    os._exit(int(pytest.main([*options, test_file])))


def exit_code(copy: Path, module: str) -> int | None:
    """Return what pytest ends with on a module's own tests; None if it takes too long."""
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=run_tests, args=(str(copy), str(own_tests(module))))
    process.start()
    process.join(SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
        return None
    return process.exitcode


def outcome(change: Change, copies: queue.SimpleQueue[Path]) -> str:
    """Return whether a module's own tests notice a change."""
    copy = copies.get()
    target = copy / "silohash" / change.module
    text = target.read_text(encoding="utf-8")
    try:
        target.write_text(change.apply(text), encoding="utf-8")
        found = SURVIVED if exit_code(copy, change.module) == 0 else CAUGHT
        print(f"{found}  {change.describe(text)}", file=sys.stderr, flush=True)
        return found
    finally:
        target.write_text(text, encoding="utf-8")
        copies.put(copy)


def unchanged(module: str, copies: queue.SimpleQueue[Path]) -> bool:
    """Tell whether a module's own tests pass before anything is changed."""
    copy = copies.get()
    try:
        return exit_code(copy, module) == 0
    finally:
        copies.put(copy)


def measure(drawn: Sequence[Change], processes: int) -> dict[Change, str]:
    """Return the outcome of each change."""
    modules = sorted({change.module for change in drawn})
    copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(processes) as threads:
        for number in range(processes):
            copy = Path(folder) / str(number)
            shutil.copytree(PACKAGE, copy / "silohash")
            copies.put(copy)
        passing = dict(zip(modules, threads.map(lambda name: unchanged(name, copies), modules), strict=True))
        whole = [change for change in drawn if passing[change.module]]
        outcomes = dict(zip(whole, threads.map(lambda change: outcome(change, copies), whole), strict=True))
    return {change: outcomes.get(change, BROKEN) for change in drawn}


def report(outcomes: dict[Change, str]) -> str:
    """Return the share of the changes that were caught per module and in all, and the changes that were not."""
    lines = []
    for module in sorted({change.module for change in outcomes}):
        found = [result for change, result in outcomes.items() if change.module == module]
        note = "  (its tests fail before any change)" if BROKEN in found else ""
        lines.append(f"{found.count(CAUGHT):3d} of {len(found):3d}  {module}{note}")
    for change, result in outcomes.items():
        if result == SURVIVED:
            lines.append("survived  " + change.describe((PACKAGE / change.module).read_text(encoding="utf-8")))
    counted = [result for result in outcomes.values() if result != BROKEN]
    share = 100 * counted.count(CAUGHT) / max(1, len(counted))
    lines.append(f"{counted.count(CAUGHT)} of {len(counted)} changes caught by the module's own tests: {share:.0f} %")
    return "\n".join(lines)


def main() -> None:
    """Draw changes, run the tests, and print what was caught."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="*", default=[], help="modules or folders inside the package, as search/merge.py"
    )
    parser.add_argument("--modules", type=int, default=30, help="number of modules")
    parser.add_argument("--changes", type=int, default=100, help="number of changes over all modules")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--processes", type=int, default=2, help="number of test processes")
    options = parser.parse_args()
    multiprocessing.set_forkserver_preload(["pytest", "torch", "numba", "pydantic", "typer"])
    drawn = sample(options.only, options.modules, options.changes, options.seed)
    print(report(measure(drawn, options.processes)))


if __name__ == "__main__":
    main()
