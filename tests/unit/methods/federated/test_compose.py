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

from silohash.base.errors import CannotEncode
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.federated.base import Adapter, FederatedMethod, ServerState, entries_under
from silohash.methods.federated.compose import (
    Compose,
    ComposeParams,
    MemberAdapters,
    combined_traits,
    decides,
    label_members,
    overrides,
)
from silohash.methods.federated.general.fedavg import FedAvg, FedAvgParams
from silohash.methods.federated.general.fedproc import FedProc
from silohash.methods.federated.general.fedprox import FedProx, FedProxParams
from silohash.methods.federated.hashing.fedcafe import FedCAFE, FedCAFEParams
from silohash.methods.federated.shared_means import SharedMean
from silohash.methods.message import Message
from silohash.methods.traits import Traits
from silohash.models.towers import hash_layers
from silohash.run.config.load import load_config, load_resolved
from silohash.run.events import RoundRecord
from silohash.run.indexing import index_run
from silohash.run.model.trained import Weights
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
from tests.silos import ask_run
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


@pytest.mark.whole_run
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
    assert (card.supervised, Compose.traits.needs_labels, card.year) == (False, False, 2026)
    assert not whole({"name": "moon"}, {"name": "fedprox"}).traits.needs_labels
    assert whole({"name": "moon"}, PROC).traits.needs_labels
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
    assert method.shared_parameters(model) == layers
    _, records = ended({"name": "fedprox"}, {"name": "local"})
    assert "fedprox/proximal" not in records[-1].terms  # no parameters are shared


@pytest.mark.parametrize("other", [PROC, CAFE, {"name": "moon"}], ids=lambda method: method["name"])
def test_a_method_that_fills_every_hook_can_be_a_member(other: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FEDERATED_METHODS.table, "everything", "tests.unit.methods.federated.everything:Everything")  # type: ignore[arg-type]
    CALLS.clear()
    SEEN.clear()
    state, records = ended({"name": "everything"}, other, rounds=2)
    assert state.server.private["everything/rounds"] == 2
    assert [silo for hook, silo in CALLS if hook == "begin_round"] == [0, 1, 2] * 2
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
    class Doubled(Adapter):
        def adapt_outputs(self, outputs, extras):
            return replace(outputs, code={name: 2 * code for name, code in outputs.code.items()})

    class Shifted(Adapter):
        def adapt_outputs(self, outputs, extras):
            return replace(outputs, code={name: code + extras["by"] for name, code in outputs.code.items()})

    def member(adapter: Adapter) -> FederatedMethod:
        method = FederatedMethod(None)
        method.adapter = adapter
        return method

    extras = {"a/by": torch.tensor(1.0), "b/by": torch.tensor(5.0)}
    outputs = Worker(composed({"name": "fedavg"}), torch.device("cpu")).model(
        prepared().silo(0, torch.device("cpu"))[0].batch(torch.arange(3))
    )
    for members, expected in (
        ({"a": Shifted(), "b": Doubled()}, 2 * (outputs.code["text"] + 1)),
        ({"a": Doubled(), "b": Shifted()}, 2 * outputs.code["text"] + 5),
    ):
        adapters = MemberAdapters({label: member(adapter) for label, adapter in members.items()})
        assert torch.equal(adapters.adapt_outputs(outputs, extras).code["text"], expected)


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


@pytest.mark.whole_run
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
    with pytest.raises(CannotEncode, match="lacks fedcafe/memory"):
        replace(model, weights={"global": Weights(weights.params, {})}).encoder()
    index_run(run)
    caption = run.archive.caption(int(run.archive.split("query")[0]))
    hits = ask_run(run, caption, "text", "image", k=1000)
    words = model.encoder().codes(run.archive, rows, "image").words ^ model.encoder().encode(caption, "text").words
    assert sorted(hits.distances) == np.sort(np.bitwise_count(words).sum(axis=1)).tolist()
    assert not hits.missing_silos


def test_the_member_that_decides_the_average_says_whether_a_state_is_final() -> None:
    ridge = {"name": "fedridge", "reveal_items": True}
    state, _ = ended({"name": "moon"}, ridge, single=True)
    assert (state.best_round, state.best_score is None) == (2, False)
    assert state.server.final
    assert not ended({"name": "moon"}, {**ridge, "solve": "first"}, single=True)[0].server.final


@pytest.mark.parametrize(
    ("methods", "part"),
    [
        (
            ("fednova", "local"),
            '"fednova" and "local" both decide how the server averages (aggregate), but only one method can.',
        ),
        (("local", "fedala"), "how a silo's round begins and its phases (begin_round)"),
        (("fedproto", "fedcmr"), "which parameters are shared (shares, broadcast)"),
        (("fedcmr", "plfedcmh"), "which parameters are shared (shares, broadcast)"),
        (("fednova", "plfedcmh"), "which parameters a silo sends (update)"),
        (("moon", "local", "fedprox", "local"), '"local" and "local-2" both decide'),
        (
            ("fedcafe", "fedhap"),
            "the weight of a silo (weight), but only one method can. Leave one of them out, "
            'or set weighting = "examples" in "fedcafe", or set weighting = "examples" in "fedhap".',
        ),
        (
            ("fedprox", "fednova"),
            'Set proximal_weight in "fednova", which accounts only for its own, and leave "fedprox" out',
        ),
        (("centralized", "moon"), '"centralized" pools all data'),
        (("moon", "compose"), '"compose" is a composition itself. List its members instead.'),
    ],
)
def test_pairs_that_cannot_be_composed_are_refused_with_the_reason(methods: tuple[str, ...], part: str) -> None:
    text = error_of(*({"name": name} for name in methods))
    assert text.startswith("federated.methods: ")
    assert part in text


