"""Hits of a user's own folder of photographs: paths, pictures in a terminal, unknown words, and the report's examples."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.cells import cell_len

from silohash.api.runs import open_run
from silohash.base.errors import UserError
from silohash.report.headline import headline
from silohash.report.tables import read_results
from silohash.search.federation import NO_ITEM
from tests.pictures import COLORS, small_config
from tests.runs import Said, silohash, write_metadata

pytestmark = pytest.mark.whole_run

CONFIG = small_config("photos", rounds=6, local_epochs=5)


def photograph(path: Path, color: str, seed: int) -> None:
    """Write a JPEG file of one color with noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).normal(0, 25, (90, 120, 3))
    Image.fromarray(np.clip(noise + COLORS[color], 0, 255).astype(np.uint8)).save(path, quality=90)


def write_photographs(folder: Path, count: int, first: int = 0) -> Path:
    """Write a folder of photographs in a subfolder; captions are long and of wide characters in part."""
    rows = []
    for number in range(first, first + count):
        color = list(COLORS)[number % 4]
        photograph(folder / "jpeg" / f"{color} {number}.jpg", color, number)
        text = (
            f"a {color} surface seen from above, photographed in the morning light of the harbour 赤と青と緑 {number}"
        )
        rows.append({"file_name": f"jpeg/{color} {number}.jpg", "id": f"p{number}", "text": text, "labels": color})
    write_metadata(folder, rows)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Said]:
    """A folder with photographs and a run that was trained on them by the command, and what the command printed."""
    folder = tmp_path_factory.mktemp("hits")
    write_photographs(folder / "photos", 40)
    (folder / "mine.toml").write_text(CONFIG, encoding="utf-8")
    said = silohash("train", folder / "mine.toml", "--out", folder / "run")
    assert said.code == 0, said.err
    return folder, said


@pytest.fixture
def here(trained: tuple[Path, Said], tmp_path: Path) -> Path:
    """A copy of the run; the photographs stay where they are."""
    shutil.copytree(trained[0] / "run", tmp_path / "run")
    return tmp_path


@pytest.mark.whole_run
def test_training_prints_the_result_first_and_indexes(trained: tuple[Path, Said]) -> None:
    folder, said = trained
    lines = said.out.splitlines()
    assert lines[0] == headline(read_results(folder / "run" / "results.csv")).sentence
    assert lines[0].startswith("Training together with fedavg finds relevant items with ")
    assert lines[-1] == f"Report: {folder / 'run' / 'report.html'}"
    assert re.search(r"^GG +i2t +mAP@all +\d+\.\d +– +\d+\.\d–\d+\.\d +\d+\.\d +4$", said.out, re.MULTILINE)
    assert "silo-1: 18 items\nsilo-2: 18 items\n" in said.err
    assert "4 query items of photos are held out of the indexes" in said.err
    assert said.err.splitlines()[-1] == f'Next: silohash search {folder / "run"} "…"'


def test_the_report_shows_example_searches_with_photographs(trained: tuple[Path, Said]) -> None:
    page = (trained[0] / "run" / "report.html").read_text(encoding="utf-8")
    examples = page[page.index("Example searches") :]
    assert examples.count("data:image/jpeg;base64,") >= 3 * 5 + 3, (
        "five hits of three texts, and three pictures as queries"
    )


def test_hits_have_paths_in_fields_and_in_json(trained: tuple[Path, Said]) -> None:
    run, photos = trained[0] / "run", trained[0] / "photos"
    said = silohash("search", run, "a red surface", "-k", 4)
    assert said.code == 0, said.err
    document = silohash("search", run, "a red surface", "-k", 4, "--json").document()
    assert document["unknown_words"] == []
    rows = [line.split("\t") for line in said.out.splitlines()]
    assert len(rows) == len(document["hits"]) == 4
    for (distance, silo, name, caption, labels, path, rank, score), hit in zip(rows, document["hits"], strict=True):
        assert (int(distance), silo, name, caption, path) == (
            hit["distance_bits"], hit["silo"], hit["id"], hit["caption"], hit["path"],
        )  # fmt: skip
        assert (labels, rank, score) == ("|".join(hit["labels"]), "", "")
        assert Path(path) == photos / hit["file"]
        assert Path(path).is_file()
        assert caption.endswith(name.removeprefix("p")), "captions are whole"
    assert rows[0][4] == "red"


