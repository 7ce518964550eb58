"""What a config cannot combine with methods that score pairs."""

from __future__ import annotations

import pytest

from silohash.base.errors import UserError
from silohash.run.config.load import load_resolved

BASE = {"data": {"name": "flickr8k-1k", "options": {"image": "regions"}}, "local": {"name": "vsepp"}}


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        ("federated", {"name": "fedcafe"}, r'"fedcafe" trains codes, .* Set federated\.name = local, fedavg, '),
        ("federated", {"name": "moon"}, '"moon" trains codes'),
        ("federated", {"name": "fedproto"}, '"fedproto" trains codes'),
        ("evaluate", {"tasks": ["i2t", "i2i"]}, "only the tasks i2t and t2i can be measured"),
        ("evaluate", {"validation_by": "labels"}, 'Set it to "pairs" or "auto"'),
        ("evaluate", {"measures": ["P@radius2"]}, r'no distance in bits\. Remove "P@radius2"'),
    ],
)
def test_settings_that_need_codes_are_refused(section: str, values: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_resolved({**BASE, section: values})
    load_resolved({**BASE, section: values, "local": {"name": "dgcpn"}})


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fednova", "fedbignns", "local", "centralized"])
def test_methods_that_average_parameters_train_scores(name: str) -> None:
    assert load_resolved({**BASE, "federated": {"name": name}}).federated.traits.trains_scores
