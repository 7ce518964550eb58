"""``index`` and ``search`` on the command line: removal, pages, filters, previews, policies."""

from __future__ import annotations

import base64
import csv
import io
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from silohash.base.files import read_json, write_json
from silohash.cli import search
from silohash.cli.search import CHUNK, SHOWN_PIXELS, graphics_of, picture_of, sequence, show_picture
from silohash.index.preview import make_preview, preview_url
from silohash.search.hits import Hits
from silohash.search.released import Hit
from tests.runs import labels_of, silohash, train, views_of
from tests.served import drawn, served_run

LABELS = ("red", "green")


def write_pictures(folder: Path, count: int = 36) -> Path:
    """Write a folder of items with given vectors, texts and pictures for display."""
    folder.mkdir(parents=True)
    labels = labels_of(count, len(LABELS), seed=1)
    with (folder / "metadata.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "file_name", "text", "labels", "split"])
        for row in range(count):
            names = [LABELS[column] for column in np.flatnonzero(labels[row])]
            Image.new("RGB", (90, 60), names[0]).save(folder / f"{row}.png")
            writer.writerow(
                [
                    f"i{row}",
                    f"{row}.png",
                    f"a {' '.join(names)} square",
                    "|".join(names),
                    "query" if row % 6 == 0 else "train",
                ]
            )
    np.save(folder / "image.npy", views_of(labels, seed=2))
    return folder


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    archive = write_pictures(folder / "archive")
    train(archive, folder / "run", federated={"rounds": 1}, partition={"kind": "iid", "silos": 2, "minimum": 2})
    said = silohash("index", folder / "run", "--json")
    assert said.code == 0, said.err
    assert sum(said.document()["items"].values()) == 30
    return folder / "run"


@pytest.fixture
def run(indexed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(indexed, tmp_path / "run")


def found(run: Path, *arguments: object) -> list[str]:
    said = silohash("search", run, "red square", "--json", *arguments)
    assert said.code == 0, said.err
    return [hit["id"] for hit in said.document()["hits"]]


@pytest.mark.whole_run
def test_pages_continue_one_another(run: Path) -> None:
    assert found(run, "-k", 4) + found(run, "-k", 3, "--offset", 4) == found(run, "-k", 7)
    assert found(run, "--offset", 30) == []


@pytest.mark.whole_run
def test_hits_can_be_limited_to_a_label_and_a_radius(run: Path) -> None:
    said = silohash("search", run, "red square", "--label", "green", "-k", 50, "--json")
    assert all("green" in hit["labels"] for hit in said.document()["hits"])
    assert 0 < len(said.document()["hits"]) < 30
    nearest = silohash("search", run, "red square", "-k", 1, "--json").document()["hits"][0]["distance_bits"]
    said = silohash("search", run, "red square", "--radius", nearest, "-k", 50, "--json")
    assert {hit["distance_bits"] for hit in said.document()["hits"]} == {nearest}


@pytest.mark.whole_run
def test_a_picture_and_words_and_excluded_words(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    run, picture = served_run(tmp_path_factory.mktemp("served")), tmp_path / "picture.png"
    drawn("red", "square").save(picture)
    said = silohash("search", run, "red square -green", "--image", picture, "--region", "0,0,1,0.5", "-k", 50, "--json")
    document = said.document()
    assert document["excluded_words"] == ["green"]
    assert document["hits"]
    assert not any("green" in hit["caption"] for hit in document["hits"])
    assert all(hit["strength"] is None for hit in document["hits"])
    weighed = [
        silohash("search", run, "red square", "--image", picture, "--text-weight", weight, "--json").document()["hits"]
        for weight in (0, 1)
    ]
    assert weighed[0] != weighed[1]
    for arguments in (["-green"], ["red", "--region", "0,0,1,1"], ["red", "--image", picture, "--region", "0,0,1"]):
        said = silohash("search", run, *arguments[1:], "--", arguments[0])
        assert (said.code, said.out) == (2, "")


@pytest.mark.whole_run
def test_a_deadline_is_in_the_limits(run: Path) -> None:
    assert found(run, "--deadline", 30) == found(run)
    said = silohash("search", run, "red square", "--deadline", 0.01)
    assert said.code == 2
    assert said.err.splitlines()[-1] == "  [out-of-range]"
    assert "0.1 to 60" in said.err


def test_backends_give_the_same_hits(run: Path) -> None:
    pytest.importorskip("faiss")
    assert found(run, "--engine", "faiss") == found(run)
    assert 'no index backend "annoy"' in silohash("search", run, "red", "--engine", "annoy").err


@pytest.mark.whole_run
@pytest.mark.parametrize("find", ["item", "image", "text"])
def test_previews_are_printed_on_request(run: Path, find: str) -> None:
    without = silohash("search", run, "red square", "--find", find, "--json").document()["hits"]
    fields = {
        "id",
        "silo",
        "distance_bits",
        "probability",
        "strength",
        "found_by",
        "matched",
        "caption",
        "labels",
        "file",
        "path",
    }
    assert all(set(hit) == fields for hit in without)
    hits = silohash("search", run, "red square", "--find", find, "--json", "--previews").document()["hits"]
    assert all(hit["preview"].startswith("data:image/jpeg;base64,") for hit in hits)
    assert len(hits) == 10


@pytest.mark.whole_run
def test_items_are_removed_by_commas_repetition_and_file(run: Path, tmp_path: Path) -> None:
    listed = tmp_path / "ids.txt"
    listed.write_text("i3\n\n i4 \n", encoding="utf-8")
    said = silohash("index", run, "--remove", "i1, i2", "--remove", f"@{listed}", "--remove", "nobody", "--json")
    assert said.code == 0, said.err
    document = said.document()
    assert sorted(name for names in document["removed"].values() for name in names) == ["i1", "i2", "i3", "i4"]
    assert document["not_found"] == ["nobody"]
    assert any("i1, i2, i3, i4" in line and "silohash retrain" in line for line in document["remains"])
    left = found(run, "-k", 50)
    assert len(left) == 26
    assert not {"i1", "i2", "i3", "i4"} & set(left)


@pytest.mark.whole_run
def test_removal_reports_where_items_were(run: Path) -> None:
    holder = silohash("search", run, "red square", "-k", 1, "--json").document()["hits"][0]
    said = silohash("index", run, "--remove", f"{holder['id']},nobody")
    assert said.out == f"{holder['silo']}: removed {holder['id']}\n"
    assert "Not found in any index: nobody" in said.err
    assert "Remove the items there, or indexing adds them again." in said.err


@pytest.mark.whole_run
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--remove", "nobody,none"), 'holds "nobody", "none"'),
        (("--remove", " ,"), "does not name an id"),
        (("--remove", "@none.txt"), "none.txt is missing"),
        (("more", "--remove", "i1"), "Leave ARCHIVE, --name, --model and --all out"),
        (("--model", "silo-1", "--remove", "i1"), "Leave ARCHIVE, --name, --model and --all out"),
        (("--name", "more", "--remove", "i1"), "Leave ARCHIVE, --name, --model and --all out"),
        (("--all", "--remove", "i1"), "Leave ARCHIVE, --name, --model and --all out"),
    ],
)
def test_removals_that_are_refused(run: Path, arguments: tuple[str, ...], says: str) -> None:
    said = silohash("index", run, *arguments)
    assert (said.code, said.out) == (2, "")
    assert says in said.err


@pytest.mark.whole_run
def test_an_answer_tells_how_sure_it_is(run: Path) -> None:
    record = read_json(run / "model" / "model.json", dict[str, Any])
    learned = {"offset": 2.0, "per_bit": 0.0, "per_doubling": 0.0, "bar_bits": 7, "queries": 20, "searched": 40}
    write_json(run / "model" / "model.json", {**record, "calibration": {"t2i": learned}})
    found = silohash("search", run, "red square", "--find", "image", "--json").document()
    first = found["hits"][0]
    assert first["strength"] == ("strong" if first["distance_bits"] <= 7 else "none")
    unknown = silohash("search", run, "red zebra submarine", "--find", "image", "--json").document()
    assert unknown["nothing_close"]
    assert {hit["strength"] for hit in unknown["hits"]} == {"none"}
    far = silohash("search", run, "blue red square", "--find", "image", "--bar", 0.95)
    assert far.err.startswith("Nothing close")
    unlearned = silohash("search", run, "red square", "--find", "text", "--json").document()["hits"]
    assert {(hit["strength"], hit["probability"]) for hit in unlearned} == {(None, None)}


@pytest.mark.whole_run
def test_a_policy_limits_what_is_printed(run: Path) -> None:
    (run / "policies").mkdir()
    for silo in ("silo-1", "silo-2"):
        (run / "policies" / f"{silo}.toml").write_text('max_results = 1\nfields = ["labels"]\n', encoding="utf-8")
    said = silohash("search", run, "red square", "--json", "--previews")
    fields = {"id", "silo", "distance_bits", "probability", "strength", "found_by", "matched", "labels", "path"}
    assert [set(hit) for hit in said.document()["hits"]] == [fields] * 2
    assert [hit["path"] for hit in said.document()["hits"]] == [None, None]
    assert "results to 1 per query" in said.document()["limited_silos"]["silo-1"]
    lines = silohash("search", run, "red square")
    assert len(lines.out.splitlines()) == 2
    assert "silo-2: It limits results to 1 per query." in lines.err


def test_lines_of_hits_with_and_without_pictures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "b.png")
    hits = Hits(
        ids=("a", "b", "c"), distances=(1, 2, 3), silos=("north",) * 3,
        payloads=({"caption": "one"}, {"caption": "two", "file": "b.png"}, {"caption": "three"}),
        folders={"north": (tmp_path,)},
    )  # fmt: skip
    printed, shown = [], []
    monkeypatch.setattr(search, "print_result", printed.append)
    monkeypatch.setattr(search, "show_picture", lambda hit, graphics: shown.append((hit.id, graphics)))
    search.print_aligned(hits)
    assert [word in line for word, line in zip(("one", "two", "b.png", "three"), printed, strict=True)] == [True] * 4
    assert shown == []
    search.print_aligned(hits, "kitty")
    assert shown == [(name, "kitty") for name in "abc"]


