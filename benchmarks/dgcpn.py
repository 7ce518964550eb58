"""Time of DGCPN's training relative to that of its public code: an epoch of one silo, and a round of ten.

    python benchmarks/dgcpn.py

The settings are those of ``recipes/dgcpn.toml``, and the pairs are coco18's training items, or random numbers of the same
shape if ``SILOHASH_DATA`` does not have them. Two loops, written for this comparison, stand for the public code:

``public code``  does per batch what that code does: a data loader that also loads labels, dropout, one step of both
    networks, then one step of each network with the binary codes of the other one, torch's losses, one SGD optimizer per
    network, and the precision of the batch's similarities, which the code prints.
``its steps alone``  leaves out the labels, the dropout and the precision.

Both average the parameters of the silos. The similarities of the items are computed before the measurement. The loops and
silohash take turns, and their CPU times are compared.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from large_silo import Values, held, originals, specified
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from training import report, side_by_side

from silohash.methods.federated.base import FederationInfo
from silohash.methods.local.unsupervised.dgcpn import DGCPNParams
from silohash.run.config.load import load_resolved
from silohash.training.checkpoint import RunState
from silohash.training.engines.port import InProcess
from silohash.training.prepared import Prepared
from silohash.training.rounds import RoundSettings, run_rounds
from silohash.training.worker import Worker

RECIPE = Path(__file__).parents[1] / "recipes" / "dgcpn.toml"
GOAL = 1.0
"""Highest ratio to the public code."""

CLASSES, LABEL_SHARE = 18, 0.2
"""Labels of the items, drawn at random, with which about half of all items are relevant to each other."""


def main() -> None:
    """Measure both sizes."""
    torch.set_num_threads(1)
    image, text = originals()
    for silos, epochs, what in ((1, 1, "an epoch of one silo"), (10, 5, "a round of ten silos, five epochs each")):
        resolved = load_resolved(RECIPE, [f"partition.silos={silos}", f"federated.local_epochs={epochs}"])
        sizes = [(f"silo {number}", len(image) // silos, 0) for number in range(silos)]
        prepared = Prepared(resolved, specified(resolved.config, image, text), sizes, held(image, text))
        loops = [PublicLoop(prepared, whole=whole).round for whole in (True, False)]
        ours, public, steps = side_by_side(round_of(prepared), *loops, clock=time.process_time)
        claim = f"{what}: {ours:.2f} s / {public:.2f} s of the public code"
        report(claim, ours / public, f"<= {GOAL}", met=ours / public <= GOAL)
        print(f"{f'{what}: {ours:.2f} s / {steps:.2f} s of its steps alone':72} {ours / steps:6.2f}", flush=True)


def round_of(prepared: Prepared) -> Callable[[], object]:
    """Return a function that runs the first round, each time from the same state."""
    federated, worker = prepared.resolved.federated, Worker(prepared, torch.device("cpu"))
    names = [name for name, _, _ in prepared.silos]
    info = FederationInfo(silos=len(names), classes=0, bits=prepared.config.local.bits, total_rounds=1)
    state = RunState(round=0, server=federated.init_server(worker.model, info))
    settings, engine = RoundSettings(rounds=1, silos=names, validate=False), InProcess(worker)
    return lambda: run_rounds(state, federated=federated, engine=engine, settings=settings)


class PublicLoop:
    """Federated averaging of networks that are trained as in the public code.

    Args:
        prepared: Inputs of the run.
        whole: Whether to do all that the public code does, rather than its steps alone.
    """

    def __init__(self, prepared: Prepared, *, whole: bool) -> None:
        self.whole = whole
        self.config, device = prepared.config, torch.device("cpu")
        self.target = DGCPNParams.model_validate({}).pair_target
        self.networks = nn.ModuleDict(
            {
                m: network(tower.shape[0], tower.hidden, self.config.local.bits, dropout=0.5 if whole else 0.0)
                for m, tower in prepared.spec.towers.items()
            }
        )
        self.silos = [prepared.silo(number, device)[0] for number in range(len(prepared.silos))]
        # The values do not change the time.
        self.similarities = [torch.rand(len(silo), len(silo)) for silo in self.silos]
        self.labels = [(torch.rand(len(silo), CLASSES) < LABEL_SHARE).float() for silo in self.silos]

    def round(self) -> None:
        """Train copies of the networks on each silo, and average them."""
        states = [self._trained(number) for number in range(len(self.silos))]
        mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
        copy.deepcopy(self.networks).load_state_dict(mean)

    def _trained(self, number: int) -> dict[str, Tensor]:
        """Return the parameters after the epochs of a silo."""
        silo, similarity = self.silos[number], self.similarities[number]
        settings, networks = self.config.train, copy.deepcopy(self.networks)
        assert silo.image is not None
        assert silo.text is not None
        labels = [self.labels[number]] if self.whole else []
        pairs = TensorDataset(silo.image, silo.text, torch.arange(len(silo)), *labels)
        loader: DataLoader[tuple[Tensor, ...]] = DataLoader(pairs, batch_size=settings.batch, shuffle=True)
        optimizers = {
            modality: torch.optim.SGD(
                net.parameters(), lr=settings.learning_rate, momentum=settings.momentum,
                weight_decay=settings.weight_decay,
            )
            for modality, net in networks.items()
        }  # fmt: skip
        for _ in range(self.config.federated.local_epochs):
            for image, text, rows, *labels_of_batch in loader:
                among = similarity[rows][:, rows]
                self._steps(networks, optimizers, (image, text), among)
                for found in labels_of_batch:
                    mean_precision(found.numpy(), among.numpy())
        return networks.state_dict()

    def _steps(
        self,
        networks: nn.ModuleDict,
        optimizers: dict[str, torch.optim.SGD],
        inputs: tuple[Tensor, Tensor],
        similarity: Tensor,
    ) -> None:
        """Take the steps of a batch."""
        image, text = (networks[modality](values) for modality, values in zip(("image", "text"), inputs, strict=True))
        step(loss(image, text, similarity, self.target), list(optimizers.values()))
        image, text = (networks[modality](values) for modality, values in zip(("image", "text"), inputs, strict=True))
        step(loss(image, text.detach().sign(), similarity, self.target), [optimizers["image"]])
        step(loss(image.detach().sign(), text, similarity, self.target), [optimizers["text"]])


def network(width: int, hidden: int, bits: int, *, dropout: float) -> nn.Module:
    """Return a network with one hidden layer."""
    hidden_layer = [nn.Linear(width, hidden), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(*hidden_layer, nn.Linear(hidden, bits), nn.Tanh())


def mean_precision(labels: Values, similarity: Values) -> float:
    """Return the mean average precision of the items of a batch as queries, ranked by similarity ``(B, B)``."""
    total = 0.0
    for row, found in zip(labels, similarity, strict=True):
        places = np.flatnonzero((labels @ row > 0)[np.argsort(-found)]) + 1
        if len(places):
            total += float(np.mean(np.arange(1, len(places) + 1) / places))
    return total / len(labels)


def step(value: Tensor, optimizers: list[torch.optim.SGD]) -> None:
    """Minimize a loss by one step of some optimizers."""
    for optimizer in optimizers:
        optimizer.zero_grad()
    value.backward()  # type: ignore[no-untyped-call]
    for optimizer in optimizers:
        optimizer.step()


def loss(image: Tensor, text: Tensor, similarity: Tensor, target: float) -> Tensor:
    """Return DGCPN's loss of the codes ``(B, K)`` of a batch, as torch differentiates it."""
    image, text = F.normalize(image), F.normalize(text)
    images, texts, mixed = image @ image.T, text @ text.T, image @ text.T
    others = 1.0 - torch.eye(len(image))
    pairs = F.mse_loss(mixed.diagonal(), torch.full((len(image),), target))
    like_inputs = sum(F.mse_loss(found * others, similarity * others) for found in (images, texts, mixed))
    alike = ((mixed, images), (mixed, texts), (images, texts), (mixed, mixed.T))
    return pairs + like_inputs + sum(F.mse_loss(one, other) for one, other in alike)


if __name__ == "__main__":
    main()
