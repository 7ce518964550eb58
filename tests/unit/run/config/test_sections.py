"""The tables of a config: bounds of every numeric key, choices, unknown keys, round trips, and the digest."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from silohash.base.files import digest_json
from silohash.run.config.sections import (
    CompressionConfig,
    DataConfig,
    EvaluateConfig,
    ExchangeConfig,
    FeaturesConfig,
    FederatedConfig,
    LocalConfig,
    ModelConfig,
    PartitionConfig,
    RobustConfig,
    RunConfig,
    Section,
    ServerConfig,
    TrainConfig,
)

SMALLEST = 5e-324
BELOW_HALF = 0.49999999999999994
BELOW_ONE = 0.9999999999999999
ABOVE_ONE = 1.0000000000000002
HUGE = 10**12

BOUNDS: list[tuple[type[Section], str, list[float], list[float]]] = [
    (RunConfig, "seed", [0, HUGE], [-1]),
    (ModelConfig, "hidden", [8, 16384], [7, 16385]),
    (ModelConfig, "dropout", [0, BELOW_ONE], [-SMALLEST, 1]),
    (PartitionConfig, "silos", [1, HUGE], [0]),
    (LocalConfig, "bits", [8, 256], [7, 257]),
    (RobustConfig, "faulty", [0, BELOW_HALF], [-SMALLEST, 0.5]),
    (RobustConfig, "clip_factor", [SMALLEST, HUGE], [0]),
    (ServerConfig, "learning_rate", [SMALLEST, HUGE], [0]),
    (ServerConfig, "momentum", [0, BELOW_ONE], [-SMALLEST, 1]),
    (ServerConfig, "square_decay", [0, BELOW_ONE], [-SMALLEST, 1]),
    (ServerConfig, "floor", [SMALLEST, HUGE], [0]),
    (FederatedConfig, "rounds", [1, HUGE], [0]),
    (FederatedConfig, "local_epochs", [1, HUGE], [0]),
    (FederatedConfig, "fraction", [SMALLEST, 1], [0, ABOVE_ONE]),
    (FederatedConfig, "weight_cap", [SMALLEST, 1], [0, ABOVE_ONE]),
    (FederatedConfig, "norm_limit", [0, HUGE], [-SMALLEST]),
    (TrainConfig, "batch", [2, HUGE], [1]),
    (TrainConfig, "momentum", [0, BELOW_ONE], [-SMALLEST, 1]),
    (TrainConfig, "learning_rate", [SMALLEST, HUGE], [0]),
    (TrainConfig, "weight_decay", [0, HUGE], [-SMALLEST]),
    (TrainConfig, "final_learning_rate", [SMALLEST, HUGE], [0]),
    (TrainConfig, "decay_factor", [SMALLEST, 1], [0, ABOVE_ONE]),
    (TrainConfig, "decay_epochs", [1, 1000], [0]),
    (TrainConfig, "clip_norm", [0, HUGE], [-SMALLEST]),
    (TrainConfig, "workers", [1, 64], [0, 65]),
    (TrainConfig, "threads", [0, 256], [-1, 257]),
    (CompressionConfig, "share", [SMALLEST, 1], [0, ABOVE_ONE]),
    (EvaluateConfig, "validation", [0, BELOW_ONE], [-SMALLEST, 1]),
]

REQUIRED: dict[type[Section], dict[str, Any]] = {
    RunConfig: {"data": {"name": "glyphs"}},
    DataConfig: {"name": "glyphs"},
    RobustConfig: {"rule": "median"},
    ServerConfig: {"optimizer": "fedadam"},
    CompressionConfig: {"kind": "int8"},
}

SECTIONS = [
    *(RunConfig, DataConfig, FeaturesConfig, ModelConfig, PartitionConfig, LocalConfig, RobustConfig, ServerConfig),
    *(FederatedConfig, TrainConfig, CompressionConfig, ExchangeConfig, EvaluateConfig),
]
OPEN = (PartitionConfig, LocalConfig, FederatedConfig)
"""Tables that accept further keys: the parameters of the method or kind that they name."""


def made(section: type[Section], **values: object) -> Section:
    return section.model_validate({**REQUIRED.get(section, {}), **values})


def numeric_keys(section: type[Section]) -> set[str]:
    return {name for name, field in section.model_fields.items() if field.annotation in {int, float, float | None}}


def test_every_numeric_key_has_its_bounds_below() -> None:
    assert {(section, key) for section, key, _, _ in BOUNDS} == {
        (section, key) for section in SECTIONS for key in numeric_keys(section)
    }


OPTIONAL = ("learning_rate", "weight_cap", "norm_limit")


@pytest.mark.parametrize(
    ("section", "key", "inside", "outside"), BOUNDS, ids=[f"{row[0].__name__}.{row[1]}" for row in BOUNDS]
)
def test_bounds(section: type[Section], key: str, inside: list[float], outside: list[float]) -> None:
    for value in inside:
        assert getattr(made(section, **{key: value}), key) == value
    for value in [*outside, float("nan"), "many", None if key not in OPTIONAL else "none"]:
        with pytest.raises(ValidationError) as error:
            made(section, **{key: value})
        assert [detail["loc"] for detail in error.value.errors()] == [(key,)]


CHOICES: list[tuple[type[Section], str, tuple[object, ...]]] = [
    (DataConfig, "modality", (None, "image", "text")),
    (RobustConfig, "rule", ("median", "trimmed_mean", "multi_krum", "clip")),
    (ServerConfig, "optimizer", ("fedavgm", "fedadam", "fedyogi")),
    (TrainConfig, "optimizer", ("adam", "adamw", "sgd")),
    (TrainConfig, "precision", ("float32", "bfloat16")),
    (ExchangeConfig, "encryption", (None, "ckks")),
    (CompressionConfig, "kind", ("half", "int8", "top_k", "hash_layers")),
    (EvaluateConfig, "no_hits", ("zero", "skip")),
    (EvaluateConfig, "own_item", ("exclude", "count")),
]


@pytest.mark.parametrize(("section", "key", "choices"), CHOICES, ids=[f"{r[0].__name__}.{r[1]}" for r in CHOICES])
def test_choices(section: type[Section], key: str, choices: tuple[object, ...]) -> None:
    for value in choices:
        assert getattr(made(section, **{key: value}), key) == value
    for value in ("other", str(choices[-1]).upper(), ""):
        with pytest.raises(ValidationError):
            made(section, **{key: value})


@pytest.mark.parametrize("section", SECTIONS)
def test_unknown_keys(section: type[Section]) -> None:
    if section in OPEN:
        assert made(section, further=0.5).model_dump()["further"] == 0.5
        return
    with pytest.raises(ValidationError) as error:
        made(section, further=0.5)
    assert [(detail["loc"], detail["type"]) for detail in error.value.errors()] == [(("further",), "extra_forbidden")]


@pytest.mark.parametrize("section", SECTIONS)
def test_tables_are_frozen_and_every_key_has_a_comment(section: type[Section]) -> None:
    table = made(section)
    for name, field in section.model_fields.items():
        with pytest.raises(ValidationError, match="frozen"):
            setattr(table, name, getattr(table, name))
        if section is not RunConfig or name == "seed":
            assert field.description, name
            assert field.description.endswith((".", ")"))


@pytest.mark.parametrize("section", [RobustConfig, ServerConfig])
def test_tables_without_their_choice(section: type[Section]) -> None:
    with pytest.raises(ValidationError) as error:
        section.model_validate({})
    assert [detail["type"] for detail in error.value.errors()] == ["missing"]


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({}, "set either name"),
        ({"name": "glyphs", "path": "photos"}, "set either name"),
        ({"path": "photos", "protocol": "usual"}, "a folder has no protocol"),
        ({"name": "glyphs", "protocol": "usual"}, "glyphs has splits of its own"),
        ({"name": "mirflickr25k", "protocol": "unheard-of"}, "unheard-of"),
        ({"name": "icons", "protocol": "unsen"}, "unseen"),
    ],
)
def test_sources_and_protocols_that_do_not_fit(values: dict[str, str], part: str) -> None:
    with pytest.raises(ValidationError) as error:
        DataConfig.model_validate(values)
    assert part in str(error.value)


def test_sources_and_protocols_that_fit() -> None:
    assert DataConfig(path=Path("photos")).name is None
    assert DataConfig(name="mirflickr25k").protocol is None
    assert DataConfig(name="icons", protocol="unseen").protocol == "unseen"
    assert DataConfig(name="somebodys", protocol="usual").protocol == "usual"  # an unknown name is refused on opening
    from silohash.data.benchmarks.dataset import benchmarks

    for name, dataset in benchmarks().items():
        usual = dataset.protocol("").name
        assert DataConfig(name=name, protocol=usual).protocol == usual


def test_towers_of_the_modalities() -> None:
    model = ModelConfig(image={"backbone": "cnnf"}, text={"backbone": "huggingface", "model": "bert"})
    assert model.of("image") == {"backbone": "cnnf"}
    assert model.of("text") == {"backbone": "huggingface", "model": "bert"}
    assert ModelConfig().of("image") == ModelConfig().of("text") == {}


def test_parameters_of_a_partition() -> None:
    assert PartitionConfig().parameters() == {}
    partition = PartitionConfig.model_validate({"kind": "dirichlet", "silos": 3, "alpha": 0.5, "minimum": 2})
    assert partition.parameters() == {"alpha": 0.5, "minimum": 2}


def test_evaluations_tasks_and_measures() -> None:
    config = EvaluateConfig(
        measures=("mAP@50", "P@10"), evaluations=("GL", "PL"), tasks=("i2i", "t2t"), ignore_labels=("sky",)
    )
    assert (config.measures, config.evaluations, config.tasks) == (("mAP@50", "P@10"), ("GL", "PL"), ("i2i", "t2t"))
    for key, value, part in (
        ("evaluations", ["GG", "GX"], '"GX" is not one of GG, GL, GF, GA, PL, PF, PA, PG, XS'),
        ("tasks", ["i2t", "i2v"], '"i2v" is not one of i2t, t2i, i2i, t2t, i2item, t2item'),
        ("measures", ["mAP@all", "mPA@all"], "mPA"),
        ("measures", ["mAP@0"], "mAP@0"),
    ):
        with pytest.raises(ValidationError) as error:
            EvaluateConfig.model_validate({key: value})
        assert part in str(error.value)


FULL: dict[str, Any] = {
    "seed": 7,
    "data": {"name": "glyphs", "options": {"faces": 3}, "modality": "image"},
    "features": {"image": {"kind": "pixels", "size": 16}, "text": {"kind": "tfidf", "buckets": 64}},
    "model": {"hidden": 64, "dropout": 0.25, "image": {"backbone": "cnnf"}},
    "partition": {"kind": "dirichlet", "silos": 3, "alpha": 0.5},
    "local": {"name": "triplet", "bits": 16, "preset": "paper", "margin": 0.25},
    "federated": {
        "name": "fedprox",
        "rounds": 4,
        "local_epochs": 1,
        "fraction": 0.5,
        "weight_cap": 0.75,
        "proximal_weight": 0.125,
        "robust": {"rule": "clip", "clip_factor": 2.0},
        "server": {"optimizer": "fedyogi", "floor": 0.01},
    },
    "train": {"batch": 32, "optimizer": "sgd", "decay": "cosine", "workers": 2, "threads": 1, "device": "cpu"},
    "evaluate": {"measures": ["P@10"], "evaluations": ["PL"], "tasks": ["i2i"], "own_item": "count"},
}


@pytest.mark.parametrize("values", [{"data": {"name": "glyphs"}}, {"data": {"path": "my photos"}}, FULL])
def test_round_trips(values: dict[str, Any]) -> None:
    config = RunConfig.model_validate(values)
    value = config.to_json()
    assert RunConfig.model_validate(value) == config
    assert RunConfig.model_validate(tomllib.loads(config.to_toml())) == config
    assert RunConfig.model_validate(tomllib.loads(config.to_toml())).digest() == config.digest()
    for table, given in values.items():
        assert value[table] == given if table == "seed" else given.items() <= _lists(value[table], given).items()


def _lists(value: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return a table whose inner tables hold only the keys that were given."""
    inner = {key: {k: value[key][k] for k in table} for key, table in given.items() if isinstance(table, dict)}
    return value | inner