@pytest.mark.whole_run
def test_moving_needs_a_known_backend_and_an_indexed_run(run: Path) -> None:
    for options, message in (
        (
            ("--to", "pgvectr"),
            '--to is "pgvectr" (did you mean "pgvector"?). Choose from: flat, trie, faiss, pgvector, ',
        ),
        (("--to", "flat", "--url-env", "URL"), "--to flat searches in memory"),
        (("--to", "faiss", "--url-file", "url.txt"), "--to faiss searches in memory"),
        (("--to", "flat", "--approximate"), "Remove --url-env, --url-file and --approximate"),
        (("--to", "pgvector", "--url-env", "URL", "--url-file", "url.txt"), "--url-env and --url-file both name"),
    ):
        said = silohash("index", "move", run, *options)
        assert said.code == 2
        assert message in " ".join(said.err.split())
    moved = silohash("index", "move", run, "--to", "faiss", "--json").document()
    assert moved["engine"] == "faiss"
    assert {index["modality"] for index in moved["indexes"]} == {"image", "text"}
    assert found(run) == found(run, "--engine", "flat")


@pytest.mark.parametrize(
    ("environment", "graphics"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "KONSOLE_VERSION": "220400"}, "kitty"),
        ({"TERM": "xterm-256color", "KONSOLE_VERSION": "220399"}, None),
        ({"TERM": "xterm-256color", "KONSOLE_VERSION": "new"}, None),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm2"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "iterm2"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "iterm2"),
        ({"TERM": "xterm", "TERM_PROGRAM": "mintty"}, "iterm2"),
        ({"TERM": "tmux-256color", "LC_TERMINAL": "iTerm2"}, None),
        ({"TERM": "screen", "TERM_PROGRAM": "ghostty"}, None),
        ({"TERM": "xterm-kitty", "TMUX": "socket"}, None),
        ({"TERM": "dumb", "TERM_PROGRAM": "iTerm.app"}, None),
        ({"TERM": "xterm-256color"}, None),
        ({}, None),
    ],
)
def test_protocols_of_terminals(environment: dict[str, str], graphics: str | None) -> None:
    assert graphics_of(environment) == graphics


