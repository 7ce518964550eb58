"""The example questions of the demo and of the first tutorial have answers that a person accepts."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from silohash.api.runs import open_run
from silohash.cli import demo
from silohash.run.config.load import load_config
from silohash.run.folder import Run
from silohash.search.hits import Hits
from tests.runs import silohash
from tests.silos import ask_run

FIRST_RUN = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "first-run.md"
QUESTION = re.compile(r'^silohash search runs/first "([^"]+)" -k (\d+)$', re.MULTILINE)


def assert_words(hits: Hits, words: str, count: int) -> None:
    """Check that every hit carries the words in its caption."""
    captions = [hit.caption for hit in hits]
    assert len(captions) == count
    assert all(set(words.split()) <= set(caption.split()) for caption in captions), captions


@pytest.fixture(scope="module")
def federated(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The demo's federated run, trained by the demo's recipe."""
    folder = tmp_path_factory.mktemp("demo") / "federated"
    said = silohash("train", demo.recipe("demo.toml"), "--out", folder)
    assert said.code == 0, said.err
    return Run.open(folder)


@pytest.mark.whole_run
@pytest.mark.slow
def test_answers_of_the_demo(federated: Run) -> None:
    queries = demo.demo_queries(federated.archive)
    words = (demo.TEXT_QUERY, "circled", "playing card")
    for (title, value, modality), asked in zip(queries, words, strict=True):
        assert set(asked.split()) <= {*title.replace('"', "").split()}
        assert_words(ask_run(federated, value, modality, k=demo.HITS), asked, demo.HITS)


@pytest.mark.whole_run
@pytest.mark.slow
def test_answers_of_the_command_that_the_demo_suggests(federated: Run) -> None:
    assert_words(open_run(federated.folder).search(demo.NEXT_QUERY), demo.NEXT_QUERY, 10)


def test_the_first_tutorial_asks_a_question() -> None:
    page = FIRST_RUN.read_text(encoding="utf-8")
    assert len(QUESTION.findall(page)) == 1
    assert 'silohash search runs/first "zebra"' in page


@pytest.mark.whole_run
@pytest.mark.slow
def test_answers_of_the_first_tutorial(tmp_path: Path) -> None:
    page = FIRST_RUN.read_text(encoding="utf-8")
    config = tmp_path / "glyphs.toml"
    config.write_text(re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1], encoding="utf-8")
    assert (
        load_config(config).data.name == tomllib.loads(config.read_text(encoding="utf-8"))["data"]["name"] == "glyphs"
    )
    options = re.search(r"^silohash train glyphs\.toml --out runs/first (.*)$", page, re.MULTILINE)[1].split()
    said = silohash("train", config, "--out", tmp_path / "first", *options)
    assert said.code == 0, said.err
    run = open_run(tmp_path / "first")
    for text, k in QUESTION.findall(page):
        assert_words(run.search(text, k=int(k)), text, int(k))
    said = silohash("search", tmp_path / "first", "zebra")
    assert (said.code, said.out) == (2, "")
    assert "No training text held any of the words of the query: zebra." in said.err
    assert "known words: " in said.err
