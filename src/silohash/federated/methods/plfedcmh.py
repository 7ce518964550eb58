"""PLFedCMH: Prototype-based Layered Federated Cross-Modal Hashing. Jiale Liu et al., ICASSP 2023.

The server keeps every silo's model and mixes, layer by layer, a model of its own for each silo; small networks at the server
(hypernetworks) learn the mixing from how the silos' models move. Silos also share mean outputs a class.

=============  ==============================  ======================================================
symbol         code                            meaning
=============  ==============================  ======================================================
theta_j        ``private["bank/..."]``         the silos' last models
e_i            ``private["hyper/<m>/..."]``    a silo's embedding, and the network over it
a_i^l          `Mixer`                         how silo i mixes layer l of all silos
P              ``extras["prototypes/..."]``    common mean output a class
beta           ``class_code_weight``           items should agree with the prototypes of their labels only
eta_p          ``prototype_weight``            items are drawn to the prototypes of their labels
=============  ==============================  ======================================================

Differs from the paper: its text was not at hand; the equations are those of the authors' code. There the mixing networks
move away from what silos learnt, silo after silo, each with the earlier ones' new models; here towards it, for all silos at
once from the models of the round. A silo that has not trained a tower yet is in nobody's mixture of it. The loss of beta is
a mean an item and a class, that of eta_p an item and a bit; the code's (`authors_scales`) fall with the silo's size, as do
its hashing terms, which belong to the local method here. Items none of whose labels has a prototype are left out of both.
Outputs are relaxed codes, and class means leave a silo under the rules of release. Preset ``reference`` has the code's way
at the server, its scale and weights, and releases every class; yet silos train side by side, where the code trains a later
one on a mixture of the earlier ones' new models. The server sees every silo's model: no secure aggregation is possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from silohash.exchange.message import Message
from silohash.federated.base import FederatedMethod, FederationInfo, ServerState, SiloContext
from silohash.federated.methods.fedproto import prototype_distance
from silohash.federated.prototypes import (
    PrototypeParams,
    empty_prototypes,
    prototype_sums,
    received_prototypes,
    representation,
    rows_with_prototypes,
    updated_prototypes,
)
from silohash.local.base import MethodParams
from silohash.models.parameters import install, params_of
from silohash.models.towers import group_of
from silohash.types import Arrays, MethodCard, Modality, Outputs, PairBatch, Terms

CARD = MethodCard(
    key="plfedcmh",
    title="Prototype-based Layered Federated Cross-Modal Hashing",
    authors="Jiale Liu, Yu-Wei Zhan, Xin Luo, Zhen-Duo Chen, Yongxin Wang, Xin-Shun Xu",
    venue="ICASSP",
    year=2023,
    link="https://arxiv.org/abs/2210.15678",
    summary="The server mixes a model for each silo, layer by layer; silos share mean outputs a class.",
    supervised=True,
    sends=("parameters, seen one silo at a time", "sums and counts a class of outputs"),
    keeps=("nothing",),
    differs_from_paper=(
        "the mixing moves towards what silos learnt, for all silos at once",
        "silos are mixed in only where they have trained",
        "losses are means an item and a class, or a bit",
    ),
)

EMBEDDING, HYPER, BANK, TRAINED = 32, "hyper", "bank", "trained"


class PLFedCMHParams(PrototypeParams):
    """Parameters of PLFedCMH."""

    class_code_weight: float = Field(default=0.5, ge=0)
    """beta: items agree with the prototypes of their labels and with no others."""
    prototype_weight: float = Field(default=1.0, ge=0)
    """eta_p: items are drawn to the prototypes of their labels."""
    prototype_weighting: Literal["examples", "uniform"] = "uniform"
    """`uniform`: a prototype is the mean of the silos' own means; `examples`: of all silos' items."""
    normalization: Literal["mean", "code"] = "mean"
    """Of both losses: means, or the scale of the authors' code, for which its `prototype_weight` is 1e5."""
    hyper_rate: float = Field(default=1e-3)
    """Learning rate of the mixing; below 0 it moves away, as in the authors' code."""
    sequential: bool = False
    """Whether the mixing learns silo after silo, each from a bank that holds the earlier ones' new models."""
    fuse: bool = False
    """One prototype a class for both modalities; else one a modality."""


