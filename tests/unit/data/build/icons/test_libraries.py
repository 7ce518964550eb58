"""The icons of each library are read from the files of its package, in one style, without brands and the like."""

from __future__ import annotations

import pytest

from silohash.base.files import read_json
from silohash.data.build.icons.builder import LOCK, TABLES
from silohash.data.build.icons.libraries import COLORED, LIBRARIES, Icon
from silohash.data.build.packages import Pin
from tests.icon_packages import NAMES, drawing_of, package_files, svg_of

PINS = read_json(TABLES / LOCK, list[Pin])


def icons_of(silo: str) -> dict[str, Icon]:
    files = package_files()
    parts = [files[pin.package] for pin in PINS if silo in pin.used_by]
    return {icon.name: icon for icon in LIBRARIES[silo](silo, {name: part[name] for part in parts for name in part})}


@pytest.mark.parametrize(
    ("silo", "left_out", "added", "text", "categories"),
    [
        ("tabler", {"piano"}, set(), "cat mammal 9", ("Animals",)),
        ("lucide", set(), set(), "cat shape", ()),
        ("phosphor", {"gun"}, set(), "cat tag", ("MAP",)),
        ("mdi", {"gun", "dog"}, {"tent-outline"}, "cat alias", ("Weather",)),
        ("fontawesome", set(), set(), "cat pet 7", ("Animals",)),
        ("material", set(), set(), "cat", ("Maps",)),
        ("game-icons", set(), set(), "cat", ()),
        ("healthicons", set(), set(), "cat", ()),
        ("noto", set(), set(), "cat mammal", ("animal-mammal",)),
        ("fluent-emoji", set(), set(), "cat joy", ("animal-mammal",)),
    ],
)
def test_library(silo: str, left_out: set[str], added: set[str], text: str, categories: tuple[str, ...]) -> None:
    icons = icons_of(silo)
    assert set(icons) == set(NAMES) - left_out | added
    assert (icons["cat"].text, icons["cat"].categories, icons["cat"].key) == (text, categories, f"{silo}/cat")
    assert drawing_of(silo, "cat") in icons["cat"].svg


def test_a_second_style_is_drawn_only_without_the_first() -> None:
    icons = icons_of("tabler")
    assert icons["gun"].svg == svg_of("tabler-filled", "gun").decode()
    assert icons["cat"].svg == svg_of("tabler", "cat").decode()


def test_every_library_has_packages_and_every_package_a_library() -> None:
    assert {silo for pin in PINS for silo in pin.used_by} == set(LIBRARIES) > set(COLORED)
    assert len({pin.tarball for pin in PINS}) == len(PINS) == 12
