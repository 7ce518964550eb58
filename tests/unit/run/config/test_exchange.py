"""Transformations of updates that a config refuses, with the sentence that says why."""

from __future__ import annotations

from typing import Any

import pytest

from silohash.base.errors import UserError
from silohash.methods.federated import FEDERATED_METHODS
from silohash.run.config.load import load_resolved


def resolved(compression: dict[str, Any], local: str = "dcmh", **federated: Any) -> Any:
    return load_resolved(
        {
            "data": {"name": "glyphs"},
            "partition": {"silos": 9},
            "local": {"name": local},
            "federated": federated,
            "exchange": {"compression": compression},
        }
    )


@pytest.mark.parametrize(
    ("compression", "local", "federated", "part"),
    [
        ({"kind": "half"}, "dcmh", {"name": "local"}, 'no effect: with federated.name = "local", silos do not send'),
        ({"kind": "half"}, "dcmh", {"name": "centralized"}, 'no effect: with federated.name = "centralized"'),
        ({"kind": "int8"}, "dcmh", {"name": "fedproto"}, 'no effect: with federated.name = "fedproto"'),
        ({"kind": "half"}, "scm", {"name": "fedavg"}, 'local.name = "scm" computes its model once'),
        ({"kind": "int8"}, "dcmh", {"rounds": 1}, '"int8" sends what it leaves out in the next round'),
        ({"kind": "top_k"}, "dcmh", {"rounds": 1}, '"top_k" sends what it leaves out in the next round'),
        ({"kind": "top_k"}, "dcmh", {"robust": {"rule": "median"}}, 'the rule "median" takes for what the silos agree'),
        ({"kind": "hash_layers"}, "dcmh", {"name": "fedcmr"}, '"fedcmr" trains one per silo'),
        ({"kind": "hash_layers"}, "dcmh", {"name": "fedcafe"}, '"fedcafe" needs a trained classifier'),
        ({"kind": "int8", "share": 0.2}, "dcmh", {}, 'share has no effect: "int8" does not use it'),
    ],
)
def test_refusals(compression: dict[str, Any], local: str, federated: dict[str, Any], part: str) -> None:
    with pytest.raises(UserError) as error:
        resolved(compression, local, **federated)
    assert "exchange.compression" in str(error.value)
    assert part in str(error.value)
    assert str(error.value).endswith(".")


@pytest.mark.parametrize(
    ("compression", "federated"),
    [
        ({"kind": "half"}, {"rounds": 1}),
        ({"kind": "int8", "share": 0.1}, {"name": "fedcafe"}),
        ({"kind": "top_k", "share": 1.0}, {"name": "plfedcmh"}),
        ({"kind": "top_k", "share": 0.01}, {"robust": {"rule": "clip"}}),
        ({"kind": "int8"}, {"robust": {"rule": "median"}, "server": {"optimizer": "fedadam"}}),
        ({"kind": "hash_layers"}, {"name": "feduch"}),
        ({"kind": "int8"}, {"name": "fedridge", "reveal_items": True}),
        ({"kind": "int8"}, {"name": "compose"}),
    ],
)
def test_settings_that_fit(compression: dict[str, Any], federated: dict[str, Any]) -> None:
    assert resolved(compression, **federated).config.exchange.compression.kind == compression["kind"]


def test_a_kind_alone_is_told_how_to_be_written() -> None:
    with pytest.raises(UserError, match=r'Write compression = \{kind = "top_k"\}'):
        load_resolved({"data": {"name": "glyphs"}, "exchange": {"compression": "top_k"}})


def encrypted(**sections: Any) -> Any:
    exchange = {"encryption": "ckks", **sections.pop("exchange", {})}
    return load_resolved({"data": {"name": "glyphs"}, "exchange": exchange, "partition": {"silos": 9}, **sections})


@pytest.mark.parametrize(
    ("sections", "part"),
    [
        ({"federated": {"name": "local"}}, 'no effect: with federated.name = "local", silos do not send anything'),
        ({"federated": {"name": "centralized"}}, 'no effect: with federated.name = "centralized"'),
        ({"federated": {"name": "plfedcmh"}}, "the server computes with the message of each silo"),
        ({"federated": {"name": "ptfuch"}, "local": {"name": "ucch"}}, "the server computes with the message of each"),
        ({"federated": {"name": "fedcafe"}}, "the server computes with the message of each silo"),
        (
            {"federated": {"name": "compose", "methods": [{"name": "fedprox"}, {"name": "fedcafe"}]}},
            "the server computes with the message of each silo",
        ),
        ({"federated": {"robust": {"rule": "multi_krum"}}}, 'the rule "multi_krum" compares the updates of single'),
        ({"federated": {"weight_cap": 0.5}}, "a cap needs the weights of single silos"),
        ({"exchange": {"compression": {"kind": "int8"}}}, 'encrypted parameters cannot be compressed with "int8"'),
        ({"federated": {"fraction": 0.1}}, "the sum over one silo is that silo's update"),
    ],
)
def test_what_a_server_that_sees_sums_only_cannot_do(sections: dict[str, Any], part: str) -> None:
    with pytest.raises(UserError) as error:
        encrypted(**sections)
    assert "exchange.encryption" in str(error.value)
    assert part in str(error.value)
    assert str(error.value).endswith(".")


@pytest.mark.parametrize("name", [name for name in FEDERATED_METHODS.table if name not in ("fedsums", "separate")])
def test_every_method_whose_uplink_is_sums_can_be_encrypted(name: str) -> None:
    method = load_resolved({"data": {"name": "glyphs"}, "federated": {"name": name}}).federated
    if method.traits.uplink == "sum" and not method.traits.pooled and name != "local":
        assert encrypted(federated={"name": name}).config.exchange.encryption == "ckks"
    else:
        with pytest.raises(UserError, match=r"exchange\.encryption"):
            encrypted(federated={"name": name})


@pytest.mark.parametrize(
    "sections",
    [
        {"federated": {"name": "fedcafe", "memory": "class_mean"}},
        {"federated": {"name": "fedsums"}, "local": {"name": "scm", "variant": "orth", "bits": 16}},
        {"federated": {"server": {"optimizer": "fedadam"}}},
        {"exchange": {"compression": {"kind": "hash_layers"}}},
    ],
)
def test_settings_that_can_be_encrypted(sections: dict[str, Any]) -> None:
    assert encrypted(**sections).config.exchange.encryption == "ckks"