def class_code_gap(values: Tensor, labels: Tensor, prototypes: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean squared gap between agreement with prototypes and labels, ``(B,)``.

    Args:
        values: ``(B, K)`` relaxed codes.
        labels: ``(B, C)`` multi-hot.
        prototypes: ``(C, K)``.
        mask: ``(C,)`` bool, which prototypes there are.
    """
    agreement = values @ prototypes[mask].T / values.shape[1]
    return (agreement - labels[:, mask]).square().mean(1)


def authors_scales(bits: int, classes: int, *, batch: int, items: int) -> tuple[float, float]:
    """Returns what makes the authors' code's two losses of the mean gap and the mean distance.

    The code adds up, over items and classes, the squares of inner products less ``bits`` times the label, and takes the mean
    of distances over items and bits. It divides both by the batch's items times the silo's.

    Args:
        bits: length of the codes.
        classes: how many have a prototype.
        batch: items of the batch.
        items: of the silo.
    """
    return bits**2 * classes / items, 1.0 / (batch * items)


class Mixer(nn.Module):
    """From a silo's number to how it mixes each layer of all silos: shares that add up to 1."""

    def __init__(self, silos: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(silos, EMBEDDING)
        blocks = [nn.Sequential(nn.Linear(EMBEDDING, EMBEDDING), nn.ReLU()) for _ in range(3)]
        self.body = nn.Sequential(*blocks)
        self.heads = nn.ModuleList(nn.Linear(EMBEDDING, silos) for _ in range(layers))
        for head in self.heads:
            nn.init.uniform_(head.weight)  # type: ignore[arg-type]

    def forward(self, silo: int, there: Tensor) -> Tensor:
        """Returns ``(layers, silos)``, rows that add up to 1, with zeros for silos not ``there (silos,)`` bool."""
        hidden = self.body(self.embedding.weight[silo])
        raw = (torch.stack([torch.relu(head(hidden)) for head in self.heads]) + 1e-8) * there
        return raw / raw.sum(1, keepdim=True)


def layers_of(names: Sequence[str]) -> dict[str, list[str]]:
    """Returns the tensors of each layer: names that differ in their last part only."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.rpartition(".")[0], []).append(name)
    return found


class PLFedCMH(FederatedMethod):
    """A mixture of all silos' layers for each silo."""

    Params: ClassVar[type[MethodParams]] = PLFedCMHParams
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "recommended": {},
        "paper": {"normalization": "code", "prototype_weight": 1e5, "min_count": 1, "max_labels": 1000},
        "authors_code": {
            "hyper_rate": -1e-3, "sequential": True, "normalization": "code", "prototype_weight": 1e5, "min_count": 1,
            "max_labels": 1000,
        },
    }  # fmt: skip
    needs_labels: ClassVar[bool] = True
    uniform_broadcast: ClassVar[bool] = False
    averages: ClassVar[bool] = False
    uplink: ClassVar[Literal["sum", "records"]] = "records"
    personalized: ClassVar[bool] = True
    codes_comparable: ClassVar[bool] = False

    def init_server(self, model: nn.Module, info: FederationInfo) -> ServerState:
        """Starts with the common model in every silo's place, a mixer a tower, and nobody who has trained it."""
        state = super().init_server(model, info)
        private: Arrays = {f"{BANK}/{silo}/{n}": a for silo in range(info.silos) for n, a in state.params.items()}
        for group, layers in self._groups(state.params).items():
            mixer = Mixer(info.silos, len(layers))
            private |= {f"{HYPER}/{group}/{name}": array for name, array in params_of(mixer).items()}
            private[f"{TRAINED}/{group}"] = np.zeros(info.silos, np.bool_)
        extras = empty_prototypes(model, info.classes, info.bits, self.params)
        return replace(state, extras=extras, private=private)

    def broadcast(self, server: ServerState, silo: int, *, round: int) -> Message:  # noqa: A002  the field's word
        """Sends a silo its own mixture."""
        message = super().broadcast(server, silo, round=round)
        with torch.no_grad():
            mixtures = {
                group: self._mixture(server, group, mixer, silo) for group, mixer in self._mixers(server).items()
            }
        mixed = {name: tensor.numpy() for mixture in mixtures.values() for name, tensor in mixture.items()}
        return replace(message, params={**message.params, **mixed})

    def regularizer(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Returns both prototype terms, summed over the step's modalities."""
        parts: dict[str, list[Tensor]] = {"class_code": [], "prototype": []}
        for modality in outputs.logit:
            prototypes, mask = received_prototypes(context, modality)
            rows = rows_with_prototypes(batch, modality, mask)
            if rows.any():
                assert batch.labels is not None  # noqa: S101  needs_labels is checked when the run is put together
                values, labels = representation(outputs, modality)[rows], batch.labels[rows]
                scales = self._scales(context, batch, modality)
                parts["class_code"].append(scales[0] * class_code_gap(values, labels, prototypes, mask).mean())
                parts["prototype"].append(scales[1] * prototype_distance(values, labels, prototypes, mask).mean())
        weights = {"class_code": self.params.class_code_weight, "prototype": self.params.prototype_weight}
        return {
            name: (weights[name], torch.stack(found).sum()) for name, found in parts.items() if found and weights[name]
        }

    def _scales(self, context: SiloContext, batch: PairBatch, modality: Modality) -> tuple[float, float]:
        """Returns by what the mean gap and the mean distance are multiplied."""
        if self.params.normalization == "mean":
            return 1.0, 1.0
        prototypes, mask = received_prototypes(context, modality)
        step, items = int(batch.has(modality).sum()), context.data.count(modality)
        return authors_scales(prototypes.shape[1], int(mask.sum()), batch=step, items=items)

    def silo_update(self, context: SiloContext) -> Message:
        """Sends the model under the silo's number, and class sums."""
        update = super().silo_update(context)
        return replace(update, records={"silo": np.asarray(context.silo)}, sums=prototype_sums(context, self.params))

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Moves the mixers towards what each silo learnt, then takes the silos' models into the bank."""
        turns = [[update] for update in updates] if self.params.sequential else [updates]
        for turn in turns:
            server = self._learnt(server, turn)
        after = replace(server, private={**server.private, **self._trained(server, updates)})
        return updated_prototypes(super().aggregate(after, updates), updates)

    def _trained(self, server: ServerState, updates: Sequence[Message]) -> Arrays:
        """Returns which silos have trained each tower by now, ``(silos,)`` bool each."""
        marks = {name: mark.copy() for name, mark in server.private.items() if name.startswith(f"{TRAINED}/")}
        for name, mark in marks.items():
            mark[[int(u.records["silo"]) for u in updates if u.weights.get(name.removeprefix(f"{TRAINED}/"))]] = True
        return marks

    def _learnt(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Returns the state with mixers that learnt from silos' moves, and a bank that holds the silos' models."""
        private = dict(server.private)
        for group, mixer in self._mixers(server).items():
            gains = [self._gain(server, group, mixer, update) for update in updates if update.weights.get(group)]
            if gains:
                parameters = list(mixer.parameters())
                moves = torch.autograd.grad(torch.stack(gains).sum(), parameters, allow_unused=True)
                for (name, parameter), move in zip(mixer.named_parameters(), moves, strict=True):
                    if move is not None:
                        private[f"{HYPER}/{group}/{name}"] = (
                            (parameter + self.params.hyper_rate * move).detach().numpy()
                        )
        for update in updates:
            silo = int(update.records["silo"])
            private |= {
                f"{BANK}/{silo}/{name}": array
                for name, array in update.params.items()
                if update.weights.get(group_of(name))
            }
        return replace(server, private=private)

    def _gain(self, server: ServerState, group: str, mixer: Mixer, update: Message) -> Tensor:
        """Returns the inner product of a silo's mixture with how far training moved it: its gradient pulls towards that."""
        mixture = self._mixture(server, group, mixer, int(update.records["silo"]))
        moved = [(torch.from_numpy(update.params[n]) - mixed).detach() * mixed for n, mixed in mixture.items()]
        return torch.stack([part.sum() for part in moved]).sum()

    def _mixture(self, server: ServerState, group: str, mixer: Mixer, silo: int) -> dict[str, Tensor]:
        """Returns a tower's floating parameters by name, mixed for a silo of those that had trained it by the last round.

        Before any has, all silos have the common model.
        """
        trained = torch.from_numpy(np.array(server.private[f"{TRAINED}/{group}"]))
        shares = mixer(silo, trained if trained.any() else torch.ones_like(trained))
        silos = mixer.embedding.num_embeddings
        mixture = {}
        for share, names in zip(shares, self._groups(server.params)[group].values(), strict=True):
            for name in names:
                stacked = torch.from_numpy(np.stack([server.private[f"{BANK}/{j}/{name}"] for j in range(silos)]))
                mixture[name] = torch.tensordot(share.to(stacked.dtype), stacked, dims=1)
        return mixture

    def _mixers(self, server: ServerState) -> dict[str, Mixer]:
        """Returns each tower's mixer with the server's parameters."""
        mixers = {}
        for group, layers in self._groups(server.params).items():
            start = f"{HYPER}/{group}/"
            params = {n.removeprefix(start): a for n, a in server.private.items() if n.startswith(start)}
            mixers[group] = Mixer(len(params["embedding.weight"]), len(layers))
            install(mixers[group], params)
        return mixers

    def _groups(self, params: Arrays) -> dict[str, dict[str, list[str]]]:
        """Returns each tower's layers, of floating parameters."""
        floating = [name for name, array in params.items() if np.issubdtype(array.dtype, np.floating)]
        groups: dict[str, list[str]] = {}
        for name in floating:
            groups.setdefault(group_of(name), []).append(name)
        return {group: layers_of(names) for group, names in groups.items()}
