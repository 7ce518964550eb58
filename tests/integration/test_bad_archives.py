"""Tables, folders and names that are not as they should be: each is answered in words, and nothing on disk changes.

Nothing may vanish without a word: a row, a column, a text or an item that is not used is named.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from silohash.data.formats.columns import SLIPS
from silohash.run.folder import Run
from silohash.run.indexing import index_run
from tests.runs import Said, silohash, train, write_archive, write_config, write_metadata

HIDDEN_AND_INVALID = [".hidden", "..", ".", "a/b", "/a", "a\\b", "a\nb", "\x1b[2J", "n" * 101, ""]
OPEN = "an opening quotation mark is not closed"
EXAMPLE = "Write metadata.csv in it, for instance:"


@pytest.fixture(autouse=True)
def _private_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path_factory.mktemp("cache")))


def content(folder: Path) -> dict[str, bytes | str]:
    """Return every file of a folder with its bytes, and every link with its target."""
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() or path.is_symlink()
    }


def check(folder: Path, *arguments: object) -> Said:
    """Run ``silohash data check``, and assert that it leaves no trace and does not crash."""
    before = content(folder)
    said = silohash("data", "check", folder, *arguments)
    assert content(folder) == before
    assert "Traceback" not in said.err
    return said


def assert_refused(said: Said, *parts: str) -> None:
    assert (said.code, said.out) == (2, ""), said
    for part in parts:
        assert part in said.err, said.err


def table(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata.csv").write_bytes(text.encode())
    return folder


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), "red").save(path)


# Columns


@pytest.mark.parametrize(
    ("slip", "known"),
    [(slip, known) for known, slips in SLIPS.items() for slip in slips]
    + [("Text", "text"), ("FILE_NAME", "file_name"), ("file name", "file_name"), ("lables", "labels"), ("Id", "id")],
)
def test_a_misspelled_column_is_named(tmp_path: Path, slip: str, known: str) -> None:
    other = "labels" if known == "text" else "text"
    (tmp_path / "archive").mkdir()
    np.save(tmp_path / "archive" / "image.npy", np.ones((2, 3)))
    said = check(table(tmp_path / "archive", f"{other},{slip}\na,b\nc,d\n"))
    assert said.code == 0
    assert f'warning: The column "{slip}" is not used (did you mean "{known}"?).' in said.out
    assert f'Columns that are not used: "{slip}".' in said.out


@pytest.mark.parametrize("name", ["year", "museum", "author", "name", "place", "Größe", "a b", "1"])
def test_a_column_without_a_meaning_is_named_without_a_question(tmp_path: Path, name: str) -> None:
    said = check(table(tmp_path / "archive", f"text,{name}\na,b\nc,d\n"))
    assert said.code == 0
    assert f'Columns that are not used: "{name}".' in said.out
    assert "did you mean" not in said.out


@pytest.mark.parametrize(
    ("header", "parts"),
    [
        ("filename,caption", ('"filename" is not used (did you mean "file_name"?)', '"caption" is not used', EXAMPLE)),
        ("image,tags", ('(did you mean "file_name"?)', '(did you mean "labels"?)', EXAMPLE)),
        ("1.jpg,a parrot", ("begins with '1.jpg, a parrot' instead of the names of columns", EXAMPLE)),
        ("text,text", ('has the column "text" more than once',)),
        ("text, text ", ('has the column "text" more than once',)),
        ('text,"place', ("The first line of", OPEN)),
        ("", ("instead of the names of columns", EXAMPLE)),
    ],
)
def test_headers_that_are_refused(tmp_path: Path, header: str, parts: tuple[str, ...]) -> None:
    assert_refused(check(table(tmp_path / "archive", f"{header}\na,b\nc,d\n")), *parts)


# Quotation marks


@pytest.mark.parametrize(
    ("lines", "broken", "items"),
    [
        (('0.png,"zero', "1.png,one", "2.png,two"), {2: "lines 3 to 4"}, 2),
        (("0.png,zero", '1.png,"one', "2.png,two"), {3: "line 4"}, 2),
        (("0.png,zero", "1.png,one", '2.png,"two'), {4: ""}, 2),
        (('0.png,"zero', '1.png,"one"', "2.png,two"), {2: "line 3"}, 2),
        (('0.png,"zero', "1.png,one", '2.png,"two"'), {2: "lines 3 to 4"}, 2),
        (('0.png,"zero', "1.png,one", '2.png,two"'), {2: "lines 3 to 4"}, 2),
        (('0.png,"zero', '1.png,"one', "2.png,two"), {2: "line 3", 3: "line 4"}, 1),
        (('0.png,"zero""', "1.png,one", "2.png,two"), {2: "lines 3 to 4"}, 2),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_open_quotation_mark_is_named_and_costs_its_row_only(
    tmp_path: Path, lines: tuple[str, ...], broken: Mapping[int, str], items: int, end: str
) -> None:
    for number in range(3):
        picture(tmp_path / "archive" / f"{number}.png")
    said = check(table(tmp_path / "archive", end.join(["file_name,text", *lines, ""])))
    assert said.code == 0
    assert f"archive: {items} items" in said.out
    for line, swallowed in broken.items():
        reason = f"{OPEN}, so it would include {swallowed}, read separately instead" if swallowed else OPEN
        assert f"skipped: metadata.csv, row {line}: {reason}; left out" in said.out
    assert said.out.count("skipped: ") == len(broken)


# Values


@pytest.mark.parametrize("column", ["id", "file_name", "text", "labels", "split", "place"])
@pytest.mark.parametrize("value", ["\0", "\0x", "x\0", "x\0y"])
def test_a_nul_character_is_named(tmp_path: Path, column: str, value: str) -> None:
    rows = [{"id": "a", "text": "one", "labels": "l"}, {"id": "b", "text": "two", "labels": "l"}]
    rows[0][column] = value
    folder = tmp_path / "archive"
    folder.mkdir()
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    said = check(folder)
    assert said.code == 0
    assert f'skipped: metadata.jsonl, row 1: column "{column}" contains a NUL character' in said.out
    assert "archive: 1 items" in said.out


@pytest.mark.parametrize("column", ["text", "note"])
def test_a_text_that_is_cut_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str) -> None:
    monkeypatch.setattr("silohash.data.archive.TEXT_CELLS", 1)
    rows = [{"text": "one", "note": ""}, {"text": "two", "note": ""}]
    rows[1][column] = "long " * 100
    (tmp_path / "archive").mkdir()
    write_metadata(tmp_path / "archive", rows)
    said = check(tmp_path / "archive")
    assert said.code == 0
    assert f'warning: metadata.csv, column "{column}": only the first 256 characters of row 3 are used.' in said.out


@pytest.mark.parametrize(
    ("header", "row", "warning"),
    [
        ("text", "a parrot", 'No item has a picture: metadata.csv does not have the column "file_name"'),
        ("file_name,text", ",a parrot", 'No item has a picture: the column "file_name" is empty.'),
        ("file_name", "1.png", 'No item has a text: metadata.csv does not have the column "text"'),
        ("file_name,text", "1.png,", 'No item has a text: the column "text" is empty.'),
        ("file_name,text", '1.png," "', 'No item has a text: the column "text" is empty.'),
    ],
)
def test_absent_pictures_and_texts_are_named(tmp_path: Path, header: str, row: str, warning: str) -> None:
    picture(tmp_path / "archive" / "1.png")
    said = check(table(tmp_path / "archive", f"{header}\n{row}\n"))
    assert said.code == 0
    assert f"warning: {warning}" in said.out


# Links


LINKS: dict[str, Callable[[Path, Path], None]] = {
    "a file": lambda folder, outside: (folder / "1.png").symlink_to(outside / "1.png"),
    "a relative path": lambda folder, outside: (folder / "1.png").symlink_to(Path("..") / outside.name / "1.png"),
    "a chain": lambda folder, outside: (
        (folder / "2.png").symlink_to(outside / "1.png"),
        (folder / "1.png").symlink_to("2.png"),
    )[0],
}


@pytest.mark.parametrize("kind", LINKS)
@pytest.mark.parametrize("deep", [False, True])
def test_a_picture_behind_a_link_needs_permission(tmp_path: Path, kind: str, deep: bool) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "archive"
    picture(outside / "1.png")
    picture(folder / "inside.png")
    name = "1.png"
    if deep:
        (folder / "deep").symlink_to(outside)
        name = "deep/1.png"
    else:
        LINKS[kind](folder, outside)
    table(folder, f"file_name,text\ninside.png,a\n{name},b\n")
    said = check(folder)
    assert said.code == 0
    assert (
        f'row 3: the picture "{name}" is a link that leads out of the folder, and follow_links is not set' in said.out
    )
    assert "archive: 1 items" in said.out
    assert "archive: 2 items" in check(folder, "--follow-links").out


@pytest.mark.parametrize("name", ["metadata.csv", "image.npy", "text.npy", "labels.txt"])
def test_another_file_behind_a_link_needs_permission(tmp_path: Path, name: str) -> None:
    folder = write_archive(tmp_path / "archive", count=12)
    (folder / "labels.txt").write_text("parrot\nharbour\nviolin\nglacier\nkitchen\ntram\n", encoding="utf-8")
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    assert_refused(
        check(folder), f"{folder / name} is a link to {tmp_path / name}, outside the folder", "--follow-links"
    )
    assert "archive: 12 items" in check(folder, "--follow-links").out


@pytest.mark.parametrize("hidden", [".hidden/1.png", ".1.png", "a/.b/1.png"])
def test_pictures_in_hidden_folders_are_items(tmp_path: Path, hidden: str) -> None:
    picture(tmp_path / "archive" / hidden)
    said = check(table(tmp_path / "archive", f"file_name,text\n{hidden},a\n"))
    assert said.code == 0
    assert "archive: 1 items" in said.out
    assert "pictures 1, texts 1" in said.out


@pytest.mark.parametrize("name", [".hidden", "a b", "bäume", "日本"])
def test_folders_with_unusual_names_are_read(tmp_path: Path, name: str) -> None:
    said = check(table(tmp_path / name, "text\na\nb\n"))
    assert said.code == 0
    assert said.out.startswith(f"{name}: 2 items")


# Other tables


@pytest.mark.parametrize("slip", ["filename", "caption", "tags", "Text", "images"])
def test_a_misspelled_key_in_json_is_named(tmp_path: Path, slip: str) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    (folder / "metadata.jsonl").write_text(json.dumps({slip: "x"}), encoding="utf-8")
    assert_refused(check(folder), "None of the 1 rows", f'The column "{slip}" is not used (did you mean')


@pytest.mark.parametrize(
    ("rows", "items", "parts"),
    [
        ([{"text": b"one"}, {"text": b"two"}], 2, ()),
        ([{"text": b"one"}, {"text": b"\xff"}], 1, ('row 2: column "text" is not UTF-8',)),
        ([{"text": "one", "image": {"bytes": b"\x89P", "path": "a"}}], 1, ('(did you mean "file_name"?)',)),
        ([{"text": "one", "image": b"\x89P"}], 1, ('Columns that are not used: "image"',)),
        ([{"text": "one", "caption": None}], 1, ('Columns that are not used: "caption"',)),
        ([{"text": "one\0"}, {"text": "two"}], 1, ('row 1: column "text" contains a NUL character',)),
    ],
)
def test_tables_of_parquet(tmp_path: Path, rows: list[dict[str, object]], items: int, parts: tuple[str, ...]) -> None:
    import pyarrow
    import pyarrow.parquet

    folder = tmp_path / "archive"
    folder.mkdir()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "metadata.parquet")
    said = check(folder)
    assert said.code == 0
    assert f"archive: {items} items" in said.out
    for part in parts:
        assert part in said.out


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("text,place\na,b\nshort\n", "row 3: has 1 field and the header has 2"),
        ("text,place\na,b\na,b,c\n", "row 3: has 3 fields and the header has 2"),
        ("text,id\na,x\nb,x\n", 'row 3: the id "x" occurs in an earlier row'),
        ("text,split\na,train\nb,trian\n", 'row 3: the split "trian" is not one of'),
        ("text,split\na,train\nb,\n", 'row 3: the split "" is not one of'),
        ("text,file_name\na,\nb,none.png\n", 'row 3: the picture "none.png" is missing'),
        ("text,file_name\na,\nb,../none.png\n", "lies outside the folder"),
        ("text,file_name\na,\nb,/etc/passwd\n", "lies outside the folder"),
        ("text,file_name\na,\nb,.\n", "is not a file"),
        ("text,file_name\na,\nb,metadata.csv\n", "is not a picture of a known format"),
        ("text,place\na,b\n,c\n", "row 3: there is neither a picture nor a text"),
    ],
)
def test_each_row_that_is_left_out_is_named(tmp_path: Path, text: str, reason: str) -> None:
    said = check(table(tmp_path / "archive", text))
    assert said.code == 0
    assert said.out.count("skipped: metadata.csv, row 3: ") == 1
    assert reason in said.out
    assert "archive: 1 items" in said.out


# Indexes


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("bad-archives")
    archive = write_archive(folder / "archive", count=48, text="words")
    run = train(archive, folder / "run", federated={"rounds": 1}, partition={"silos": 2, "minimum": 2})
    index_run(run)
    return run


@pytest.fixture
def more(tmp_path: Path) -> Path:
    """An archive without splits, in a folder called pictures."""
    folder = write_archive(tmp_path / "one" / "pictures", count=12, text="words", seed=4)
    without(folder, "split")
    return folder


def without(folder: Path, column: str) -> None:
    """Remove a column of a table."""
    with (folder / "metadata.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    write_metadata(folder, [{name: value for name, value in row.items() if name != column} for row in rows])


@pytest.fixture
def run(trained: Run, tmp_path: Path) -> Run:
    import shutil

    return Run(shutil.copytree(trained.folder, tmp_path / "run"))


def refused_index(run: Run, *arguments: object) -> Said:
    """Run ``silohash index``, and assert that it refuses and changes nothing."""
    before = content(run.folder)
    said = silohash("index", run.folder, *arguments)
    assert (said.code, said.out) == (2, ""), said
    assert "Traceback" not in said.err
    assert content(run.folder) == before
    return said


@pytest.mark.whole_run
@pytest.mark.parametrize("name", HIDDEN_AND_INVALID)
def test_names_that_a_search_would_not_find_are_refused(run: Run, more: Path, name: str) -> None:
    said = refused_index(run, more, "--name", name)
    assert "An index cannot have the name" in said.err
    assert "Give the archive another name with --name." in said.err


@pytest.mark.whole_run
@pytest.mark.parametrize("name", ["silo-1", "silo-2", "SILO-1"])
def test_names_of_silos_are_refused(run: Run, more: Path, name: str) -> None:
    assert "which is also the name of a silo of the run" in refused_index(run, more, "--name", name).err
    more.rename(more.parent / name)
    assert "which is also the name of a silo of the run" in refused_index(run, more.parent / name).err


@pytest.mark.whole_run
def test_a_hidden_archive_is_refused_until_it_has_a_name(run: Run, more: Path) -> None:
    hidden = more.rename(more.parent / ".pictures")
    assert "An index cannot have the name '.pictures'" in refused_index(run, hidden).err
    said = silohash("index", run.folder, hidden, "--name", "pictures", "--json")
    assert said.document()["items"] == {"pictures": 12}
    found = silohash("search", run.folder, "parrot", "-k", 100, "--json").document()["hits"]
    assert sum(hit["silo"] == "pictures" for hit in found) == 12


@pytest.mark.whole_run
@pytest.mark.parametrize("second", ["pictures", "Pictures"])
def test_a_second_archive_of_the_same_name_replaces_nothing(run: Run, more: Path, tmp_path: Path, second: str) -> None:
    assert silohash("index", run.folder, more).code == 0
    other = write_archive(tmp_path / "two" / second, count=10, text="words", seed=9)
    said = refused_index(run, other)
    assert f'already has an index with the name "pictures", of another archive ({more})' in said.err
    assert silohash("index", run.folder, other, "--name", "more", "--json").document()["items"] == {"more": 8}
    assert silohash("index", run.folder, more, "--json").document()["items"] == {"pictures": 12}
    moved = more.rename(tmp_path / "pictures")
    assert silohash("index", run.folder, moved, "--json").document()["items"] == {"pictures": 12}


@pytest.mark.whole_run
def test_an_archive_without_splits_is_indexed_as_a_whole(run: Run, more: Path) -> None:
    said = silohash("index", run.folder, more, "--json")
    assert said.document()["items"] == {"pictures": 12}
    assert "held out" not in said.err
    assert silohash("index", run.folder, more, "--all", "--json").document()["items"] == {"pictures": 12}


@pytest.mark.whole_run
def test_an_archive_that_would_be_found_twice_is_named(run: Run) -> None:
    said = silohash("index", run.folder, run.config.data.path)
    assert said.code == 0
    assert f"The run was trained on {run.config.data.path}, so items that its silos hold are found twice." in said.err


@pytest.mark.whole_run
def test_queries_are_held_out_in_words(run: Run, tmp_path: Path) -> None:
    said = silohash("index", run.folder)
    assert "8 query items of archive are held out of the indexes" in said.err
    assert f"silohash index {run.folder} --all" in said.err
    assert sum(silohash("index", run.folder, "--all", "--json").document()["items"].values()) == 48
    more = write_archive(tmp_path / "more", count=12, text="words", seed=4)
    assert "2 query items of more are held out of the indexes" in silohash("index", run.folder, more).err


@pytest.mark.whole_run
def test_an_archive_of_queries_alone_is_refused(run: Run, more: Path) -> None:
    with (more / "metadata.csv").open(encoding="utf-8", newline="") as stream:
        rows = [{**row, "split": "query"} for row in csv.DictReader(stream)]
    write_metadata(more, rows)
    assert 'All 12 items of "pictures" are queries' in refused_index(run, more).err
    assert silohash("index", run.folder, more, "--all", "--json").document()["items"] == {"pictures": 12}


@pytest.mark.whole_run
def test_items_that_the_model_cannot_encode_are_named(run: Run, more: Path) -> None:
    before = np.load(more / "image.npy")
    (more / "image.npy").unlink()
    with (more / "metadata.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    write_metadata(more, [{**row, "text": ""} for row in rows])
    assert "None of the 12 rows" in refused_index(run, more).err
    np.save(more / "image.npy", before[:, :5])
    assert refused_index(run, more).err.count("silohash: ") == 1
    for row in rows[:4]:
        row["text"] = ""
    before[:4] = np.nan
    np.save(more / "image.npy", before)
    write_metadata(more, rows)
    said = silohash("index", run.folder, more, "--json")
    assert said.document()["items"] == {"pictures": 8}
    assert said.err.count("there is neither a picture nor a text; left out") == 4


@pytest.mark.whole_run
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--name", "more"), "--name is the name of an additional archive, and no archive is given"),
        (("--model", "silo-1"), "--model selects the model that encodes an additional archive"),
        (("none",), '"none" is neither the name of an archive'),
        (("--remove", "item-001", "--all"), "Leave ARCHIVE, --name, --model and --all out"),
        (("--remove", "item-001", "--name", "more"), "Leave ARCHIVE, --name, --model and --all out"),
        (("--remove", "no,such"), "An id that contains a comma is given to --remove in a file, as @FILE"),
    ],
)
def test_options_of_an_index_that_do_not_fit(run: Run, arguments: tuple[str, ...], part: str) -> None:
    assert part in refused_index(run, *arguments).err


@pytest.mark.whole_run
def test_skipped_rows_and_links_of_a_further_archive_are_named(run: Run, more: Path, tmp_path: Path) -> None:
    (more / "image.npy").rename(tmp_path / "image.npy")
    (more / "image.npy").symlink_to(tmp_path / "image.npy")
    assert "image.npy is a link to" in refused_index(run, more).err
    values = np.load(tmp_path / "image.npy")
    values[3, 0] = np.inf
    np.save(tmp_path / "image.npy", values)
    said = silohash("index", run.folder, more, "--follow-links", "--json")
    assert said.document()["items"] == {"pictures": 11}
    assert "skipped: metadata.csv, row 5: image.npy holds NaN or infinity" in said.err


# Training


@pytest.mark.whole_run
@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("evaluate.ignore_labels=['parrot','harbour','violin','glacier','kitchen','tram']", "list fewer labels"),
        ("data.follow_links=maybe", "follow_links"),
    ],
)
def test_settings_that_are_refused_before_the_training(tmp_path: Path, override: str, part: str) -> None:
    archive = write_archive(tmp_path / "archive", count=48)
    config = write_config(tmp_path / "run.toml", archive, federated={"rounds": 1})
    before = content(tmp_path)
    said = silohash("train", config, "--out", tmp_path / "out", "--set", override)
    assert_refused(said, part)
    assert content(tmp_path) == before


@pytest.mark.whole_run
def test_links_are_for_folders(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text('[data]\nname = "glyphs"\nfollow_links = true\n', encoding="utf-8")
    assert_refused(silohash("train", config, "--out", tmp_path / "out"), "follow_links is for a folder")
    assert not (tmp_path / "out").exists()


@pytest.mark.whole_run
def test_an_archive_without_queries_is_trained_searched_and_reported(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", count=48, text="words")
    with (archive / "metadata.csv").open(encoding="utf-8", newline="") as stream:
        rows = [{**row, "split": "train"} for row in csv.DictReader(stream)]
    write_metadata(archive, rows)
    config = write_config(tmp_path / "run.toml", archive, federated={"rounds": 1}, partition={"silos": 2})
    run = tmp_path / "out"
    said = silohash("train", config, "--out", run)
    assert said.code == 0, said.err
    assert said.out.startswith(f"Report: {run / 'report.html'}")
    assert 'Archive "archive" does not have items in the split "query", so no figures can be measured.' in said.err
    assert 'Columns that are not used: "place".' in said.err
    assert "trained without being measured" in (run / "report.html").read_text(encoding="utf-8")
    before = content(run)
    assert_refused(silohash("evaluate", run), "so no figures can be measured")
    assert content(run) == before
    indexed = silohash("index", run, "--json")
    assert sum(indexed.document()["items"].values()) == 48
    assert "held out" not in indexed.err
    assert len(silohash("search", run, "parrot", "-k", 100, "--json").document()["hits"]) == 48
