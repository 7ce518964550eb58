"""What the documents work through (methods, data sets, backends, measures) is found by name and does what the pages say."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from silohash.base.types import Arrays
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.federated.base import FederationInfo
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.local.base import SiloData
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.run.config.load import ResolvedConfig, load_resolved
from silohash.training.engines.port import SiloResult, SiloTask
from silohash.training.silo import make_context, train_silo
from tests.runs import loop_config

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "add-a-method.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
TOML = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
BITS = 16


DATA_PAGE, SEARCH_PAGE = PAGE.with_name("add-a-data-set.md"), PAGE.with_name("add-a-backend-or-a-measure.md")
MARKDOWN = re.compile(r"^```markdown\n(.*?)^```", re.MULTILINE | re.DOTALL)
CHECKS = (
    "tests/contract/test_local_methods.py", "tests/contract/test_federated_methods.py", "tests/contract/test_data_sets.py",
    "tests/contract/test_partitions.py", "tests/contract/test_index_backends.py", "tests/contract/test_measures.py",
    "tests/docs/test_community_data.py", "tests/unit/data/test_named_once.py", "tests/unit/test_layout.py",
)  # fmt: skip
CHOSEN = {
    "layout": ("every_module", "upwards", "detour", "promises_hold", "american", "style", "documented", "named_in_few"),
    "methods": ("contrast-recommended-stays-finite", "contrast-fedavg-trains", "near-trains-without"),
    "data": ("postcards", "text-length", "text_length"),
    "search": ("plain", "MRR", "reciprocal"),
}
"""Parts of the names of the tests that show that each kind of example fits into the tree."""


@dataclass(frozen=True)
class Example:
    """What a page works through: its source, the file that it makes, and the file with the table that names it."""

    source: str
    file: str
    table: str


def write_example(root: Path, example: Example, line: str, name: str = "") -> None:
    """Adds an example to a tree: its file, an empty mirrored test file, and its line in the table of that name."""
    (root / example.file).write_text(example.source, encoding="utf-8")
    mirrored = root / Path(example.file.replace("src/silohash", "tests/unit"))
    mirrored.with_name(f"test_{mirrored.name}").touch()
    table = root / example.table
    head, found, rest = table.read_text(encoding="utf-8").partition(f"{name} = Registry(" if name else "table={")
    rest = rest.replace("table={", f"table={{{line},", 1) if name else f"{line},{rest}"
    table.write_text(head + found + rest, encoding="utf-8")


def write_methods(root: Path) -> list[Example]:
    """Adds the page's two methods to a tree."""
    text = PAGE.read_text(encoding="utf-8")
    places = re.findall(r"Save it as `(src/silohash/(methods/\w+)/[\w/]+\.py)`", text)
    lines = re.findall(r'`("\w+":\s+"silohash\.methods\.[\w.]+:\w+")`', text)
    assert len(places) == len(lines) == 2
    sources = BLOCK.findall(text)[:2]
    examples = [
        Example(source, file, f"src/silohash/{family}/__init__.py")
        for (file, family), source in zip(places, sources, strict=True)
    ]
    for example, line in zip(examples, lines, strict=True):
        write_example(root, example, line)
    return examples


def write_data(root: Path) -> list[Example]:
    """Adds the page's data set and its way of partitioning to a tree, with the tests and the description of the page."""
    page = DATA_PAGE.read_text(encoding="utf-8")
    places = re.findall(r"Save it as `(src/silohash/data/[\w/]+\.py)` and add a line to\s+`([\w/.]+)`", page)
    lines = re.findall(r'`("[\w-]+":\s+"silohash\.data\.[\w.]+:\w+")`', page)
    tests = [f"{folder}{name}" for name, folder in re.findall(r"`(test_\w+\.py)` in `(tests/unit/data/\w+/)`:\n", page)]
    sources = BLOCK.findall(page)
    assert (len(places), len(lines), len(tests), len(sources)) == (2, 2, 2, 4)
    examples = [Example(source, *place) for place, source in zip(places, sources[::2], strict=True)]
    for example, line, test, its_test in zip(examples, lines, tests, sources[1::2], strict=True):
        write_example(root, example, line)
        (root / test).write_text(its_test, encoding="utf-8")
    row, section = MARKDOWN.findall(page)
    described = root / DESCRIBED
    head = "|---|---|---|---|\n"
    text = described.read_text(encoding="utf-8").replace(head, head + row, 1)
    described.write_text(f"{text.rstrip()}\n\n{section}", encoding="utf-8")
    return examples


