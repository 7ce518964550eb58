"""Class prototypes: sums of a silo, merging, and what silos receive."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.base.types import Outputs
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.federated.base import ServerState, SiloContext
from silohash.methods.federated.prototypes import (
    PrototypeParams,
    empty_prototypes,
    fused_statistics,
    prototype_rows,
    prototype_sums,
    received_prototypes,
    updated_prototypes,
)
from silohash.methods.federated.statistics import class_statistics
from silohash.methods.message import Message
from silohash.models.towers import HashNet
from tests.runs import (
    model_spec,
    silo_data,
)
from tests.unit.methods.federated.helpers import BITS, CLASSES, context_of

NO_PROTOTYPES = np.zeros((CLASSES, BITS), np.float32)


def silo() -> SiloContext:
    """Return the context of a silo before there are prototypes."""
    return context_of(ServerState(params={}, extras={"prototypes/fused": NO_PROTOTYPES}))


@pytest.mark.parametrize(
    ("name", "preset"), [("fedproto", "authors_code"), ("fedproc", "paper"), ("plfedcmh", "authors_code")]
)
def test_every_class_is_released_and_every_label_counts_whole(name: str, preset: str) -> None:
    labels = torch.zeros(20, CLASSES)
    labels[:, 0], labels[0] = 1, 1
    context = silo()
    context.data = replace(context.data, labels=labels)
    kind = FEDERATED_METHODS.resolve(name)
    sums = prototype_sums(context, kind.Params(**kind.presets[preset]))
    for modality in ("image", "text"):
        of_all = 20 if name == "fedproc" else 1  # under the others a silo counts once
        assert sums[f"prototype_count/{modality}"].tolist() == [of_all, *[1] * (CLASSES - 1)]
    own = prototype_sums(context, kind.Params(fuse=False))["prototype_count/image"]
    assert own.tolist() == [1 if name == "plfedcmh" else 19.5, *[0] * (CLASSES - 1)]


def codes_and_labels(context: SiloContext) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    outputs = context.model.eval()(context.data.batch(torch.arange(len(context.data))))
    return {m: torch.tanh(logit).detach() for m, logit in outputs.logit.items()}, context.data.labels


@pytest.mark.parametrize("fuse", [True, False])
def test_sums_are_those_of_relaxed_codes_of_items_that_have_the_modality(fuse: bool) -> None:
    context = silo()
    has_text = torch.arange(20) < 15
    context.data = replace(context.data, has_text=has_text, text=context.data.text * has_text.unsqueeze(1))
    codes, labels = codes_and_labels(context)
    found = prototype_sums(context, PrototypeParams(min_count=1, max_labels=9, fuse=fuse))
    names = {"fused"} if fuse else {"image", "text"}
    assert set(found) == {f"prototype_{kind}/{name}" for kind in ("sum", "count") for name in names}
    for name in names:
        for c in range(CLASSES):
            total, count = torch.zeros(BITS), 0
            for i in range(20):
                both = (codes["image"][i] + codes["text"][i]) / 2 if has_text[i] else codes["image"][i]
                if labels[i, c] and (name != "text" or has_text[i]):
                    total, count = total + (both if fuse else codes[name][i]), count + 1
            np.testing.assert_allclose(found[f"prototype_sum/{name}"][c], total.numpy(), atol=1e-5)
            assert found[f"prototype_count/{name}"][c] == count


def test_a_silo_without_items_or_labels_sends_no_sums() -> None:
    context = silo()
    whole = context.data
    context.data = replace(whole, labels=None)
    assert prototype_sums(context, PrototypeParams()) == {}
    context.data = whole.take(torch.arange(0))
    assert prototype_sums(context, PrototypeParams()) == {}


def test_a_silo_that_releases_no_class_does_not_run_its_model() -> None:
    context, release = silo(), PrototypeParams(min_count=21)  # of 20 items
    full = class_statistics(codes_and_labels(context)[0]["image"], context.data.labels, release)
    context.model.register_forward_pre_hook(lambda model, inputs: pytest.fail("the model is run"))
    found = fused_statistics(context, release, NO_PROTOTYPES)
    for part, expected in ((found.sums, full.sums), (found.counts, full.counts)):
        torch.testing.assert_close(part, expected, rtol=0, atol=0)
        assert not part.any()
    sent = prototype_sums(context, PrototypeParams(min_count=21, prototype_weighting="uniform"))
    assert {name: array.shape for name, array in sent.items()} == {
        "prototype_sum/fused": (CLASSES, BITS), "prototype_count/fused": (CLASSES,),
    }  # fmt: skip


def test_there_are_no_prototypes_at_first() -> None:
    model = HashNet(model_spec(text=False), BITS)
    assert set(empty_prototypes(model, 3, 4, PrototypeParams())) == {"prototypes/fused", "mask/fused"}
    extras = empty_prototypes(model, 3, 4, PrototypeParams(fuse=False))
    assert set(extras) == {"prototypes/image", "mask/image"}
    assert extras["prototypes/image"].shape == (3, 4)
    assert extras["prototypes/image"].dtype == np.float32
    assert not extras["prototypes/image"].any()
    assert extras["mask/image"].tolist() == [False] * 3


def test_prototypes_are_updated_from_the_sums_of_all_silos() -> None:
    extras = {"prototypes/image": np.full((2, 1), 9.0, np.float32), "mask/image": np.asarray([True, True])}
    extras |= {
        "prototypes/text": np.full((2, 1), 8.0, np.float32),
        "mask/text": np.asarray([True, True]),
        "other": np.asarray(1),
    }
    updates = [
        Message(
            "update",
            "s",
            0,
            sums={"prototype_sum/image": np.asarray([[value], [0.0]]), "prototype_count/image": np.asarray([2.0, 0.0])},
        )
        for value in (2.0, 6.0)
    ]
    after = updated_prototypes(ServerState(params={}, extras=extras), updates).extras
    assert after["prototypes/image"].tolist() == [[2.0], [9.0]]
    assert after["prototypes/text"] is extras["prototypes/text"]
    assert after["other"] == 1


@pytest.mark.parametrize("fuse", [True, False])
def test_a_modality_receives_its_own_or_the_common_prototypes(fuse: bool) -> None:
    names = ["fused"] if fuse else ["image", "text"]
    extras = {f"prototypes/{n}": np.full((2, 3), number, np.float32) for number, n in enumerate(names)}
    extras |= {f"mask/{n}": np.asarray([number == 0, True]) for number, n in enumerate(names)}
    prototypes, mask = received_prototypes(context_of(ServerState(params={}, extras=extras)), "text")
    assert prototypes.unique().tolist() == [0.0 if fuse else 1.0]
    assert mask.tolist() == [fuse, True]


def test_rows_need_the_modality_and_a_label_with_a_prototype() -> None:
    labels = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    data = replace(silo_data(4), labels=labels, has_text=torch.tensor([True, True, False, True]))
    batch = data.batch(torch.arange(4))
    extras = {"prototypes/fused": np.ones((2, BITS), np.float32), "mask/fused": np.array([True, False])}
    context = context_of(ServerState(params={}, extras=extras))
    outputs = Outputs(feature={}, logit={m: torch.ones(4, BITS) for m in ("image", "text")}, code={})
    found = list(prototype_rows(context, batch, outputs))
    assert [(rows.modality, rows.labels.tolist()) for rows in found] == [
        ("image", labels[[0, 2]].tolist()),
        ("text", labels[[0]].tolist()),
    ]
    assert [rows.values.shape for rows in found] == [(2, BITS), (1, BITS)]
    assert torch.equal(found[0].values, torch.tanh(torch.ones(2, BITS)))


def test_parameters_by_default() -> None:
    params = PrototypeParams()
    assert (params.fuse, params.prototype_weighting) == (True, "examples")
