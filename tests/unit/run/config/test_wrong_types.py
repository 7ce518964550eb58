"""Sentences about values of the wrong type: what is expected, the value seen, and how to write it."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from pydantic import BaseModel

from silohash.base.errors import UserError
from silohash.run.config.load import load_config
from silohash.run.config.sections import RunConfig
from silohash.run.config.wrong_types import LONGEST_VALUE, TABLES, missing, shown, wrong_type

SECTIONS = {
    name: field.annotation
    for name, field in RunConfig.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
}
KEYS = [(section, key) for section, model in SECTIONS.items() for key in model.model_fields]


def error_of(section: str, value: object) -> str:
    """Return the message about a wrong value, or an empty string if the config is accepted."""
    try:
        load_config({"data": {"name": "glyphs"}, section: value})
    except UserError as error:
        return str(error).removeprefix("the config: ")
    return ""


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("federated", "robust", "median", 'a table (got "median"). Write robust = {rule = "median"}.'),
        ("federated", "robust", "clip", 'a table (got "clip"). Write robust = {rule = "clip"}.'),
        ("federated", "robust", "krum", 'a table (got "krum"). Write robust = {rule = "median"}.'),
        ("federated", "robust", ["clip"], 'a table (got ["clip"]). Write robust = {rule = "clip"}.'),
        ("federated", "server", "fedyogi", 'a table (got "fedyogi"). Write server = {optimizer = "fedyogi"}.'),
        ("features", "image", "pixels", 'a table (got "pixels"). Write image = {kind = "pixels"}.'),
        ("features", "text", "a-b", 'a table (got "a-b"). Write text = {kind = "huggingface", model = "a-b"}.'),
        ("features", "text", 3, 'a table (got 3). Write text = {kind = "auto"}.'),
        ("model", "image", "vit", 'a table (got "vit"). Write image = {backbone = "huggingface", model = "vit"}.'),
        ("model", "image", "cnnf", 'a table (got "cnnf"). Write image = {backbone = "cnnf"}.'),
        ("data", "options", [], 'a table (got []). Write options = {labels = "article_type"}.'),
        ("data", "name", 18, 'a string (got 18). Write name = "18".'),
        ("data", "name", True, 'a string (got true). Write name = "...".'),
        ("data", "path", 3, 'a path (got 3). Write path = "folder".'),
        ("partition", "kind", ["iid"], 'a string (got ["iid"]). Write kind = "iid".'),
        ("partition", "silos", 2.5, "a whole number (got 2.5). Write silos = 5."),
        ("local", "bits", {"x": 1}, "a whole number (got {x = 1}). Write bits = 64."),
        ("train", "learning_rate", "low", 'a number (got "low"). Write learning_rate = 0.001.'),
        ("evaluate", "tasks", "i2t, t2i", 'a list (got "i2t, t2i"). Write tasks = ["i2t", "t2i"].'),
        ("evaluate", "tasks", 3, 'a list (got 3). Write tasks = ["i2t", "t2i"].'),
        ("evaluate", "measures", [], 'a list with at least one item (got []). Write measures = ["mAP@all"].'),
        ("evaluate", "ignore_labels", 3, 'a list (got 3). Write ignore_labels = ["..."].'),
    ],
)  # fmt: skip
def test_value(section: str, key: str, value: object, message: str) -> None:
    given = {"name": "glyphs", key: value} if section == "data" and key != "path" else {key: value}
    assert error_of(section, given) == f"{section}.{key}: the value must be {message}"


@pytest.mark.parametrize(
    ("section", "value", "example"),
    [
        ("partition", "dirichlet", 'partition = {kind = "dirichlet"}'),
        ("partition", 3, 'partition = {kind = "iid"}'),
        ("local", "triplet", 'local = {name = "triplet"}'),
        ("federated", ["fedprox"], 'federated = {name = "fedprox"}'),
        ("data", "coco", 'data = {name = "coco"}'),
        ("features", "pixels", 'features = {image = {kind = "auto"}}'),
        ("model", "vit", "model = {hidden = 512}"),
        ("train", [], "train = {batch = 128}"),
        ("evaluate", "i2t", 'evaluate = {tasks = ["i2t", "t2i"]}'),
    ],
)
def test_section(section: str, value: object, example: str) -> None:
    expected = f"{section}: the value must be a table (got {shown(value)}). Write {example}."
    assert error_of(section, value) == expected
    written = tomllib.loads(example)
    assert list(written) == [section]
    assert section == "data" or load_config({"data": {"name": "glyphs"}, **written}).data.name == "glyphs"


@pytest.mark.parametrize("value", ["word", 3, 2.5, True, ["a"], {"x": 1}, []], ids=repr)
def test_no_message_speaks_of_python(value: object) -> None:
    messages = [error_of(section, value) for section in SECTIONS]
    messages += [
        error_of(section, {"name": "glyphs", key: value} if section == "data" else {key: value})
        for section, key in KEYS
    ]
    for message in messages:
        for word in ("dictionary", "instance", "tuple", "parse", "<class", "boolean", "pattern"):
            assert word not in message, message


def test_values_of_the_members_of_a_composition() -> None:
    def of(methods: object) -> str:
        return error_of("federated", {"name": "compose", "methods": methods})

    start = "federated.methods: the value must be a list"
    assert of("moon") == f'{start} (got "moon"). Write methods = [{{name = "moon"}}].'
    assert of("moon, fedprox").endswith('Write methods = [{name = "moon"}, {name = "fedprox"}].')
    assert of(3) == f'{start} (got 3). Write methods = [{{name = "fedavg"}}].'
    assert of(["moon"]) == (
        'federated.methods.0: the value must be a table (got "moon"). Write {name = "moon"} in the list.'
    )


def test_missing_key() -> None:
    assert missing("federated.robust.rule") == (
        'federated.robust.rule is missing. Add it, for example rule = "median".'
    )
    assert missing("federated.methods.1.name") == "federated.methods.1.name is missing. Add it."
    assert error_of("federated", {"server": {"momentum": 0.5}}) == (
        'federated.server.optimizer is missing. Add it, for example optimizer = "fedavgm".'
    )


@pytest.mark.parametrize("key", [key for key in TABLES if key.split(".")[0] in SECTIONS and "*" not in key])
def test_examples_are_accepted(key: str) -> None:
    if key == "federated.methods":
        return
    value: dict[str, Any] = TABLES[key].example(None)
    for part in reversed(key.split(".")):
        value = {part: value}
    config = {"data": {"name": "glyphs"}} | value
    config["data"] = {"name": "glyphs"} | config["data"]
    assert load_config(config).data.name == "glyphs"


def test_other_errors_are_left_alone() -> None:
    assert wrong_type({"type": "greater_than", "loc": ("seed",), "input": 3}, "seed", RunConfig) is None
    assert wrong_type({"type": "int_type", "loc": (), "input": 3}, "", RunConfig) is None


def test_values_are_shown_as_toml() -> None:
    assert [shown(value) for value in (True, "a", 1.5, [1], {"a": None}, None)] == [
        "true", '"a"', "1.5", "[1]", "{}", "None",
    ]  # fmt: skip
    assert shown("a" * LONGEST_VALUE) == f'"{"a" * (LONGEST_VALUE - 1)}…'
