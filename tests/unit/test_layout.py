"""Rules that the source itself shows: the direction of imports, what runs without torch, where a few calls may stand.

Each rule is one test, which lists every file that breaks it.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import silohash
from silohash.index import SERVERS
from tests.recorded_packages import PACKAGES

ROOT = Path(silohash.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
UNIT_TESTS = Path(__file__).parent
MOST_LINES_OF_A_FILE = 500
WITHOUT_A_TEST_FILE = {"__main__.py": "a single call, run by python -m silohash in tests/parity/test_resume.py"}
"""Modules without a test file of their own, and the reason. Files named ``__init__.py`` are tested with their folder."""

# A part may import those before it.
ORDER = (
    *("base", "index", "evaluate", "data", "features", "models", "methods", "run", "measure", "training"),
    *("search", "report", "study", "testing", "service", "api", "cli"),
)
NEVER_TORCH = ("index", "evaluate", "search", "service")
WITHOUT_TORCH = ("base", "data", "features", "run.config", *NEVER_TORCH, "report", "api", "cli")
RUNS_CODE_WHEN_READ = {"pickle", "cloudpickle", "dill", "shelve", "marshal"}

ENTRY = re.compile(r" {4}\*{0,2}[\w.]+: +(?P<about>.+)")
"""An entry of a section, such as "    name: What it is." at the margin of its docstring."""

_NAMED = re.compile(r"[A-Z0-9`\"(]|-\d|u?int\d|float\d|bool")
ENTRY_BEGINS = {"Raises": re.compile("[A-Z]"), "Args": _NAMED, "Attributes": _NAMED}
"""How an entry of a section begins: with a capital, or in place of it with a number, code, a quotation or a data type."""

BRITISH = re.compile(
    r"\b\w*(?i:featuris|licence|labelled|labelling|colour|neighbour|behaviour|favour|centred|centre\b|analyse|modelled"
    r"|(?:normal|optim|organ|initial|summar|general|minim|maxim|recogn|serial|standard|random|quant|penal|regular|special"
    r"|visual|categor|synchron|util|discret|vector|parallel|token|binar|equal|stabil|factor|symmetr)is(?:e|ing|ation))\w*"
    r"|\b[Gg]rey\b|\btowards\b|\bwhilst\b|\bjudgement"
)
"""Words as they are spelled in Britain. Titles of papers have them too, in capitals."""

NAMES_OF_COLUMNS = {
    "src/silohash/data/packed/": r"\w*colour\w*|COLOURS",
    "src/silohash/data/build/packed/": r"colour",
    "docs/how-to/development-data.md": r"\w*colour",
}
"""Where files of others are described, and the names in them that are spelled as in Britain."""

PARTS_ON_DEMAND = (
    ("silohash.data", "silohash.data.formats"),  # the catalogue opens a folder of data in its own format
    ("silohash.service", "silohash.service.items"),  # a silo that takes items while it runs
)
"""Folders whose functions import from a part of theirs that imports from them: no circle among modules."""

IMPORT_WITHOUT_TORCH = """
import importlib, sys, traceback
sys.modules["torch"] = None
failed = False
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception:
        failed = True
        print(name, traceback.format_exc(limit=-1), file=sys.stderr)
