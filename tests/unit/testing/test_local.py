"""Checks of local methods: a method with a fault fails the check of that fault, and only a sound one passes all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from silohash.base.errors import UnknownName
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.local.matching.base import Matching, VectorNet
from silohash.methods.local.supervised.dcmh import DCMH
from silohash.models.nodes import Nodes
from silohash.testing import ContractError, local_method_checks
from silohash.testing.inputs import LACKING, LACKING_NODES, lacking, lacking_nodes, node_data, node_spec


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
    with pytest.raises(UnknownName):
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


PAIR_CHECKS = {
    check.name.removeprefix("vsepp-recommended-"): check for check in local_method_checks("vsepp", federated=None)
}


def test_a_right_method_passes_all_checks() -> None:
    assert {"learns", "ignores-padding", "moves-every-parameter", "stays-finite-no-pairs"} <= PAIR_CHECKS.keys()
    for name, check in PAIR_CHECKS.items():
        if name != "learns":
            check()


def reversed_score(net: VectorNet, images: Nodes, texts: Nodes) -> Tensor:
    return -(images.values[:, 0] @ texts.values[:, 0].T).detach() + 0 * images.values.sum()


def centered(net: VectorNet, images: Nodes, texts: Nodes) -> Tensor:
    scores = images.values[:, 0] @ texts.values[:, 0].T
    return scores - scores.mean()


@pytest.mark.parametrize(
    ("score", "check", "message"),
    [
        (reversed_score, "learns", "mean recall of the training pairs"),
        (centered, "scores-one-pair-as-many", "Other items change the score"),
        (reversed_score, "moves-every-parameter", "The training does not move"),
    ],
)
def test_wrong_scores_are_found(
    monkeypatch: pytest.MonkeyPatch, score: Callable[..., Tensor], check: str, message: str
) -> None:
    monkeypatch.setattr(VectorNet, "score", score)
    with pytest.raises(ContractError, match=message):
        PAIR_CHECKS[check]()


def test_words_after_the_end_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = VectorNet.encoded

    def longer(net: VectorNet, values: Tensor, modality: Any) -> Nodes:
        nodes = encoded(net, values, modality)
        return Nodes(nodes.values * values.shape[1], nodes.mask)

    monkeypatch.setattr(VectorNet, "encoded", longer)
    with pytest.raises(ContractError, match="Padding changes a score"):
        PAIR_CHECKS["ignores-padding"]()


def test_state_of_another_method_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(method: Matching, model: torch.nn.Module, data: object, state: Any) -> None:
        state.kept.clear()

    monkeypatch.setattr(Matching, "init_state", forgetful)
    with pytest.raises(ContractError, match="changes what the federated method keeps"):
        PAIR_CHECKS["resets-its-state"]()


def test_made_up_items_fit_the_made_up_model() -> None:
    data, spec = node_data(7), node_spec()
    assert data.image.shape[1:] == spec.towers["image"].shape
    assert data.text.shape[1:] == spec.towers["text"].shape
    assert int(data.text.max()) < spec.towers["text"].settings["words"]
    for item in range(7):
        assert int((data.image[item].abs().sum(1) > 0).sum()) == int((data.text[item] > 2).sum())


@pytest.mark.parametrize("case", LACKING_NODES)
def test_silos_lack_what_they_are_named_after(case: str) -> None:
    data = lacking_nodes(case)
    both = data.has_image & data.has_text
    assert (len(data) == 1) if case == "one item" else bool((data.has_image ^ data.has_text).any())
    assert (not bool(both.any())) == (case == "no pairs")