def test_defaults_without_none_values() -> None:
    assert RunConfig.model_validate({"data": {"name": "glyphs"}}).to_json() == {
        "seed": 0,
        "data": {"name": "glyphs", "follow_links": False, "options": {}},
        "features": {"image": {}, "text": {}},
        "model": {"hidden": 512, "widths": {}, "dropout": 0.5, "image": {}, "text": {}},
        "partition": {"kind": "iid", "silos": 5},
        "local": {"name": "dcmh", "bits": 64, "preset": "recommended"},
        "federated": {
            "name": "fedavg",
            "preset": "recommended",
            "rounds": 20,
            "local_epochs": 2,
            "fraction": 1.0,
        },
        "train": {
            "batch": 128,
            "optimizer": "adamw",
            "optimizer_state": "reset",
            "momentum": 0.9,
            "learning_rate": 0.001,
            "decay": "none",
            "final_learning_rate": 1e-6,
            "decay_factor": 0.1,
            "decay_epochs": 10,
            "weight_decay": 0.01,
            "clip_norm": 0.0,
            "device": "auto",
            "precision": "float32",
            "workers": 1,
            "threads": 0,
        },
        "exchange": {"keep_updates": False},
        "evaluate": {
            "measures": ["mAP@all"],
            "evaluations": ["GG", "PG", "XS"],
            "tasks": ["i2t", "t2i"],
            "ignore_labels": [],
            "validation": 0.1,
            "no_hits": "zero",
            "own_item": "exclude",
            "validation_by": "auto",
        },
    }
    assert RobustConfig(rule="clip").model_dump() == {"rule": "clip", "faulty": 0.3, "clip_factor": 1.0}
    assert ServerConfig(optimizer="fedadam").model_dump(exclude_none=True) == {
        "optimizer": "fedadam",
        "momentum": 0.9,
        "square_decay": 0.99,
        "floor": 0.001,
    }


