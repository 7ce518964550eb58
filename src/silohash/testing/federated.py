"""The contract of federated methods: they learn, repeat exactly, resume, and train with silos that lack something."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from silohash.methods.federated import FEDERATED_METHODS
from silohash.models.parameters import params_of
from silohash.testing.check import Check, first_difference, require, require_finite, same_arrays
from silohash.testing.inputs import MODALITIES, Held, over_items, prepared_inputs, without
from silohash.testing.loop import Records, run_loop
from silohash.training.checkpoint import RunState, load_checkpoint, save_checkpoint
from silohash.training.engines.port import SiloTask
from silohash.training.worker import Worker

SIZES = (30, 20, 10)
LACKING = {
    "items but one": (1, 20, 20),
    "all items": (0, 20, 20),
    "labels": (12, 20, 20),
    "all classes but one": (12, 20, 20),
    "pictures": (12, 20, 20),
    "texts": (12, 20, 20),
}
"""What the first silo lacks, and the sizes of the silos."""


def federated_method_checks(name: str, *, local: str = "dcmh") -> list[Check]:
    """Return the checks of a federated method, from the table of silohash or an entry point of an installed package.

    It trains with the given local method.

    Raises:
        UserError: If there is no such method, or it cannot be imported.
    """
    kind = FEDERATED_METHODS.resolve(name)
    modalities = [held for held in MODALITIES if held.image + held.text >= kind.traits.min_modalities]
    pair = (local, name)
    checks: dict[str, Callable[[], None]] = {
        **over_items("learns", partial(_learns, *pair), modalities),
        "is-deterministic-also-through-bytes": partial(_is_deterministic, *pair),
        "trains-in-bfloat16": partial(_trains_in_bfloat16, *pair),
        "resumes-from-a-checkpoint": partial(_resumes, *pair),
        **{f"trains-without-{case.replace(' ', '-')}": partial(_trains_without, *pair, case) for case in LACKING},
        "deploys-silos-that-took-no-part": partial(_deploys, *pair),
        "has-the-traits-that-it-states": partial(_has_its_traits, *pair),
    }
    return [Check(f"{local}-{name}-{check}", run) for check, run in checks.items()]


def require_good_records(listener: Records, finite: bool = True) -> None:
    """Require that no update was rejected, and that losses are finite."""
    for record in listener.records:
        for silo in record.silos:
            require(silo.rejected is None, f"Round {record.round + 1}: {silo.silo} was rejected: {silo.rejected}")
        if finite and record.terms:
            require_finite({"loss": record.loss}, f"Round {record.round + 1}: the")


def _learns(local: str, name: str, *, held: Held, single: bool) -> None:
    listener = Records()
    run_loop(prepared_inputs(local, name, SIZES, held=held, single=single, rounds=6), listener)
    require_good_records(listener, finite=False)
    trained = [record.terms for record in listener.records if record.terms]  # a method may train from a later round on
    require(bool(trained), "No round has a loss term.")
    first, last = trained[0], trained[-1]
    lasting = first.keys() & last.keys()  # some terms start in the second round
    before, after = (sum(terms[term] for term in lasting) for terms in (first, last))
    require(after < before, f"The loss is {before:.4f} in round 1 and {after:.4f} in round 6; it should fall.")
    require((listener.records[-1].validation or 0) > 0, "The validation score of the last round is not above 0.")


def _is_deterministic(local: str, name: str) -> None:
    first, wired, folded = (
        run_loop(prepared_inputs(local, name, SIZES), **options) for options in ({}, {"wire": True}, {"held_bytes": 0})
    )
    _require_same_state(first, wired, "when it is repeated with messages that are sent through bytes")
    _require_same_state(first, folded, "when it is repeated with updates that are not held in memory")


def _require_same_state(first: RunState, other: RunState, how: str) -> None:
    for section in ("params", "extras", "private"):
        found = first_difference(getattr(first.server, section), getattr(other.server, section))
        require(not found, f"The server's {section} {found} differ {how}.")
    require(first.silos.keys() == other.silos.keys(), f"Other silos keep a state {how}.")
    for silo in first.silos:
        found = first_difference(first.silos[silo], other.silos[silo])
        require(not found, f"The stored {found} of silo {silo} differs {how}.")
    require(first.best_score == other.best_score, f"The best score differs {how}.")


def _trains_in_bfloat16(local: str, name: str) -> None:
    listener = Records()
    state = run_loop(prepared_inputs(local, name, SIZES, rounds=2, train={"precision": "bfloat16"}), listener)
    require_good_records(listener)
    require_finite(state.server.params, "The parameter")
    wrong = [
        parameter
        for parameter, array in state.server.params.items()
        if np.issubdtype(array.dtype, np.floating) and array.dtype != np.float32
    ]
    require(not wrong, f"{', '.join(wrong)} should be float32.")
    for record in listener.records:
        require_finite(record.terms, "The term")


def _resumes(local: str, name: str) -> None:
    whole = run_loop(prepared_inputs(local, name, SIZES))
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        save_checkpoint(checkpoint, run_loop(prepared_inputs(local, name, SIZES), stop=1), "digest")
        resumed = run_loop(prepared_inputs(local, name, SIZES), state=load_checkpoint(checkpoint, "digest"))
    _require_same_state(whole, resumed, "after resuming. Keep all state in named arrays")


def _trains_without(local: str, name: str, case: str) -> None:
    listener = Records()
    inputs = without(prepared_inputs(local, name, LACKING[case], rounds=2), case)
    require_finite(run_loop(inputs, listener).server.params, "The parameter")
    require_good_records(listener)


def _deploys(local: str, name: str) -> None:
    """Check that silos which take part late or never can deploy a model."""
    given = prepared_inputs(local, name, (10,) * 6, rounds=2)
    state = run_loop(given, fraction=1 / 3)
    worker, method = Worker(given, torch.device("cpu")), given.resolved.federated
    for silo, (silo_name, _, _) in enumerate(given.silos):
        broadcast = method.broadcast(state.server, silo, round=2)
        deployed = worker.do(SiloTask("deploy", silo, broadcast, state.silos.get(silo, {}))).update
        require(deployed.sender == silo_name, f"The model of {silo_name} is sent by {deployed.sender}.")
        require_finite(deployed.params, f"The deployed parameter of {silo_name},")


def _has_its_traits(local: str, name: str) -> None:
    given = prepared_inputs(local, name, SIZES, rounds=2)
    method, listener = given.resolved.federated, Records()
    traits = method.traits
    server = run_loop(given, listener).server
    model = Worker(given, torch.device("cpu")).model
    shared = method.shared_parameters(model)
    needed = sum(array.nbytes for parameter, array in params_of(model).items() if parameter in shared)
    uplink = listener.records[-1].uplink_bytes
    require(uplink >= needed * len(given.silos), f"{uplink} bytes are sent, fewer than the shared parameters need.")
    require(set(shared) <= set(server.params), "The server does not hold all shared parameters.")
    require(traits.codes_comparable or traits.personalized, "codes_comparable = False needs personalized = True.")
    require(set(traits.encode_extras) <= set(server.extras), "The server does not hold all encode_extras.")
    first, last = (method.broadcast(server, silo, round=1).arrays() for silo in (0, len(given.silos) - 1))
    uniform = not traits.uniform_broadcast or same_arrays(first, last)
    require(uniform, "uniform_broadcast is True, but two silos receive different messages.")