def test_paths_alone_for_pipes(trained: tuple[Path, Said]) -> None:
    run = trained[0] / "run"
    paths = [hit["path"] for hit in silohash("search", run, "a red surface", "--json").document()["hits"]]
    for option in ("-l", "--files"):
        said = silohash("search", run, "a red surface", option)
        assert (said.code, said.out) == (0, "".join(f"{path}\n" for path in paths))
    for options in (("-0",), ("--null",), ("-l", "-0")):
        assert silohash("search", run, "a red surface", *options).out == "".join(f"{path}\0" for path in paths)
    piped = subprocess.run(
        ["xargs", "-0", "ls"],
        input=silohash("search", run, "a red surface", "-0").out, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert sorted(piped.stdout.splitlines()) == sorted(paths)


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        (("--json", "-l"), "--json and --files"),
        (("--show", "-0"), "--show and --files"),
        (("--json", "--show"), "--show"),
    ],
)
def test_one_form_of_output_at_a_time(trained: tuple[Path, Said], options: tuple[str, ...], chosen: str) -> None:
    said = silohash("search", trained[0] / "run", "red", *options)
    assert (said.code, said.out) == (2, "")
    assert f"{chosen} are different forms of output. Choose one of them." in said.err


def test_files_that_are_gone_have_no_path(here: Path, trained: tuple[Path, Said]) -> None:
    run = here / "run"
    config = (run / "config.toml").read_text(encoding="utf-8")
    moved = shutil.copytree(trained[0] / "photos", here / "moved")
    (run / "config.toml").write_text(config.replace(str(trained[0] / "photos"), str(moved)), encoding="utf-8")
    paths = [Path(line) for line in silohash("search", run, "a red surface", "-k", 4, "-l").out.splitlines()]
    assert all(path.is_relative_to(moved) for path in paths), "the folder of data.path comes first"
    trained[0].joinpath("photos").rename(trained[0] / "away")
    try:
        for path in paths[1:]:
            path.unlink()
        said = silohash("search", run, "a red surface", "-k", 4, "-l")
        assert (said.code, said.out) == (0, f"{paths[0]}\n")
        assert "3 of 4 hits do not have a picture file on this machine." in said.err
        paths[0].unlink()
        said = silohash("search", run, "a red surface", "-k", 4, "-l")
        assert (said.code, said.out) == (2, "")
        assert "None of the 4 hits has a picture file on this machine. Leave out --files" in said.err
        assert [hit.path for hit in open_run(run).search("a red surface", k=4)] == [None] * 4
    finally:
        (trained[0] / "away").rename(trained[0] / "photos")


def test_a_policy_hides_files(here: Path) -> None:
    run = here / "run"
    (run / "policies").mkdir()
    (run / "policies" / "silo-1.toml").write_text('fields = ["caption"]\n', encoding="utf-8")
    hits = silohash("search", run, "a red surface", "-k", 36, "--json").document()["hits"]
    assert {hit["silo"]: hit["path"] is None for hit in hits} == {"silo-1": True, "silo-2": False}
    assert all("file" not in hit for hit in hits if hit["silo"] == "silo-1")
    assert silohash("index", run).code == 0
    assert not (run / "index" / "silo-1" / "source.json").exists()
    assert b".jpg" not in (run / "index" / "silo-1" / "image.sqlite").read_bytes()
    assert b".jpg" in (run / "index" / "silo-2" / "image.sqlite").read_bytes()


def test_a_further_archive_has_paths_and_counts_unknown_texts(here: Path) -> None:
    more = write_photographs(here / "more", 4, first=100)
    photograph(more / "jpeg" / "zebra.jpg", "red", 7)
    table = (more / "metadata.csv").read_text(encoding="utf-8")
    rows = 'jpeg/zebra.jpg,zebra,"Zebra, quagga",red\n,words,quagga of the zebra,red\n'
    (more / "metadata.csv").write_text(table + rows, encoding="utf-8")
    said = silohash("index", here / "run", more, "--json")
    assert said.code == 0, said.err
    assert said.document()["items"] == {"more": 5}
    assert (
        "more: 2 texts do not contain a word that the model knows. Of these items, 1 is indexed by picture only and 1 "
        "not at all.\n"
    ) in said.err
    hits = open_run(here / "run").search("a red surface", k=50)
    assert {hit.path.parent.parent for hit in hits if hit.silo == "more"} == {more}
    assert "zebra" in {hit.id for hit in hits}
    texts = open_run(here / "run").search("a red surface", find="text", k=50)
    assert not {"zebra", "words"} & set(texts.ids)
    assert len(texts) == 36 + 4
    said = silohash("search", here / "run", "quagga", "--json")
    [found] = said.document()["hits"]
    assert (said.code, found["id"], found["matched"], found["distance_bits"]) == (0, "zebra", ["quagga"], None)
    assert "only items with all words of the text were found" in silohash("search", here / "run", "quagga").err


