"""Families of named things: found by name, described without being imported, extended by entry points."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path

import pytest

from silohash.base import registry
from silohash.base.errors import BrokenPackage, DependencyMissing, UnknownName
from silohash.base.registry import AddedMember, Registry, suggestion
from silohash.base.types import MethodCard

CARD = """
CARD = MethodCard(
    key="{key}", title="A title", authors="A. Author", venue="A venue", year=2020, link="doi", summary={summary},
    supervised=True, sends=("weights",), keeps=(), differs_from_paper=("one " "thing",),
)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An importable package ``outside_methods`` whose files a test writes."""
    folder = tmp_path / "outside_methods"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "outside_methods"]:
        del sys.modules[name]


def family(**table: str) -> Registry:
    return Registry("local method", "silohash.test_family", table)


def test_resolve_imports_the_class(package: Path) -> None:
    (package / "one.py").write_text("class One:\n    size = 3\n")
    assert family(one="outside_methods.one:One").resolve("one").size == 3


def test_nothing_is_imported_before_it_is_asked_for(package: Path) -> None:
    (package / "one.py").write_text("raise RuntimeError('imported')\n")
    ours = family(one="outside_methods.one:One")
    assert ours.names() == ["one"]
    assert ours.target("one") == ("outside_methods.one", "One")
    assert "outside_methods.one" not in sys.modules
    with pytest.raises(BrokenPackage, match=r"outside_methods\.one.*RuntimeError.*imported"):
        ours.resolve("one")


def test_unknown_name_says_what_there_is_and_what_was_meant() -> None:
    ours = family(dcmh="a:A", csq="b:B")
    with pytest.raises(UnknownName) as error:
        ours.resolve("dcmhh")
    assert str(error.value) == 'There is no local method "dcmhh" (did you mean "dcmh"?). Available: dcmh, csq.'


@pytest.mark.parametrize(("typed", "meant"), [("dirichelt", "dirichlet"), ("IID", ""), ("zzz", ""), ("", "")])
def test_suggestion_is_near_or_empty(typed: str, meant: str) -> None:
    expected = f' (did you mean "{meant}"?)' if meant else ""
    assert suggestion(typed, ["iid", "dirichlet", "shards"]) == expected


def test_literal_card_is_read_without_importing_its_module(package: Path) -> None:
    heavy = "raise RuntimeError('imported')\n" + CARD.format(key="one", summary="'short'")
    (package / "one.py").write_text(heavy)
    card = family(one="outside_methods.one:One").card("one")
    assert (card.key, card.summary, card.differs_from_paper) == ("one", "short", ("one thing",))
    assert "outside_methods.one" not in sys.modules


def test_card_that_is_no_literal_is_imported(package: Path) -> None:
    computed = "from silohash.base.types import MethodCard\n" + CARD.format(key="one", summary="'ab'.upper()")
    (package / "one.py").write_text(computed)
    assert family(one="outside_methods.one:One").card("one").summary == "AB"


def test_two_methods_of_one_file_keep_their_own_cards(package: Path) -> None:
    second = CARD.format(key="two", summary="'second'").replace("CARD =", "OTHER: MethodCard =")
    (package / "both.py").write_text(CARD.format(key="one", summary="'first'") + second)
    ours = family(one="outside_methods.both:One", two="outside_methods.both:Two")
    assert [ours.card(name).summary for name in ours.names()] == ["first", "second"]


def test_method_without_a_card_is_named(package: Path) -> None:
    (package / "one.py").write_text("class One: ...\n")
    with pytest.raises(BrokenPackage, match=r"outside_methods\.one.*one"):
        family(one="outside_methods.one:One").card("one")


def test_card_of_a_package_that_is_not_there_is_named() -> None:
    with pytest.raises(BrokenPackage, match="no_such_package"):
        family(one="no_such_package.one:One").card("one")


def test_class_that_is_not_there_is_named(package: Path) -> None:
    (package / "one.py").write_text("")
    with pytest.raises(BrokenPackage, match=r"One.*outside_methods\.one"):
        family(one="outside_methods.one:One").resolve("one")


def test_missing_dependency_says_how_to_install_it(package: Path) -> None:
    (package / "one.py").write_text("import no_such_library\n")
    with pytest.raises(BrokenPackage, match="no_such_library"):
        family(one="outside_methods.one:One").resolve("one")


def test_missing_optional_package_is_named_with_its_extra(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    (package / "one.py").write_text("import torch\n")
    with pytest.raises(DependencyMissing, match=r"silohash\[train\]"):
        family(one="outside_methods.one:One").resolve("one")


def test_other_packages_add_members_and_cannot_replace_ours(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (package / "two.py").write_text("class Two: ...\n")
    points = [
        EntryPoint("one", "outside_methods.two:Two", "silohash.test_family"),
        EntryPoint("two", "outside_methods.two:Two", "silohash.test_family"),
    ]
    asked: list[str] = []
    monkeypatch.setattr(registry, "entry_points", lambda group: asked.append(group) or points)
    registry.added_members.cache_clear()
    ours = family(one="silohash.base.types:MethodCard")
    assert ours.names() == ["one", "two"]
    assert ours.resolve("one") is MethodCard
    assert ours.resolve("two").__module__ == "outside_methods.two"
    assert asked == ["silohash.test_family"], "the packages' metadata are read once"
    assert ours.conflict("one") == (
        'The package of "outside_methods.two:Two" adds the local method "one" (outside_methods.two:Two), which is not used '
        "because silohash has a local method of that name. Rename its entry point, or remove the package."
    )
    assert (ours.conflict("two"), ours.conflict("three")) == ("", "")
    registry.added_members.cache_clear()


def test_the_package_of_an_entry_point_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "entry_points", lambda group: entry_points(group="console_scripts", name="pytest"))
    registry.added_members.cache_clear()
    (member,) = registry.added_members("silohash.test_family")
    registry.added_members.cache_clear()
    assert (member.name, member.package) == ("pytest", f"pytest {version('pytest')}")
    assert member.owner == f'the package "pytest {version("pytest")}"'


def added(monkeypatch: pytest.MonkeyPatch, **targets: tuple[str, ...]) -> None:
    """Let the packages "a 1", "b 1", ... add members with these targets."""
    members = [
        AddedMember(name, target, f"{letter} 1")
        for name, each in targets.items()
        for letter, target in zip("ab", each, strict=False)
    ]
    monkeypatch.setattr(registry, "added_members", lambda group: tuple(members))


def test_two_packages_under_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    added(monkeypatch, one=("a.x:One", "b.y:One"), same=("silohash.base.types:MethodCard",) * 2)
    ours = family()
    assert ours.names() == ["one", "same"]
    with pytest.raises(BrokenPackage) as error:
        ours.resolve("one")
    assert str(error.value) == (
        'The local method "one" is added by the package "a 1" and by the package "b 1". Remove one of the packages, or '
        "rename its entry point."
    )
    assert ours.resolve("same") is MethodCard


def test_plug_in_without_its_module_names_the_package(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (package / "two.py").write_text("import outside_methods.three\n")
    added(
        monkeypatch,
        gone=("outside_methods.gone:One",),
        away=("no_such_package.one:One",),
        two=("outside_methods.two:Two",),
    )
    ours = family()
    for name, module in (("gone", "outside_methods.gone"), ("away", "no_such_package.one")):
        for ask in (ours.resolve, ours.card):
            with pytest.raises(BrokenPackage) as error:
                ask(name)
            assert str(error.value) == (
                f'The package "a 1" adds the local method "{name}", but its module {module} does not exist. '
                "Reinstall or remove the package."
            )
    with pytest.raises(BrokenPackage, match=r"two.*module.*named.*outside_methods\.three"):
        ours.resolve("two")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def (:\n", "SyntaxError"),
        ("raise OSError('no such model')\n", r"OSError \(no such model\)"),
        ("CARD = MethodCard(key='one', titel='x')\n", "NameError"),
        ("import no_such_library\n", "no_such_library"),
    ],
)
def test_broken_module_is_named_with_its_reason(package: Path, source: str, reason: str) -> None:
    (package / "one.py").write_text(source)
    ours = family(one="outside_methods.one:One")
    for ask in (ours.resolve, ours.card):
        with pytest.raises(BrokenPackage, match=rf"outside_methods\.one.*{reason}") as error:
            ask("one")
        assert "remove the package" in str(error.value)


def test_broken_package_around_a_module_is_named(package: Path) -> None:
    (package / "__init__.py").write_text("1 / 0\n")
    (package / "one.py").write_text("")
    with pytest.raises(BrokenPackage, match="ZeroDivisionError"):
        family(one="outside_methods.one:One").card("one")


def test_card_with_another_key_is_noticed_when_the_class_is_asked_for(package: Path) -> None:
    source = (
        "from silohash.base.types import MethodCard\n" + CARD.format(key="won", summary="'short'") + "class One: ...\n"
    )
    (package / "one.py").write_text(source)
    with pytest.raises(BrokenPackage, match=r"outside_methods\.one.*won"):
        family(one="outside_methods.one:One").resolve("one")
    assert family(won="outside_methods.one:One").resolve("won").__name__ == "One"
