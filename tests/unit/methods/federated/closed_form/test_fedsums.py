"""FedSums: the messages, the end, what is refused; that the codes are those of pooled training is part of the contract."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.base.errors import RevealsItems
from silohash.methods.federated.closed_form.fedsums import CARD, FedSums, FedSumsParams
from silohash.run.config.load import load_resolved
from silohash.testing.inputs import prepared_inputs
from silohash.testing.loop import Records, run_loop
from silohash.training.prepared import Prepared
from tests.runs import train, write_archive
from tests.unit.methods.federated.helpers import traits_of

ROUNDS = 17


def inputs(rounds: int = ROUNDS, sizes: tuple[int, ...] = (20, 0, 15)) -> Prepared:
    return prepared_inputs("scm", "fedsums", sizes, rounds=rounds)


@pytest.mark.whole_run
def test_silos_send_sums_and_receive_parameters_at_the_end() -> None:
    given, listener = inputs(), Records()
    method = given.resolved.federated
    halfway = run_loop(given, stop=2, validate=False).server
    assert halfway.private["remaining"] == ROUNDS - 2
    assert not halfway.final
    sent = method.broadcast(halfway, 0, round=2)
    assert sent.params == {}
    assert set(sent.extras) == {f"{m}/{a}" for m in ("image", "text") for a in ("mean", "factor", "direction")}
    state = run_loop(given, listener)
    assert state.server.final
    last = method.broadcast(state.server, 0, round=ROUNDS)
    assert last.extras == {}
    assert last.params.keys() == state.server.params.keys()
    assert all(record.loss is None and not record.terms for record in listener.records)
    assert state.best_round == ROUNDS - 1
    assert all(silo.rejected is None for record in listener.records for silo in record.silos)


@pytest.mark.whole_run
def test_further_rounds_change_nothing() -> None:
    exact, longer = (run_loop(inputs(rounds)).server for rounds in (ROUNDS, ROUNDS + 2))
    assert exact.params.keys() == longer.params.keys()
    assert all(np.array_equal(array, longer.params[name]) for name, array in exact.params.items())
    assert longer.private["remaining"] == 0


@pytest.mark.whole_run
def test_the_model_is_initial_until_the_last_exchange() -> None:
    first, last = (run_loop(inputs(), stop=stop, validate=False).server.params for stop in (1, ROUNDS - 1))
    assert all(np.array_equal(array, last[name]) for name, array in first.items())


def test_what_the_user_must_allow() -> None:
    assert FedSums(FedSumsParams()).traits.reveals == "sums that reveal"
    assert not FedSumsParams().reveal_items


@pytest.mark.whole_run
def test_a_run_refuses_and_trains(tmp_path) -> None:
    archive = write_archive(tmp_path / "archive", count=90)
    local = {"name": "scm", "variant": "orth", "bits": 16}
    with pytest.raises(RevealsItems, match="reveal_items"):
        train(archive, tmp_path / "refused", local=local, federated={"name": "fedsums", "rounds": 2})
    federated = {"name": "fedsums", "rounds": 2, "reveal_items": True}
    run = train(archive, tmp_path / "shared", local=local, federated=federated)
    shared = run.model.trained
    pooled = train(archive, tmp_path / "pooled", local=local, federated={"name": "centralized", "rounds": 1})
    for name, array in pooled.model.trained.weights["global"].params.items():
        np.testing.assert_allclose(shared.weights["global"].params[name], array, rtol=1e-4, atol=1e-5)
    assert any("of the 16 bits are constant" in remark for remark in run.rounds()[0].warnings)


def test_traits() -> None:
    assert traits_of(FedSums) == traits_of(FedSums) | {"shares": "none", "averages": False}
    assert FedSums.traits.closed_form == "sums"
    assert CARD.key == "fedsums"
    resolved = load_resolved(
        {
            "data": {"name": "glyphs"},
            "local": {"name": "scm", "bits": 16},
            "federated": {"name": "fedsums", "rounds": 17},
        }
    )
    assert resolved.federated.run.local is resolved.local