def write_search(root: Path) -> list[Example]:
    """Adds the page's index backend and its measure to a tree, with their tests."""
    page = SEARCH_PAGE.read_text(encoding="utf-8")
    places = re.findall(
        r"Save it as `(.*?)` and add a line to `(.*?)`,\s+in the table `(\w+)`:\s+`(.*?)`", page, re.DOTALL
    )
    tests, sources = re.findall(r"The test, `(.*?)`:", page), BLOCK.findall(page)
    assert (len(places), len(tests), len(sources)) == (2, 2, 4)
    examples = [Example(source, file, table) for (file, table, *_), source in zip(places, sources[::2], strict=True)]
    for example, (*_, name, line), test, its_test in zip(examples, places, tests, sources[1::2], strict=True):
        write_example(root, example, line, name)
        (root / test).write_text(its_test, encoding="utf-8")
    return examples


DESCRIBED = "docs/how-to/community-data.md"


@dataclass(frozen=True)
class Tree:
    """A copy of the tree with all examples in it, and the names of the tests that passed there."""

    methods: list[Example]
    data: list[Example]
    search: list[Example]
    passed: tuple[str, ...]

    def count(self, kind: str) -> int:
        """Returns how many tests of a kind passed."""
        return sum(any(part in name for part in CHOSEN[kind]) for name in self.passed)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The files that the pages name, and the checks of the layout and of the contracts, which all pass."""
    place = tmp_path_factory.mktemp("tree")
    for folder in ("src", "tests", "docs"):
        shutil.copytree(PAGE.parents[2] / folder, place / folder)  # with what Python and pytest compiled
    shutil.copy(PAGE.parents[2] / "pyproject.toml", place)
    examples = [write(place) for write in (write_methods, write_data, write_search)]
    added = [str(path.relative_to(place)) for path in place.glob("tests/unit/**/test_*.py") if is_new(path, place)]
    chosen = " or ".join(part for parts in CHOSEN.values() for part in parts)
    # Lines of the copy do not count as lines of the source.
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:xdist", "-rA", *CHECKS, *added, "-k", chosen],
        cwd=place, env=unmeasured | {"PYTHONPATH": str(place / "src")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    return Tree(*examples, tuple(re.findall(r"^PASSED (\S+)", done.stdout, re.MULTILINE)))


def is_new(path: Path, place: Path) -> bool:
    """Returns whether a file of a copy is none of ours."""
    return not (PAGE.parents[2] / path.relative_to(place)).exists()


def told(what: str) -> tuple[int, set[str], int, set[str]]:
    """Returns what CONTRIBUTING says of an addition: how many files and which, how many concepts and which."""
    text = (PAGE.parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.search(rf"Adding {what} touches (\d) files:(.*?)takes (\d+)\s+concepts:(.*?)\n\n", text, re.DOTALL)
    assert found is not None
    files, concepts = re.findall(r"`([\w/.-]+/[\w.-]+)`", found[2]), re.findall(r"`(\w+)`", found[4])
    return int(found[1]), set(files), int(found[3]), set(concepts)


def imported(source: str, package: str) -> set[str]:
    """Returns the names that an example imports from a package of ours."""
    return {
        alias.name
        for node in ast.parse(source).body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(package)
        for alias in node.names
    }


@pytest.fixture
def methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's two methods, under the names that it gives them."""
    local, federated, _ = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    folder = tmp_path / "worked_examples"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "contrast.py").write_text(local, encoding="utf-8")
    (folder / "near.py").write_text(federated, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(LOCAL_METHODS.table, "contrast", "worked_examples.contrast:Contrast")  # type: ignore[arg-type]
    monkeypatch.setitem(FEDERATED_METHODS.table, "near", "worked_examples.near:Near")  # type: ignore[arg-type]
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "worked_examples"]:
        del sys.modules[name]


