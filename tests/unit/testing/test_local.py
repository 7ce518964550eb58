"""Checks of local methods: a method with a fault fails the check of that fault, and only a sound one passes all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
import torch

from silohash.base.types import UserError
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.local.supervised.dcmh import DCMH
from silohash.testing import ContractError, local_method_checks
from silohash.testing.inputs import LACKING, lacking


class Sound(DCMH):
    """DCMH with one preset, so that the checks are few."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"recommended": {}}


class Unfinite(Sound):
    """Returns a term that is NaN if the silo has no text."""

    def terms(self, step: Any, outputs: Any, batch: Any, state: Any) -> dict[str, Any]:
        factor = 1.0 if batch.has_text.any() else float("nan")
        return {name: (w, v * factor) for name, (w, v) in super().terms(step, outputs, batch, state).items()}


class Rising(Sound):
    """Returns terms that grow with every call."""

    calls = 0

    def terms(self, step: Any, outputs: Any, batch: Any, state: Any) -> dict[str, Any]:
        type(self).calls += 1
        terms = super().terms(step, outputs, batch, state)
        return {name: (w, v * 0 + type(self).calls) for name, (w, v) in terms.items()}


class Badly(Sound):
    """Names a term in two words."""

    def terms(self, step: Any, outputs: Any, batch: Any, state: Any) -> dict[str, Any]:
        return {f"the {name}": term for name, term in super().terms(step, outputs, batch, state).items()}


class Hidden(Sound):
    """Keeps state outside of the state."""

    calls = 0

    def terms(self, step: Any, outputs: Any, batch: Any, state: Any) -> Mapping[str, Any]:
        type(self).calls += 1
        terms = super().terms(step, outputs, batch, state)
        return {name: (w * (1 + type(self).calls / 100), v) for name, (w, v) in terms.items()}


@pytest.fixture(autouse=True)
def methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """The methods of this file under their names; `Sound` is described by the card of DCMH."""
    for kind in (Sound, Unfinite, Rising, Badly, Hidden):
        monkeypatch.setitem(LOCAL_METHODS.table, kind.__name__.lower(), f"{__name__}:{kind.__name__}")  # type: ignore[arg-type]
    resolve = type(LOCAL_METHODS).resolve
    kinds = {kind.__name__.lower(): kind for kind in (Sound, Unfinite, Rising, Badly, Hidden)}
    monkeypatch.setattr(
        type(LOCAL_METHODS), "resolve", lambda self, name: kinds[name] if name in kinds else resolve(self, name)
    )


def failed(name: str) -> dict[str, str]:
    """Return the messages of the checks that fail, without the name of the method."""
    found = {}
    for check in local_method_checks(name, federated=None):
        try:
            check()
        except ContractError as error:
            found[str(check).removeprefix(f"{name}-recommended-")] = str(error)
    return found


def test_a_sound_method_passes() -> None:
    assert failed("sound") == {}


def test_faults_are_found_by_their_checks() -> None:
    assert "stays-finite-no-texts" in failed("unfinite")
    rising = failed("rising")
    assert {name for name in rising if name.startswith("learns-")}
    assert all("it should fall" in text for name, text in rising.items() if name.startswith("learns-"))
    badly = failed("badly")
    assert badly.keys() == {"names-its-terms-and-moves-every-parameter"}
    assert "is not an identifier" in badly["names-its-terms-and-moves-every-parameter"]
    assert "is-deterministic" in failed("hidden")


def test_checks_have_names_and_include_a_federated_method_if_wanted() -> None:
    alone = [str(check) for check in local_method_checks("dcmh", federated=None)]
    assert len(set(alone)) == len(alone)
    assert {name.split("-")[1] for name in alone} == {"recommended", "paper", "returns"}
    both = [str(check) for check in local_method_checks("dcmh")]
    assert both[: len(alone)] == alone
    assert all(name.startswith("dcmh-fedavg-") for name in both[len(alone) :])
    with pytest.raises(UserError, match="There is no local method"):
        local_method_checks("dcmhh")


@pytest.mark.parametrize("case", LACKING)
def test_silos_lack_what_they_should(case: str) -> None:
    data = lacking(case)
    assert data.labels is not None
    facts = (len(data), int(data.has_image.sum()), int(data.has_text.sum()), int((data.labels.sum(0) > 0).sum()))
    assert (
        facts
        == {
            "one item": (1, 1, 1, facts[3]),
            "one class": (20, 20, 20, 1),
            "no labels": (20, 20, 20, 0),
            "some without a picture": (20, 13, 20, 6),
            "some without a text": (20, 20, 13, 6),
            "no texts": (20, 20, 0, 6),
            "no pictures": (20, 0, 20, 6),
            "no pairs": (20, 13, 7, 6),
        }[case]
    )
    for present, values in ((data.has_image, data.image), (data.has_text, data.text)):
        assert values is not None
        assert torch.equal(values.abs().sum(1) > 0, present)
