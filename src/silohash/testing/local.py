"""The contract of local methods: they build networks, learn, repeat exactly, and train with silos that lack something.

A method that scores pairs learns on made-up regions and words instead of vectors, and its scores must ignore padding.

A method without gradient steps trains with pooled data, in each silo alone and, if its bits mean the same in all silos, with
FedAvg. Methods that add terms to a loss are refused. If it needs only sums, it gives the codes of the pooled items for every
partition.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from silohash.base import seeds
from silohash.base.errors import UserError
from silohash.base.types import MODALITIES
from silohash.features.device import autocast
from silohash.features.nodes.regions import BOX
from silohash.methods.federated.base import FederatedMethod, SiloContext
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.local.base import ClosedForm, LocalMethod, SiloData, SiloState, outputs_of
from silohash.methods.local.closed_form.base import FromSums
from silohash.methods.message import Message
from silohash.models.matching_net import MatchingNet, nodes_of, scores_of
from silohash.models.parameters import install, params_of
from silohash.models.specs import ModelSpec
from silohash.run.model.scores import match_score
from silohash.testing import inputs
from silohash.testing.check import Check, require, require_finite, require_tower_stays, same_arrays
from silohash.testing.federated import federated_method_checks, require_good_records
from silohash.testing.loop import Records, run_loop
from silohash.training.engines.port import SiloResult, SiloTask
from silohash.training.silo import make_context, train_silo
from silohash.training.worker import Worker, validation_score

TOLERANCE = 1e-4
SIZES = (40, 0, 7, 33)
"""Sizes of silos for methods without gradient steps, one of which has no items."""

ABOVE_RANDOM_CODES = 1.2
"""Least ratio of the mean average precision of a fitted model to that of random codes."""

GRADIENT_METHODS = ("fedcafe", "fedhap", "fedprox", "fedridge", "compose")

ABOVE_CHANCE = 3
"""Least ratio of the recall of a trained model to that of random scores. Most methods reach 10."""
LEARNING_WIDTH = 64
"""Hidden units with which all methods learn the made-up pairs. With 16, some do so from few initial weights only."""


@dataclass(frozen=True)
class Subject:
    """A local method with the parameters of a preset, and the made-up silo on which it trains."""

    kind: Any
    values: Mapping[str, Any]

    @property
    def scores_pairs(self) -> bool:
        """Whether the method scores pairs, so that it needs regions and words."""
        return bool(self.kind.traits.scores_pairs)

    @property
    def takes_steps(self) -> bool:
        """Whether the method is trained by gradient steps."""
        return not issubclass(self.kind, ClosedForm)

    def method(self) -> LocalMethod:
        """Return a new instance of the method."""
        method: LocalMethod = self.kind(self.kind.Params(**self.values))
        return method

    def data(self, count: int) -> SiloData:
        """Return the pairs of a silo."""
        return inputs.node_data(count) if self.scores_pairs else inputs.silo_data(count)

    def spec(self, dropout: float = 0.0) -> ModelSpec:
        """Return the structure of a model that fits the pairs."""
        return inputs.node_spec(dropout) if self.scores_pairs else inputs.model_spec(dropout=dropout)

    def built(self, spec: ModelSpec | None = None, *, seed: int = 0) -> nn.Module:
        """Return the network before the training."""
        with seeds.torch_globally(seed, "weights"):
            return self.method().build(spec or self.spec(), inputs.BITS)

    def trained(
        self, data: SiloData, *, spec: ModelSpec | None = None, epochs: int = 1, seed: int = 0
    ) -> tuple[SiloResult, SiloContext]:
        """Train one silo for one round."""
        model = self.built(spec or self.spec(dropout=0.1), seed=seed)
        rate = 0.003 if self.scores_pairs else 0.01
        config = inputs.loop_config(seed=seed, epochs=epochs, rounds=1, batch=16, learning_rate=rate)
        task = SiloTask("train", 0, Message("broadcast", "server", 0, params=params_of(model)))
        context = make_context(task, config, model=model, local=self.method(), data=data)
        return train_silo(context, FederatedMethod(None), config), context


def local_method_checks(name: str, *, federated: str | None = "fedavg") -> list[Check]:
    """Return the checks of a local method, from the table of silohash or an entry point of an installed package.

    With a federated method, there are also checks that train with it, unless the local method scores pairs or is trained
    without gradient steps.

    Raises:
        UserError: If there is no such method, or it cannot be imported.
    """
    kind = LOCAL_METHODS.resolve(name)
    checks = [
        Check(f"{name}-{preset}-{check}", run)
        for preset, values in kind.presets.items()
        for check, run in _checks_of(Subject(kind, values)).items()
    ]
    if issubclass(kind, ClosedForm):
        return [*checks, *_federated_checks(name, kind)]
    if kind.traits.scores_pairs:
        return checks
    checks.append(Check(f"{name}-returns-float32", partial(_returns_float32, name)))
    return [*checks, *(federated_method_checks(federated, local=name) if federated is not None else ())]


def _checks_of(subject: Subject) -> dict[str, Callable[[], None]]:
    cases = inputs.LACKING_NODES if subject.scores_pairs else inputs.LACKING
    found: dict[str, Callable[[], None]] = {
        "is-deterministic": partial(_is_deterministic, subject),
        **{f"stays-finite-{case.replace(' ', '-')}": partial(_stays_finite, subject, case) for case in cases},
    }
    if not subject.scores_pairs:
        found |= {f"leaves-the-{m}-tower-without-{m}s": partial(_leaves_tower, subject, m) for m in MODALITIES}
    if not subject.takes_steps:
        # Where codes of images and texts cannot be compared, searches across modalities find items by chance.
        held = [of for of in inputs.MODALITIES if of != inputs.BOTH or subject.kind.traits.modalities_comparable]
        return found | inputs.over_items("hashes", partial(_hashes, subject), held)
    found["resets-its-state"] = partial(_resets_state, subject)
    if not subject.scores_pairs:
        learns = inputs.over_items("learns", partial(_learns, subject))
        return found | learns | {"names-its-terms-and-moves-every-parameter": partial(_names_terms, subject)}
    return found | {
        "learns": partial(_learns_pairs, subject),
        "ignores-padding": partial(_ignores_padding, subject),
        "scores-one-pair-as-many": partial(_scores_one, subject),
        "moves-every-parameter": partial(_moves, subject),
    }


def _learns(subject: Subject, *, held: inputs.Held, single: bool) -> None:
    data, spec = inputs.silo_data(64, single=single, held=held), inputs.model_spec(held=held, dropout=0.1)
    first, _ = subject.trained(data, spec=spec)
    last, _ = subject.trained(data, spec=spec, epochs=8)
    require_finite({"loss": first.loss, **last.update.params}, "After the training,")
    require(bool(first.terms), "The method does not return any terms.")
    losses = f"The loss is {first.loss:.4f} after one epoch and {last.loss:.4f} after eight"
    require(last.loss < first.loss, f"{losses}; it should fall.")


def _learns_pairs(subject: Subject) -> None:
    data = inputs.node_data(64)
    result, context = subject.trained(data, spec=inputs.node_spec(0.1, LEARNING_WIDTH), epochs=8)
    require_finite({"loss": result.loss, **result.update.params}, "After the training,")
    require(bool(result.terms), "The method does not return any terms.")
    score, chance, *_ = match_score(context.model, data, np.arange(64))
    require(
        score > ABOVE_CHANCE * chance,
        f"The mean recall of the training pairs is {score:.3f} after eight epochs, and chance is {chance:.3f}.",
    )


def _is_deterministic(subject: Subject) -> None:
    first, second = (subject.trained(subject.data(40), epochs=2)[0] for _ in range(2))
    same = same_arrays(first.update.params, second.update.params)
    require(same, "Two trainings with one seed give other parameters.")
    require(first.terms == second.terms, "Two trainings with one seed give other terms.")
    wrong = [name for name, array in first.update.params.items() if array.dtype == np.float64]
    require(not wrong, f"{', '.join(wrong)} should be float32.")
    if not subject.takes_steps:
        return
    other, _ = subject.trained(subject.data(40), epochs=2, seed=1)
    require(not same_arrays(first.update.params, other.update.params), "The parameters do not depend on the seed.")


def _stays_finite(subject: Subject, case: str) -> None:
    data = inputs.lacking_nodes(case) if subject.scores_pairs else inputs.lacking(case)
    result, context = subject.trained(data, epochs=2)
    require_finite(result.update.params, "The parameter")
    require_finite(result.terms, "The term")
    gradients = {name: p.grad for name, p in context.model.named_parameters() if p.grad is not None}
    # Without two pairs in a batch there is no wrong partner, so scores of pairs may have no gradient.
    require(bool(gradients) or subject.scores_pairs or not subject.takes_steps, "No parameter has a gradient.")
    require_finite(gradients, "The gradient of")


def _leaves_tower(subject: Subject, missing: str) -> None:
    result, context = subject.trained(inputs.lacking("no pictures" if missing == "image" else "no texts"))
    require(result.update.weights[missing] == 0, f"The weight of a {missing} tower without inputs should be 0.")
    require_tower_stays(context.payload.params, result.update.params, missing)


def _resets_state(subject: Subject) -> None:
    method, data, model = subject.method(), subject.data(12), subject.built()
    states = [SiloState(kept={"own/x": torch.ones(1)}) for _ in range(2)]
    for state in states:
        with seeds.torch_globally(0, "state"):
            method.init_state(model, data, state)
    first, second = ({name: buffer.numpy() for name, buffer in state.buffers.items()} for state in states)
    require(same_arrays(first, second), "init_state gives other buffers when it is called again.")
    require_finite(first, "The buffer")
    require(states[0].kept.keys() == {"own/x"}, "init_state changes what the federated method keeps.")


def _require_steps(method: LocalMethod, model: nn.Module) -> None:
    steps = method.steps(model)
    idle = [n for n, _ in model.named_parameters() if not any(n.startswith(step.parameters) for step in steps)]
    require(not idle, f"No step moves {', '.join(idle)}.")


def _names_terms(subject: Subject) -> None:
    method, data, model, state = subject.method(), inputs.silo_data(16), subject.built(), SiloState()
    method.init_state(model, data, state)
    steps = method.steps(model)
    require(len({step.name for step in steps}) == len(steps), "Two steps have the same name.")
    _require_steps(method, model)
    batch = data.batch(torch.arange(16))
    for step in steps:
        for term, (weight, value) in method.terms(step, model(batch, step.modalities), batch, state).items():
            require(term.isidentifier(), f'The name "{term}" of a term is not an identifier.')
            require(weight >= 0, f"The weight of the term {term} is {weight}; it should be at least 0.")
            require(value.shape == (), f"The term {term} has the shape {tuple(value.shape)}; it should be a scalar.")


def _moves(subject: Subject) -> None:
    model = subject.built()
    _require_steps(subject.method(), model)
    before = params_of(model)
    after = subject.trained(inputs.node_data(40), spec=subject.spec(0.1), epochs=3)[0].update.params
    still = [name for name, _ in model.named_parameters() if np.array_equal(before[name], after[name])]
    require(not still, f"The training does not move {', '.join(still)}.")


def _returns_float32(name: str) -> None:
    """Check that outputs are float32 where the towers compute in bfloat16."""
    worker = Worker(inputs.prepared_inputs(name, "fedcafe", (30, 20, 10)), torch.device("cpu"))
    batch = inputs.silo_data(8).batch(torch.arange(8))
    with autocast("bfloat16", torch.device("cpu")):
        outputs = worker.model(batch)
    for part in ("feature", "logit", "code", "class_logit"):
        for modality, values in getattr(outputs, part).items():
            require(values.dtype == torch.float32, f"{part} of {modality} is {values.dtype}; it should be float32.")


def _scores(model: nn.Module, data: SiloData) -> torch.Tensor:
    require(isinstance(model, MatchingNet), f"build returns a {type(model).__name__}; it should return a MatchingNet.")
    assert isinstance(model, MatchingNet)  # noqa: S101  required above
    assert data.image is not None  # noqa: S101  made-up data has both modalities
    assert data.text is not None  # noqa: S101
    return scores_of(model, nodes_of(model, data.image, "image"), nodes_of(model, data.text, "text"))


def _ignores_padding(subject: Subject) -> None:
    model, data = subject.built(), inputs.node_data(6)
    assert data.image is not None  # noqa: S101  made-up data has both modalities
    assert data.text is not None  # noqa: S101
    longer = torch.cat([data.text, torch.full((6, 3), -1, dtype=torch.int32)], dim=1)
    more = torch.cat([data.image, torch.zeros(6, 2, inputs.NODE_WIDTH + BOX)], dim=1)
    apart = (_scores(model, data) - _scores(model, replace(data, image=more, text=longer))).abs().max()
    require(float(apart) < TOLERANCE, f"Padding changes a score by {float(apart):.2g}.")


def _scores_one(subject: Subject) -> None:
    model, data = subject.built(), inputs.node_data(6)
    together = _scores(model, data)
    require(together.shape == (6, 6), f"The scores of 6 images and 6 texts have shape {tuple(together.shape)}.")
    require(together.dtype == torch.float32, f"Scores are {together.dtype}; they should be float32.")
    for row in (0, 5):
        alone = _scores(model, data.take(torch.tensor([row])))
        apart = float((alone[0, 0] - together[row, row]).abs())
        require(apart < TOLERANCE, f"Other items change the score of a pair by {apart:.2g}.")


def _federated_checks(name: str, kind: Any) -> list[Check]:  # noqa: ANN401  a class of the family
    trained = ("centralized", "local", *(("fedavg",) if kind.traits.codes_comparable else ()))
    refused = (*GRADIENT_METHODS, *(() if kind.traits.codes_comparable else ("fedavg",)))
    return [
        *(Check(f"{name}-trains-with-{federated}", partial(_trains, name, federated)) for federated in trained),
        *(Check(f"{name}-refuses-{federated}", partial(_refuses, name, federated)) for federated in refused),
        Check(f"{name}-equals-pooled-training", partial(_equals_pooled, name)),
    ]


def _hashes(subject: Subject, *, held: inputs.Held, single: bool) -> None:
    """Check that codes of items that the method has not seen are clearly better than random ones."""
    data = inputs.silo_data(160, single=single, held=held)
    train, queries = data.take(torch.arange(120)), data.take(torch.arange(120, 160))
    _, context = subject.trained(train, spec=inputs.model_spec(held=held))
    score, chance, *_ = validation_score(context.model, train, queries, inputs.BITS)
    require(score > ABOVE_RANDOM_CODES * chance, f"mAP is {score:.3f}, and that of random codes is {chance:.3f}.")


def _trains(name: str, federated: str) -> None:
    listener = Records()
    state = run_loop(inputs.prepared_inputs(name, federated, SIZES, rounds=2), listener)
    require_finite(state.server.params, "The parameter")
    require_good_records(listener, finite=False)
    require((listener.records[-1].validation or 0) > 0, "The validation score of the last round is not above 0.")


def _refuses(name: str, federated: str) -> None:
    try:
        inputs.prepared_inputs(name, federated, SIZES)
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
            inputs.prepared_inputs(name, "fedsums", SIZES)
        except UserError:
            return
        require(condition=False, message="fedsums is not refused, although the method does not define sums.")
    rounds = method.exchanges(inputs.BITS)
    pooled, shared = (
        run_loop(
            inputs.prepared_inputs(name, federated, SIZES, rounds=rounds, validation=0), validate=False
        ).server.params
        for federated, rounds in (("centralized", 1), ("fedsums", rounds))
    )
    data = inputs.silo_data(sum(SIZES))
    model = Worker(inputs.prepared_inputs(name, "local", SIZES), torch.device("cpu")).model
    codes = []
    for params in (pooled, shared):
        install(model, params)
        codes.append({modality: outputs >= 0 for modality, outputs in outputs_of(model, data).items()})
    for modality, bits in codes[0].items():
        require(torch.equal(bits, codes[1][modality]), f"The {modality} codes differ from those of the pooled items.")
