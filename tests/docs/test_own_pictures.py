"""The tutorial of own pictures can be followed literally, and what README says about own pictures and silos is true."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from silohash.run.config.load import load_config
from silohash.run.config.template import BACKBONES
from tests.backbones import clip
from tests.runs import Said, silohash

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "how-to" / "own-pictures.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def section(text: str, heading: str) -> str:
    """Return the text of a section, up to the next heading of its level."""
    level = heading.partition(" ")[0]
    return text.split(f"{heading}\n", 1)[1].split(f"\n{level} ", 1)[0]


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of every command line in the shell blocks."""
    for language, body in BLOCK.findall(text):
        if language == "bash":
            yield from (shlex.split(line) for line in body.splitlines())


@pytest.fixture(scope="module")
def tutorial() -> str:
    return section(PAGE.read_text(encoding="utf-8"), "## A first archive")


@pytest.fixture(scope="module")
def unlabeled() -> str:
    return section(PAGE.read_text(encoding="utf-8"), "## An archive without labels")


def follow(words: list[str], model: Path, source: str) -> Said | None:
    """Run one command of the tutorial: with fewer rounds, a tiny network in place of CLIP, and the page's own script."""
    if words[0] == "python":
        exec(source, {})  # noqa: S102  the page's own lines
        return None
    assert words[0] == "silohash"
    words = [str(model) if word == "clip" else word for word in words[1:]]
    return silohash(*words, *(["--smoke"] if words[0] == "train" else []))


KINDS = ("animal", "food", "plant", "vehicle", "clothing", "building", "weather", "music")


def write_icons(folder: Path) -> None:
    """Write a table and pictures as `silohash data build icons` does, with as many emoji of these kinds as the page has."""
    generator = np.random.default_rng(0)
    rows = ["file_name,text,labels,split,silo,name"]
    for number in range(454):
        kind, tags = KINDS[number % len(KINDS)], "" if number < 12 else f" with the {number % 30} of the bird"
        rows.append(f"noto/thing-{number}.png,thing {number}{tags},{kind}|other,train,noto,thing-{number}")
    rows += [
        "noto/other.png,an other,other,train,noto,other",
        "fluent-emoji/duck.png,duck,animal,train,fluent-emoji,duck",
    ]
    for row in rows[1:]:
        path = folder / row.partition(",")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(path)
    (folder / "metadata.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def in_a_new_folder(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str, str]:
    """Go to a folder with icons, and return a tiny network, the page's script and the page's output of the check."""
    monkeypatch.chdir(tmp_path)
    write_icons(tmp_path / "data" / "icons")
    (source,) = (body for language, body in BLOCK.findall(page) if language == "python")
    (checked,) = (body for language, body in BLOCK.findall(page) if not language)
    return clip(tmp_path / "clip"), source, checked


@pytest.mark.whole_run
def test_tutorial_is_followed_to_its_answers(tutorial: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, source, checked = in_a_new_folder(tutorial, tmp_path, monkeypatch)
    searches = 0
    for words in commands(tutorial):
        said = follow(words, model, source)
        if said is None:
            continue
        assert said.code == 0, (words, said.err)
        if words[1:3] == ["data", "check"]:
            assert checked in said.out
        if words[1] == "train":
            from_scratch = "--set" not in words
            assert ("The image tower is trained from scratch on 409 color pictures" in said.err) == from_scratch
            assert (tmp_path / words[words.index("--out") + 1] / "report.html").is_file()
        if words[1] == "search":
            searches += 1
            assert str(tmp_path / "my-archive") in said.out
    assert searches == 3
    assert load_config(tmp_path / "mine.toml").features.image["model"] == str(model)
    assert load_config(tmp_path / "small.toml").features.image == {}


@pytest.mark.whole_run
def test_tutorial_without_labels_is_followed_to_its_answers(
    tutorial: str, unlabeled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow(["python"], tmp_path, in_a_new_folder(tutorial, tmp_path, monkeypatch)[1])
    model, source, checked = in_a_new_folder(unlabeled, tmp_path, monkeypatch)
    outputs = {}
    for words in commands(unlabeled):
        said = follow(words, model, source)
        if said is not None:
            assert said.code == 0, (words, said.err)
            outputs.setdefault(words[1], []).append(said.out)
    assert [name for name, found in outputs.items() for _ in found] == ["data", "new", "train", "search", "search"]
    assert checked in outputs["data"][0]
    assert "MedR[by=pairs]" in outputs["train"][0]
    assert all(str(tmp_path / "my-unlabeled") in found for found in outputs["search"])
    page = (tmp_path / "runs" / "unlabeled" / "report.html").read_text(encoding="utf-8")
    assert "reciprocal rank of held-back pairs" in page
    assert "mAP@all" not in page


def test_names_and_sizes_of_networks_are_those_of_the_code(tutorial: str) -> None:
    rows = [line.split("|") for line in tutorial.splitlines() if line.startswith("| `")]
    stated = {row[1].strip(" `"): re.findall(r"([\d.]+) (GB|MB)", row[3]) for row in rows}
    sizes = {name: list(backbone.megabytes.values()) for name, backbone in BACKBONES.items()}
    assert stated.keys() == sizes.keys()
    for name, found in stated.items():
        assert [
            round(float(size) * (1000 if unit == "GB" else 1), -2 if unit == "GB" else 0) for size, unit in found
        ] == [round(size, -2 if size >= 1000 else 0) for size in sizes[name]]


def test_first_screen_of_the_readme_tells_what_is_simulated_and_what_is_deployed() -> None:
    screen = " ".join((REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()[:25])
    assert "simulates all silos on one machine" in screen.replace("> ", "")
    assert "trains [across machines](docs/how-to/train-across-machines.md)" in screen.replace("> ", "")


def test_readme_leads_with_a_published_network_for_photographs() -> None:
    text = section((REPOSITORY / "README.md").read_text(encoding="utf-8"), "## Your own pictures")
    first = [words for words in commands(text) if words[0] == "silohash"]
    assert first[0][1:] == ["new", "mine.toml", "--data", "my-archive", "--backbone", "clip"]
    assert [words[1] for words in first] == ["new", "train", "search", "search", "serve"]
    assert first[1].count("--set") == 2
    assert text.index("--backbone clip") < text.index("Without `--backbone`")
