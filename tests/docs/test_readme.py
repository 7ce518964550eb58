"""Every command that the documents name exists, with the options they give it, and every config they show is valid."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "papers").rglob("*.md")])
RECIPES = sorted((REPOSITORY / "recipes").glob("*.toml"))

FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
SHELLS = {"", "bash", "sh", "console", "text"}
TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)


def block_commands(text: str) -> Iterator[str]:
    """Yields the commands of a page's fenced blocks, one a line; a line that ends in a backslash goes on."""
    for language, body in FENCE.findall(text):
        if language in SHELLS:
            for line in body.replace("\\\n", " ").splitlines():
                yield line.strip().removeprefix("$ ")


def inline_commands(text: str) -> Iterator[str]:
    """Yields the code spans of a page, which may be commands."""
    yield from CODE.findall(FENCE.sub("", text))


def words_of(command: str) -> list[str]:
    """Splits a command, without settings of the environment before it and the folder that it is called from."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return []
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    return [words[0].removeprefix(".venv/bin/"), *words[1:]] if words else []


@cache
def click_command(application: typer.Typer) -> Any:
    return typer.main.get_command(application)


def silohash_objections(root: Any, words: list[str], *, whole: bool) -> Iterator[str]:
    """Yields what is wrong with ``silohash WORDS``; a whole command must also give every argument that is needed."""
    command, rest, path = root, list(words), ["silohash"]
    while hasattr(command, "commands"):
        if not rest or rest[0] in {"…", "--help", "--version"}:
            return
        if rest[0] not in command.commands:
            yield f"{' '.join(path)} has no command {rest[0]}"
            return
        length = 2 if " ".join(rest[:2]) in command.commands else 1  # such as "index move"
        name = " ".join(rest[:length])
        path.append(name)
        command, rest = command.commands[name], rest[length:]
    options = {name: p for p in command.params for name in (*p.opts, *p.secondary_opts) if name.startswith("-")}
    positional = [p for p in command.params if p.param_type_name == "argument"]
    given, used = 0, set()
    while rest:
        word = rest.pop(0)
        name, has_value, _ = word.partition("=")
        if name in {"--help", "…", "[…]"}:
            continue
        if not re.match(r"--?[a-zA-Z]", name):
            given += 1
        elif name not in options:
            yield f"{' '.join(path)} has no option {name}"
        else:
            used.add(options[name].name)
            if not getattr(options[name], "is_flag", False) and not has_value:
                if not rest:
                    yield f"{' '.join(path)} {name} needs a value"
                del rest[:1]
    if all(p.nargs != -1 for p in positional) and given > len(positional):
        yield f"{' '.join(path)} takes {len(positional)} arguments and is given {given}"
    if whole and "--help" not in words:
        if given < sum(p.required for p in positional):
            yield f"{' '.join(path)} needs {sum(p.required for p in positional)} arguments and is given {given}"
        missing = {p.name: name for name, p in options.items() if p.required and p.name not in used}
        yield from (f"{' '.join(path)} needs the option {name}" for name in missing.values())


def make_objections(words: list[str]) -> Iterator[str]:
    """Yields the targets among ``make WORDS`` that the Makefile does not have."""
    targets = set(TARGET.findall((REPOSITORY / "Makefile").read_text(encoding="utf-8")))
    for word in words:
        if "=" not in word and word not in targets:
            yield f"make has no target {word}"


def file_objections(words: list[str]) -> Iterator[str]:
    """Yields files of the repository that a command names and that are not there."""
    for word in words:
        if re.match(r"(recipes|tests|benchmarks|examples|docs|papers|\.ci)/", word):
            name = word.partition("::")[0]
            if not (REPOSITORY / name).exists():
                yield f"there is no {name}"


def objections(command: str, *, whole: bool) -> list[str]:
    """Returns what is wrong with one command as it stands in a document."""
    words = words_of(command)
    if not words:
        return []
    found = list(file_objections(words))
    if words[0] == "silohash":
        from silohash.cli import app

        found += silohash_objections(click_command(app), words[1:], whole=whole)
    elif words[0] == "make":
        found += make_objections(words[1:])
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_commands_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = {command: objections(command, whole=True) for command in block_commands(text)}
    added = set(re.findall(r"`([^`\n]+)`:\n\n```python", text))
    found |= {command: objections(command, whole=False) for command in set(inline_commands(text)) - added}
    assert {command: wrong for command, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_configs_are_valid(page: Path, tmp_path: Path) -> None:
    from silohash.run.config.load import load_config
    from silohash.training.sites.settings import read_site_settings

    for number, (language, body) in enumerate(FENCE.findall(page.read_text(encoding="utf-8"))):
        tables = tomllib.loads(body) if language == "toml" else {}
        if "data" in tables:
            path = tmp_path / f"{number}.toml"
            path.write_text(body, encoding="utf-8")
            if "silo" in tables:
                assert read_site_settings(path).silo == tables["silo"]
            else:
                assert load_config(path, []).to_toml()


MEASURE = re.compile(r"(mAP|P|R|nDCG|Success)@\S+")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_measures_are_spelled_as_they_are_typed(page: Path) -> None:
    from silohash.evaluate.measures import Measure

    for name in filter(MEASURE.fullmatch, inline_commands(page.read_text(encoding="utf-8"))):
        assert str(Measure.parse(name)) == name


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_recipe_begins_with_the_command_that_runs_it(recipe: Path) -> None:
    first = recipe.read_text(encoding="utf-8").splitlines()[0]
    command, *others = re.findall(r"silohash [a-z]+[^()]*(?=\(|\)|$)", first)
    assert first.startswith(f"# {command}"), first
    assert recipe.relative_to(REPOSITORY).as_posix() in first
    assert [wrong for one in (command, *others) for wrong in objections(one, whole=True)] == []


def test_readme_names_the_two_commands_and_every_verb_is_documented() -> None:
    from silohash.cli import app

    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert {"make demo", "make test"} <= {" ".join(words_of(line)) for line in block_commands(readme)}
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    verbs = [name for name, command in click_command(app).commands.items() if not command.hidden]
    assert [verb for verb in verbs if f"silohash {verb}" not in pages] == []


@pytest.fixture
def small() -> Any:
    application = typer.Typer()
    data = typer.Typer()

    @application.command()
    def train(
        config: str, out: str = typer.Option(..., "--out", "-o"), smoke: bool = typer.Option(False, "--smoke")
    ) -> None: ...

    @application.command()
    def report(runs: list[str]) -> None: ...

    @data.command()
    def check(name: str = typer.Argument("")) -> None: ...

    application.add_typer(data, name="data")
    return click_command(application)


@pytest.mark.whole_run
@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("train a.toml --out runs/a --smoke", 0),
        ("train a.toml -o runs/a", 0),
        ("train a.toml --out=runs/a", 0),
        ("train a.toml", 1),
        ("train --out a", 1),
        ("train a.toml --out", 1),
        ("train a.toml b.toml --out a", 1),
        ("train a.toml --out a --fast", 1),
        ("report a b c d", 0),
        ("data check", 0),
        ("data check a", 0),
        ("data fetch", 1),
        ("trian a.toml", 1),
        ("--help", 0),
        ("train --help", 0),
    ],
)
def test_the_check_of_commands_sees(small: Any, words: str, count: int) -> None:
    assert len(list(silohash_objections(small, words.split(), whole=True))) == count


def test_the_parts_of_a_page_are_found() -> None:
    block = '# comment\n$ A=1 .venv/bin/silohash train x \\\n  --out "y z"'
    page = f"a `make demo` b\n\n```bash\n{block}\n```\n```python\nno\n```\n"
    assert [words for line in block_commands(page) if (words := words_of(line))] == [
        ["silohash", "train", "x", "--out", "y z"]
    ]
    assert list(inline_commands(page)) == ["make demo"]
    assert objections("make nothing", whole=True) == ["make has no target nothing"]
    assert objections("pytest tests/none.py::test_a", whole=True) == ["there is no tests/none.py"]