sys.exit(failed or sys.modules["torch"] is not None)
"""
RUN_WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from silohash.cli import app
for command in sys.argv[1:]:
    try:
        app(command.split())
    except SystemExit as ended:
        if ended.code:
            sys.exit(f"silohash {command} ends with {ended.code}")
    print("ran", command)
"""


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    parts = ("silohash", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in FILES}


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Returns the syntax tree of every module. They are read once, and not when tests are only collected."""
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


@functools.cache
def errors() -> set[str]:
    """Returns the names of the classes of errors: those of base/errors.py and of the table beside it."""
    defined = {node.name for node in trees()["silohash.base.errors"].body if isinstance(node, ast.ClassDef)}
    return defined | tomllib.loads((ROOT / "base/errors.toml").read_text(encoding="utf-8")).keys()


def imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yields (line, "package.module.name") of every import among some nodes."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            stem = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{stem}.{alias.name}") for alias in node.names)


def running(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields the nodes that can run, those in functions included: nothing for type checkers only."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        yield node
        waiting += ast.iter_child_nodes(node)


def imported_modules(tree: ast.Module, known: Set[str]) -> set[str]:
    """Returns which of the known modules are imported by a module or its functions."""
    names = {name for _, name in imports(running(tree))}
    return {name if name in known else name.rpartition(".")[0] for name in names} & known


def circle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Returns one circle of a graph, its first node repeated at the end; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def folder_graph(graph: Mapping[str, Iterable[str]], packages: Set[str]) -> dict[str, set[str]]:
    """Returns which folder imports which, where ``packages`` are the modules that stand for a folder."""

    def folder(name: str) -> str:
        return name if name in packages else name.rpartition(".")[0]

    found: dict[str, set[str]] = defaultdict(set)
    for name, others in graph.items():
        found[folder(name)] |= {folder(other) for other in others} - {folder(name)}
    return found


def objections(part: str, tree: ast.AST) -> Iterator[str]:
    """Yields what is wrong with a file's imports."""
    for line, name in imports(ast.walk(tree)):
        first, *rest = name.split(".")
        if not first:
            yield f"line {line}: a relative import; write it in full"
        elif first == "silohash" and rest and rest[0] in ORDER:
            if ORDER.index(rest[0]) > ORDER.index(part):
                yield f"line {line}: {part} imports {rest[0]}, which stands below it"
        elif first == "torch" and part in NEVER_TORCH:
            yield f"line {line}: {part} imports torch"
        elif first in RUNS_CODE_WHEN_READ:
            yield f"line {line}: {first} can run code when it reads"


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Yields every call with the called expression as it is written."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def keyword(call: ast.Call, name: str) -> str:
    return next((ast.unparse(k.value) for k in call.keywords if k.arg == name), "")


def draws_by_itself(name: str) -> bool:
    """Tells whether a call makes random numbers or seeds a generator without ``base/seeds.py``."""
    if name in {"torch.manual_seed", "torch.seed", "np.random.default_rng", "random.Random"}:
        return True
    return name.startswith(("np.random.", "numpy.random.", "random.")) and name.rpartition(".")[2].islower()


def promises_broken(where: str, tree: ast.AST) -> Iterator[str]:
    """Yields calls that break a promise: one training loop, one source of randomness, nothing unpickled."""
    for name, call in calls(tree):
        if name.rpartition(".")[2] == "backward" and where != "training/silo.py":
            yield f"line {call.lineno}: only training/silo.py calls backward()"
        if where != "base/seeds.py" and draws_by_itself(name):
            yield f"line {call.lineno}: {name}: randomness comes from base/seeds.py only"
        if name in {"np.load", "numpy.load"} and keyword(call, "allow_pickle") != "False":
            yield f"line {call.lineno}: {name} without allow_pickle=False"
        if name == "torch.load" and keyword(call, "weights_only") != "True":
            yield f"line {call.lineno}: torch.load without weights_only=True"


def commands(name: str) -> set[str]:
    """Returns the names of a module's commands, as the table of the command line lists them. Their docstrings are help."""
    listed = {ast.unparse(node) for node in ast.walk(trees()["silohash.cli.app"]) if isinstance(node, ast.Attribute)}
    return {function.rpartition(".")[2] for function in listed if f"silohash.cli.{function.partition('.')[0]}" == name}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yields the functions of a module and the methods of its classes, but no functions within functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif not isinstance(node, ast.Lambda):
            yield from functions(node)


def made_error(node: ast.AST | None) -> str:
    """Returns the name of the class of our errors that a call makes, as ``errors.X(...)`` or ``X(...)``, or ""."""
    made = ast.unparse(node.func).removeprefix("errors.") if isinstance(node, ast.Call) else ""
    return made if made in errors() else ""


def is_user_error(raised: ast.expr | None) -> bool:
    """Tells whether what is raised is made as one of our errors."""
    return bool(made_error(raised)) or (isinstance(raised, ast.Call) and ast.unparse(raised.func).endswith(".reworded"))