def test_unknown_words_are_named_and_weigh_nothing(trained: tuple[Path, Said]) -> None:
    run = trained[0] / "run"
    said = silohash("search", run, "a RED Zebra surface, zebra quagga")
    assert said.code == 0
    assert "zebra, quagga are unknown to this model; searched with the rest.\n" in said.err
    assert said.out == silohash("search", run, "red surface").out
    document = silohash("search", run, "red zebra", "--json").document()
    assert document["unknown_words"] == ["zebra"]
    hits = open_run(run).search("red zebra")
    assert hits.unknown_words == ("zebra",)
    assert "zebra is unknown to this model; searched with the rest." in repr(hits)
    assert hits.ids == open_run(run).search("red").ids
    assert silohash("search", run, "red").err == ""


@pytest.mark.parametrize("options", [(), ("--json",), ("-l",)])
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "Zebra and quagga",
            "No training text held any of the words of the query: zebra, quagga. Use other words. Examples of known words: "
            "above, harbour, light, morning, photographed, seen, surface, 赤と青と緑.",
        ),
        (
            "yelow suface",
            "No training text held any of the words of the query: yelow, suface. Use other words. Similar known words: "
            "yellow, surface.",
        ),
        ("of the 777", 'The text "of the 777" does not contain a word that the model reads.'),
    ],
)
def test_a_query_without_known_words_has_no_hits(
    trained: tuple[Path, Said], text: str, sentence: str, options: tuple[str, ...]
) -> None:
    said = silohash("search", trained[0] / "run", text, *options)
    assert (said.code, said.out) == (2, "")
    assert f"silohash: {sentence}" in said.err
    assert NO_ITEM in said.err
    with pytest.raises(UserError, match=r"known words|that the model reads"):
        open_run(trained[0] / "run").search(text)


def in_terminal(*arguments: object, columns: int = 80, **environment: str) -> str:
    """Return what a command prints in a pseudo-terminal."""
    leader, follower = pty.openpty()
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TERM", "TMUX", "KONSOLE"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "silohash", *map(str, arguments)],
        stdout=follower, stderr=subprocess.DEVNULL, stdin=follower,
        env={**environ, "COLUMNS": str(columns), "LINES": "40", **environment},
    )  # fmt: skip
    os.close(follower)
    printed = b""
    with contextlib.suppress(OSError):  # how Linux reports the end of a pseudo-terminal
        while block := os.read(leader, 1 << 16):
            printed += block
    os.close(leader)
    assert process.wait(60) == 0
    return printed.decode().replace("\r\n", "\n")


@pytest.mark.whole_run
def test_a_terminal_of_eighty_columns_shows_tables_and_pictures(trained: tuple[Path, Said]) -> None:
    run = trained[0] / "run"
    printed = in_terminal("search", run, "a red surface", "-k", 3, "--show", TERM="xterm-kitty")
    assert printed.count("\x1b_Ga=T,f=100,q=2,") == 3
    lines = re.sub(r"\x1b_G[^\x1b]*\x1b\\", "", printed).split("\n")
    hits, paths = lines[0::3][:3], lines[1::3][:3]
    assert all(" bits  silo-" in line and "…" in line and cell_len(line) == 80 for line in hits)
    assert [Path(path.strip()).is_file() for path in paths] == [True] * 3
    plain = in_terminal("search", run, "a red surface", "-k", 3, "--show", TERM="xterm-256color")
    assert "\x1b_G" not in plain
    assert len(plain.splitlines()) == 6
    table = in_terminal("evaluate", run, TERM="dumb")
    assert max(map(cell_len, table.splitlines())) <= 80
    assert re.search(r"^XS +t2i +mAP@all +\d+\.\d +– +\d+\.\d–\d+\.\d ", table, re.MULTILINE)


def test_pictures_need_a_terminal(trained: tuple[Path, Said]) -> None:
    said = silohash("search", trained[0] / "run", "a red surface", "-k", 2, "--show")
    assert (said.code, len(said.out.splitlines())) == (0, 2)
    assert "Standard output is not a terminal, so --show has no effect." in said.err
