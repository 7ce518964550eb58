"""What FedCAFE's memory does with rows of length 1 and with means: changed bits, silo weights, and scores.

    python benchmarks/fedcafe_memory.py [RECIPE...] [--set KEY=VALUE...]

The default recipes are ``recipes/fedcafe-coco18.toml`` and ``recipes/fedcafe.toml``, which take about a minute each. One
line per round and kind of rows:

- ``length``: mean length of the rows of the common memory,
- ``bits``: share of the bits of the silos' items that enhancement changes, in percent,
- ``score`` and ``plain``: validation scores of the codes with and without enhancement, for the same model,
- ``weights``: smallest and largest weight of a silo, where 1 is the mean weight,
- ``printed``: the largest weight if likelihoods were summed over rows and exponentiated, as equation (10) is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from silohash.data.partitions.base import partition
from silohash.methods.federated.base import FederationInfo, ServerState
from silohash.methods.federated.class_memory import memories_of, silo_weights
from silohash.methods.federated.hashing.fedcafe import Enhanced, FedCAFE, FedCAFEParams
from silohash.methods.local.base import outputs_of
from silohash.methods.message import Message
from silohash.models.parameters import install
from silohash.run.config.load import ResolvedConfig, load_resolved
from silohash.run.folder import archive_of
from silohash.training.checkpoint import RunState
from silohash.training.engines.port import InProcess
from silohash.training.experiment import prepare_run
from silohash.training.prepared import Prepared
from silohash.training.rounds import RoundSettings, mean_score, run_rounds, validation_scores
from silohash.training.worker import Worker

RECIPES = ("recipes/fedcafe-coco18.toml", "recipes/fedcafe.toml")
LINE = "{:16} {:5} {:>5} {:>7} {:>6} {:>6} {:>6} {:>13} {:>8}"


@dataclass
class Weights:
    """Weights of the silos in the last round, in multiples of their mean, and the largest of the printed form."""

    least: float = 1.0
    most: float = 1.0
    printed: float = 1.0


class Watched(FedCAFE):
    """FedCAFE that keeps the weights of the last round."""

    def __init__(self, params: FedCAFEParams) -> None:
        super().__init__(params)
        self.weights = Weights()

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Compute the weights from the new memory, as the method does."""
        after = super().aggregate(server, updates)
        memories, masks = memories_of(updates)
        common = torch.from_numpy(after.extras["memory"])
        means = self.rows.likelihoods(common, memories, masks, by_cluster=False)
        weights = len(means) * silo_weights(means, sharpness=self.params.sharpness, cap=self.params.likelihood_cap)
        sums = np.asarray([mean * int(mask.sum()) * len(common) for mean, mask in zip(means, masks, strict=True)])
        printed = np.exp(sums - sums.max())
        self.weights = Weights(weights.min(), weights.max(), len(means) * float((printed / printed.sum()).max()))
        return after


def main() -> None:
    """Measure the recipes on the command line."""
    torch.set_num_threads(1)
    words = sys.argv[1:]
    at = words.index("--set") if "--set" in words else len(words)
    print(LINE.format("recipe", "rows", "round", "length", "bits", "score", "plain", "weights", "printed"))
    for recipe in words[:at] or RECIPES:
        for rows in ("unit", "mean"):
            resolved = load_resolved(Path(recipe), [*words[at + 1 :], f"federated.memory_rows={rows}"])
            measured(Path(recipe).stem, resolved)


def measured(name: str, resolved: ResolvedConfig) -> None:
    """Train once, and print a line per round."""
    config, method = resolved.config, Watched(resolved.federated.params)
    archive, division = archive_of(config.data), config.partition
    silos = partition(archive, division.kind, division.silos, config.seed, **division.parameters())
    inputs, _ = prepare_run(archive, silos, replace(resolved, federated=method))
    plain = FedCAFE(method.params.model_copy(update={"enhance": False}))
    settings = RoundSettings(
        rounds=config.federated.rounds, silos=[name for name, *_ in inputs.silos], validate=False, seed=config.seed
    )
    worker, plain_worker = worker_of(inputs, method), worker_of(inputs, plain)

    def show(state: RunState) -> None:
        """Print the line of a round."""
        scores = [
            mean_score(validation_scores(InProcess(one), one.federated, state, settings)) or 0.0
            for one in (worker, plain_worker)
        ]
        shown = (
            f"{mean_length(state.server.extras['memory']):.2f}",
            f"{100 * changed_bits(worker, state.server):.2f}",
            *(f"{100 * score:.1f}" for score in scores),
            f"{method.weights.least:.3f}-{method.weights.most:.3f}",
            f"{method.weights.printed:.2f}",
        )
        print(LINE.format(name, method.params.memory_rows, state.round, *shown), flush=True)

    info = FederationInfo(
        silos=len(settings.silos), classes=inputs.spec.classes, bits=config.local.bits, total_rounds=settings.rounds
    )
    start = RunState(round=0, server=method.init_server(worker.model, info))
    run_rounds(start, federated=method, engine=InProcess(worker), settings=settings, save=show)


def worker_of(inputs: Prepared, method: FedCAFE) -> Worker:
    """Return a worker that trains and scores with a method."""
    return Worker(replace(inputs, resolved=replace(inputs.resolved, federated=method)), torch.device("cpu"))


def mean_length(memory: np.ndarray) -> float:
    """Return the mean length of the existing rows."""
    lengths = np.linalg.norm(memory, axis=1)
    return float(lengths[lengths > 0].mean())


def changed_bits(worker: Worker, server: ServerState) -> float:
    """Return the share of the bits of the silos' training items that enhancement changes."""
    install(worker.model, server.params)
    changed = total = 0
    for train, _ in worker.data.values():
        both = [
            outputs_of(model, train, part="logit")
            for model in (worker.model, Enhanced(worker.model, worker.federated, server.extras))
        ]
        for modality in both[0]:
            signs = [(outputs[modality][train.has(modality)] >= 0) for outputs in both]
            changed += int((signs[0] != signs[1]).sum())
            total += signs[0].numel()
    return changed / total


if __name__ == "__main__":
    main()