def raises_user_error(body: Iterable[ast.AST]) -> bool:
    """Tells whether statements raise a UserError that they do not catch themselves."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.Raise) and is_user_error(node.exc):
            return True
        inner: list[ast.AST] = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Try) and any("UserError" in ast.unparse(h.type) for h in node.handlers if h.type):
            inner = [*node.handlers, *node.orelse, *node.finalbody]
        if raises_user_error(inner):
            return True
    return False


def undocumented_errors(tree: ast.Module, exempt: Set[str] = frozenset()) -> Iterator[str]:
    """Yields the public functions that raise a UserError without a section "Raises:" in their docstring."""
    for function in functions(tree):
        handles_requests = any(ast.unparse(decorator).startswith("router.") for decorator in function.decorator_list)
        if function.name.startswith("_") or function.name in exempt or handles_requests:
            continue
        if raises_user_error(function.body) and "Raises:" not in (ast.get_docstring(function) or ""):
            yield f"line {function.lineno}: {function.name}"


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of every docstring of a module, its functions and its classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.body[0].lineno, text


def misstyled_entries(tree: ast.Module) -> Iterator[str]:
    """Yields the entries of sections of docstrings that do not begin as the house begins them."""
    for line, text in docstrings(tree):
        section = ""
        for part in text.split("\n"):
            if part and not part.startswith(" "):
                section = part.rstrip(":") if part.endswith(":") else ""
            entry = ENTRY.match(part) if section in ENTRY_BEGINS else None
            if entry and not ENTRY_BEGINS[section].match(entry["about"]):
                yield f"line {line}, {section}: {part.strip()}"


def british(text: str, exempt: str = "(?!)") -> Iterator[str]:
    """Yields the words of a text that have a British spelling, unless they match an exempt form."""
    for word in BRITISH.findall(text):
        if not re.fullmatch(exempt, word):
            yield word


def unwatched(project: Mapping[str, Any], scenarios: Set[str]) -> set[str]:
    """Returns the dependencies of a project that no scenario of the recorder watches; those of ``dev`` need a row only."""
    extras = project["optional-dependencies"]
    names = {extra: {Requirement(text).name for text in texts} for extra, texts in extras.items() if extra != "dev"}
    used = {Requirement(text).name for text in project["dependencies"]}.union(*names.values())
    watched = {name for name, row in PACKAGES.items() if row.scenario in scenarios}
    return (used - watched) | ({Requirement(text).name for text in extras["dev"]} - PACKAGES.keys())


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=600)


def test_every_part_has_its_place() -> None:
    parts = {part_of(path) for path in FILES} - {"__init__", "__main__", "py"}
    assert parts == set(ORDER)


def test_no_file_is_too_long() -> None:
    lengths = {module_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES_OF_A_FILE} == {}


def test_every_module_has_its_own_test_file() -> None:
    modules = (path.relative_to(ROOT) for path in FILES if path.name != "__init__.py")
    lacking = {path.as_posix() for path in modules if not (UNIT_TESTS / path.with_name(f"test_{path.name}")).is_file()}
    assert lacking == WITHOUT_A_TEST_FILE.keys()


def test_imports_go_upwards_only() -> None:
    wrong = {}
    for name, path in MODULES.items():
        part = {"__main__": "cli", "__init__": "api"}.get(part_of(path), part_of(path))
        if found := list(objections(part, trees()[name])):
            wrong[name] = found
    assert wrong == {}


def test_no_module_and_no_folder_imports_itself_by_a_detour() -> None:
    graph = {name: imported_modules(tree, MODULES.keys()) for name, tree in trees().items()}
    assert circle(graph) == []
    del graph["silohash.__main__"]  # nothing imports it, although it lies in the folder of all others
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    folders = folder_graph(graph, packages)
    for folder, part in PARTS_ON_DEMAND:
        folders[folder].remove(part)
    assert circle(folders) == []


def test_the_checks_of_imports_see() -> None:
    for part, source, count in (
        ("index", "import torch", 1),
        ("index", "def f():\n    from torch import nn", 1),
        ("index", "from silohash import cli", 1),
        ("data", "import silohash.run.config.load", 1),
        ("data", "from silohash.index.codes import pack", 0),
        ("data", "from . import folder", 1),
        ("data", "import torch, pickle", 1),
        ("cli", "from silohash.training import config", 0),
    ):
        assert len(list(objections(part, ast.parse(source)))) == count, source


def test_the_check_of_circles_sees() -> None:
    source = "import a.b\nfrom a import c\nif TYPE_CHECKING:\n    import a.d\ndef f():\n    import a.e\n"
    known = {"a", "a.b", "a.c", "a.d", "a.e"}
    assert imported_modules(ast.parse(source), known) == {"a.b", "a.c", "a.e"}
    assert imported_modules(ast.parse("from a.b import name"), known) == {"a.b"}
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert set(circle({"a": {"b"}, "b": {"a"}})) == {"a", "b"}
    across = {"a.x.one": {"a.y.two"}, "a.y.three": {"a.x.four"}}
    assert circle(across) == []
    assert set(circle(folder_graph(across, {"a", "a.x", "a.y"}))) == {"a.x", "a.y"}


def test_public_functions_document_the_errors_that_they_raise() -> None:
    wrong = {}
    for name, tree in trees().items():
        if found := list(undocumented_errors(tree, commands(name))):
            wrong[name] = found
    assert wrong == {}


def test_the_check_of_documented_errors_sees() -> None:
    raising = 'raise UserError("wrong")'
    for source, count in (
        (f"def f():\n    {raising}", 1),
        ('def f():\n    raise UnknownName("wrong")', 1),
        ('def f():\n    raise errors.UnknownName("wrong")', 1),
        ('def f():\n    try:\n        g()\n    except UserError as error:\n        raise error.reworded("wrong")', 1),
        (f"async def f():\n    {raising}", 1),
        (f'def f():\n    """Do it."""\n    if x:\n        {raising}', 1),
        (f'def f():\n    """Do it.\n\n    Raises:\n        UserError: if not.\n    """\n    {raising}', 0),
        (f"class C:\n    @property\n    def f(self):\n        {raising}", 1),
        (f"if x:\n    def f():\n        {raising}", 1),
        (f"@router.get('/')\ndef f():\n    {raising}", 0),
        (f"def _f():\n    {raising}", 0),
        (f"def f():\n    def g():\n        {raising}\n    return g", 0),
        (f"def f():\n    try:\n        {raising}\n    except UserError:\n        pass", 0),
        (f"def f():\n    try:\n        g()\n    except UserError:\n        {raising}", 1),
        (f"def f():\n    try:\n        {raising}\n    except OSError:\n        pass", 1),
        ('def f():\n    raise ValueError("wrong")', 0),
    ):
        assert len(list(undocumented_errors(ast.parse(source)))) == count, source
    assert list(undocumented_errors(ast.parse(f"def f():\n    {raising}"), {"f"})) == []
    assert "index_move" in commands("silohash.cli.search")


def used_errors(tree: ast.AST) -> Iterator[str]:
    """Yields the names that a module takes from base/errors.py, by an import or as ``errors.X``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "silohash.base.errors":
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "errors":
            yield node.attr