def noise(side: int) -> Image.Image:
    return Image.effect_noise((side, side // 2), 80)


def test_iterm2_gets_one_sequence_with_a_png() -> None:
    found = re.fullmatch(r"\x1b\]1337;File=inline=1;size=(\d+):([A-Za-z0-9+/=]+)\x07", sequence(noise(20), "iterm2"))
    assert found is not None
    content = base64.b64decode(found[2], validate=True)
    assert len(content) == int(found[1])
    assert Image.open(io.BytesIO(content)).size == (20, 10)


def test_kitty_gets_chunks_with_a_png() -> None:
    chunks = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", sequence(noise(600), "kitty"))
    assert "".join(f"\x1b_G{control};{text}\x1b\\" for control, text in chunks) == sequence_again(chunks)
    controls = [control for control, _ in chunks]
    assert controls == ["a=T,f=100,q=2,m=1", *["m=1"] * (len(chunks) - 2), "m=0"]
    assert all(len(text) == CHUNK for _, text in chunks[:-1])
    picture = Image.open(io.BytesIO(base64.b64decode("".join(text for _, text in chunks), validate=True)))
    assert (picture.format, picture.size) == ("PNG", (SHOWN_PIXELS, SHOWN_PIXELS // 2))


def sequence_again(chunks: list[tuple[str, str]]) -> str:
    return "".join(f"\x1b_G{control};{text}\x1b\\" for control, text in chunks)


@pytest.mark.parametrize(("length", "sizes"), [(4096, [4096]), (4097, [4096, 1]), (8192, [4096, 4096])])
def test_chunks_are_full_and_the_last_one_says_so(length: int, sizes: list[int]) -> None:
    chunks = [chunk.removesuffix("\x1b\\").split(";") for chunk in search._kitty_chunks("x" * length)]
    assert [len(text) for _, text in chunks] == sizes
    assert [control[-1] for control, _ in chunks] == ["1"] * (len(sizes) - 1) + ["0"]


def test_a_small_picture_is_one_chunk() -> None:
    text = sequence(Image.new("L", (2, 2)), "kitty")
    assert text.startswith("\x1b_Ga=T,f=100,q=2,m=0;")
    assert text.count("\x1b_G") == 1


def hit(path: Path | None = None, preview: str | None = None) -> Hit:
    return Hit(id="a", silo="north", distance_bits=1, path=path, payload={"preview": preview})


def test_the_file_comes_before_the_preview(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.png"
    Image.new("RGB", (30, 20), "red").save(path)
    preview = preview_url(make_preview(Image.new("L", (6, 4))))
    sizes = [found and found.size for found in map(picture_of, (hit(path, preview), hit(None, preview), hit()))]
    assert sizes == [(30, 20), (6, 4), None]
    path.write_bytes(b"no picture")
    assert picture_of(hit(path, preview)).size == (6, 4)
    assert picture_of(hit(path, preview_url(b"\xff\xd8\xff"))) is None
    show_picture(hit(), "kitty")
    assert capsys.readouterr().out == ""
    show_picture(hit(None, preview), "iterm2")
    assert capsys.readouterr().out.endswith("\a\n")


@pytest.mark.parametrize(
    ("terminal", "environment", "expected"),
    [
        (True, {"TERM": "xterm-kitty"}, ("kitty", "")),
        (True, {"TERM": "xterm"}, (None, search.NO_GRAPHICS)),
        (False, {"TERM": "xterm-kitty"}, (None, search.NO_TERMINAL)),
    ],
)
def test_without_a_protocol_there_is_a_reason(
    terminal: bool, environment: dict[str, str], expected: tuple[object, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(search.os, "environ", environment)
    assert search.terminal_graphics() == expected
