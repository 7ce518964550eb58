"""The checks of methods that score pairs find what is wrong with a method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from silohash.methods.local.matching.base import Matching
from silohash.methods.local.matching.vsepp import VSENet
from silohash.models.nodes import Nodes
from silohash.testing import ContractError, local_method_checks
from silohash.testing.inputs import LACKING, lacking, node_data, node_spec

CHECKS = {
    check.name.removeprefix("vsepp-recommended-"): check for check in local_method_checks("vsepp", federated=None)
}


def test_a_right_method_passes_all_checks() -> None:
    assert {"learns", "ignores-padding", "moves-every-parameter", "stays-finite-no-pairs"} <= CHECKS.keys()
    for name, check in CHECKS.items():
        if name != "learns":
            check()


def reversed_score(net: VSENet, images: Nodes, texts: Nodes) -> Tensor:
    return -(images.values[:, 0] @ texts.values[:, 0].T).detach() + 0 * images.values.sum()


def centered(net: VSENet, images: Nodes, texts: Nodes) -> Tensor:
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
    monkeypatch.setattr(VSENet, "score", score)
    with pytest.raises(ContractError, match=message):
        CHECKS[check]()


def test_words_after_the_end_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = VSENet.encoded

    def longer(net: VSENet, values: Tensor, modality: Any) -> Nodes:
        nodes = encoded(net, values, modality)
        return Nodes(nodes.values * values.shape[1], nodes.mask)

    monkeypatch.setattr(VSENet, "encoded", longer)
    with pytest.raises(ContractError, match="Padding changes a score"):
        CHECKS["ignores-padding"]()


def test_state_of_another_method_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(method: Matching, model: torch.nn.Module, data: object, state: Any) -> None:
        state.kept.clear()

    monkeypatch.setattr(Matching, "init_state", forgetful)
    with pytest.raises(ContractError, match="changes what the federated method keeps"):
        CHECKS["resets-its-state"]()


def test_made_up_items_fit_the_made_up_model() -> None:
    data, spec = node_data(7), node_spec()
    assert data.image.shape[1:] == spec.towers["image"].shape
    assert data.text.shape[1:] == spec.towers["text"].shape
    assert int(data.text.max()) < spec.towers["text"].settings["words"]
    for item in range(7):
        assert int((data.image[item].abs().sum(1) > 0).sum()) == int((data.text[item] > 2).sum())


@pytest.mark.parametrize("case", LACKING)
def test_silos_lack_what_they_are_named_after(case: str) -> None:
    data = lacking(case)
    both = data.has_image & data.has_text
    assert (len(data) == 1) if case == "one item" else bool((data.has_image ^ data.has_text).any())
    assert (not bool(both.any())) == (case == "no pairs")
