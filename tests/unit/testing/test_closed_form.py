"""The contract of methods without gradient steps finds faults."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from silohash.base.types import Arrays, ReadArrays
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.local.closed_form.base import Solution, Views
from silohash.methods.local.closed_form.scm import SCM, SCMParams
from silohash.testing import ContractError, local_method_checks


class Unfitted(SCM):
    """Leaves the initial model as it is."""

    def fit(self, model: Any, data: Any) -> dict[str, float]:
        return {}


class Unsteady(SCM):
    """Computes something else each time."""

    def fit(self, model: Any, data: Any) -> dict[str, float]:
        found = super().fit(model, data)
        with torch.no_grad():
            model.image.hash.bias += torch.rand(1, generator=torch.Generator().manual_seed(torch.seed()))
        return found


class Partial(SCM):
    """Its sums depend on the partition."""

    def sums(self, views: Views, received: ReadArrays, exchange: int) -> Arrays:
        found = super().sums(views, received, exchange)
        return {name: array * (1.0 + len(views) % 7) for name, array in found.items()}

    def begin(self, params: ReadArrays) -> Solution:
        return super().begin(params)


def test_faults_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"unfitted": Unfitted, "unsteady": Unsteady, "partial": Partial}
    resolve = type(LOCAL_METHODS).resolve
    for name in kinds:
        monkeypatch.setitem(LOCAL_METHODS.table, name, f"{__name__}:{kinds[name].__name__}")  # type: ignore[arg-type]
    monkeypatch.setattr(
        type(LOCAL_METHODS), "resolve", lambda self, name: kinds[name] if name in kinds else resolve(self, name)
    )
    expected = {
        "unfitted": ("unfitted-recommended-hashes-both-multi", "that of random codes is"),
        "unsteady": ("unsteady-recommended-is-deterministic", "give other parameters"),
        "partial": ("partial-equals-pooled-training", "differ from those of the pooled items"),
    }
    for name, (check, message) in expected.items():
        checks = {str(check): check for check in local_method_checks(name)}
        with pytest.raises(ContractError, match=message):
            checks[check]()
    assert all(isinstance(kind(SCMParams()), SCM) for kind in kinds.values())