def test_package_of_the_page_has_a_whole_pyproject_and_names_the_examples(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (project,) = (tomllib.loads(block) for block in TOML.findall(text) if "[project]" in block)
    assert {"build-system", "project", "tool"} <= project.keys()
    assert project["project"]["name"] == "my-package"
    points = project["project"]["entry-points"]
    assert points.keys() == {LOCAL_METHODS.group, FEDERATED_METHODS.group}
    sources = BLOCK.findall(text)
    for name, target in {**points[LOCAL_METHODS.group], **points[FEDERATED_METHODS.group]}.items():
        package, module, attribute = re.split("[.:]", target)
        assert f"src/{package}/{module}.py" in text
        assert any(f"class {attribute}" in source and f'key="{name}"' in source for source in sources)
    for extra in re.findall(r"silohash\[(\w+)\]", " ".join(project["project"]["dependencies"])):
        ours = tomllib.loads((PAGE.parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
        assert extra in ours["project"]["optional-dependencies"]


@pytest.mark.whole_run
@pytest.mark.usefixtures("methods")
def test_both_methods_pass_the_contract_tests_of_the_page() -> None:
    *_, tests = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    namespace: dict[str, Any] = {}
    exec(tests, namespace)  # noqa: S102  the page's own test file
    checks = namespace["CHECKS"]
    assert {str(check).partition("-")[0] for check in checks} == {"contrast", "dcmh"}
    for check in checks:
        namespace["test_contract"](check)


@pytest.mark.whole_run
def test_both_methods_fit_into_the_tree_where_the_page_puts_them(tree: Tree) -> None:
    """The files that CONTRIBUTING names are enough for the layout and for the contract."""
    text = PAGE.read_text(encoding="utf-8")
    for kind, example in zip(("local", "federated"), tree.methods, strict=True):
        row = re.search(rf"^\| {kind} \| (.*) \|$", text, re.MULTILINE)
        assert row is not None
        concepts = re.findall(r"`(\w+)`", row[1])
        assert told(f"a {kind} method") == (3, {example.table}, len(concepts), set(concepts))
    assert tree.count("methods") >= 8
    assert tree.count("layout") >= 5


def test_concepts_of_the_page_are_those_that_the_examples_use() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (local|federated) \| (.*) \|$", text, re.MULTILINE)
    assert [kind for kind, _ in rows] == ["local", "federated"]
    for (_, concepts), source in zip(rows, BLOCK.findall(text), strict=False):
        named = re.findall(r"`(\w+)`", concepts)
        imported = set(
            re.findall(r"\b[A-Z]\w*[a-z]\w*", " ".join(re.findall(r"from silohash[\w.]+ import (.*)", source)))
        )
        assert imported - set(named) <= {"Modality"}
        assert all(re.search(rf"\b{name}\b", source) for name in named)


def config(**federated: Any) -> ResolvedConfig:
    return load_resolved(
        {
            "data": {"name": "glyphs"},
            "local": {"name": "contrast", "bits": BITS, "temperature": 0.1},
            "federated": federated,
        }
    )


def pairs(count: int = 64) -> SiloData:
    """Pairs that belong together: both sides are linear views of the same eight numbers."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(count, 8, generator=generator)
    has_text = torch.ones(count, dtype=torch.bool)
    has_text[:3] = False
    return SiloData(
        name="a",
        image=hidden @ torch.randn(8, 12, generator=generator),
        text=hidden @ torch.randn(8, 10, generator=generator) * has_text.unsqueeze(1),
        labels=None,
        has_image=torch.ones(count, dtype=torch.bool),
        has_text=has_text,
    )


def train(run: ResolvedConfig, rounds: int) -> list[tuple[SiloResult, Arrays]]:
    """Trains one silo for some rounds; returns each round's result and the parameters that it was sent."""
    spec = ModelSpec({"image": TowerSpec("mlp", (12,), 32), "text": TowerSpec("mlp", (10,), 32)}, classes=0)
    torch.manual_seed(0)
    model = run.local.build(spec, BITS)
    server = run.federated.init_server(model, FederationInfo(silos=1, classes=0, bits=BITS, total_rounds=rounds))
    config = loop_config(epochs=2, rounds=rounds, batch=16, learning_rate=0.003)
    done = []
    for number in range(rounds):
        sent = {name: array.copy() for name, array in server.params.items()}
        task = SiloTask("train", 0, run.federated.broadcast(server, 0, round=number))
        context = make_context(task, config, model=model, local=run.local, data=pairs())
        result = train_silo(context, run.federated, config)
        server = run.federated.aggregate(server, [result.update])
        done.append((result, sent))
    return done


def moved(result: SiloResult, sent: Arrays) -> float:
    return float(sum(np.square(result.update.params[name] - sent[name]).sum() for name in sent))


@pytest.mark.usefixtures("methods")
def test_cards_are_read() -> None:
    assert LOCAL_METHODS.card("contrast").title == "Contrast of pairs"
    assert FEDERATED_METHODS.card("near").sends == ("parameters", "number of items")
    assert not {"worked_examples.contrast", "worked_examples.near"} & set(sys.modules)


@pytest.mark.whole_run
@pytest.mark.usefixtures("methods")
def test_local_method_learns() -> None:
    done = train(config(name="fedavg"), rounds=6)
    assert set(done[0][0].terms) == {"i2t", "t2i"}
    assert done[-1][0].loss < 0.5 * done[0][0].loss


@pytest.mark.whole_run
@pytest.mark.usefixtures("methods")
def test_federated_method_stays_nearer_the_stronger_its_term_and_is_fedavg_without() -> None:
    by_weight = {weight: train(config(name="near", proximal_weight=weight), rounds=1)[0] for weight in (0.0, 1.0, 10.0)}
    free, near, nearer = (moved(*done) for done in by_weight.values())
    assert free > near > nearer
    assert "proximal" in by_weight[1.0][0].terms
    fedavg, _ = train(config(name="fedavg"), rounds=1)[0]
    without, _ = by_weight[0.0]
    assert all(np.array_equal(fedavg.update.params[name], array) for name, array in without.update.params.items())


@pytest.mark.whole_run
def test_a_data_set_and_a_partition_fit_into_the_tree_where_the_page_puts_them(tree: Tree) -> None:
    """The files that the page and CONTRIBUTING name are enough for the layout and for what every data set is checked for."""
    more = ({DESCRIBED}, set[str]())
    for what, example, described in zip(("a data set", "a way of partitioning"), tree.data, more, strict=True):
        concepts = imported(example.source, "silohash.data.")
        files = {example.table} | described
        assert told(what) == (len(files) + 2, files, len(concepts), concepts)
    assert tree.count("data") >= 10


@pytest.mark.whole_run
def test_a_backend_and_a_measure_fit_into_the_tree_where_the_page_puts_them(tree: Tree) -> None:
    """The files that the page and CONTRIBUTING name are enough for the layout, and for the contract of both."""
    for what, example in zip(("an index backend", "a measure"), tree.search, strict=True):
        concepts = imported(example.source, "silohash.")
        assert told(what) == (3, {example.table}, len(concepts), concepts)
    assert tree.count("search") >= 15
