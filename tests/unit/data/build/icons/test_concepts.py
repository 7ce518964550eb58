"""Labels come from names, categories, the votes of other silos and confirmed tags, except rejected ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.data.build.icons import concepts
from silohash.data.build.icons.builder import TABLES
from silohash.data.build.icons.concepts import labels_of, passes, read_table, subject_of
from silohash.data.build.icons.libraries import Icon

TABLE = "animal: animal cat dog\nlock: =lock\nsweets: ice-cream\n"


def icon(key: str, tags: str = "", categories: str = "") -> Icon:
    silo, _, name = key.partition("/")
    return Icon(silo, name, name, tuple(filter(None, tags.split(","))), tuple(filter(None, categories.split(","))), "")


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(concepts, "LEAST_ITEMS", 1)
    monkeypatch.setattr(concepts, "LEAST_SILOS", 1)
    (tmp_path / "concepts.txt").write_text(TABLE)
    (tmp_path / "rejected_votes.txt").write_text("# word: concepts\nterrier: sweets\n")
    (tmp_path / "rejected_labels.txt").write_text("a/dog-food: animal lock\n")
    return tmp_path


def test_names_and_categories(tables: Path) -> None:
    icons = [
        icon("a/cats-2"), icon("a/padlock", "lock"), icon("a/lock-off"), icon("a/ice-cream-cone"), icon("a/cream-ice"),
        icon("a/whale", categories="Animals"), icon("a/tree", categories="Map"), icon("a/dog-food"),
    ]  # fmt: skip
    assert labels_of(icons, tables) == {
        "a/cats-2": {"animal"}, "a/lock-off": {"lock"}, "a/ice-cream-cone": {"sweets"}, "a/whale": {"animal"},
    }  # fmt: skip


def test_coarse_categories() -> None:
    assert {"map", "files-folders", "food-drink"} <= concepts.COARSE


def test_a_word_votes_if_other_silos_agree(tables: Path) -> None:
    agreeing = [icon("a/boar", "animal"), icon("b/boar-off", "animal"), icon("c/boar", "animal")]
    assert labels_of([*agreeing, icon("d/boar")], tables)["d/boar"] == {"animal"}
    # The mean over silos is 0.6.
    assert "d/boar" not in labels_of([*agreeing, icon("d/boar"), icon("e/boar-2")], tables)
    # One silo is not enough.
    assert "a/boar-2" not in labels_of([icon("a/boar", "animal"), icon("a/boar-2")], tables)


def test_a_tag_counts_if_it_is_confirmed_or_nobody_can(tables: Path) -> None:
    alone = labels_of([icon("a/zorilla", "animal"), icon("a/quagga-fish", "ice cream")], tables)
    assert alone == {"a/zorilla": {"animal"}, "a/quagga-fish": {"sweets"}}
    doubted = [icon("a/club", "animal"), icon("b/club"), icon("c/club")]
    assert labels_of(doubted, tables) == {}
    assert labels_of([*doubted, icon("d/club", "animal")], tables).keys() == {"a/club", "d/club"}


def test_rejected_votes_neither_add_nor_confirm(tables: Path) -> None:
    icons = [icon(f"{silo}/terrier", "animal,ice cream") for silo in "ab"] + [icon("c/terrier")]
    found = labels_of(icons, tables)
    assert set(found.values()) == {frozenset({"animal"})}
    assert len(found) == 2 + passes([1.0, 1.0, 0.0], concepts.VOTE)


def test_rare_concepts_are_dropped(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    icons = [icon("a/cat"), icon("b/dog"), icon("a/lock"), icon("a/lock-2")]
    monkeypatch.setattr(concepts, "LEAST_SILOS", 2)
    assert labels_of(icons, tables).keys() == {"a/cat", "b/dog"}
    monkeypatch.setattr(concepts, "LEAST_ITEMS", 3)
    assert labels_of(icons, tables) == {}


def test_subjects_are_names_without_modifiers() -> None:
    assert subject_of(icon("a/cats-off-2")) == subject_of(icon("b/cat-filled")) == {"cat"}
    assert subject_of(icon("a/circle-off")) == {"circle", "off"}


@pytest.mark.parametrize(("shares", "passed"), [([0.7, 0.7], True), ([1.0, 0.5], False), ([1.0], False)])
def test_votes(shares: list[float], passed: bool) -> None:
    assert passes(shares, concepts.VOTE) is passed


def test_tables_of_the_package_name_known_concepts() -> None:
    known = read_table(TABLES / "concepts.txt").keys()
    for name in ("rejected_votes.txt", "rejected_labels.txt"):
        lines = [line for line in (TABLES / name).read_text("utf-8").splitlines() if not line.startswith("#")]
        table = read_table(TABLES / name)
        assert len(table) == len(lines), "one entry per line, and each key once"
        assert set().union(*table.values()) <= known