def test_digest_covers_all_but_three_keys() -> None:
    plain = RunConfig.model_validate(FULL)
    assert len(plain.digest()) == 12
    assert int(plain.digest(), 16) >= 0
    for key, value in {"workers": 3, "threads": 2, "device": "auto"}.items():
        assert (
            plain.model_copy(update={"train": plain.train.model_copy(update={key: value})}).digest() == plain.digest()
        )
    digests = {plain.digest()}
    changes: dict[str, dict[str, object]] = {
        "data": {"modality": None},
        "features": {"image": {}},
        "model": {"dropout": 0.5},
        "partition": {"alpha": 1.0},
        "local": {"margin": 0.5},
        "federated": {"proximal_weight": 0.25},
        "train": {"precision": "bfloat16"},
        "evaluate": {"no_hits": "skip"},
    }
    for table, change in changes.items():
        digests.add(RunConfig.model_validate({**FULL, table: {**FULL[table], **change}}).digest())
    digests.add(RunConfig.model_validate({**FULL, "seed": 8}).digest())
    assert len(digests) == len(changes) + 2


@pytest.mark.parametrize(("earlier", "now", "other"), [(False, "none", "steps"), (True, "cosine", "geometric")])
def test_digests_of_earlier_runs_hold_without_the_choices_of_decay_and_widths(
    earlier: bool, now: str, other: str
) -> None:
    plain = RunConfig.model_validate({**FULL, "train": {**FULL["train"], "decay": earlier}})
    assert plain.train.decay == now
    deciding = plain._deciding()
    assert deciding["train"]["decay"] is earlier
    assert not {"final_learning_rate", "decay_factor", "decay_epochs"} & deciding["train"].keys()
    assert "widths" not in deciding["model"]
    values: list[dict[str, Any]] = [
        {"train": {**FULL["train"], "decay": other}},
        {"train": {**FULL["train"], "decay": "geometric", "final_learning_rate": 1e-5}},
        {"train": {**FULL["train"], "decay": "steps", "decay_epochs": 3}},
        {"model": {**FULL["model"], "widths": {"image": [64, 64]}}},
        {"model": {**FULL["model"], "widths": {"image": [64]}}},
    ]
    digests = {plain.digest(), *(RunConfig.model_validate({**FULL, **value}).digest() for value in values)}
    assert len(digests) == len(values) + 1


