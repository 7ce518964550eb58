"""Settings of a study compared with what a paper states."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from silohash.base.errors import UnknownName
from silohash.study.config import make_study
from silohash.study.differences import (
    SettingDifference,
    Stated,
    differences,
    differences_table,
    shown,
)

METHODS = [
    {"name": "FedAvg", "set": {"federated.name": "fedavg"}},
    {"name": "FedProx", "set": {"federated.name": "fedprox"}},
    {"name": "MOON", "set": {"federated.name": "moon"}},
]


def study(*rules, axes=(), **settings):
    """Return a study of three methods on glyphs."""
    return make_study(
        {
            "seeds": [0, 1],
            "base": {"set": {"data.name": "glyphs", **settings}},
            "axis": [{"name": "method", "choice": METHODS}, *axes],
            "where": list(rules),
        },
        where="a study",
    )


BITS = {"name": "bits", "key": "local.bits", "values": [16, 32]}


def stated(key, value, **more):
    return {key: [Stated(value=value, source="p. 1", **more)]}


def found(statements, config):
    return [(one.key, one.paper, one.ours, one.runs) for one in differences(statements, config)]


def test_a_changed_learning_rate_is_a_difference():
    statements = stated("train.learning_rate", 0.005)
    assert found(statements, study(**{"train.learning_rate": 0.005})) == []
    assert found(statements, study(**{"train.learning_rate": 0.004})) == [("train.learning_rate", "0.005", "0.004", "")]
    rule = {"choices": {"method": "MOON"}, "set": {"train.learning_rate": 0.1}}
    assert found(statements, study(rule, **{"train.learning_rate": 0.005})) == [
        ("train.learning_rate", "0.005", "0.1", "method MOON")
    ]


def test_defaults_and_presets_are_compared():
    assert found(stated("train.optimizer", "sgd"), study()) == [("train.optimizer", "sgd", "adamw", "")]
    # Only one of the methods has the parameter.
    (one,) = found(stated("federated.temperature", 99), study())
    assert one[3] == "method MOON"


@pytest.mark.parametrize(
    ("key", "value", "setting", "equal"),
    [
        ("train.batch", 128, {}, True),
        ("train.batch", 129, {}, False),
        ("train.learning_rate", 0.0316, {"train.learning_rate": 0.0316228}, True),
        ("train.learning_rate", 0.031, {"train.learning_rate": 0.0316228}, False),
        ("train.decay", "none", {}, True),
        ("train.decay", "cosine", {}, False),
        ("data.follow_links", False, {}, True),
        ("data.follow_links", 0, {}, False),
        ("evaluate.tasks", ["i2t", "t2i"], {}, True),
        ("evaluate.tasks", ["t2i", "i2t"], {}, False),
        ("exchange.encryption", "none", {}, True),
        ("exchange.encryption", "ckks", {}, False),
        ("federated.server.optimizer", "none", {}, True),
        ("features.text.kind", "lda", {}, False),
        ("features.text.kind", "tfidf", {"features.text": {"kind": "tfidf"}}, True),
    ],
)
def test_values_are_equal(key, value, setting, equal):
    assert (found(stated(key, value), study(**setting)) == []) == equal


def test_runs_are_described_by_their_choices():
    rules = [
        {"choices": {"method": "MOON", "bits": "16"}, "set": {"train.batch": 7}},
        {"choices": {"method": "FedAvg", "bits": "32"}, "set": {"train.batch": 7}},
    ]
    config = study(*rules[:1], axes=[BITS])
    assert found(stated("train.batch", 128), config) == [("train.batch", "128", "7", "method MOON; bits 16")]
    assert found(stated("local.bits", 16), config) == [("local.bits", "16", "32", "bits 32")]
    config = study(*rules, axes=[BITS])
    (one,) = found(stated("train.batch", 128), config)
    assert one[3] == "method MOON, FedAvg; 2 of 6 runs" or one[3] == "method FedAvg, MOON; 2 of 6 runs"


def test_a_statement_may_be_about_some_runs():
    config = study(axes=[BITS])
    assert found(stated("train.batch", 7, where={"method": "MOON"}), config) == [
        ("train.batch", "7", "128", "method MOON")
    ]
    both = found(stated("train.batch", 7, where={"method": ["MOON", "FedAvg"], "bits": "16"}), config)
    assert both == [("train.batch", "7", "128", "method FedAvg, MOON; bits 16")]
    assert found(stated("train.batch", 7, where={"data.name": "coco"}), config) == []
    assert len(found(stated("train.batch", 7, where={"data.name": "glyphs"}), config)) == 1
    assert found(stated("train.batch", 7, where={"data": "Wiki"}), config) == []


def test_a_key_may_have_several_statements():
    statements = {
        "train.batch": [
            Stated(value=128, source="p. 1", where={"method": "MOON"}),
            Stated(value=64, source="p. 2", where={"method": "FedAvg"}),
        ]
    }
    assert found(statements, study()) == [("train.batch", "64", "128", "method FedAvg")]


def test_what_the_config_cannot_express_always_differs():
    (one,) = differences(stated("paper.encryption", "models are encrypted"), study())
    assert (one.paper, one.ours, one.runs) == ("models are encrypted", "", "")
    assert str(one) == "paper.encryption: models are encrypted in the paper (p. 1), cannot be set here"


@pytest.mark.parametrize("key", ["trian.batch", "train.bacth", "seed.x.y", "papers.encryption", "exchange.privacy.x"])
def test_keys_that_do_not_exist_are_refused(key):
    if key == "seed.x.y":  # nothing is known about what is below a value
        assert found(stated(key, 1), study()) == [(key, "1", "none", "")]
        return
    with pytest.raises(UnknownName):
        differences(stated(key, 1), study())


def test_table_of_differences():
    assert "No setting" in differences_table([])
    one = SettingDifference("train.batch", "a|b", "7", "p. 1", "method MOON")
    text = differences_table([one, SettingDifference("paper.x", "y", "", "p. 2")])
    assert "| `train.batch` | a\\|b | p. 1 | 7 | method MOON |" in text
    assert "| `paper.x` | y | p. 2 | cannot be set | all |" in text
    assert asdict(one)["runs"] == "method MOON"


def test_values_are_shown_as_in_toml():
    assert [shown(value) for value in (None, "sgd", 0.5, True, [1, "a"])] == ["none", "sgd", "0.5", "true", '[1, "a"]']
