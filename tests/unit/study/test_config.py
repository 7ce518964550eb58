"""A study's file: what is read, what is refused and in which words."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from silohash.base.errors import InvalidFile, UserError, WrongForm, WrongKindOfFile, WrongKindOfPath
from silohash.study.config import load_study, make_study
from tests.studies import study_of, tiny_study

ARCHIVE = Path("archive")

AXIS = {"name": "method", "choice": [{"name": "FedAvg"}, {"name": "Local"}]}


def changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    value = copy.deepcopy(tiny_study(ARCHIVE))
    change(value)
    return value


TUNE = {"trials": 2, "of": ["method"], "parameters": {"train.learning_rate": {"low": 1e-4, "high": 1e-2}}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda v: v.update(axes=1), ['unknown key "axes"', 'did you mean "axis"']),
        (lambda v: v["axis"][0].update(nme=1), ['axis "method"', 'unknown key "nme"', 'did you mean "name"']),
        (lambda v: v["axis"][0]["choice"][1].update(sett={}), ['axis "method", choice "Local"', 'did you mean "set"']),
        (lambda v: v["axis"][1].pop("name"), ["axis 2", '"name" is missing']),
        (lambda v: v["axis"][1].update(values=[]), ['axis "bits"', "[[axis.choice]]"]),
        (lambda v: v["axis"][1].update(choice=[{"name": "16"}]), ['axis "bits"', "[[axis.choice]]"]),
        (lambda v: v["axis"][1].update(values=[16, 16]), ['axis "bits"', 'two choices "16"']),
        (lambda v: v["axis"][1].update(name="method"), ['two axes "method"']),
        (lambda v: v["axis"][1].update(name="task"), ['cannot be called "task"']),
        (lambda v: v.update(axis=[]), ["axis"]),
        (lambda v: v.update(seeds=[0, 0]), ["seeds", "give each seed once"]),
        (lambda v: v.update(seeds=[-1]), ["seeds", "none below 0"]),
        (lambda v: v.update(seeds=["x"]), ["seeds 1", "whole number"]),
        (lambda v: v.update(processes=0), ["processes"]),
        (lambda v: v["table"].update(rows=["metod"]), ['no axis "metod"', 'did you mean "method"']),
        (lambda v: v["table"].update(columns=["bits", "method"]), ['"method" appears twice']),
        (lambda v: v["table"].update(measure="mPA@all"), ["table.measure", 'did you mean "mAP"']),
        (lambda v: v["table"].update(evaluations=["GX"]), ["evaluations"]),
        (
            lambda v: v["table"].update(further_measures=["P@5", "mPA@all"]),
            ["table.further_measures", 'did you mean "mAP"'],
        ),
        (lambda v: v["where"][0]["choices"].update(method="Fedavg"), ['no choice "Fedavg"', 'did you mean "FedAvg"']),
        (lambda v: v["where"][0]["choices"].update(methods="FedAvg"), ['no axis "methods"']),
        (lambda v: v["where"][0]["choices"].update(seed="7"), ['where: the study has no seed "7"']),
        (lambda v: v["table"].update(against={"method": ["Fedavg"]}), ["table.against", 'did you mean "FedAvg"']),
        (lambda v: v["table"].update(against={"metod": ["FedAvg"]}), ["table.against", 'did you mean "method"']),
        (
            lambda v: v["table"].update(against={"bits": ["16"]}, columns=["task"]),
            ["table.against", 'neither rows nor columns name the axis "bits"'],
        ),
        (lambda v: v["table"].update(against={"method": ["Local"], "bits": ["16"]}), ["table.against"]),
        (lambda v: v.update(tune={**TUNE, "of": ["metod"]}), ["tune.of", 'did you mean "method"']),
        (lambda v: v.update(tune={**TUNE, "trials": 0}), ["tune.trials"]),
        (lambda v: v.update(tuned={"file": "best.toml", "of": ["metod"]}), ["tuned.of", 'did you mean "method"']),
        (
            lambda v: v.update(tune=TUNE, tuned={"file": "best.toml", "of": ["method"]}),
            ["[tuned] has the values that [tune] would search"],
        ),
        (
            lambda v: v.update(tune={**TUNE, "parameters": {"a.b": {"low": 1, "high": 0}}}),
            ["a.b", "are not a range"],
        ),
        (
            lambda v: v.update(tune={**TUNE, "parameters": {"a.b": {"low": 0, "high": 1, "log": True}}}),
            ["must be above 0"],
        ),
        (lambda v: v.update(tune={**TUNE, "parameters": {"a.b": {"low": 0}}}), ["low and high, or values"]),
        (lambda v: v.update(tune={**TUNE, "parameters": {"a.b": {"lo": 0}}}), ['"tune.parameters.a.b.lo"']),
        (
            lambda v: v.update(tune={**TUNE, "parameters": {"a.b": {"values": [1], "only": {"bits": ["16"]}}}}),
            ["only", 'tune.of does not name the axis "bits"'],
        ),
        (
            lambda v: v.update(tune={**TUNE, "parameters": {"a.b": {"values": [1], "unless": {"method": ["local"]}}}}),
            ["unless", 'did you mean "Local"'],
        ),
    ],
)
def test_what_is_wrong_is_named(change: Callable[[dict[str, Any]], Any], words: list[str]) -> None:
    with pytest.raises(InvalidFile) as caught:
        study_of(changed(change))
    text = str(caught.value)
    assert text.startswith("study.toml: ")
    assert all(word in text for word in words), text


def test_parameters_of_some_choices_only() -> None:
    kinds = {
        "train.batch": {"values": [8, 16]},
        "a.only": {"values": [1, 2], "only": {"method": ["Local"]}},
        "a.unless": {"values": [1, 2], "unless": {"method": ["Local"]}},
        "a.neither": {"values": [1, 2], "only": {"method": ["Local", "FedAvg"]}, "unless": {"method": ["FedAvg"]}},
    }
    tune = study_of(tiny_study(ARCHIVE, tune={**TUNE, "parameters": kinds})).tune
    assert tune is not None
    assert list(tune.parameters_of({"method": "Local", "bits": "16"})) == ["train.batch", "a.only", "a.neither"]
    assert list(tune.parameters_of({"method": "FedAvg", "bits": "16"})) == ["train.batch", "a.unless"]


def test_study_is_read_back_from_what_it_writes() -> None:
    value = tiny_study(ARCHIVE, tune=TUNE)
    config = study_of(value)
    again = make_study(tomllib.loads(config.to_toml()), where="again")
    assert again == config
    assert again.axis("bits").values == (16, 32)
    assert [choice.name for choice in again.axis("bits").choices] == ["16", "32"]


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    path = tmp_path / "studies" / "s.toml"
    path.write_text(
        'base = { recipe = "../a.toml", set = { "data.path" = "mine" } }\n'
        '[[axis]]\nname = "data"\n[[axis.choice]]\nname = "b"\nrecipe = "b.toml"\n'
        '[[axis.choice]]\nname = "c"\nset = { data = { path = "../c" } }\n'
        '[tuned]\nfile = "tuned/d.toml"\nof = ["data"]\n'
    )
    config = load_study(path)
    assert config.base.recipe == tmp_path / "a.toml"
    assert config.base.set["data.path"] == str(tmp_path / "studies" / "mine")
    assert config.axes[0].choices[0].recipe == tmp_path / "studies" / "b.toml"
    assert config.axes[0].choices[1].set["data"]["path"] == str(tmp_path / "c")
    assert config.tuned
    assert config.tuned.file == tmp_path / "studies" / "tuned" / "d.toml"
    assert make_study(tomllib.loads(config.to_toml()), where="again") == config


def test_overrides_go_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(
        'set = { "train.batch" = 8, "model.hidden" = 32 }\n[[axis]]\nname = "a"\nkey = "x.y"\nvalues = [1]\n'
    )
    assert load_study(path, ["train.batch=4"]).set == {"train.batch": 4, "model.hidden": 32}
    with pytest.raises(WrongForm, match=r"section\.key=value"):
        load_study(path, ["train"])


@pytest.mark.parametrize("content", [None, b"title = ", b"\xff\xfe"])
def test_file_that_is_none(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "s.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"s\.toml"):
        load_study(path)
    with pytest.raises(WrongKindOfPath):
        load_study(tmp_path)


def test_the_config_of_a_run_is_not_a_study(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('[data]\nname = "glyphs"\n')
    with pytest.raises(WrongKindOfFile, match=r"run\.toml"):
        load_study(path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, 's.toml: "axis" is missing. Add it to the file.'),
        ({"axis": [{"choice": [{"name": "a"}]}]}, 's.toml: axis 1: "name" is missing. Add it to the file.'),
        ({"axis": [AXIS, {"name": "b", "choice": [{"set": {}}]}]}, 's.toml: axis "b", choice 1: "name" is missing. Add it '
         "to the file."),
        (
            {"axis": [AXIS], "table": {"row": ["method"]}},
            's.toml: unknown key "table.row" (did you mean "rows"?); known: rows, columns, measure, further_measures, '
            "evaluations, database, against.",
        ),
        (
            {"axis": [{**AXIS, "choice": [{"name": "a"}, {"name": "b", "sets": {}}]}]},
            's.toml: axis "method", choice "b": unknown key "sets" (did you mean "set"?); known: name, recipe, set.',
        ),
        ({"axis": [AXIS], "processes": 65}, "s.toml: processes: input should be less than or equal to 64 (got 65)."),
        ({"axis": "method"}, 's.toml: axis: the value must be a list (got "method"). Write axis = [{name = "method"}].'),
        ({"axis": ["method"]}, 's.toml: axis 1: the value must be a table (got "method"). Write {name = "method"} in the '
         "list."),
        ({"axis": [AXIS], "seeds": "0"}, 's.toml: seeds: the value must be a list (got "0"). Write seeds = [0].'),
        ({"axis": [AXIS], "base": "run.toml"}, 's.toml: base: the value must be a table (got "run.toml"). Write base = '
         '{recipe = "run.toml"}.'),
        ({"axis": [{**AXIS, "choice": [{"name": "a", "set": 3}]}]}, 's.toml: axis "method", choice "a": set: the value must '
         'be a table (got 3). Write set = {"federated.rounds" = 5}.'),
        ({"axis": [AXIS], "tune": {"trials": 1, "of": ["method"], "parameters": {"a": {"low": "x", "high": 2}}}},
         's.toml: tune.parameters.a.low: the value must be a number (got "x"). Write low = 0.1.'),
        ({"axis": [AXIS], "tune": {"trials": 1, "of": ["method"], "parameters": {"a": 3}}},
         "s.toml: tune.parameters.a: the value must be a table (got 3). Write a = {values = [0.001, 0.01]}."),
        ({"axis": [AXIS], "seeds": [-1]}, "s.toml: seeds: give each seed once, and none below 0."),
        ({"axis": [{**AXIS, "name": "seed"}]}, 's.toml: axis "seed": an axis cannot be called "seed", because tables have '
         "a column of that name."),
        ({"axis": [AXIS], "where": [{"choices": {"method": "Fed"}}]}, 's.toml: where: axis "method" has no choice "Fed"'
         ' (did you mean "FedAvg"?). Available: FedAvg, Local.'),
    ],
)  # fmt: skip
def test_message(value: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        make_study(value, where="s.toml")
    assert str(caught.value) == message
