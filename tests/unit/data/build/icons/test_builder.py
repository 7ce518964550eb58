"""A whole build from small packages: equal twice, within a cap, with licenses, and split without a leak."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import DependencyMissing, FilesDiffer, ForeignFiles, MissingContent, UnknownName
from silohash.base.files import read_json
from silohash.data.build import BUILDERS
from silohash.data.build.icons.builder import FACTS, LOCK, TABLES, build_icons, draw
from silohash.data.build.icons.libraries import LIBRARIES, Icon
from silohash.data.build.packages import Pin
from silohash.data.formats.folder import read_folder
from tests.icon_packages import serving, split_packages
from tests.split_icons import SPLIT, groups_of, near_pairs, split


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the packages, beside the tables."""
    return split_packages(tmp_path, monkeypatch)


def built(packages: Path, name: str = "icons", cap: int = 0, registry: str = "") -> tuple[Path, list[str]]:
    out, lines = packages.parent / name, []
    source = None if registry else packages
    build_icons(out, source=source, registry=registry, cap=cap, said=lines.append, tables=packages.parent / "tables")
    return out, lines


def digest_of(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    parts = [path.relative_to(folder).as_posix().encode() + path.read_bytes() for path in files]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "metadata.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_two_builds_are_equal_and_open_as_an_archive(packages: Path) -> None:
    first, lines = built(packages)
    assert [line for line in lines if "warning" in line] == []
    again, _ = built(packages, "again")
    replaced, _ = built(packages)
    assert digest_of(first) == digest_of(again) == digest_of(replaced)
    archive = read_folder(first)
    assert archive.card.skipped == ()
    assert set(archive.label_names) == {"animal", "cloud", "music", "weapon", "weather"}
    assert set(archive.columns["silo"]) == set(LIBRARIES)
    assert all(len(archive.split(name)) for name in ("query", "database", "train"))
    row = next(row for row in rows_of(first) if row["file_name"] == "tabler/cat.png")
    assert (row["text"], row["source"], row["license"]) == ("cat mammal 9", "@tabler/icons@3.52.0", "MIT")
    assert "tabler/oddity.png" not in {row["file_name"] for row in rows_of(first)}


def test_every_license_and_attribution_is_there(packages: Path) -> None:
    out, _ = built(packages)
    pins = read_json(packages.parent / "tables" / LOCK, list[Pin])
    assert {path.name for path in (out / "LICENSES").iterdir()} == {pin.tarball.removesuffix(".tgz") for pin in pins}
    for pin in pins:
        text = (out / "LICENSES" / pin.tarball.removesuffix(".tgz") / pin.license_file).read_bytes()
        assert hashlib.sha256(text).hexdigest() == pin.license_sha256
        assert pin.attribution in (out / "ATTRIBUTION.md").read_text("utf-8")


def test_a_cap_keeps_the_split(packages: Path) -> None:
    every = {row["file_name"]: row for row in rows_of(built(packages)[0])}
    some = rows_of(built(packages, "small", cap=4)[0])
    assert {sum(row["silo"] == silo for row in some) for silo in LIBRARIES} == {4}
    assert all(every[row["file_name"]] == row for row in some)


def test_a_build_over_a_registry(packages: Path) -> None:
    pins = read_json(packages.parent / "tables" / LOCK, list[Pin])
    with serving(packages, pins) as (registry, asked):
        over_network, _ = built(packages, "network", registry=registry)
        built(packages, "again", registry=registry)
    assert len(asked) == len(pins)
    assert digest_of(over_network) == digest_of(built(packages)[0])


def test_an_interrupted_build_leaves_nothing_and_continues(packages: Path) -> None:
    def interrupted(line: str) -> None:
        if line.endswith("of mdi"):
            raise KeyboardInterrupt

    tables = packages.parent / "tables"
    with serving(packages, read_json(tables / LOCK, list[Pin])) as (registry, asked):
        with pytest.raises(KeyboardInterrupt):
            build_icons(
                packages.parent / "icons", source=None, registry=registry, cap=0, said=interrupted, tables=tables
            )
        assert {path.name for path in packages.parent.iterdir()} == {"cache", "packages", "tables"}
        asked.clear()
        out, _ = built(packages, registry=registry)
    assert asked == []
    assert digest_of(out) == digest_of(built(packages, "again")[0])


def test_a_package_of_another_license_is_not_used(packages: Path) -> None:
    path = packages.parent / "tables" / LOCK
    entries = json.loads(path.read_bytes())
    entries[3]["license_sha256"] = "0" * 64
    path.write_text(json.dumps(entries))
    with pytest.raises(FilesDiffer, match="@mdi/svg"):
        built(packages)
    assert not (packages.parent / "icons").exists()


def test_the_package_that_draws_is_named_if_it_is_missing(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silohash.base.optional.installed", lambda package: False)
    with pytest.raises(DependencyMissing, match=r"silohash\[icons\]"):
        built(packages)


def test_a_folder_of_others_is_not_replaced(packages: Path) -> None:
    (packages.parent / "icons").mkdir()
    (packages.parent / "icons" / "metadata.csv").write_text("mine")
    with pytest.raises(ForeignFiles):
        built(packages)


def test_other_numbers_are_noticed(packages: Path) -> None:
    tables = packages.parent / "tables"
    (tables / "rejected_labels.txt").write_text("tabler/cat: animal\n")
    out, lines = built(packages)
    assert "tabler/cat.png" not in {row["file_name"] for row in rows_of(out)}
    assert lines[-1].startswith("warning: ")
    (tables / "concepts.txt").write_text((tables / "concepts.txt").read_text() + "oddity: oddity\n")
    with pytest.raises(MissingContent, match="oddity"):
        built(packages)


def test_an_unknown_builder_is_answered_with_the_names() -> None:
    with pytest.raises(UnknownName, match="icons"):
        BUILDERS.resolve("icon")
    assert BUILDERS.resolve("icons") is build_icons


def plain(name: str) -> Icon:
    return Icon("a", name, name, (), (), "")


def test_groups_join_names_and_pictures() -> None:
    icons = [plain(name) for name in ("cat", "cats-off", "dog", "kitten", "puppy")]
    assert groups_of(icons, [(3, 1)]) == {"cat": [0, 1, 3], "dog": [2], "puppy": [4]}
    ink = np.eye(5, dtype=np.float32)
    ink[4] = ink[2]
    assert list(near_pairs(ink, 0.9)) == [(2, 4)]
    assert list(near_pairs(ink, 0.9, ink[[2]])) == [(2, 0), (4, 0)]


def test_nothing_like_a_query_is_trained_on() -> None:
    icons = [plain(f"thing-{word}") for word in "abcdefghijklmnopqrstuvwyz"] * 4
    icons = [
        Icon(f"silo{place // 25}", icon.name, f"{icon.name}{place}", (), (), "") for place, icon in enumerate(icons)
    ]
    rng = np.random.default_rng(0)
    ink = rng.random((len(icons), 8), np.float32) ** 6
    ink /= np.linalg.norm(ink, axis=1, keepdims=True)
    part = split(icons, {icon.key: frozenset({"thing"}) for icon in icons}, ink)
    by_split = {name: [row for row, icon in enumerate(icons) if part[icon.key] == name] for name in set(part.values())}
    assert set(by_split) == {"query", "database", "train"}
    assert len(by_split["query"]) >= 12
    assert (ink[by_split["train"]] @ ink[by_split["query"]].T).max() < 0.97


def test_the_stored_split_and_numbers_belong_together() -> None:
    facts = read_json(TABLES / FACTS, dict[str, object])
    assert (TABLES / SPLIT).stat().st_size < 300_000
    assert facts["queries without a relevant item"] == 0
    assert sum(facts["splits"].values()) == sum(facts["items per silo"].values()) == facts["items"]
    assert list(facts["items per silo"]) == list(LIBRARIES)


WIDE = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 20 10"><rect fill="{}" width="20" height="10"/></svg>'


def test_a_wide_icon_is_padded_with_white() -> None:
    picture = draw(WIDE.format("currentColor"), color=False)
    assert picture.shape == (64, 64)
    assert (picture[:14] == 255).all()
    assert (picture[20:44] == 0).all()
    assert (picture[50:] == 255).all()
    assert set(np.unique(picture).tolist()) <= set(range(0, 256, 17))


def test_colors_are_kept() -> None:
    picture = draw(WIDE.format("#ff0000"), color=True)
    assert picture[32, 32].tolist() == [255, 0, 0]
    assert picture[0, 0].tolist() == [255, 255, 255]
    assert np.array_equal(picture, draw(WIDE.format("#ff0000"), color=True))
