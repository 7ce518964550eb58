"""What the documents work through (methods, data sets, backends, measures) is found by name and does what the pages say."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
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


def copy_tree(place: Path) -> None:
    """Copies what the checks of a worked example read, with what Python and pytest compiled of it."""
    root = PAGE.parents[2]
    for folder in ("src", "tests", "docs"):
        shutil.copytree(root / folder, place / folder)
    shutil.copy(root / "pyproject.toml", place)


def passed_in(place: Path, checks: Iterable[str], chosen: str) -> int:
    """Runs the chosen tests of a copy of the tree; returns how many passed, if none failed."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:xdist", *checks, "-k", chosen],
        cwd=place, env=os.environ | {"PYTHONPATH": str(place / "src")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    return int(passed[1])


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
def test_both_methods_fit_into_the_tree_where_the_page_puts_them(tmp_path: Path) -> None:
    """The files that CONTRIBUTING names are enough for the layout and for the contract."""
    text, root = PAGE.read_text(encoding="utf-8"), PAGE.parents[2]
    contributing = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    copy_tree(tmp_path)
    sources = BLOCK.findall(text)
    places = re.findall(r"Save it as `(src/silohash/(methods/\w+)/[\w/]+\.py)`", text)
    lines = re.findall(r'`("\w+":\s+"silohash\.methods\.[\w.]+:\w+")`', text)
    assert len(places) == len(lines) == 2
    for (file, family), line, source in zip(places, lines, sources, strict=False):
        (tmp_path / file).write_text(source, encoding="utf-8")
        table = tmp_path / "src" / "silohash" / family / "__init__.py"
        table.write_text(table.read_text(encoding="utf-8").replace("table={", f"table={{{line},", 1), encoding="utf-8")
        mirrored = Path(file.replace("src/silohash", "tests/unit"))
        (tmp_path / mirrored).with_name(f"test_{mirrored.name}").touch()
        kind = family.removeprefix("methods/")
        told = re.search(
            rf"Adding a {kind} method touches 3 files:(.*?)takes (\d)\s+concepts:(.*?)\n\n", contributing, re.DOTALL
        )
        row = re.search(rf"^\| {kind} \| (.*) \|$", text, re.MULTILINE)
        assert told is not None
        assert row is not None
        assert re.findall(r"`([\w/.-]+/[\w.-]+)`", told[1]) == [f"src/silohash/{family}/__init__.py"]
        concepts = re.findall(r"`(\w+)`", row[1])
        assert (int(told[2]), re.findall(r"`(\w+)`", told[3])) == (len(concepts), concepts)
    checks = ["tests/contract/test_local_methods.py", "tests/contract/test_federated_methods.py"]
    chosen = "learns and (contrast or near) or every_module or upwards or detour or promises"
    assert passed_in(tmp_path, [*checks, "tests/unit/test_layout.py"], chosen) >= 10


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


DATA_PAGE = PAGE.with_name("add-a-data-set.md")
MARKDOWN = re.compile(r"^```markdown\n(.*?)^```", re.MULTILINE | re.DOTALL)


def write_data_examples(page: str, root: Path) -> tuple[list[set[str]], list[str]]:
    """Adds the page's data set and partition to a tree. Returns the files that each touches, and the sources of both."""
    places = re.findall(r"Save it as `(src/silohash/data/[\w/]+\.py)` and add a line to\s+`([\w/.]+)`", page)
    lines = re.findall(r'`("[\w-]+":\s+"silohash\.data\.[\w.]+:\w+")`', page)
    tests = [f"{folder}{name}" for name, folder in re.findall(r"`(test_\w+\.py)` in `(tests/unit/data/\w+/)`:\n", page)]
    sources = BLOCK.findall(page)
    assert (len(places), len(lines), len(tests), len(sources)) == (2, 2, 2, 4)
    touched = []
    for (file, table), line, test, source, its_test in zip(
        places, lines, tests, sources[::2], sources[1::2], strict=True
    ):
        (root / file).write_text(source, encoding="utf-8")
        (root / test).write_text(its_test, encoding="utf-8")
        names = (root / table).read_text(encoding="utf-8")
        (root / table).write_text(names.replace("table={", f"table={{{line},", 1), encoding="utf-8")
        touched.append({file, table, test})
    row, section = MARKDOWN.findall(page)
    described = root / "docs" / "how-to" / "community-data.md"
    head = "|---|---|---|---|\n"
    text = described.read_text(encoding="utf-8").replace(head, head + row, 1)
    described.write_text(f"{text.rstrip()}\n\n{section}", encoding="utf-8")
    touched[0].add(described.relative_to(root).as_posix())
    return touched, sources[::2]


@pytest.mark.whole_run
def test_a_data_set_and_a_partition_fit_into_the_tree_where_the_page_puts_them(tmp_path: Path) -> None:
    """The files that the page and CONTRIBUTING name are enough for the layout and for what every data set is checked for."""
    root = PAGE.parents[2]
    copy_tree(tmp_path)
    touched, sources = write_data_examples(DATA_PAGE.read_text(encoding="utf-8"), tmp_path)
    contributing = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for what, files, source in zip(("data set", "way of partitioning"), touched, sources, strict=True):
        pattern = rf"Adding a {what} touches (\d) files:(.*?)takes (\d)\s+concepts:(.*?)\n\n"
        told = re.search(pattern, contributing, re.DOTALL)
        assert told is not None
        named = {file for file in files if not re.search(r"(postcards|text_length)\.py$", file)}
        assert (int(told[1]), set(re.findall(r"`([\w/.-]+/[\w.-]+)`", told[2]))) == (len(files), named)
        imported = re.findall(r"^from silohash\.data\.[\w.]+ import (.*)$", source, re.MULTILINE)
        concepts = {name for names in imported for name in names.split(", ")}
        assert (int(told[3]), set(re.findall(r"`(\w+)`", told[4]))) == (len(concepts), concepts)
    chosen = "postcards or text-length or text_length or layout or named_in_few or every_module or upwards or detour"
    checks = [
        *(
            "tests/contract/test_data_sets.py",
            "tests/contract/test_partitions.py",
            "tests/unit/data/test_named_once.py",
        ),
        *("tests/docs/test_community_data.py", "tests/unit/test_layout.py"),
        *(file for files in touched for file in files if "/test_" in file),
    ]
    assert passed_in(tmp_path, checks, chosen) >= 15


SEARCH_PAGE = PAGE.with_name("add-a-backend-or-a-measure.md")


@pytest.mark.whole_run
def test_a_backend_and_a_measure_fit_into_the_tree_where_the_page_puts_them(tmp_path: Path) -> None:
    """The files that the page and CONTRIBUTING name are enough for the layout, and for the contract of both."""
    page, root = SEARCH_PAGE.read_text(encoding="utf-8"), PAGE.parents[2]
    copy_tree(tmp_path)
    contributing = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    places = re.findall(
        r"Save it as `(.*?)` and add a line to `(.*?)`,\s+in the table `(\w+)`:\s+`(.*?)`", page, re.DOTALL
    )
    tests, sources = re.findall(r"The test, `(.*?)`:", page), BLOCK.findall(page)
    assert (len(places), len(tests), len(sources)) == (2, 2, 4)
    for what, (file, table, name, line), test, source, its_test in zip(
        ("an index backend", "a measure"), places, tests, sources[::2], sources[1::2], strict=True
    ):
        (tmp_path / file).write_text(source, encoding="utf-8")
        (tmp_path / test).write_text(its_test, encoding="utf-8")
        text = (tmp_path / table).read_text(encoding="utf-8")
        head, rest = text.split(f"{name} = Registry(")
        added = rest.replace("table={", f"table={{{line},", 1)
        (tmp_path / table).write_text(f"{head}{name} = Registry({added}", encoding="utf-8")
        told = re.search(
            rf"Adding {what} touches 3 files:(.*?)takes (\d+)\s+concepts:(.*?)\n\n", contributing, re.DOTALL
        )
        assert told is not None
        assert re.findall(r"`([\w/.-]+/[\w.-]+)`", told[1]) == [table]
        concepts = {
            alias.name
            for node in ast.parse(source).body
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("silohash.")
            for alias in node.names
        }
        assert (int(told[2]), set(re.findall(r"`(\w+)`", told[3]))) == (len(concepts), concepts)
    checks = ["tests/contract/test_index_backends.py", "tests/contract/test_measures.py", "tests/unit/test_layout.py"]
    chosen = "plain or MRR or reciprocal or every_module or upwards or detour"
    assert passed_in(tmp_path, [*checks, *tests], chosen) >= 20
