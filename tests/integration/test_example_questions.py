"""The example questions of the demo and of the first tutorial have answers that a person accepts."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from silohash.api.runs import TrainedRun, open_run
from silohash.base.errors import UnknownWords
from silohash.cli import demo
from silohash.evaluate.calibration import calibration_error
from silohash.report.finish import finish_run
from silohash.report.gather import radius_curves
from silohash.run.config.load import load_config
from silohash.run.folder import Run
from silohash.search.hits import Hits
from silohash.training.prepared import training_silos
from tests.runs import silohash
from tests.silos import ask_run

FIRST_RUN = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "first-run.md"
QUESTION = re.compile(r'^silohash search runs/first "([^"]+)" -k (\d+)$', re.MULTILINE)


NONSENSE = (
    "a purple submarine playing chess",
    "seven angry refrigerators at sunset",
    "the king of arrows eats black bread",
    "my left elbow and the circle of taxes",
    "double espresso with white sugar",
    "small dog chasing a red bicycle",
    "open the heavy window before midnight",
    "how do I reset my banana",
    "capital gains over the summer holiday",
    "square dance lessons for tired pilots",
    "letter from grandmother about potatoes",
    "three musicians in a dark kitchen",
    "a box of wet socks above the church",
    "running down the stairs with scissors",
    "sign here to rent a haunted castle",
    "greek salad without olives",
    "number nine bus to the airport",
    "turned off the radio and cried",
    "heavy rain over the parking lot",
    "quantum marmalade futures",
)
"""Questions about nothing in the demo. It knows up to two thirds of their words."""


def is_refused(run: TrainedRun, text: str) -> bool:
    """Return whether a search says that nothing is close, or that it knows no word of the question."""
    try:
        return run.search(text).nothing_close
    except UnknownWords:
        return True


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


@pytest.mark.whole_run
@pytest.mark.slow
def test_nonsense_is_not_close_to_anything_and_real_questions_are(federated: Run) -> None:
    run, archive = open_run(federated.folder), federated.archive
    rows = np.random.default_rng(0).choice(archive.split("query"), 200, replace=False)
    silos = training_silos(archive, federated.partition, federated.resolved)
    held = np.concatenate([silo.validation for silo in silos])
    assert np.mean([is_refused(run, text) for text in NONSENSE]) >= 0.9
    assert np.mean([is_refused(run, text) for text in archive.text[held].tolist()]) <= 0.05
    assert np.mean([is_refused(run, text) for text in archive.text[rows].tolist()]) <= 0.07, "also of unseen words"


@pytest.mark.whole_run
@pytest.mark.slow
def test_probabilities_hold_for_queries_that_nobody_trained_on(federated: Run) -> None:
    finish_run(federated)
    errors = {curve.task: calibration_error(curve.reliability) for curve in radius_curves(federated)}
    assert errors.keys() == {"i2t", "t2i", "i2item", "t2item"}
    assert max(errors.values()) <= 0.05, errors
    assert not any(use.collapsed for use in federated.model.record.codes.values())
    assert '<figure id="reliability">' in federated.report_path.read_text(encoding="utf-8")


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