def test_digests_of_earlier_runs_hold_without_the_key_of_the_validation() -> None:
    plain = RunConfig.model_validate(FULL)
    assert "validation_by" not in plain._deciding()["evaluate"]
    kinds = {by: plain.evaluate.model_copy(update={"validation_by": by}) for by in ("auto", "labels", "pairs")}
    digests = {by: plain.model_copy(update={"evaluate": evaluate}).digest() for by, evaluate in kinds.items()}
    assert len(set(digests.values())) == 3
    assert digests["auto"] == plain.digest()


def test_digests_of_earlier_runs_hold_without_the_table_of_the_exchange() -> None:
    plain = RunConfig.model_validate(FULL)
    assert "exchange" not in plain._deciding()
    kinds = [{"kind": "int8"}, {"kind": "top_k"}, {"kind": "top_k", "share": 0.5}]
    digests = {
        RunConfig.model_validate({**FULL, "exchange": {"compression": compression}}).digest() for compression in kinds
    }
    assert len({plain.digest(), *digests}) == 4


def test_links_are_followed_in_folders_only_and_change_the_digest() -> None:
    folder = RunConfig.model_validate({"data": {"path": "pictures"}})
    followed = RunConfig.model_validate({"data": {"path": "pictures", "follow_links": True}})
    without = folder.to_json()
    del without["data"]["follow_links"]
    assert RunConfig.model_validate(without).digest() == folder.digest() != followed.digest()
    with pytest.raises(ValidationError, match="follow_links is for a folder"):
        RunConfig.model_validate({"data": {"name": "glyphs", "follow_links": True}})


