"""Several federated methods at once: nothing collides, and only one member decides each part."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from silohash.base.types import UserError
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.federated.base import FederatedMethod, ServerState, SiloContext, entries_under
from silohash.methods.federated.compose import Compose, ComposeParams, label_members
from silohash.methods.federated.general.fedproc import FedProc
from silohash.methods.federated.general.moon import MOON
from silohash.methods.message import Message
from silohash.models.towers import hash_layers
from silohash.run.config.load import load_config, load_resolved
from silohash.run.events import RoundRecord
from silohash.run.indexing import index_run
from silohash.run.model.trained import Weights
from silohash.search.silos import ask_run
from silohash.training.checkpoint import RunState
from silohash.training.worker import Worker
from tests.runs import (
    Records,
    prepared,
    run_loop,
    same_arrays,
    train,
    write_archive,
)
from tests.unit.methods.federated.compositions import CAFE, GLYPHS, HAP, PROC, error_of, whole
from tests.unit.methods.federated.everything import CALLS, SEEN, Everything


def composed(*methods: dict[str, Any], sizes=(30, 20, 10), single: bool = False, **federated: Any):
    return prepared(
        sizes, single=single, federated={"name": "compose", "rounds": 3, "methods": list(methods), **federated},
        train={"learning_rate": 0.01},
    )  # fmt: skip


def ended(*methods: dict[str, Any], **more: Any) -> tuple[RunState, list[RoundRecord]]:
    listener = Records()
    return run_loop(composed(*methods, **more), listener), listener.records


def test_terms_of_all_members_appear_and_add_up() -> None:
    _, records = ended({"name": "fedprox", "proximal_weight": 0.3}, PROC, {"name": "moon"})
    first, later = ({name for name in record.terms if "/" in name} for record in records[:2])
    assert first == {"fedprox/proximal"}  # the others wait for what the first round leaves
    assert later == {"fedprox/proximal", "fedproc/contrast", "moon/contrast"}
    own = {"likelihood", "quantization", "balance"}
    assert own | later == records[1].terms.keys()


def test_two_halves_of_a_term_are_the_whole() -> None:
    halves, _ = ended(*[{"name": "fedprox", "proximal_weight": 0.5}] * 2)
    alone = run_loop(
        prepared(federated={"name": "fedprox", "rounds": 3, "proximal_weight": 1.0}, train={"learning_rate": 0.01})
    )
    for name, array in alone.server.params.items():
        np.testing.assert_allclose(halves.server.params[name], array, atol=1e-4)


def test_labels_are_needed_if_a_member_needs_them() -> None:
    """The card describes any composition; the cards of its members stand beside it."""
    card = FEDERATED_METHODS.card("compose")
    assert (card.supervised, Compose.needs_labels, card.year) == (False, False, 2026)
    assert not whole({"name": "moon"}, {"name": "fedprox"}).needs_labels
    assert whole({"name": "moon"}, PROC).needs_labels
    cards = load_resolved({**GLYPHS, "federated": {"name": "compose", "methods": [{"name": "moon"}, PROC]}}).cards
    assert {card.key: card.supervised for card in cards[1:]} == {"compose": False, "moon": False, "fedproc": True}


def test_members_of_one_kind_have_labels_of_their_own() -> None:
    assert list(whole({"name": "moon"}, {"name": "fedprox"}, {"name": "moon"}, {"name": "moon"}).members) == [
        "moon", "fedprox", "moon-2", "moon-3",
    ]  # fmt: skip
    assert label_members([]) == {}


def test_two_of_a_kind_do_not_see_each_others_prototypes() -> None:
    state, records = ended(PROC, {**PROC, "min_count": 1000, "fuse": False})
    extras = state.server.extras
    assert extras["fedproc/mask/fused"].all()
    assert not extras["fedproc-2/mask/image"].any()
    assert {name for name in extras if name.startswith("fedproc-2/")} == {
        f"fedproc-2/{what}/{modality}" for what in ("prototypes", "mask") for modality in ("image", "text")
    }
    assert "fedproc/contrast" in records[-1].terms
    assert "fedproc-2/contrast" not in records[-1].terms


def test_two_of_a_kind_train_networks_of_their_own() -> None:
    state, records = ended({**HAP, "judge_width": 8}, {**HAP, "judge_width": 12})
    first, second = (entries_under(f"{label}/discriminator", state.server.extras) for label in ("fedhap", "fedhap-2"))
    assert first.keys() == second.keys()
    assert {8, 12} == {next(iter(judge.values())).shape[0] for judge in (first, second)}
    start = ended({**HAP, "judge_width": 8}, {**HAP, "judge_width": 12}, rounds=1)[0].server.extras
    for label, judge in (("fedhap", first), ("fedhap-2", second)):
        before = entries_under(f"{label}/discriminator", start)
        assert any(not np.array_equal(judge[name], before[name]) for name in judge)
    assert {"fedhap/adversarial", "fedhap-2/adversarial"} <= records[-1].terms.keys()


def test_silos_keep_for_each_member_by_itself() -> None:
    state, _ = ended({"name": "moon"}, {"name": "fedala"}, {"name": "moon", "temperature": 2.0})
    for kept in state.silos.values():
        assert {name.split("/")[0] for name in kept} == {"moon", "fedala", "moon-2"}
        assert entries_under("fedala/mix", kept)
        assert not entries_under("moon/mix", kept)
        assert same_arrays(entries_under("moon/model", kept), entries_under("moon-2/model", kept))


def test_every_member_is_made_ready_once_whatever_the_others_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    readied: list[tuple[str, int]] = []

    def ready(self: MOON, context: SiloContext) -> None:
        readied.append((context.name_space, context.silo))
        context.keep("begun", {"round": torch.tensor(context.round)})

    monkeypatch.setattr(MOON, "init_silo", ready)
    state, _ = ended({"name": "moon"}, {"name": "moon"}, rounds=2)
    assert readied == [(f"{label}/", silo) for silo in range(3) for label in ("moon", "moon-2")]
    assert state.silos[0]["moon/begun/round"] == state.silos[0]["moon-2/begun/round"] == 0


def test_networks_are_not_lost_while_a_silo_waits_for_statistics() -> None:
    """FedBi-GNNs has statistics and FedHAP has none: the discriminator must be sent nevertheless."""
    state, records = ended({"name": "fedbignns"}, HAP)
    judges = entries_under("fedhap/discriminator", state.server.extras)
    start = entries_under("fedhap/discriminator", ended({"name": "fedbignns"}, HAP, rounds=1)[0].server.extras)
    assert any(not np.array_equal(judges[name], start[name]) for name in judges)
    assert "fedbignns/mean_score" in state.server.extras
    assert "fedhap/adversarial" in records[-1].terms
    assert all(name.startswith("fedbignns/") for kept in state.silos.values() for name in kept)


def test_a_member_is_asked_early_only_if_others_give_statistics() -> None:
    alone, _ = ended(HAP)
    waiting, _ = ended(HAP, {"name": "fedbignns", "weighting": "examples"})
    assert same_arrays(alone.server.params, waiting.server.params)
    assert same_arrays(alone.server.extras, waiting.server.extras)


def test_two_members_statistics_are_merged_by_each() -> None:
    state, _ = ended({"name": "fedbignns"}, {**CAFE, "memory": "class_mean"})
    assert set(state.server.extras) == {"fedbignns/mean_score", "fedcafe/memory"}
    assert state.server.extras["fedcafe/memory"].any()


@pytest.mark.parametrize("first", [0, 1])
def test_the_other_members_additions_do_not_touch_the_average(first: int) -> None:
    """FedNova sends differences and averages them itself; prototypes do not matter while their term is off."""
    methods = [
        {"name": "fednova"},
        {**HAP, "triplet_weight": 0.0, "quantization_weight": 0.0, "adversarial_weight": 0.0},
    ]
    both, _ = ended(*methods[first:], *methods[:first])
    alone, _ = ended({"name": "fednova"})
    assert same_arrays(both.server.params, alone.server.params)
    assert both.server.extras["fedhap/mask"].any()


def test_members_that_do_not_decide_are_given_the_average_that_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def remembering(self: FedProc, server: ServerState, updates: Sequence[Message]) -> ServerState:
        after = FederatedMethod.aggregate(self, server, updates)
        return replace(after, extras={**after.extras, "average": after.params["image.hash.weight"]})

    monkeypatch.setattr(FedProc, "aggregate", remembering)
    for other in ({"name": "fednova"}, {"name": "fedcafe", "min_count": 1}, {"name": "moon"}):
        state, _ = ended(PROC, other, robust={"rule": "median"}, rounds=1)
        assert np.array_equal(state.server.extras["fedproc/average"], state.server.params["image.hash.weight"])


def test_one_member_weighs_what_another_sends() -> None:
    sizes = (32, 28, 26)  # two steps an epoch each, so that FedNova is the weighted average
    nova, _ = ended({"name": "fednova"}, {"name": "fedavg", "weighting": "uniform"}, sizes=sizes)
    uniform, _ = ended({"name": "fedavg", "weighting": "uniform"}, sizes=sizes)
    examples, _ = ended({"name": "fedavg"}, sizes=sizes)
    gaps = [
        max(np.abs(nova.server.params[n] - other.server.params[n]).max() for n in nova.server.params)
        for other in (uniform, examples)
    ]
    assert gaps[0] < 1e-6 < 1e-5 < gaps[1]


def test_members_share_what_one_decides() -> None:
    given = composed({"name": "fedprox"}, {"name": "fedcmr"})
    method, model = given.resolved.federated, Worker(given, torch.device("cpu")).model
    layers = hash_layers(model.state_dict())
    assert method.shared_parameters(model) == method.members["fedprox"].shared_parameters(model) == layers
    _, records = ended({"name": "fedprox"}, {"name": "local"})
    assert "fedprox/proximal" not in records[-1].terms  # no parameters are shared


@pytest.mark.parametrize("other", [PROC, CAFE, {"name": "moon"}], ids=lambda method: method["name"])
def test_a_method_that_fills_every_hook_can_be_a_member(other: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FEDERATED_METHODS.table, "everything", "tests.unit.methods.federated.everything:Everything")  # type: ignore[arg-type]
    CALLS.clear()
    SEEN.clear()
    state, records = ended({"name": "everything"}, other, rounds=2)
    assert state.server.private["everything/rounds"] == 2
    assert [silo for hook, silo in CALLS if hook == "init_silo"] == [0, 1, 2]
    assert SEEN["sent_to"] == [0, 1, 2] * 2
    assert all(np.isfinite(SEEN["loss"]))
    assert "everything/pull" in records[-1].terms
    assert entries_under(other["name"], records[-1].terms)


def test_the_template_is_that_of_all_members() -> None:
    method = Compose(ComposeParams(methods=[{"name": "fedprox"}, {"name": "fedridge", "solve": "first"}]))
    method.members["fedprox"] = Everything(None)
    ridge = {"classes": np.asarray(3), "last_round": np.asarray(1)}
    params = {"image.hash.weight": np.zeros((8, 16), np.float32), "image.hash.bias": np.zeros(8, np.float32)}
    server = ServerState(params=params, private={f"fedridge/{name}": array for name, array in ridge.items()})
    found = method.template(server, kind="update", round=0)
    assert set(found.records) == {"fedprox/loss"}
    assert {"fedprox/n", "fedridge/image/count", "fedridge/image/vector_products"} < set(found.sums)
    assert set(method.template(server, kind="update", round=1).sums) == {"fedprox/n"}


def test_outputs_are_adapted_in_order() -> None:
    class Doubled(FederatedMethod):
        def adapt_outputs(self, outputs, extras):
            return replace(outputs, code={name: 2 * code for name, code in outputs.code.items()})

    class Shifted(FederatedMethod):
        def adapt_outputs(self, outputs, extras):
            return replace(outputs, code={name: code + extras["by"] for name, code in outputs.code.items()})

    method = whole({"name": "fedavg"})
    extras = {"a/by": torch.tensor(1.0), "b/by": torch.tensor(5.0)}
    outputs = Worker(composed({"name": "fedavg"}), torch.device("cpu")).model(
        prepared().silo(0, torch.device("cpu"))[0].batch(torch.arange(3))
    )
    for members, expected in (
        ({"a": Shifted(None), "b": Doubled(None)}, 2 * (outputs.code["text"] + 1)),
        ({"a": Doubled(None), "b": Shifted(None)}, 2 * outputs.code["text"] + 5),
    ):
        method.members = members  # type: ignore[assignment]
        assert torch.equal(method.adapt_outputs(outputs, extras).code["text"], expected)


@pytest.mark.parametrize(
    ("method", "part"),
    [
        ({"name": "fedproxx"}, 'There is no federated method "fedproxx" (did you mean "fedprox"?)'),
        (
            {"name": "fedprox", "proximal_weigth": 1},
            'unknown key "federated.methods.1.proximal_weigth" (did you mean "proximal_weight"?). The known keys are: name',
        ),
        ({"name": "fedprox", "proximal_weight": -1}, "federated.methods.1.proximal_weight: input should be greater"),
        (
            {"name": "fedprox", "preset": "papr"},
            'federated.methods.1.preset: fedprox has no preset "papr" (did you',
        ),
        ({"proximal_weight": 1.0}, "federated.methods.1.name is missing. Add it."),
        (
            "fedprox",
            'federated.methods.1: the value must be a table (got "fedprox"). Write {name = "fedprox"} in the list.',
        ),
    ],
)
def test_what_is_wrong_in_a_member_is_named(method: Any, part: str) -> None:
    assert error_of({"name": "moon"}, method).startswith(part)


def test_there_must_be_a_member() -> None:
    assert error_of().startswith(
        "federated.methods: the value must be a list with at least one item (got []). Write methods = [{name ="
    )


def test_methods_of_a_config_through_toml_json_and_set(tmp_path: Path) -> None:
    methods = '[{ name = "fedprox", proximal_weight = 0.02 }, { name = "moon", preset = "paper" }]'
    file = tmp_path / "run.toml"
    text = f'[data]\nname = "glyphs"\n[federated]\nname = "compose"\nmethods = {methods}\n'
    file.write_text(text, encoding="utf-8")
    resolved = load_resolved(file)
    config = resolved.config
    assert resolved.federated.members["fedprox"].params.proximal_weight == 0.02
    assert resolved.federated.members["moon"].params.contrast_weight == 1.0
    assert tomllib.loads(config.to_toml())["federated"]["methods"] == config.to_json()["federated"]["methods"]
    file.write_text(config.to_toml(), encoding="utf-8")
    again = load_config(file)
    assert again == config
    assert again.digest() == config.digest() == load_config(config.to_json()).digest()
    override = 'federated.methods=[{ name = "fedprox", proximal_weight = 0.5 }]'
    other = load_resolved(file, [override])
    assert other.federated.members["fedprox"].params.proximal_weight == 0.5
    assert other.config.digest() != config.digest()
    assert other.value_of("federated.methods")[0]["proximal_weight"] == 0.5


def test_the_memory_of_a_member_is_part_of_the_encoder(tmp_path: Path) -> None:
    methods = [{"name": "moon"}, CAFE, HAP]
    run = train(
        write_archive(tmp_path / "archive", text="words"),
        tmp_path / "run",
        federated={"name": "compose", "methods": methods},
    )
    model, weights = run.model.trained, run.model.trained.weights["global"]
    assert set(weights.extras) == {"fedcafe/memory"}
    assert weights.extras["fedcafe/memory"].any()
    other = {"fedcafe/memory": -50 * weights.extras["fedcafe/memory"]}  # a unit row is too short to change a sign
    moved = replace(model, weights={"global": Weights(weights.params, other)})
    rows = run.archive.split("database")
    assert moved.encoder().digest != model.encoder().digest
    codes = [found.encoder().codes(run.archive, rows, "text").words for found in (model, moved)]
    assert not np.array_equal(*codes)
    with pytest.raises(UserError, match="lacks fedcafe/memory"):
        replace(model, weights={"global": Weights(weights.params, {})}).encoder()
    index_run(run)
    caption = run.archive.caption(int(run.archive.split("query")[0]))
    hits = ask_run(run, caption, "text", "image", k=5)
    words = model.encoder().codes(run.archive, rows, "image").words ^ model.encoder().encode(caption, "text").words
    assert list(hits.distances) == np.sort(np.bitwise_count(words).sum(axis=1))[:5].tolist()
    assert not hits.missing_silos


def test_the_member_that_decides_the_average_says_whether_a_state_is_final() -> None:
    ridge = {"name": "fedridge", "reveal_items": True}
    method = Compose(ComposeParams(methods=({"name": "moon"}, ridge)))
    for final in (False, True):
        server = ServerState(params={}, private={"fedridge/final": np.asarray(final)})
        assert method.is_final(server) is final
    assert not Compose(ComposeParams(methods=({"name": "moon"},))).is_final(ServerState(params={}))
    state, _ = ended({"name": "moon"}, ridge, single=True)
    assert (state.best_round, state.best_score is None) == (2, False)