def test_a_pair_is_composed_once_parameters_say_that_one_only_adds() -> None:
    assert whole({"name": "fedcafe"}, HAP).deciders == dict.fromkeys(("weight", "update", "aggregate"), "fedcafe")
    assert whole(CAFE, {"name": "fedhap"}).deciders == {"weight": "fedhap"}
    assert whole({"name": "fedala"}, {"name": "fedbignns"}).deciders["begin_round"] == "fedala"
    assert "begin_round" in error_of({"name": "fedala"}, {"name": "fedbignns", "local_mix": 0.5})


def test_one_training_loop_serves_networks_and_adaptations_that_agree() -> None:
    assert whole({**HAP, "judge_learning_rate": 0.01}).adapter.learning_rate == 0.01
    assert whole({"name": "moon"}).adapter.learning_rate is None
    text = error_of(HAP, {**HAP, "judge_learning_rate": 0.01})
    assert '"fedhap" and "fedhap-2" both decide the learning rate of auxiliary networks' in text
    assert whole({"name": "moon"}, {**CAFE, "hash_on": "raw"}).adapter.adapts_training is False
    assert whole({"name": "moon"}, CAFE).adapter.adapts_training is True
    assert "is trained on adapted outputs (adapt_outputs, adapts_training)" in error_of(
        CAFE, {**CAFE, "hash_on": "raw"}
    )


def test_members_agree_on_whether_their_terms_have_steps_of_their_own() -> None:
    alone = {"name": "feduch", "preset": "authors_code"}
    assert whole({"name": "fedavg"}, alone).traits.separate_steps
    assert not whole({"name": "moon"}, {"name": "feduch"}).traits.separate_steps
    assert "whether terms have steps of their own (terms, separate_steps)" in error_of({"name": "moon"}, alone)


def test_what_is_declared_to_add_is_filled() -> None:
    for name in FEDERATED_METHODS.names():
        kind = FEDERATED_METHODS.resolve(name)
        method = kind(kind.Params(**kind.presets["recommended"]))
        assert all(overrides(method, hook) for hook in kind.traits.adds), name
        assert all(key in kind.Params.model_fields for under in kind.traits.adds.values() for key in under), name


def test_a_method_may_say_itself_that_it_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FEDERATED_METHODS.table, "everything", "tests.unit.methods.federated.everything:Everything")  # type: ignore[arg-type]
    assert "(update)" in error_of({"name": "fednova"}, {"name": "everything"})
    adds = {"update": {}, "aggregate": {}, "weight": {}}
    monkeypatch.setattr(Everything, "traits", replace(Everything.traits, adds=adds))
    assert whole({"name": "fednova"}, {"name": "everything"}).deciders["aggregate"] == "fednova"


def test_traits_follow_from_the_members() -> None:
    plain = whole({"name": "fedprox"}, {"name": "moon"}).traits
    assert (plain.needs_labels, plain.uplink, plain.encode_extras, plain.class_head) == (False, "sum", (), False)
    assert (plain.shares, plain.personalized, plain.codes_comparable) == ("all", False, True)
    rich = whole({"name": "moon"}, CAFE).traits
    assert (rich.needs_labels, rich.uplink, rich.class_head) == (True, "records", True)
    assert rich.encode_extras == ("fedcafe/memory",)
    personal = whole({"name": "fedprox"}, {"name": "plfedcmh"}, {"name": "fedala"}).traits
    assert (personal.uniform_broadcast, personal.personalized, personal.codes_comparable) == (False, True, False)
    assert whole({"name": "local"}, {"name": "moon"}).traits.shares == "none"
    assert (whole({"name": "fednova"}).traits.sends_changes, plain.sends_changes) == (True, False)


def test_a_parameter_that_makes_a_hook_an_addition_counts() -> None:
    examples, memory = (FedCAFE(FedCAFEParams(weighting=weighting)) for weighting in ("examples", "memory"))
    for hook in ("weight", "update", "aggregate"):
        assert (decides(examples, hook), decides(memory, hook)) == (False, True)
    assert not decides(examples, "personalize")
    assert overrides(FedAvg(FedAvgParams()), "weight")
    assert not overrides(FedProx(FedProxParams()), "weight")


def test_traits_of_two_members() -> None:
    class Two(FederatedMethod):
        traits = Traits(
            min_modalities=2, needs_labels=True, codes_comparable=False, averages=False, encode_extras=("a", "b"),
            means=(SharedMean("sum", "count", like="table"),), unprotected="It is odd. Leave it out.",
        )  # fmt: skip

    assert combined_traits({"plain": FederatedMethod(None), "two": Two(None)}, {}) == Traits(
        needs_labels=True, averages=False, codes_comparable=False, min_modalities=2,
        encode_extras=("two/a", "two/b"), unprotected="It is odd. Leave it out.",
        means=(SharedMean("two/sum", "two/count", like="two/table"),),
    )  # fmt: skip
