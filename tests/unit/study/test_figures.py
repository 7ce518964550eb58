"""The figures that a study asks for: what is read, and what is refused before any run."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from silohash.base.errors import InvalidFile
from silohash.study.figures import KINDS, SETTINGS, Figure
from tests.studies import study_of, tiny_study

AXES = {"kind": "surface", "axes": ["bits", "method"]}


def study_with(*figures: Any) -> Any:
    return study_of(tiny_study(Path("archive"), figures=list(figures)))


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        ({"kind": "tsnee"}, ["figures 1: kind", "'tsne'", "'tsnee'"]),
        ({"kind": ["tsne"]}, ["figures 1: kind"]),
        ({"only": {}}, ["figures 1", '"kind" is missing']),
        ("tsne", ["figures 1", '{kind = "tsne"}']),
        ({"kind": "axis"}, ["figures 1", "name an axis"]),
        ({"kind": "axis", "axes": ["bits"]}, ["figures 1", "axes has no effect"]),
        ({"kind": "axis", "axis": "bitss"}, ["figures 1 (axis)", 'did you mean "bits"']),
        ({"kind": "axis", "axis": "method"}, ["figures 1 (axis)", "not numbers: FedAvg, Local"]),
        ({"kind": "axis", "axis": "bits", "only": {"bits": ["16"]}}, ['over "bits" needs at least two', "not 1"]),
        ({**AXES, "axes": ["bits"]}, ["figures 1", "two different axes"]),
        ({**AXES, "axes": ["bits", "bits"]}, ["figures 1", "two different axes"]),
        ({**AXES, "axes": ["bits", "metod"]}, ["figures 1 (surface)", 'did you mean "method"']),
        ({**AXES, "view": "hill"}, ["figures 1: view", "'relief'"]),
        ({**AXES, "view": "bubbles"}, ["figures 1", "map, relief"]),
        ({"kind": "partition", "view": "map"}, ["figures 1", "bars, bubbles"]),
        ({**AXES, "only": {"method": ["Local"]}}, ['over "method" needs at least two']),
        ({"kind": "rounds", "axes": ["bits"]}, ["figures 1", "axes has no effect", '"rounds"']),
        ({"kind": "tsne", "searches": 2}, ["figures 1", "searches has no effect"]),
        ({"kind": "rounds", "curves": []}, ["figures 1: curves"]),
        ({"kind": "rounds", "curves": ["lss"]}, ["figures 1, curves 1", "'relative loss'"]),
        ({"kind": "rounds", "only": {"bits": ["17"]}}, ["figures 1 (rounds).only", 'no choice "17"']),
        ({"kind": "rounds", "only": {"seed": ["0"]}}, ["figures 1 (rounds).only", 'no axis "seed"']),
        ({"kind": "rounds", "only": {"bits": []}}, ["figures 1: only.bits"]),
        ({"kind": "top_n", "first": [1]}, ["figures 1: first", "at least two"]),
        ({"kind": "top_n", "first": [1, 10, 10]}, ["figures 1: first", "increasing order"]),
        ({"kind": "top_n", "first": [0, 1]}, ["figures 1: first", "from 1"]),
        ({"kind": "tsne", "items": 90}, ["figures 1", "items = 90", "3 times perplexity = 30"]),
        ({"kind": "tsne", "itms": 90}, ["figures 1", 'unknown key "itms"', 'did you mean "items"']),
        ({"kind": "tsne", "split": "test"}, ["figures 1: split", "'query'"]),
        ({"kind": "tsne", "seed": 2**32}, ["figures 1: seed"]),
        ({"kind": "examples", "hits": 0}, ["figures 1: hits"]),
    ],
)
def test_what_is_wrong_is_named_before_any_run(figure: Any, words: list[str]) -> None:
    with pytest.raises(InvalidFile) as caught:
        study_with(figure)
    text = str(caught.value)
    assert text.startswith("study.toml: figures 1")
    assert all(word in text for word in words), text


def test_items_just_above_three_times_the_perplexity() -> None:
    (figure,) = study_with({"kind": "tsne", "items": 91}).figures
    assert (figure.items, figure.perplexity) == (91, 30)


def test_figures_that_show_a_run() -> None:
    study = study_with({"kind": "rounds", "only": {"method": ["Local"]}}, {"kind": "methods"})
    kinds = {name: [f.kind for f in study.figures_of({"method": name, "bits": "16"})] for name in ("Local", "FedAvg")}
    assert kinds == {"Local": ["rounds", "methods"], "FedAvg": ["methods"]}


def test_a_stored_study_is_read_back() -> None:
    study = study_with(AXES, {"kind": "top_n", "first": [1, 5]}, {"kind": "seconds", "only": {"bits": ["16"]}})
    again = study_of(tomllib.loads(study.to_toml()))
    assert again.figures == study.figures
    assert [figure.kind for figure in again.figures] == ["surface", "top_n", "seconds"]


def test_every_setting_belongs_to_a_kind() -> None:
    assert set(SETTINGS) <= set(KINDS)
    owned = {name for names in SETTINGS.values() for name in names}
    assert owned == set(Figure.model_fields) - {"kind", "only"}


def test_a_study_with_fewer_choices_keeps_what_is_left_of_a_restriction() -> None:
    figure = Figure(kind="rounds", only={"bits": ("48",), "method": ("FedAvg", "Local"), "data": ("paper",)})
    left = figure.restricted({"bits": {"12"}, "method": {"Local"}})
    assert left.only == {"method": ("Local",)}
    assert left.model_copy(update={"only": figure.only}) == figure
