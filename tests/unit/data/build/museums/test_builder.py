"""A whole build from small files of five museums, with pictures from a server on this machine and a clock set by hand."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from silohash.base.errors import DamagedFile, ForeignFiles, MissingFile, NoEffect, NothingUsable, ServerUnreachable
from silohash.base.files import read_toml
from silohash.data import ARCHIVES
from silohash.data.build import BUILDERS
from silohash.data.build.fetching import Polite
from silohash.data.build.icons.concepts import keys_of, read_table
from silohash.data.build.museums import builder
from silohash.data.build.museums.builder import LIST, MUSEUMS, TABLES, build_museums
from silohash.data.formats.folder import read_folder
from tests.museum_files import (
    KINDS,
    MET,
    OBJECTS,
    SHARED,
    SILOS,
    Clock,
    Server,
    Thing,
    picture_of,
    serving,
    things,
    write_museums,
)

OPEN = [thing for silo in SILOS for thing in things(silo) if thing.open and thing.picture]
NO_ADDRESS = "no address of the museum's hosts"
"""Why an object is left out whose record, which only the Met asks for, has no picture."""

WITHOUT = f"met/{OBJECTS + 2}.jpg"
"""The one such object."""


@dataclass
class Workshop:
    """Small files of museums, the server of their pictures, and what builds say."""

    root: Path
    server: Server
    lines: list[str] = field(default_factory=list)

    def build(
        self, name: str = "museums", *, cap: int = 0, polite: Polite | None = None
    ) -> tuple[Path, dict[str, Any]]:
        out, clock = self.root / name, Clock()
        facts = build_museums(
            out, source=self.root / "files", registry="", cap=cap, said=self.lines.append,
            tables=self.root / "tables", polite=polite or Polite(clock.now, clock.wait),
        )  # fmt: skip
        return out, facts

    def forget(self) -> None:
        """Removes the thumbnails of former builds."""
        shutil.rmtree(self.root / "cache")


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(builder, "LEAST_ITEMS", 6)
    with serving() as server:
        write_museums(tmp_path, server.address)
        yield Workshop(tmp_path, server)


def digest_of(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    parts = [path.relative_to(folder).as_posix().encode() + path.read_bytes() for path in files]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def rows_of(folder: Path, name: str = "metadata.csv") -> dict[str, dict[str, str]]:
    with (folder / name).open(encoding="utf-8", newline="") as stream:
        return {row["file_name"]: row for row in csv.DictReader(stream)}


def file_of(thing: Thing) -> str:
    return (
        f"{thing.silo}/{thing.silo}_{thing.number}.jpg"
        if thing.silo in SILOS[3:]
        else f"{thing.silo}/{thing.number}.jpg"
    )


def test_two_builds_are_equal_and_open_as_an_archive(workshop: Workshop) -> None:
    first, facts = workshop.build()
    assert [line for line in workshop.lines if "warning" in line] == []
    workshop.forget()
    again, _ = workshop.build("again")
    replaced, _ = workshop.build()
    assert digest_of(first) == digest_of(again) == digest_of(replaced)
    archive = read_folder(first)
    assert archive.card.skipped == ()
    assert set(archive.label_names) == set(KINDS)
    assert set(archive.columns["silo"]) == set(SILOS)
    assert (facts["items"], facts["left out"], facts["changed pictures"]) == (80, {NO_ADDRESS: 1}, 0)
    assert len(archive) == 80
    assert all(len(archive.split(part)) for part in ("query", "database", "train"))


def test_only_open_objects_with_a_picture_are_taken(workshop: Workshop) -> None:
    rows = rows_of(workshop.build()[0])
    assert rows.keys() == {file_of(thing) for thing in OPEN}
    assert {row["license"] for row in rows.values()} == {"CC0-1.0"}
    assert f"{MET}{OBJECTS + 1}" not in workshop.server.asked


def test_texts_are_title_medium_and_culture_without_the_terms(workshop: Workshop) -> None:
    rows = rows_of(workshop.build()[0])
    texts = {silo: rows[file_of(Thing(silo, 2))]["text"] for silo in SILOS}
    assert texts == {
        "met": "Sword of met no. 2 Etching French, Paris",
        "chicago": "Sword of chicago no. 2 Lithograph France",
        "cleveland": "of cleveland no. 2 oil on panel France",
        "saam": "Sword of saam no. 2 bronze & silver",
        "chndm": "Sword of chndm no. 2 bronze & silver",
    }
    assert {rows[file_of(thing)]["labels"] for thing in OPEN if thing.number == 2} == {"sword"}


def test_no_artist_and_title_is_on_both_sides_of_query_and_train(workshop: Workshop) -> None:
    rows = rows_of(workshop.build()[0])
    parts: dict[tuple[str, str], set[str]] = {}
    for thing in OPEN:
        parts.setdefault((thing.artist, thing.title), set()).add(rows[file_of(thing)]["split"])
    assert len(parts) < len(OPEN)
    assert all(len(found) == 1 for found in parts.values())
    # Nine of ten groups are not queries, so this is not by chance.
    assert {rows[file_of(Thing(silo, SHARED))]["split"] for silo in SILOS} == {"query"}


def test_a_record_of_another_form_is_left_out(workshop: Workshop) -> None:
    path = workshop.root / "files/edan/saam/00.txt"
    first, *lines = path.read_text("utf-8").splitlines()
    record = json.loads(first)
    record["content"]["indexedStructured"] = "none"
    path.write_text("\n".join([json.dumps(record), *lines]), "utf-8")
    assert rows_of(workshop.build()[0]).keys() == {file_of(thing) for thing in OPEN if thing != Thing("saam", 1)}


def test_a_label_needs_enough_objects_and_museums(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    table = workshop.root / "files/met/MetObjects.csv"
    table.write_text(table.read_text("utf-8").replace("Men|", "Men with Lions|"), "utf-8")
    assert "lion" not in rows_of(workshop.build()[0])["met/1.jpg"]["labels"]
    monkeypatch.setattr(builder, "LEAST_SILOS", 1)
    assert rows_of(workshop.build()[0])["met/1.jpg"]["labels"] == "boat|lion|man"
    monkeypatch.setattr(builder, "LEAST_ITEMS", 18)
    assert rows_of(workshop.build()[0])["met/1.jpg"]["labels"] == "boat"


def test_thumbnails_have_at_most_224_pixels_per_side(workshop: Workshop) -> None:
    workshop.server.content["/chicago/2/image-1/full/843,/0/default.jpg"] = picture_of("x")
    out, _ = workshop.build()
    with Image.open(out / "chicago/1.jpg") as opened:
        assert (opened.size, opened.format) == ((224, 149), "JPEG")


def test_the_list_has_addresses_sizes_and_digests(workshop: Workshop) -> None:
    out, _ = workshop.build()
    listed = rows_of(out, LIST)
    assert listed.keys() == rows_of(out).keys() | {WITHOUT}
    assert (listed[WITHOUT]["bytes"], listed[WITHOUT]["sha256"]) == ("", "")
    for thing in OPEN:
        row, content = listed[file_of(thing)], picture_of(thing.picture)
        assert (row["bytes"], row["sha256"]) == (str(len(content)), hashlib.sha256(content).hexdigest())
        path = f"{MET}{thing.number}" if thing.silo == "met" else thing.picture
        assert row["source"] == workshop.server.address + path


def test_what_was_fetched_is_not_asked_for_again(workshop: Workshop) -> None:
    workshop.build()
    assert len(workshop.server.asked) == len(OPEN) + OBJECTS + 1
    workshop.server.asked.clear()
    workshop.build("again")
    assert workshop.server.asked == [f"{MET}{OBJECTS + 2}"]


def test_hosts_are_named_before_they_are_asked_once_per_second(workshop: Workshop) -> None:
    clock, asked_before = Clock(), []
    workshop.lines.clear()

    def wait(seconds: float) -> None:
        asked_before.append((seconds, [line for line in workshop.lines if "Fetching from" in line]))
        clock.wait(seconds)

    workshop.build(polite=Polite(clock.now, wait))
    assert all(workshop.server.address in lines[0] for _, lines in asked_before)
    assert [seconds for seconds, _ in asked_before] == [0, *[1] * (len(workshop.server.asked) - 1)]


def test_an_address_of_another_host_is_not_asked(workshop: Workshop) -> None:
    table = workshop.root / "files/cma/data.csv"
    with serving() as other:
        table.write_text(
            table.read_text("utf-8").replace(f"{workshop.server.address}/cleveland/1_", f"{other.address}/1_")
        )
        out, facts = workshop.build()
        assert other.asked == []
    assert "cleveland/1.jpg" not in rows_of(out)
    assert facts["left out"] == {NO_ADDRESS: 2}


def test_the_museums_take_turns(workshop: Workshop) -> None:
    workshop.build()
    assert (
        len({path.split("/")[1].partition("?id=")[2][:4] or path.split("/")[1] for path in workshop.server.asked[:12]})
        > 3
    )


def test_an_interrupted_build_leaves_the_list_and_continues(workshop: Workshop) -> None:
    clock = Clock()

    def interrupted(seconds: float) -> None:
        clock.wait(seconds)
        if len(clock.waits) == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        workshop.build(polite=Polite(clock.now, interrupted))
    assert [path.name for path in (workshop.root / "museums").iterdir()] == [LIST]
    assert {row["sha256"] for row in rows_of(workshop.root / "museums", LIST).values()} == {""}
    assert len(workshop.server.asked) == 39
    first = list(workshop.server.asked)
    workshop.server.asked.clear()
    out, _ = workshop.build()
    # The one that was interrupted between the record and the picture may be asked for twice.
    assert len((set(first) & set(workshop.server.asked)) - {f"{MET}{OBJECTS + 2}"}) <= 1
    workshop.forget()
    assert digest_of(out) == digest_of(workshop.build("again")[0])


def test_pictures_that_are_not_given_are_left_out_and_counted(workshop: Workshop) -> None:
    gone, large, page, cut, other = (file_of(Thing("chicago", number)) for number in range(1, 6))
    paths = [Thing("chicago", number).picture for number in range(1, 6)]
    workshop.server.status[paths[0]] = [(404, {})]
    workshop.server.content |= {paths[1]: bytes(builder.MOST_BYTES + 1), paths[2]: b"<html>"}
    workshop.server.cut[paths[3]] = 3
    workshop.server.content[f"{MET}7"] = b"null"
    workshop.server.content[f"{MET}8"] = b'{"primaryImageSmall": "http://127.0.0.2/a.jpg"}'
    out, facts = workshop.build()
    assert rows_of(out).keys() == {file_of(thing) for thing in OPEN} - {
        gone,
        large,
        page,
        cut,
        "met/7.jpg",
        "met/8.jpg",
    }
    assert sum(facts["left out"].values()) == 7
    assert (facts["left out"]["HTTP status 404"], facts["left out"][NO_ADDRESS]) == (1, 3)
    lacking = {gone, large, page, cut, "met/7.jpg", "met/8.jpg", WITHOUT}
    assert {name for name, row in rows_of(out, LIST).items() if not row["sha256"]} == lacking
    assert not (out / gone).exists()
    assert (out / other).exists()
    workshop.server.asked.clear()
    del workshop.server.content[paths[1]]
    assert gone in rows_of(workshop.build()[0])
    assert set(workshop.server.asked) == {*paths[:4], *(f"{MET}{number}" for number in (7, 8, OBJECTS + 2))}


def test_a_busy_host_is_asked_again_later(workshop: Workshop) -> None:
    clock = Clock()
    workshop.server.status[Thing("saam", 1).picture] = [(503, {"Retry-After": "30"})]
    assert workshop.build(polite=Polite(clock.now, clock.wait))[1]["left out"] == {NO_ADDRESS: 1}
    assert clock.waits.count(30) == 1


def test_a_changed_picture_is_noticed(workshop: Workshop) -> None:
    out, _ = workshop.build()
    before = rows_of(out, LIST)["saam/saam_1.jpg"]
    path = Thing("saam", 1).picture
    workshop.server.content[path] = picture_of(path, edition=2)
    assert workshop.build()[1]["changed pictures"] == 0
    workshop.forget()
    clock = Clock()

    def interrupted(seconds: float) -> None:
        clock.wait(seconds)
        if len(clock.waits) == 60:
            raise KeyboardInterrupt

    for _ in range(2):
        clock.waits.clear()
        with pytest.raises(KeyboardInterrupt):
            workshop.build(polite=Polite(clock.now, interrupted))
        workshop.forget()
    out, facts = workshop.build()
    assert facts["changed pictures"] == 1
    assert workshop.lines[-1].startswith("warning: 1 pictures")
    assert rows_of(out, LIST)["saam/saam_1.jpg"]["sha256"] not in {"", before["sha256"]}


def test_a_cap_keeps_split_and_labels(workshop: Workshop) -> None:
    every = rows_of(workshop.build()[0])
    some = rows_of(workshop.build("small", cap=4)[0])
    assert {sum(row["silo"] == silo for row in some.values()) for silo in SILOS} == {4}
    assert all(every[name] == row for name, row in some.items())


def test_missing_files_are_named_with_their_place(workshop: Workshop) -> None:
    shutil.rmtree(workshop.root / "files/cma")
    with pytest.raises(MissingFile, match=r"data\.csv of https://github\.com/ClevelandMuseumArt/openaccess") as caught:
        workshop.build()
    assert "MetObjects" not in str(caught.value)
    with pytest.raises(MissingFile, match=r"MetObjects\.csv of .*; .*README.*; .*chndm"):
        build_museums(workshop.root / "out", source=None, registry="", cap=0, said=print)
    with pytest.raises(NoEffect):
        build_museums(workshop.root / "out", source=workshop.root, registry="http://127.0.0.1", cap=0, said=print)
    assert workshop.server.asked == []
    assert not (workshop.root / "out").exists()


@pytest.mark.parametrize(
    ("file", "content", "error"),
    [
        ("met/MetObjects.csv", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", NothingUsable),
        ("cma/data.csv", b"id,title\n1,\xff\n", DamagedFile),
        ("aic/json/artworks/1.json", b'{"id": 1', DamagedFile),
        ("edan/saam/00.txt", b'{"content": 5}\nx', DamagedFile),
    ],
)
def test_other_files_are_refused_before_anything_is_fetched(
    workshop: Workshop, file: str, content: bytes, error: type[Exception]
) -> None:
    (workshop.root / "files" / file).write_bytes(content)
    with pytest.raises(error, match=r"met|data\.csv|1\.json|00\.txt"):
        workshop.build()
    assert workshop.server.asked == []


def test_a_server_that_gives_no_picture_ends_the_build(workshop: Workshop) -> None:
    for thing in OPEN:
        path = f"{MET}{thing.number}" if thing.silo == "met" else thing.picture
        workshop.server.status[path] = [(403, {})]
    with pytest.raises(ServerUnreachable, match="403"):
        workshop.build()
    assert not (workshop.root / "museums" / "metadata.csv").exists()
    for thing in OPEN:
        workshop.server.content[thing.picture] = b"<html>"
    with pytest.raises(NothingUsable, match="HTML"):
        workshop.build(cap=3)


def test_a_folder_of_others_is_not_replaced(workshop: Workshop) -> None:
    (workshop.root / "museums").mkdir()
    (workshop.root / "museums" / "metadata.csv").write_text("mine")
    with pytest.raises(ForeignFiles):
        workshop.build()


def test_the_tables_name_hosts_by_https_and_each_word_has_one_label() -> None:
    museums = read_toml(TABLES / "museums.toml")
    assert tuple(museums) == SILOS
    for museum in museums.values():
        assert all(host.startswith("https://") and host.count("/") >= 3 for host in museum["hosts"])
        address = museum["address"].format("1")
        assert museum["address"].count("{}") == 1
        assert address == "1" or "media.0.content" in museum["image"] or address.startswith(tuple(museum["hosts"]))
    concepts = read_table(TABLES / "concepts.txt")
    assert 60 <= len(concepts) <= 100
    assert list(concepts) == sorted(concepts)
    assert {word: labels for word, labels in keys_of(concepts, of_names=False).items() if len(labels) > 1} == {}
    assert all(first not in second for first, second in combinations(map(str, concepts.values()), 2))
    assert BUILDERS.resolve("museums") is build_museums


def test_the_card_says_that_nobody_has_built_the_set() -> None:
    assert ARCHIVES.resolve("museums") is MUSEUMS
    assert "CC0" in MUSEUMS.license
    assert "never built" in MUSEUMS.notes["status"]