def test_where_the_data_is_does_not_change_the_digest() -> None:
    here, there, local = (
        RunConfig.model_validate({"data": data})
        for data in ({"path": "/here"}, {"path": "/there"}, {"path": "/there", "options": {"root": "/files"}})
    )
    assert here.digest() == there.digest() == local.digest()
    assert len({config.located_digest() for config in (here, there, local)}) == 3
    first, second = (
        RunConfig.model_validate({"data": {"name": "coco", "options": {"root": root, "layout": layout}}})
        for root, layout in (("/a", "one"), ("/b", "two"))
    )
    assert first.digest() != second.digest()


def test_a_config_without_a_path_has_the_digest_of_earlier_versions() -> None:
    config = RunConfig.model_validate({"data": {"name": "glyphs"}, "local": {"bits": 32}})
    value = config.to_json()
    for key in ("workers", "threads", "device"):
        del value["train"][key]
    del value["data"]["follow_links"]
    del value["evaluate"]["validation_by"]
    del value["train"]["optimizer_state"]
    del value["exchange"], value["model"]["widths"]
    for key in ("final_learning_rate", "decay_factor", "decay_epochs"):
        del value["train"][key]
    value["train"]["decay"] = False
    value["federated"]["weight_cap"] = 1.0
    assert config.digest() == config.located_digest() == digest_json(value)[:12]