def test_every_error_that_a_module_names_exists() -> None:
    functions = {"restored"}
    unknown = {name: set(used_errors(tree)) - errors() - functions for name, tree in trees().items()}
    assert {name: names for name, names in unknown.items() if names} == {}


def test_the_check_of_names_of_errors_sees() -> None:
    source = "def f():\n    from silohash.base.errors import Lost, UserError\n    raise errors.Gone(other.Kept)"
    assert set(used_errors(ast.parse(source))) == {"Lost", "UserError", "Gone"}
    assert "Lost" not in errors()
    assert {"UserError", "WrongValue", "UnknownName"} <= errors()


def test_every_error_has_a_class_of_its_own() -> None:
    known, called = errors(), defaultdict[str, set[str]](set)
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if made := made_error(node):
                called[made].add(name)
    assert called.pop("UserError", set()) == set(), "raise one of the subclasses in base/errors.py or errors.toml"
    assert known - {"UserError"} - called.keys() == set(), "no code raises these"


def test_sections_of_docstrings_have_one_style() -> None:
    assert {name: found for name, tree in trees().items() if (found := list(misstyled_entries(tree)))} == {}


def test_the_check_of_docstrings_sees() -> None:
    for section, entry, count in (
        ("Raises", "UserError: If not.", 0),
        ("Raises", "UserError: Unless it is.", 0),
        ("Raises", "UserError: if not.", 1),
        ("Args", "rows: Positions.", 0),
        ("Args", "rows: ``(n,)`` positions.", 0),
        ("Args", "*rows: 0 for none.", 0),
        ("Args", "rows: int64 positions.", 0),
        ("Args", "rows: positions.", 1),
        ("Attributes", "rows: the positions.", 1),
        ("Attributes", "rows: A sentence that goes on\n            in: another line.", 0),
        ("Example", "rows: positions.", 0),
    ):
        source = f'def f():\n    """Do it.\n\n    {section}:\n        {entry}\n    """'
        assert len(list(misstyled_entries(ast.parse(source)))) == count, source


