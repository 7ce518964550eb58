"""The contract of local methods without gradient steps: they hash well, repeat exactly, and bear what silos lack.

They train with pooled data, in each silo alone and, if their bits mean the same in all silos, with FedAvg. Methods that add
terms to a loss are refused. A method that needs only sums gives the codes of the pooled items for every partition.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from silohash.base import seeds
from silohash.base.errors import UserError
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.local.base import SiloData, outputs_of
from silohash.methods.local.closed_form.base import FromSums
from silohash.models.parameters import install, params_of
from silohash.testing.check import Check, require, require_finite, same_arrays
from silohash.testing.inputs import (
    BITS,
    BOTH,
    LACKING,
    MODALITIES,
    Held,
    lacking,
    model_spec,
    prepared_inputs,
    silo_data,
)
from silohash.testing.loop import Records, run_loop
from silohash.training.worker import Worker, validation_score

SIZES = (40, 0, 7, 33)
"""Sizes of silos, one of which has no items."""

ABOVE_CHANCE = 1.2
"""Least ratio of the mean average precision of a fitted model to that of random codes."""

GRADIENT_METHODS = ("fedcafe", "fedhap", "fedprox", "fedridge", "compose")


def closed_form_checks(name: str) -> list[Check]:
    """Return the checks of a local method without gradient steps."""
    kind = LOCAL_METHODS.resolve(name)
    checks = []
    for preset, values in kind.presets.items():
        built, made = partial(_built, kind, dict(values)), partial(_fitted, kind, dict(values))
        found: dict[str, Callable[[], None]] = {
            **{
                f"hashes-{held}-{'single' if single else 'multi'}": partial(_hashes, made, held, single=single)
                for held in MODALITIES
                for single in (True, False)
            },
            "is-deterministic": partial(_is_deterministic, made),
            **{f"stays-finite-{case.replace(' ', '-')}": partial(_stays_finite, made, case) for case in LACKING},
            **{f"leaves-the-{m}-tower-without-{m}s": partial(_leaves_tower, built, made, m) for m in ("image", "text")},
        }
        checks += [Check(f"{name}-{preset}-{check}", run) for check, run in found.items()]
    return [*checks, *_federated_checks(name, kind)]


def _federated_checks(name: str, kind: Any) -> list[Check]:  # noqa: ANN401  a class of the family
    """Return the checks of a method together with federated methods."""
    trained = ("centralized", "local", *(("fedavg",) if kind.traits.codes_comparable else ()))
    refused = (*GRADIENT_METHODS, *(() if kind.traits.codes_comparable else ("fedavg",)))
    return [
        *(Check(f"{name}-trains-with-{federated}", partial(_trains, name, federated)) for federated in trained),
        *(Check(f"{name}-refuses-{federated}", partial(_refuses, name, federated)) for federated in refused),
        Check(f"{name}-equals-pooled-training", partial(_equals_pooled, name)),
    ]


Fitted = Callable[..., nn.Module]


def _built(kind: Any, values: dict[str, Any], *, held: Held = BOTH, seed: int = 0) -> nn.Module:  # noqa: ANN401
    """Return the model of a method before the training."""
    with seeds.torch_globally(seed, "weights"):
        model: nn.Module = kind(kind.Params(**values)).build(model_spec(held=held), BITS)
    return model


def _fitted(kind: Any, values: dict[str, Any], data: SiloData, *, held: Held = BOTH) -> nn.Module:  # noqa: ANN401
    """Return a model that a method fitted to the pairs of a silo."""
    model = _built(kind, values, held=held)
    with seeds.torch_globally(0, "training"):
        figures = kind(kind.Params(**values)).fit(model, data)
    require_finite(figures, "The figure")
    require_finite(params_of(model), "The parameter")
    return model


def _hashes(made: Fitted, held: Held, *, single: bool) -> None:
    """Check that codes of items that the method has not seen are clearly better than random ones."""
    data = silo_data(160, single=single, held=held)
    train, queries = data.take(torch.arange(120)), data.take(torch.arange(120, 160))
    score, chance = validation_score(made(train, held=held), train, queries, BITS)
    require(score > ABOVE_CHANCE * chance, f"mAP is {score:.3f}, and that of random codes is {chance:.3f}.")


def _is_deterministic(made: Fitted) -> None:
    first, second = (params_of(made(silo_data(40))) for _ in range(2))
    require(same_arrays(first, second), "Two trainings with one seed give other parameters.")
    require(all(array.dtype == np.float32 for array in first.values()), "A parameter is not float32.")


def _stays_finite(made: Fitted, case: str) -> None:
    data = lacking(case)
    for modality, outputs in outputs_of(made(data), data).items():
        require_finite({modality: outputs.numpy()}, "The outputs for")


def _leaves_tower(built: Callable[[], nn.Module], made: Fitted, missing: str) -> None:
    start = params_of(built())
    fitted = params_of(made(lacking("no pictures" if missing == "image" else "no texts")))
    moved = {name for name, array in fitted.items() if not np.array_equal(array, start[name])}
    require(bool(moved), "No parameter changes.")
    astray = sorted(name for name in moved if name.startswith(f"{missing}."))
    require(not astray, f"{', '.join(astray)} changed, although the silo has no {missing} inputs.")


def _trains(name: str, federated: str) -> None:
    listener = Records()
    state = run_loop(prepared_inputs(name, federated, SIZES, rounds=2), listener)
    require_finite(state.server.params, "The parameter")
    rejected = [silo.rejected for record in listener.records for silo in record.silos if silo.rejected]
    require(not rejected, f"Updates are rejected: {rejected}")
    require((listener.records[-1].validation or 0) > 0, "The validation score of the last round is not above 0.")


def _refuses(name: str, federated: str) -> None:
    try:
        prepared_inputs(name, federated, SIZES)
    except UserError as error:
        require("Set federated.name = " in str(error), f"The refusal does not say what to do: {error}")
    else:
        require(condition=False, message=f"{federated} is not refused.")


def _equals_pooled(name: str) -> None:
    """Check that the sums of silos give the codes of the pooled items, or that the method does not state sums."""
    kind = LOCAL_METHODS.resolve(name)
    method = kind(kind.Params(**kind.presets["recommended"]))
    if not isinstance(method, FromSums):
        try:
            prepared_inputs(name, "fedsums", SIZES)
        except UserError:
            return
        require(condition=False, message="fedsums is not refused, although the method does not define sums.")
    rounds = method.exchanges(BITS)
    pooled, shared = (
        run_loop(prepared_inputs(name, federated, SIZES, rounds=rounds, validation=0), validate=False).server.params
        for federated, rounds in (("centralized", 1), ("fedsums", rounds))
    )
    data, model = silo_data(sum(SIZES)), Worker(prepared_inputs(name, "local", SIZES), torch.device("cpu")).model
    codes = []
    for params in (pooled, shared):
        install(model, params)
        codes.append({modality: outputs >= 0 for modality, outputs in outputs_of(model, data).items()})
    for modality, bits in codes[0].items():
        require(torch.equal(bits, codes[1][modality]), f"The {modality} codes differ from those of the pooled items.")
