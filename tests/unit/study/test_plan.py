"""The runs that follow from a study's axes."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from silohash.base.errors import ConflictingOptions, RepeatedValue, UnknownName, UnsuitableMeasure, UserError, WrongForm
from silohash.study.config import load_study, make_study
from silohash.study.figures import KINDS
from silohash.study.plan import folder_name, planned_runs, read_best, selected
from silohash.study.tuning import searches
from tests.studies import study_of, tiny_study

ARCHIVE = Path("archive")
REPOSITORY = Path(__file__).resolve().parents[3]


def changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    value = copy.deepcopy(tiny_study(ARCHIVE))
    change(value)
    return value


def test_every_choice_with_every_seed() -> None:
    found = planned_runs(study_of(tiny_study(ARCHIVE)))
    assert [run.name for run in found] == [
        f"{method}-{bits}-seed{seed}" for method in ("FedAvg", "Local") for bits in (16, 32) for seed in (0, 1)
    ]
    for run in found:
        assert run.config.seed == run.seed
        assert run.config.local.bits == int(run.choices["bits"])
        assert run.config.federated.name == run.choices["method"].lower()
        assert run.config.federated.rounds == (3 if run.choices["method"] == "FedAvg" else 2)
        assert run.config.model.hidden == 16
    assert len({run.config.digest() for run in found}) == 8


def test_later_settings_go_over_earlier_ones() -> None:
    value = tiny_study(ARCHIVE)
    value["base"]["set"]["train.learning_rate"] = 0.1
    value["axis"][0] = {**value["axis"][0], "choice": copy.deepcopy(value["axis"][0]["choice"])}
    value["axis"][0]["choice"][1]["set"]["train.learning_rate"] = 0.2
    value["where"].append({"choices": {"method": "Local", "bits": "32"}, "set": {"train.learning_rate": 0.3}})
    rates = {run.name: run.config.train.learning_rate for run in planned_runs(study_of(value))}
    assert (rates["FedAvg-16-seed0"], rates["Local-16-seed0"], rates["Local-32-seed0"]) == (0.1, 0.2, 0.3)
    over = {
        run.config.train.learning_rate for run in planned_runs(study_of({**value, "set": {"train.learning_rate": 0.4}}))
    }
    assert over == {0.4}


def test_a_rule_can_hold_for_one_seed() -> None:
    value = tiny_study(ARCHIVE)
    value["where"].append({"choices": {"seed": "1", "bits": "32"}, "set": {"train.learning_rate": 0.3}})
    rates = {run.name: run.config.train.learning_rate for run in planned_runs(study_of(value))}
    assert {name for name, rate in rates.items() if rate == 0.3} == {"FedAvg-32-seed1", "Local-32-seed1"}


def test_recipe_of_a_choice_takes_the_place_of_the_base(tmp_path: Path) -> None:
    for name, rounds in (("a", 5), ("b", 7)):
        text = f'[data]\nname = "glyphs"\n[federated]\nrounds = {rounds}\n'
        (tmp_path / f"{name}.toml").write_text(text)
    value = {
        "base": {"recipe": str(tmp_path / "a.toml"), "set": {"train.batch": 8}},
        "axis": [{"name": "data", "choice": [{"name": "a"}, {"name": "b", "recipe": str(tmp_path / "b.toml")}]}],
    }
    found = planned_runs(study_of(value))
    assert [(run.config.federated.rounds, run.config.train.batch) for run in found] == [(5, 8), (7, 8)]


def local(value: dict[str, Any]) -> dict[str, Any]:
    return value["axis"][0]["choice"][1]["set"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda v: local(v).update({"local.bits": 16}), ['"local.bits" is set by', '"Local"', 'axis "bits"']),
        (lambda v: local(v).update({"local": {"bits": 16}}), ['"local" is set by', 'as "local.bits"']),
        (lambda v: local(v).update({"federated.nam": 1}), ['axis "method", choice "Local"', '"federated.nam"']),
        (lambda v: local(v).update({"federated.name": "lokal"}), ['choice "Local"', 'did you mean "local"']),
        (lambda v: local(v).update({"train.batch": 0}), ['choice "Local": "train.batch=0": ']),
        (lambda v: local(v).update({"federated.name": "fedavg", "federated.rounds": 3}), ["have the same settings"]),
        (lambda v: v["axis"][0]["choice"][1].update(name="fedavg"), ["share the folder"]),
        (lambda v: v["axis"][0]["choice"][0].update(recipe="no.toml"), ['choice "FedAvg"', "no.toml"]),
        (lambda v: v["table"].update(measure="P@7"), ["P@7", "mAP@all", "evaluate.measures"]),
        (lambda v: v["where"].append(copy.deepcopy(v["where"][0])), ['"federated.rounds" is set by', "[[where]]"]),
        (
            lambda v: v.update(
                tune={"trials": 1, "of": ["method"], "parameters": {"local.bits": {"values": [16, 32]}}}
            ),
            ['"local.bits" is set by', "tune.parameters"],
        ),
    ],
)
def test_what_is_wrong_is_named(change: Callable[[dict[str, Any]], Any], words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        planned_runs(study_of(changed(change)))
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_what_is_tuned_for_one_choice_alone_tells_it_apart_and_may_be_set_in_another() -> None:
    def tuned_for(*methods: str) -> dict[str, Any]:
        value = changed(lambda v: local(v).update({"federated.name": "fedavg", "federated.rounds": 3}))
        value["axis"][0]["choice"][0]["set"] = {"federated.name": "fedavg", "train.weight_decay": 1e-4}
        decay = {"low": 0.0, "high": 0.1, "only": {"method": list(methods)}}
        return {**value, "tune": {"trials": 1, "of": ["method"], "parameters": {"train.weight_decay": decay}}}

    config = study_of(tuned_for("Local"))
    assert len(planned_runs(config)) == len({run.name for run in planned_runs(config)})
    with pytest.raises(ConflictingOptions, match=r"train\.weight_decay.*tune"):
        planned_runs(study_of(tuned_for("FedAvg")))
    both = tuned_for("FedAvg", "Local")
    del both["axis"][0]["choice"][0]["set"]["train.weight_decay"]
    with pytest.raises(RepeatedValue):
        planned_runs(study_of(both))


def test_two_axes_with_recipes_are_refused() -> None:
    value = changed(lambda v: None)
    for axis, choice in ((0, "FedAvg"), (1, "16")):
        value["axis"][axis] = {"name": f"axis {axis}", "choice": [{"name": choice, "recipe": "r.toml"}]}
    value |= {"where": [], "table": {}}
    with pytest.raises(ConflictingOptions, match=r"axis.*axis.*recipes"):
        planned_runs(study_of(value))


def test_equal_runs_pass_where_all_are_cut_short() -> None:
    value = changed(lambda v: local(v).update({"federated.name": "fedavg", "federated.rounds": 3}))
    assert len(planned_runs(study_of(value), refuse_equal=False)) == 8


def test_some_runs_are_selected() -> None:
    config = study_of(tiny_study(ARCHIVE))
    found = planned_runs(config)
    names = [run.name for run in selected(config, found, ["method=Local", "bits=16"])]
    assert names == ["Local-16-seed0", "Local-16-seed1"]
    assert len(selected(config, found, ["bits=16", "bits=32"])) == 8
    assert [run.name for run in selected(config, found, ["seed=1", "bits=16"])] == ["FedAvg-16-seed1", "Local-16-seed1"]
    assert selected(config, found, []) == found
    for only, kind, words in (
        ("method", WrongForm, "axis=choice"),
        ("metod=Local", UnknownName, 'did you mean "method"'),
        ("method=Loc", UnknownName, "Local"),
    ):
        with pytest.raises(kind, match=words):
            selected(config, found, [only])


def test_what_tuning_found_is_set_for_its_choices_only() -> None:
    tune = {"trials": 1, "of": ["method"], "parameters": {"train.batch": {"values": [4, 8]}}}
    config = study_of(tiny_study(ARCHIVE, tune=tune))
    batches = {
        run.choices["method"]: run.config.train.batch for run in planned_runs(config, {"Local": {"train.batch": 4}})
    }
    assert batches == {"FedAvg": 16, "Local": 4}


def test_names_suit_any_file_system() -> None:
    assert folder_name({"a": "1/2", "b": "É x", "c": "0.5"}) == "1_2-__x-0.5"


def test_baselines_are_the_runs_that_they_should_be() -> None:
    found = planned_runs(load_study(REPOSITORY / "recipes" / "baselines.toml"))
    assert len(found) == 3 * 2 * 3 * 3
    rounds = {(run.choices["method"], run.choices["data"]): run.config.federated.rounds for run in found}
    assert rounds == {
        ("Local", "coco18"): 4,
        ("Local", "fashion"): 4,
        ("FedAvg", "coco18"): 16,
        ("FedAvg", "fashion"): 12,
        ("Centralized", "coco18"): 3,
        ("Centralized", "fashion"): 2,
    }
    assert {run.config.data.name for run in found} == {"coco18", "fashion"}


def test_study_of_the_documents_is_one() -> None:
    page = (REPOSITORY / "docs" / "how-to" / "studies.md").read_text(encoding="utf-8")
    first, tuning, tuned, figures = map(tomllib.loads, re.findall(r"```toml\n(.*?)```", page, re.DOTALL))
    value = first | tuning | figures
    value["base"]["set"] = {"evaluate.validation": 0.1}
    config = make_study(value, where="studies.md", folder=REPOSITORY / "recipes")
    assert len(planned_runs(config)) == 2 * 3 * 3
    assert {figure.kind for figure in config.figures} == set(KINDS) - {"seconds"}
    assert config.tune is not None
    assert [search.name for search in searches(config, config.tune)] == ["Local", "FedAvg"]
    assert make_study(first | tuned, where="studies.md").tuned_axes == ("method",)


def test_rules_are_numbered_from_one() -> None:
    rule = {"choices": {"method": "Local"}, "set": {"train.batch": 8}}
    with pytest.raises(ConflictingOptions, match=r"train\.batch") as caught:
        planned_runs(study_of({**tiny_study(ARCHIVE), "where": [rule, copy.deepcopy(rule)]}))
    assert "Set it in only one of them" in str(caught.value)


def test_a_run_needs_one_of_the_measures_of_the_tables() -> None:
    value = tiny_study(ARCHIVE)
    value["table"] |= {"measure": "P@7", "further_measures": ["mAP@all"]}
    assert len(planned_runs(study_of(value))) == 8
    value["table"]["further_measures"] = ["P@9"]
    with pytest.raises(UnsuitableMeasure, match=r"P@7.*P@9.*mAP@all"):
        planned_runs(study_of(value))


@pytest.mark.parametrize("content", ["[Local", "Local = 1", "[Local]\ntrial = 1"])
def test_damaged_parameters_are_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "best.toml"
    assert read_best(path) == {}
    path.write_text(content)
    with pytest.raises(UserError, match=r"best\.toml is (damaged|not valid TOML).* start the study again"):
        read_best(path)


def tuned_before(file: Path, of: list[str]) -> dict[str, Any]:
    return {**tiny_study(ARCHIVE), "tuned": {"file": str(file), "of": of}}


def test_values_of_another_study_are_set_for_its_choices(tmp_path: Path) -> None:
    (tmp_path / "best.toml").write_text(
        "[FedAvg]\nvalidation = 0.5\n[FedAvg.set]\n'train.batch' = 24\n[Local.set]\n'train.learning_rate' = 0.3\n"
    )
    config = study_of(tuned_before(tmp_path / "best.toml", ["method"]))
    runs = {run.name: run.config.train for run in planned_runs(config)}
    assert {train.batch for name, train in runs.items() if name.startswith("FedAvg")} == {24}
    assert {train.learning_rate for name, train in runs.items() if name.startswith("Local")} == {0.3}
    assert runs["Local-16-seed0"].batch == 16


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ['[tuned]: there is no file "', "best.toml", "Run the study that tunes them first"]),
        ("[FedAvg.set]\n[Locl.set]\n", ['no values of "Local" (did you mean "Locl"?)', "Name the choices as"]),
        (
            "[FedAvg.set]\n[Local.set]\n'federated.rounds' = 9\n",
            ['"federated.rounds" is set by', "and by the values of best.toml"],
        ),
        ("[Local.set]\n'train.bach' = 16\n[FedAvg.set]\n", ['"train.bach']),
    ],
)
def test_values_of_another_study_that_do_not_fit(content: str | None, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "best.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError) as caught:
        planned_runs(study_of(tuned_before(path, ["method"])))
    for word in words:
        assert word in str(caught.value)
