"""``index`` and ``search`` on the command line: removal, pages, filters, previews, policies."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from silohash.base.files import read_json, write_json
from silohash.cli import search
from silohash.search.hits import Hits
from tests.runs import labels_of, silohash, train, views_of

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
    fields = {"id", "silo", "distance_bits", "probability", "strength", "found_by", "caption", "labels", "file", "path"}
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
    learned = {"probabilities": [0.9] * 8, "bar_bits": 7, "queries": 20}
    write_json(run / "model" / "model.json", {**record, "calibration": {"t2i": learned}})
    found = silohash("search", run, "red square", "--find", "image", "--json").document()
    first = found["hits"][0]
    assert first["strength"] == ("strong" if first["distance_bits"] <= 7 else "none")
    unknown = silohash("search", run, "red zebra submarine", "--find", "image", "--json").document()
    assert unknown["nothing_close"]
    assert {hit["strength"] for hit in unknown["hits"]} == {"none"}
    far = silohash("search", run, "red square", "--find", "image", "--bar", 0.95)
    assert far.err.startswith("Nothing close")
    unlearned = silohash("search", run, "red square", "--find", "text", "--json").document()["hits"]
    assert {(hit["strength"], hit["probability"]) for hit in unlearned} == {(None, None)}


@pytest.mark.whole_run
def test_a_policy_limits_what_is_printed(run: Path) -> None:
    (run / "policies").mkdir()
    for silo in ("silo-1", "silo-2"):
        (run / "policies" / f"{silo}.toml").write_text('max_results = 1\nfields = ["labels"]\n', encoding="utf-8")
    said = silohash("search", run, "red square", "--json", "--previews")
    fields = {"id", "silo", "distance_bits", "probability", "strength", "found_by", "labels", "path"}
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
            '--to is "pgvectr" (did you mean "pgvector"?). Choose from: flat, faiss, pgvector, ',
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