def test_spelling_is_american(repository: Path) -> None:
    texts = [*FILES, *repository.glob("*.md"), *repository.glob("docs/**/*.md")]
    wrong = {}
    for path in texts:
        name = path.relative_to(repository).as_posix()
        exempt = "|".join(form for start, form in NAMES_OF_COLUMNS.items() if name.startswith(start)) or "(?!)"
        if found := list(british(path.read_text(encoding="utf-8"), exempt)):
            wrong[name] = found
    assert wrong == {}


def test_the_check_of_spelling_sees() -> None:
    wrong = (
        "featuriser licence unlabelled colours grey centre centred Normalised optimisation towards behaviour neighbours"
    )
    assert list(british(wrong)) == wrong.split()
    right = (
        "featurizer license labeled colors gray center normalized optimization toward behavior promise precise Towards"
    )
    assert list(british(f"{right} labelList advise otherwise")) == []
    assert list(british("base_colour colour", r"\w*colour")) == []


@pytest.mark.whole_run
def test_parts_that_search_need_import_where_there_is_no_torch() -> None:
    parts = {part: [name for name in MODULES if f"{name}.".startswith(f"silohash.{part}.")] for part in WITHOUT_TORCH}
    assert all(parts.values()), parts
    done = run(IMPORT_WITHOUT_TORCH, *(name for names in parts.values() for name in names if "__main__" not in name))
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.whole_run
def test_commands_that_need_no_torch_run_without_it() -> None:
    commands = ["--help", "train --help", "list", "list --json", "doctor"]
    done = run(RUN_WITHOUT_TORCH, *commands)
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line.removeprefix("ran ") for line in done.stdout.splitlines() if line.startswith("ran ")] == commands


def test_promises_hold_in_the_source() -> None:
    wrong = {}
    for name, path in MODULES.items():
        if found := list(promises_broken(path.relative_to(ROOT).as_posix(), trees()[name])):
            wrong[name] = found
    assert wrong == {}


def test_the_check_of_promises_sees() -> None:
    for where, source, count in (
        ("local/x.py", "loss.sum().backward()", 1),
        ("training/silo.py", "loss.backward()", 0),
        ("data/x.py", "np.random.shuffle(rows)", 1),
        ("data/x.py", "np.random.default_rng(0)", 1),
        ("data/x.py", "generator.shuffle(rows)", 0),
        ("data/x.py", "np.load(path)", 1),
        ("data/x.py", "np.load(path, allow_pickle=False)", 0),
        ("models/x.py", "torch.load(path, weights_only=False)", 1),
        ("models/x.py", "torch.manual_seed(0)", 1),
        ("base/seeds.py", "torch.manual_seed(0)", 0),
    ):
        assert len(list(promises_broken(where, ast.parse(source)))) == count, source


def test_a_scenario_watches_what_each_dependency_reports_and_writes(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source = (repository / "tests" / "integration" / "test_nothing_reported.py").read_text(encoding="utf-8")
    scenarios = {name for name in {row.scenario for row in PACKAGES.values()} if f'"{name}"' in source} | {
        *SERVERS.table
    }
    assert unwatched(project, scenarios) == set()


def test_the_check_of_dependencies_sees() -> None:
    extras = {"new": ["torch>=2", "other[fast]>=1"], "dev": ["pytest", "tool"]}
    project = {"dependencies": ["numpy>=2", "rich; os_name == 'nt'"], "optional-dependencies": extras}
    assert unwatched(project, {"training"}) == {"other", "numpy", "tool"}
