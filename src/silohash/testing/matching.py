"""The contract of local methods that score pairs: they learn, repeat exactly, ignore padding, and bear what silos lack.

The made-up regions and words of an item follow from its labels, so that partners can be found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from silohash.base import seeds
from silohash.features.nodes.regions import BOX
from silohash.methods.federated.base import FederatedMethod
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.local.base import LocalMethod, SiloData, SiloState
from silohash.methods.message import Message
from silohash.models.matching_net import MatchingNet, nodes_of, scores_of
from silohash.models.parameters import params_of
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.run.model.scores import match_score
from silohash.testing.check import Check, require, require_finite, same_arrays
from silohash.testing.inputs import loop_config
from silohash.training.engines.port import SiloResult, SiloTask
from silohash.training.silo import make_context, train_silo

REGIONS, WIDTH, PLACES, WORDS = 5, 12, 9, 20
TOLERANCE = 1e-4
ABOVE_CHANCE = 3
"""Least ratio of the recall of a trained model to that of random scores. Most methods reach 17."""
LEARNING_WIDTH = 64
"""Hidden units with which all methods learn the made-up pairs. With 16, some do so from few initial weights only."""

Made = Callable[[], LocalMethod]
LACKING = ("one item", "some without a picture", "some without a text", "no pairs")


def matching_checks(name: str) -> list[Check]:
    """Return the checks of a local method that scores pairs.

    Args:
        name: Name of the method, from the table of silohash or from an entry point of an installed package.
    """
    kind = LOCAL_METHODS.resolve(name)
    checks = []
    for preset, values in kind.presets.items():
        made = partial(_make, kind, dict(values))
        found: dict[str, Callable[[], None]] = {
            "learns": partial(_learns, made),
            "is-deterministic": partial(_is_deterministic, made),
            "ignores-padding": partial(_ignores_padding, made),
            "scores-one-pair-as-many": partial(_scores_one, made),
            **{f"stays-finite-{case.replace(' ', '-')}": partial(_stays_finite, made, case) for case in LACKING},
            "resets-its-state": partial(_resets_state, made),
            "moves-every-parameter": partial(_moves, made),
        }
        checks += [Check(f"{name}-{preset}-{check}", run) for check, run in found.items()]
    return checks


def node_spec(dropout: float = 0.0, hidden: int = 16) -> ModelSpec:
    """Return the structure of a model that fits `node_data`."""
    return ModelSpec(
        {
            "image": TowerSpec("regions", (REGIONS, WIDTH + BOX), hidden=hidden, dropout=dropout),
            "text": TowerSpec("words", (PLACES,), hidden=hidden, dropout=dropout, settings={"words": WORDS}),
        },
        classes=0,
    )


def node_data(count: int) -> SiloData:
    """Return the pairs of a silo with regions and words: an item shows some of the words, and its text names them."""
    generator = seeds.numpy_generator(0, "contract/nodes")
    looks = generator.normal(size=(WORDS, WIDTH))
    image = np.zeros((count, REGIONS, WIDTH + BOX), np.float32)
    text = np.full((count, PLACES), -1, np.int32)
    for item in range(count):
        shown = generator.choice(np.arange(3, WORDS), generator.integers(2, REGIONS + 1), replace=False)
        image[item, : len(shown), :WIDTH] = looks[shown] + 0.3 * generator.normal(size=(len(shown), WIDTH))
        corner = generator.uniform(0, 0.5, size=(len(shown), 2))
        image[item, : len(shown), WIDTH:] = np.concatenate([corner, corner + 0.4], axis=1)
        text[item, : len(shown) + 2] = [0, *sorted(shown), 1]
    there = torch.ones(count, dtype=torch.bool)
    return SiloData("silo", torch.from_numpy(image), torch.from_numpy(text), None, there, there.clone())


def lacking(case: str) -> SiloData:
    """Return the pairs of a silo that lacks something: one of `LACKING`."""
    if case == "one item":
        return node_data(1)
    data, some = node_data(20), torch.arange(20) % 3 > 0
    pictures = some if case in {"some without a picture", "no pairs"} else data.has_image
    texts = {"some without a text": some, "no pairs": ~some}.get(case, data.has_text)
    assert data.image is not None  # noqa: S101  made-up data has both modalities
    assert data.text is not None  # noqa: S101
    image = data.image * pictures[:, None, None]
    return replace(
        data, image=image, text=torch.where(texts[:, None], data.text, 0), has_image=pictures, has_text=texts
    )


def _make(kind: Any, values: dict[str, Any]) -> LocalMethod:  # noqa: ANN401  a class of the family
    method: LocalMethod = kind(kind.Params(**values))
    return method


def _built(made: Made, seed: int = 0, *, dropout: float = 0.0, hidden: int = 16) -> MatchingNet:
    with seeds.torch_globally(seed, "weights"):
        model = made().build(node_spec(dropout, hidden), 16)
    require(isinstance(model, MatchingNet), f"build returns a {type(model).__name__}; it should return a MatchingNet.")
    assert isinstance(model, MatchingNet)  # noqa: S101  required above
    return model


def _train(
    made: Made, data: SiloData, *, epochs: int = 1, seed: int = 0, hidden: int = 16
) -> tuple[SiloResult, nn.Module]:
    """Train one silo for one round, and return the result and the model."""
    model = _built(made, seed, dropout=0.1, hidden=hidden)
    config = loop_config(seed=seed, epochs=epochs, rounds=1, batch=16, learning_rate=0.003)
    task = SiloTask("train", 0, Message("broadcast", "server", 0, params=params_of(model)))
    context = make_context(task, config, model=model, local=made(), data=data)
    return train_silo(context, FederatedMethod(None), config), model


def _learns(made: Made) -> None:
    data = node_data(96)
    result, model = _train(made, data, epochs=15, hidden=LEARNING_WIDTH)
    require_finite({"loss": result.loss, **result.update.params}, "After the training,")
    require(bool(result.terms), "The method does not return any terms.")
    score, chance = match_score(model, data, np.arange(96))
    require(
        score > ABOVE_CHANCE * chance,
        f"The mean recall of the training pairs is {score:.3f} after fifteen epochs, and chance is {chance:.3f}.",
    )


def _is_deterministic(made: Made) -> None:
    first, second = (_train(made, node_data(40), epochs=2)[0] for _ in range(2))
    require(
        same_arrays(first.update.params, second.update.params), "Two trainings with one seed give other parameters."
    )
    require(first.terms == second.terms, "Two trainings with one seed give other terms.")


def _scores(model: MatchingNet, data: SiloData) -> torch.Tensor:
    assert data.image is not None  # noqa: S101  made-up data has both modalities
    assert data.text is not None  # noqa: S101
    return scores_of(model, nodes_of(model, data.image, "image"), nodes_of(model, data.text, "text"))


def _ignores_padding(made: Made) -> None:
    model, data = _built(made), node_data(6)
    assert data.image is not None  # noqa: S101  made-up data has both modalities
    assert data.text is not None  # noqa: S101
    longer = torch.cat([data.text, torch.full((6, 3), -1, dtype=torch.int32)], dim=1)
    more = torch.cat([data.image, torch.zeros(6, 2, WIDTH + BOX)], dim=1)
    apart = (_scores(model, data) - _scores(model, replace(data, image=more, text=longer))).abs().max()
    require(float(apart) < TOLERANCE, f"Padding changes a score by {float(apart):.2g}.")


def _scores_one(made: Made) -> None:
    model, data = _built(made), node_data(6)
    together = _scores(model, data)
    require(
        tuple(together.shape) == (6, 6), f"The scores of 6 images with 6 texts have the shape {tuple(together.shape)}."
    )
    require(together.dtype == torch.float32, f"Scores are {together.dtype}; they should be float32.")
    for row in (0, 5):
        alone = _scores(model, data.take(torch.tensor([row])))
        apart = float((alone[0, 0] - together[row, row]).abs())
        require(apart < TOLERANCE, f"Other items change the score of a pair by {apart:.2g}.")


def _stays_finite(made: Made, case: str) -> None:
    result, model = _train(made, lacking(case), epochs=2)
    require_finite(result.update.params, "The parameter")
    require_finite(result.terms, "The term")
    require_finite({n: p.grad for n, p in model.named_parameters() if p.grad is not None}, "The gradient of")


def _resets_state(made: Made) -> None:
    method, data, model = made(), node_data(12), _built(made)
    states = [SiloState(kept={"own/x": torch.ones(1)}) for _ in range(2)]
    for state in states:
        with seeds.torch_globally(0, "state"):
            method.init_state(model, data, state)
    first, second = ({name: buffer.numpy() for name, buffer in state.buffers.items()} for state in states)
    require(same_arrays(first, second), "init_state gives other buffers when it is called again.")
    require(states[0].kept.keys() == {"own/x"}, "init_state changes what the federated method keeps.")


def _moves(made: Made) -> None:
    method, model = made(), _built(made)
    idle = [n for n, _ in model.named_parameters() if not any(n.startswith(s.parameters) for s in method.steps(model))]
    require(not idle, f"No step moves {', '.join(idle)}.")
    before = params_of(model)
    after = _train(made, node_data(40), epochs=3)[0].update.params
    still = [name for name, _ in model.named_parameters() if np.array_equal(before[name], after[name])]
    require(not still, f"The training does not move {', '.join(still)}.")
