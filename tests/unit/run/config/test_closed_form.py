"""Which federated methods train local methods without gradient steps, with which rounds; what the refusals say."""

from __future__ import annotations

from typing import Any

import pytest

from silohash.base.errors import UserError
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.traits import Traits
from silohash.run.config.load import ResolvedConfig, load_resolved


def resolved(local: dict[str, Any], federated: dict[str, Any]) -> ResolvedConfig:
    return load_resolved({"data": {"name": "glyphs"}, "local": {"bits": 16, **local}, "federated": federated})


def refusal(local: dict[str, Any], federated: dict[str, Any]) -> str:
    with pytest.raises(UserError) as error:
        resolved(local, federated)
    return str(error.value)


SCM = {"name": "scm"}


@pytest.mark.parametrize(
    "name", [n for n in FEDERATED_METHODS.table if FEDERATED_METHODS.resolve(n).traits.closed_form == "none"]
)
def test_methods_that_need_gradient_steps_are_refused(name: str) -> None:
    assert refusal(SCM, {"name": name}) == (
        f'the config: "{name}" trains by gradient steps, and local.name = "scm" has none. Set federated.name = "fedavg", '
        '"centralized", "local", or "fedsums".'
    )
    resolved({"name": "dcmh"}, {"name": name})


def test_methods_that_fit_each_silo() -> None:
    kinds = {name: FEDERATED_METHODS.resolve(name).traits.closed_form for name in FEDERATED_METHODS.table}
    assert {name for name, kind in kinds.items() if kind == "silos"} == {"fedavg", "centralized", "local"}
    assert {name for name, kind in kinds.items() if kind == "sums"} == {"fedsums"}
    for name in ("fedavg", "centralized", "local"):
        assert resolved(SCM, {"name": name, "rounds": 1}).remarks == ()
        (remark,) = resolved(SCM, {"name": name, "rounds": 3}).remarks
        assert remark.endswith("Set federated.rounds = 1 instead of 3.")


def test_bits_that_differ_between_silos_are_not_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOCAL_METHODS.resolve("scm"), "traits", Traits(needs_labels=True, codes_comparable=False))
    text = refusal(SCM, {"name": "fedavg"})
    assert '"fedavg" averages the models of silos, and a bit of local.name = "scm" means something else' in text
    assert text.endswith('Set federated.name = "centralized", "local".')
    assert '"fedavg", "centralized"' not in refusal(SCM, {"name": "fedcafe"})
    for name in ("centralized", "local"):
        resolved(SCM, {"name": name, "rounds": 1})


@pytest.mark.parametrize(("bits", "variant", "needed"), [(16, "seq", 17), (64, "seq", 65), (16, "orth", 2)])
def test_sums_need_rounds_and_all_silos(bits: int, variant: str, needed: int) -> None:
    local = {**SCM, "bits": bits, "variant": variant}
    assert refusal(local, {"name": "fedsums", "rounds": needed - 1}) == (
        f'the config: federated.rounds = {needed - 1}, and "scm" with local.bits = {bits} needs {needed} rounds of sums. '
        f"Set federated.rounds = {needed}."
    )
    assert resolved(local, {"name": "fedsums", "rounds": needed}).remarks == ()
    assert 'federated.fraction = 0.5, and "fedsums" needs the sums of the same silos' in refusal(
        local, {"name": "fedsums", "rounds": needed, "fraction": 0.5}
    )


def test_sums_need_a_method_that_defines_them() -> None:
    assert refusal({"name": "seph"}, {"name": "fedsums"}).endswith('federated.name = "centralized", "local".')
    assert refusal({"name": "dcmh"}, {"name": "fedsums"}) == (
        'the config: "fedsums" solves a local method from sums over items, which local.name = "dcmh" does not define. Set '
        'local.name = "scm" or "cmfh", or federated.name = "fedavg".'
    )
