"""The contract: a method that overrides every hook, the order of calls, and that state is a value."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.base.errors import CannotEncode
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.federated.base import FederatedMethod, ServerState, SiloContext, entries_under, received_extra
from silohash.methods.local.supervised.dcmh import DCMHParams
from silohash.methods.message import Message
from silohash.methods.traits import Traits
from silohash.models.towers import Adapted, HashNet, hash_layers
from silohash.training.checkpoint import load_checkpoint, save_checkpoint
from silohash.training.worker import Worker
from tests.runs import (
    Records,
    model_spec,
    prepared,
    run_loop,
    same_arrays,
    silo_data,
    train,
    write_archive,
)
from tests.unit.methods.federated.everything import CALLS, PRIVATE, SEEN
from tests.unit.methods.federated.helpers import BITS, INFO, silo_context

NAME = {"name": "everything"}


SIZES = (30, 20, 10)
METHODS = FEDERATED_METHODS.names()


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FEDERATED_METHODS.table, "everything", "tests.unit.methods.federated.everything:Everything")  # type: ignore[arg-type]
    CALLS.clear()
    SEEN.clear()


def inputs(**federated: object):
    return prepared(SIZES, federated={"rounds": 2, "local_epochs": 2, **NAME, **federated})


def hooks() -> list[str]:
    """Return the hooks in the order of their calls, without immediate repetitions."""
    return [name for name, _ in itertools.groupby(name for name, _ in CALLS if not name.startswith("shared"))]


@pytest.mark.whole_run
def test_order_of_the_hooks() -> None:
    run_loop(inputs(rounds=1))
    training = ["auxiliary_step", "terms"]
    order = hooks()
    assert order[:3] == ["init_server", "broadcast", "begin_round"]
    assert order[3:5] == training[::-1]
    ends = [name for name in order if name not in {*training, "update_state"}]
    silo = ["broadcast", "begin_round", "statistics"]
    update = ["broadcast", "update", "weight"] * 3
    assert ends == [
        "init_server", *silo * 3, "merge_statistics", *update, "aggregate", *["broadcast", "personalize"] * 3,
    ]  # fmt: skip
    assert [silo for name, silo in CALLS if name == "begin_round"] == [0, 1, 2]
    assert SEEN["sent_to"] == [0, 1, 2]


@pytest.mark.whole_run
def test_phases_see_their_rows_and_every_step_is_regularized() -> None:
    run_loop(inputs(rounds=1))
    silos = [silo for name, silo in CALLS if name == "auxiliary_step"]
    rows = [row for row, silo in zip(SEEN["rows"], silos, strict=True) if silo == 0]
    # 30 items in batches of 16: 15 private rows in one batch; then two batches in each of two epochs; two steps each
    assert len(rows) == 2 * (1 + 2 * 2)
    assert sorted(rows[0]) == list(range(15))
    assert sorted(rows[2] + rows[4]) == sorted(rows[6] + rows[8]) == list(range(30))
    assert sum(call == ("terms", 0) for call in CALLS) == 2 * (1 + 2 * 2)
    assert SEEN["steps"][0] == {"image": 5, "text": 5}


@pytest.mark.whole_run
def test_the_auxiliary_network_is_trained_and_terms_are_recorded() -> None:
    listener = Records()
    run_loop(inputs(rounds=1), listener)
    assert all(moved > 0.01 for moved in SEEN["critic"])
    (record,) = listener.records
    assert set(record.terms) == {"likelihood", "quantization", "balance", "pull"}
    own = DCMHParams()
    weights = {
        "likelihood": 1.0,
        "quantization": own.quantization_weight,
        "balance": own.balance_weight,
        "pull": 0.5,
    }
    assert record.loss == pytest.approx(sum(weights[name] * value for name, value in record.terms.items()), rel=1e-4)


@pytest.mark.whole_run
def test_statistics_are_summed_merged_and_sent_back_before_the_updates() -> None:
    listener = Records()
    state = run_loop(inputs(rounds=1), listener)
    (sums,) = SEEN["sums"]
    assert sums["count"] == sum(SIZES)
    merged = (0.01 * sums["total"] / sums["count"]).astype(np.float32)
    assert np.abs(merged).max() > 0
    assert all(np.array_equal(memory, merged) for memory in [*SEEN["memory"], *SEEN["merged"]])
    assert np.array_equal(state.server.extras["memory"], merged)
    assert state.server.private["rounds"] == 1
    assert all(np.isfinite(SEEN["loss"]))
    assert SEEN["loss"] == [silo.loss for silo in listener.records[0].silos]


@pytest.mark.whole_run
def test_traffic_counts_both_exchanges() -> None:
    listener = Records()
    state = run_loop(inputs(rounds=1), listener)
    (record,) = listener.records
    shared = sum(array.nbytes for name, array in state.server.params.items() if f".{PRIVATE}." not in name)
    memory = state.server.extras["memory"].nbytes
    assert record.uplink_bytes == 3 * (shared + 8 + 8 + memory + 4)
    everything = sum(array.nbytes for array in state.server.params.values())
    assert record.downlink_bytes == 3 * (everything + memory + 8 + memory)


@pytest.mark.whole_run
def test_a_silo_whose_statistics_are_not_finite_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.unit.methods.federated.everything import Everything

    whole = Everything.statistics

    def broken(self, context):
        found = whole(self, context)
        return {**found, "count": np.asarray(np.nan)} if context.silo == 1 else found

    monkeypatch.setattr(Everything, "statistics", broken)
    listener = Records()
    state = run_loop(inputs(rounds=1), listener)
    assert [silo.rejected for silo in listener.records[0].silos] == [
        None,
        "sums/count holds NaN or infinite values",
        None,
    ]
    assert SEEN["sums"][0]["count"] == 40
    assert SEEN["updates"] == [["silo-0", "silo-2"]]
    assert set(state.silos) == {0, 2}


@pytest.mark.whole_run
def test_private_parameters_stay_in_the_silo() -> None:
    state = run_loop(inputs())
    for silo in range(3):
        kept = state.silos[silo]
        assert {name for name in kept if not name.startswith("private/")} == {"own/visits"}
        assert kept["own/visits"] == 2
        assert {name.split("/")[1] for name in kept if name.startswith("private/")} >= {f"text.{PRIVATE}.weight"}
    first, second = (state.silos[silo][f"private/text.{PRIVATE}.weight"] for silo in (0, 1))
    assert not np.array_equal(first, second)


@pytest.mark.whole_run
def test_through_bytes_it_is_the_same() -> None:
    plain, wired = run_loop(inputs()), run_loop(inputs(), wire=True)
    assert same_arrays(plain.server.params, wired.server.params)
    assert same_arrays(plain.server.extras, wired.server.extras)
    assert plain.silos.keys() == wired.silos.keys()
    assert all(same_arrays(plain.silos[silo], wired.silos[silo]) for silo in plain.silos)
    assert plain.best_score == wired.best_score


@pytest.mark.whole_run
def test_resuming_from_a_checkpoint_is_the_same(tmp_path) -> None:
    whole = run_loop(inputs(rounds=4))
    half = run_loop(inputs(rounds=4), stop=2)
    save_checkpoint(tmp_path / "checkpoint", half, "digest")
    resumed = run_loop(inputs(rounds=4), state=load_checkpoint(tmp_path / "checkpoint", "digest"))
    assert same_arrays(whole.server.params, resumed.server.params)
    assert same_arrays(whole.server.private, resumed.server.private)
    assert all(same_arrays(whole.silos[silo], resumed.silos[silo]) for silo in whole.silos)
    assert (whole.best_round, whole.best_score) == (resumed.best_round, resumed.best_score)


@pytest.mark.whole_run
def test_only_shared_parameters_are_averaged() -> None:
    state = run_loop(inputs(rounds=1))
    start = Worker(inputs(), torch.device("cpu")).first_state().server.params
    same = {name: np.array_equal(array, start[name]) for name, array in state.server.params.items()}
    assert {name for name, unmoved in same.items() if unmoved} == {
        f"{m}.{PRIVATE}.{part}" for m in ("image", "text") for part in ("weight", "bias")
    }


@pytest.mark.whole_run
def test_a_run_deploys_a_model_a_silo_with_its_extras(tmp_path) -> None:
    archive = write_archive(tmp_path / "archive")
    run = train(archive, tmp_path / "run", federated={**NAME, "rounds": 2})
    model = run.model.trained
    assert set(model.weights) == {"global", "silo-1", "silo-2", "silo-3"}
    assert all(set(weights.extras) == {"memory"} for weights in model.weights.values())
    digests = {model.encoder(name).digest for name in model.weights}
    assert len(digests) == 4
    weights = {**model.weights, "silo-1": replace(model.weights["silo-1"], extras={})}
    with pytest.raises(CannotEncode, match=r"silo-1.*memory"):
        replace(model, weights=weights).encoder("silo-1")


def test_adapted_passes_outputs_on() -> None:
    model = HashNet(model_spec(), 8).eval()
    batch = silo_data(4).batch(torch.arange(4))
    adapted = Adapted(model, FederatedMethod(None).adapter, {})
    assert torch.equal(adapted(batch).code["text"], model(batch).code["text"])
    assert list(adapted(batch, ("image",)).code) == ["image"]
    assert adapted.modalities == model.modalities


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_card_and_presets(name: str) -> None:
    kind, card = FEDERATED_METHODS.resolve(name), FEDERATED_METHODS.card(name)
    assert card.key == name
    assert card.summary
    assert "recommended" in kind.presets
    for preset in kind.presets.values():
        kind(kind.Params(**preset))
    assert kind.traits.shares != "none" or kind.traits.personalized or kind.traits.closed_form == "sums"
    assert kind.traits.uplink in {"sum", "records"}


def test_every_card_names_authors_and_states_differences_as_sentences() -> None:
    for name in METHODS:
        card = FEDERATED_METHODS.card(name)
        assert card.authors, name
        assert card.summary.endswith("."), name
        assert all(text[0].isupper() and text.endswith(".") for text in card.differs_from_paper), name


def test_every_method_of_a_paper_has_the_faithful_preset() -> None:
    for name in METHODS:
        presets = FEDERATED_METHODS.resolve(name).presets
        assert list(presets) in (["recommended"], ["recommended", "paper"], ["recommended", "paper", "authors_code"]), (
            name
        )
        assert "paper" in presets or name == "compose", name
        assert not presets["recommended"], name


def test_entries_of_a_composed_member_are_found_by_the_whole_name() -> None:
    values = {"moon/a": 1, "moon/b/c": 2, "moon-2/a": 3, "moon": 4}
    assert entries_under("moon", values) == {"a": 1, "b/c": 2}


def test_frozen_outputs_are_computed_once_per_round() -> None:
    context, calls = silo_context(6), []
    for _ in range(2):
        found = context.frozen_outputs("global", lambda: calls.append(1) or context.global_model)
    assert calls == [1]
    assert found["image"].shape == (6, BITS)
    assert context.frozen_outputs("global", lambda: context.global_model, "feature")["image"].shape == (6, 16)


def test_kept_tensors_are_copies_under_a_prefix() -> None:
    context = silo_context(4)
    value = torch.ones(2)
    context.keep("own", {"w": value})
    value += 1
    assert context.kept("own")["w"].tolist() == [1.0, 1.0]
    context.keep("other", {"w": value})
    context.forget("own")
    assert context.kept("own") == {}
    assert set(context.state.kept) == {"other/w"}
    assert context.previous_model is None


def test_weights_are_items_with_the_modality_of_the_group() -> None:
    context = silo_context(10)
    context.data = replace(context.data, has_text=torch.arange(10) < 3)
    method = FederatedMethod(None)
    assert [method.weight(context, group) for group in ("image", "text", "elsewhere")] == [10.0, 3.0, 10.0]


def test_traits_of_federated_averaging() -> None:
    traits = {
        "needs_labels": False, "min_modalities": 1, "uniform_broadcast": True, "uplink": "sum", "shares": "all",
        "personalized": False, "codes_comparable": True, "class_head": False, "encode_extras": (), "pooled": False,
        "averages": True, "closed_form": "none",
    }  # fmt: skip
    assert {name: getattr(FederatedMethod.traits, name) for name in traits} == traits


def test_years_of_the_papers() -> None:
    years = {name: FEDERATED_METHODS.card(name).year for name in METHODS}
    assert years == {
        "local": 2026, "fedavg": 2017, "centralized": 2026, "fedprox": 2020, "moon": 2021, "fednova": 2020, "fedproto": 2022,
        "fedproc": 2023, "fedala": 2023, "fedcmr": 2021, "plfedcmh": 2023, "pepfch": 2024, "fedcafe": 2024, "fedhap": 2022,
        "fedbignns": 2025, "feduch": 2023, "ptfuch": 2023,
        "fedridge": 2026, "fedcca": 2026, "fedsums": 2026, "compose": 2026, "separate": 2026, "personal": 2026,
    }  # fmt: skip


def test_a_new_context_has_no_loss_no_score_and_counts_steps() -> None:
    context = silo_context(4)
    fresh = SiloContext(**{name: getattr(context, name) for name in (
        "silo", "round", "total_rounds", "epochs", "model", "local", "data", "state", "payload", "generator",
    )})  # fmt: skip
    assert np.isnan(fresh.mean_loss)
    assert np.isnan(fresh.validation_score())
    assert fresh.step_norm(7, 0.5) == 7.0
    assert (fresh.auxiliary, fresh.steps_taken, fresh.initial, fresh.name_space) == ({}, {}, {}, "")
    fresh.means["loss"] = 0.25
    assert (fresh.mean_loss, fresh.means) == (0.25, {"loss": 0.25})


def test_a_member_sees_its_own_entries_and_shares_the_loss() -> None:
    context = silo_context(4, **{"moon/weight": 2.0, "other/weight": 3.0})
    member = context.member("moon")
    assert member is context.member("moon")
    assert {name: float(array) for name, array in member.payload.extras.items()} == {"weight": 2.0}
    assert float(received_extra(member, "weight")) == 2.0
    member.keep("own", {"w": torch.ones(1)})
    assert set(context.state.kept) == {"moon/own/w"}
    context.means["loss"] = 0.5
    assert member.mean_loss == 0.5
    assert member.global_model is context.global_model
    inner = member.member("inner")
    assert (inner.name_space, inner.whole) == ("moon/inner/", member)


def test_averages_replace_what_they_hold_and_keep_the_rest() -> None:
    server = ServerState(params={"image.w": np.ones(2), "text.w": np.ones(2)})
    update = Message("update", "a", 0, params={"image.w": np.full(2, 3.0)}, weights={"image": 1.0})
    after = FederatedMethod(None).aggregate(server, [update])
    assert {name: array.tolist() for name, array in after.params.items()} == {
        "image.w": [3.0, 3.0],
        "text.w": [1.0, 1.0],
    }
    assert FederatedMethod(None).origin(server) is server.params
    assert FederatedMethod(None).traits.remarks == ()
    assert (FederatedMethod(None).adapter.adapts_training, FederatedMethod(None).adapter.learning_rate) == (True, None)


def test_a_state_says_itself_that_it_is_final() -> None:
    states = [
        ServerState({}, private=private) for private in ({}, {"final": np.asarray(False)}, {"final": np.asarray(True)})
    ]
    assert [state.final for state in states] == [False, False, True]


@pytest.mark.parametrize(("shares", "parts"), [("all", "hash body"), ("hash", "hash"), ("body", "body"), ("none", "")])
def test_what_silos_share_and_the_server_sends(shares: str, parts: str) -> None:
    method, model = FederatedMethod(None), HashNet(model_spec(), BITS)
    method.traits = Traits(shares=shares)
    layers = hash_layers(model.state_dict())
    names = [name for name in model.state_dict() if ("hash" if name in layers else "body") in parts.split()]
    assert method.shared_parameters(model) == names
    server = method.init_server(model, INFO)
    assert list(server.params) == (names or list(model.state_dict()))
    assert list(method.broadcast(server, 0, round=0).params) == names


def test_everything_but_fixed_buffers_is_shared() -> None:
    fedavg = FEDERATED_METHODS.resolve("fedavg")
    model = HashNet(model_spec(), BITS)
    assert fedavg(fedavg.Params()).shared_parameters(model) == list(model.state_dict())
    model.image.register_buffer("mean_image", torch.zeros(3))
    model.image.fixed_buffers = ("mean_image",)
    assert "image.mean_image" not in fedavg(fedavg.Params()).shared_parameters(model)
    assert "image.hash.weight" in fedavg(fedavg.Params()).shared_parameters(model)


def test_an_update_shares_the_memory_of_the_model() -> None:
    context = silo_context(4)
    update = FederatedMethod(None).update(context)
    for name, tensor in context.model.state_dict().items():
        assert np.shares_memory(update.params[name], tensor.numpy())


def test_weights_of_a_class_are_the_items_that_have_its_label() -> None:
    context = silo_context(10)
    labels = torch.zeros(len(context.data), 12)
    labels[:3, 2], labels[0, 11] = 1.0, 1.0
    context.data = replace(context.data, labels=labels)
    found = FederatedMethod(None).weights(context, ["class2", "class11", "class1", "image.hash.weight"])
    assert found == {"class1": 0.0, "class11": 1.0, "class2": 3.0, "image": float(len(labels))}
