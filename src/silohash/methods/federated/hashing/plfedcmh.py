"""Personalized models, mixed layer by layer on the server, with class prototypes shared between the silos.

The server keeps every silo's model. Small hypernetworks on the server learn from the silos' updates how to mix the
layers of all models into one model per silo. By default, there is one per tower, in which each silo has an embedding. In the
paper, there is one per tower and silo, which learns from that silo's updates only.

=============  ==============================  ======================================================
symbol         code                            meaning
=============  ==============================  ======================================================
theta_j        ``private["bank/..."]``         last models of the silos
e_i            `Mixer`                         embedding of a silo, and the network on top of it
a_i^l          `Mixer.forward`                 shares of all silos in layer l of silo i
P              ``extras["prototypes/..."]``    common class prototypes
beta           ``class_code_weight``           weight of `class_code_gap`
eta_p          ``prototype_weight``            weight of `prototype_distance`
=============  ==============================  ======================================================

The scale of both losses in the authors' code is `authors_scales`. The server sees every silo's model, so the method
cannot be combined with secure aggregation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import Arrays, MethodCard, Outputs, PairBatch, Terms
from silohash.methods.federated.base import FederationInfo, ServerState, SiloContext, entries_under, summed_terms
from silohash.methods.federated.general.fedproto import prototype_distance
from silohash.methods.federated.prototypes import PrototypeMethod, PrototypeParams, PrototypeRows, prototype_rows
from silohash.methods.message import Message
from silohash.methods.traits import Traits
from silohash.models.parameters import install, params_of
from silohash.models.towers import group_of, layers_of

CARD = MethodCard(
    key="plfedcmh",
    title="Prototype-based Layered Federated Cross-Modal Hashing",
    authors="Jiale Liu, Yu-Wei Zhan, Xin Luo, Zhen-Duo Chen, Yongxin Wang, Xin-Shun Xu",
    venue="ICASSP",
    year=2023,
    link="https://arxiv.org/abs/2210.15678",
    summary="Mix a model for each silo on the server, layer by layer, and share mean outputs per class.",
    supervised=True,
    sends=("parameters, which the server sees silo by silo", "sums and counts of outputs per class"),
    differs_from_paper=(
        "The equations are those of the authors' public code. The paper (arXiv 2210.15678) is public too, but its equations"
        " were not compared with the code.",
        "The mixing moves toward the updates of all silos at once. The authors' code moves away, silo by silo.",
        "Silos share one hypernetwork per tower, except in the presets paper and authors_code.",
        "Silos train in parallel. In the authors' code, later silos train on mixtures of earlier silos' new models.",
        "A silo is mixed in only for towers that it has trained.",
        "Losses are means over items and classes or bits. In the presets paper and authors_code they have the scale of"
        " the authors' code, which decreases with the silo's size.",
        "The hashing loss is that of the local method.",
        "Items without any prototype are left out of both losses, and outputs are relaxed codes.",
        "Only classes with enough items are released, except in the presets paper and authors_code.",
    ),
)

EMBEDDING, HYPER, BANK, TRAINED = 32, "hyper", "bank", "trained"


class PLFedCMHParams(PrototypeParams):
    """Parameters of PLFedCMH."""

    class_code_weight: float = Field(default=0.5, ge=0)
    """Weight of the loss that makes items agree with the prototypes of their own labels only (beta in the authors'
    code), at least 0. At 0 it is off."""
    prototype_weight: float = Field(default=1.0, ge=0)
    """Weight of the distance to the prototypes of an item's labels, at least 0. At 0 it is off."""
    prototype_weighting: Literal["examples", "uniform"] = "uniform"
    """`uniform`: a prototype is the mean of the silos' means. `examples`: it is the mean over the items of all
    silos."""
    normalization: Literal["mean", "code"] = "mean"
    """`mean`: both losses are means. `code`: they have the scale of the authors' code, which sets `prototype_weight`
    to 1e5."""
    hyper_rate: float = Field(default=1e-3)
    """Learning rate of the mixing. At 0 the mixing stays as it starts. Negative values move the mixing away from the silos'
    updates, as in the authors' code."""
    hypernetworks: Literal["shared", "per_silo"] = "shared"
    """`shared`: one hypernetwork per tower, in which each silo has an embedding, so that all silos' updates train it.
    `per_silo`: one per tower and silo, trained by that silo's updates only, as in the authors' code."""
    sequential: bool = False
    """Update the mixing silo by silo, each time with the new models of the silos before. If false, all silos are
    used at once."""
    fuse: bool = False
    """Use one prototype per class for both modalities. If false, each modality has its own prototypes."""


def class_code_gap(values: Tensor, labels: Tensor, prototypes: Tensor, mask: Tensor) -> Tensor:
    """Return the mean squared difference between labels and the items' agreement with the prototypes, ``(B,)``.

    The arguments are those of `PrototypeRows`.
    """
    agreement = values @ prototypes[mask].T / values.shape[1]
    return (agreement - labels[:, mask]).square().mean(1)


def authors_scales(bits: int, classes: int, *, batch: int, items: int) -> tuple[float, float]:
    """Return the factors that convert the mean gap and the mean distance to the scale of the authors' code.

    That code sums, over items and classes, the squared differences between inner products and ``bits`` times the label,
    and averages distances over items and bits. It divides both by the batch size and by the silo's number of items. Only
    classes with a prototype count.
    """
    return bits**2 * classes / items, 1.0 / (batch * items)


class Mixer(nn.Module):
    """A hypernetwork that returns how the layers of all silos are mixed for one silo; one embedding per such silo."""

    def __init__(self, silos: int, layers: int, *, embeddings: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(embeddings, EMBEDDING)
        self.body = nn.Sequential(*(nn.Sequential(nn.Linear(EMBEDDING, EMBEDDING), nn.ReLU()) for _ in range(3)))
        self.heads = nn.ModuleList(nn.Linear(EMBEDDING, silos) for _ in range(layers))
        for head in self.heads:
            nn.init.uniform_(head.weight)  # type: ignore[arg-type]

    def forward(self, place: int, there: Tensor) -> Tensor:
        """Return the shares of the silos in each layer, ``(layers, silos)``, with rows that sum to 1, for an embedding.

        Only the silos of the mask ``there`` ``(silos,)`` may be mixed in. All others get a share of 0.
        """
        hidden = self.body(self.embedding.weight[place])
        raw = (torch.stack([torch.relu(head(hidden)) for head in self.heads]) + 1e-8) * there
        return raw / raw.sum(1, keepdim=True)


AS_PUBLISHED: Mapping[str, Any] = {
    "normalization": "code", "prototype_weight": 1e5, "min_count": 1, "max_labels": 1000,
}  # fmt: skip


class PLFedCMH(PrototypeMethod):
    """A mixture of all silos' layers for each silo, and losses with class prototypes."""

    Params = PLFedCMHParams
    presets: ClassVar = {
        "recommended": {},
        "paper": {**AS_PUBLISHED, "hypernetworks": "per_silo"},
        "authors_code": {**AS_PUBLISHED, "hypernetworks": "per_silo", "hyper_rate": -1e-3, "sequential": True},
    }
    traits = Traits(
        needs_labels=True, uniform_broadcast=False, averages=False, uplink="records", personalized=True,
        codes_comparable=False,
    )  # fmt: skip

    term_weights = ("class_code_weight", "prototype_weight")

    def init_server(self, model: nn.Module, info: FederationInfo) -> ServerState:
        """Start with the initial model for every silo, untrained hypernetworks, and no trained silo."""
        state = super().init_server(model, info)
        private: Arrays = {f"{BANK}/{silo}/{n}": a for silo in range(info.silos) for n, a in state.params.items()}
        for group, layers in self._groups(state.params).items():
            for place in dict.fromkeys(self._place(group, silo) for silo in range(info.silos)):
                mixer = self._new_mixer(info.silos, len(layers))
                private |= {f"{place}/{name}": array for name, array in params_of(mixer).items()}
            private[f"{TRAINED}/{group}"] = np.zeros(info.silos, np.bool_)
        return replace(state, private=private)

    def broadcast(self, server: ServerState, silo: int, *, round: int) -> Message:  # noqa: A002  the field's word
        """Send a silo its mixture."""
        message = super().broadcast(server, silo, round=round)
        mixed: Arrays = {}
        with torch.no_grad():
            for group in self._groups(server.params):
                mixture = self._mixture(server, group, self._mixer(server, group, silo), silo)
                mixed |= {name: tensor.numpy() for name, tensor in mixture.items()}
        return replace(message, params={**message.params, **mixed})

    def terms(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return both prototype terms, summed over the step's modalities."""
        parts: dict[str, list[Tensor]] = {"class_code": [], "prototype": []}
        for rows in prototype_rows(context, batch, outputs):
            gap, distance = self._scales(context, batch, rows)
            given = rows.values, rows.labels, rows.prototypes, rows.mask
            parts["class_code"].append(gap * class_code_gap(*given).mean())
            parts["prototype"].append(distance * prototype_distance(*given).mean())
        weights = {"class_code": self.params.class_code_weight, "prototype": self.params.prototype_weight}
        return summed_terms(weights, parts)

    def _scales(self, context: SiloContext, batch: PairBatch, rows: PrototypeRows) -> tuple[float, float]:
        if self.params.normalization == "mean":
            return 1.0, 1.0
        step, items = int(batch.has(rows.modality).sum()), context.data.count(rows.modality)
        return authors_scales(rows.prototypes.shape[1], int(rows.mask.sum()), batch=step, items=items)

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Update the hypernetworks from the silos' updates, and store the silos' models in the bank."""
        turns = [[update] for update in updates] if self.params.sequential else [updates]
        for turn in turns:
            server = self._learnt(server, turn)
        after = replace(server, private={**server.private, **self._trained(server, updates)})
        return super().aggregate(after, updates)

    def _trained(self, server: ServerState, updates: Sequence[Message]) -> Arrays:
        """Return which silos have trained each tower so far, ``(silos,)`` bool each."""
        trained = {name: flags.copy() for name, flags in server.private.items() if name.startswith(f"{TRAINED}/")}
        for name, flags in trained.items():
            flags[[update.silo for update in updates if update.weights.get(name.removeprefix(f"{TRAINED}/"))]] = True
        return trained

    def learns(self, name: str) -> bool:
        """Return whether a parameter of a hypernetwork, such as ``embedding.weight``, learns from the silos' updates."""
        return True

    def _learnt(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Return the state with hypernetworks updated from the silos' updates, and with their models in the bank."""
        private = dict(server.private)
        for group in self._groups(server.params):
            trained = [update for update in updates if update.weights.get(group)]
            turns = [trained] if self.params.hypernetworks == "shared" else [[update] for update in trained]
            for turn in filter(None, turns):
                private |= self._moved(server, group, turn)
        for update in updates:
            private |= {
                f"{BANK}/{update.silo}/{name}": array
                for name, array in update.params.items()
                if update.weights.get(group_of(name))
            }
        return replace(server, private=private)

    def _moved(self, server: ServerState, group: str, updates: Sequence[Message]) -> Arrays:
        """Return the parameters of one hypernetwork after a step toward the updates of the silos that it mixes for."""
        silos = [update.silo for update in updates]
        mixer = self._mixer(server, group, silos[0])
        gains = [self._gain(server, group, mixer, update) for update in updates]
        names, parameters = zip(*mixer.named_parameters(), strict=True)
        moves = torch.autograd.grad(torch.stack(gains).sum(), parameters, allow_unused=True)
        place = self._place(group, silos[0])
        return {
            f"{place}/{name}": (parameter + self.params.hyper_rate * move).detach().numpy()
            for name, parameter, move in zip(names, parameters, moves, strict=True)
            if move is not None and self.learns(name)
        }

    def _gain(self, server: ServerState, group: str, mixer: Mixer, update: Message) -> Tensor:
        """Return the inner product of a silo's mixture and its change, whose gradient moves the mixture there."""
        mixture = self._mixture(server, group, mixer, update.silo)
        sent = {name: torch.from_numpy(update.params[name]) for name in mixture if name in update.params}
        moved = [(values - mixture[name]).detach() * mixture[name] for name, values in sent.items()]
        return torch.stack([part.sum() for part in moved]).sum()

    def _mixture(self, server: ServerState, group: str, mixer: Mixer, silo: int) -> dict[str, Tensor]:
        """Return the floating-point parameters of one tower, mixed for a silo from those that have trained it."""
        trained = torch.from_numpy(np.array(server.private[f"{TRAINED}/{group}"]))
        place = silo if self.params.hypernetworks == "shared" else 0
        # before any silo has trained, all of them have the initial model, so any mixture is that model
        shares = mixer(place, trained if trained.any() else torch.ones_like(trained))
        mixture = {}
        for share, names in zip(shares, self._groups(server.params)[group].values(), strict=True):
            for name in names:
                models = [server.private[f"{BANK}/{j}/{name}"] for j in range(len(trained))]
                stacked = torch.from_numpy(np.stack(models))
                mixture[name] = torch.tensordot(share.to(stacked.dtype), stacked, dims=1)
        return mixture

    def _mixer(self, server: ServerState, group: str, silo: int) -> Mixer:
        """Return the hypernetwork that mixes one tower for a silo, with the server's parameters."""
        mixer = self._new_mixer(len(server.private[f"{TRAINED}/{group}"]), len(self._groups(server.params)[group]))
        install(mixer, entries_under(self._place(group, silo), server.private))
        return mixer

    def _new_mixer(self, silos: int, layers: int) -> Mixer:
        return Mixer(silos, layers, embeddings=silos if self.params.hypernetworks == "shared" else 1)

    def _place(self, group: str, silo: int) -> str:
        """Return the prefix under which the server keeps the hypernetwork that mixes one tower for a silo."""
        return f"{HYPER}/{group}" if self.params.hypernetworks == "shared" else f"{HYPER}/{group}/{silo}"

    def _groups(self, params: Arrays) -> dict[str, dict[str, list[str]]]:
        groups: dict[str, list[str]] = {}
        for name, array in params.items():
            if np.issubdtype(array.dtype, np.floating):
                groups.setdefault(group_of(name), []).append(name)
        return {group: layers_of(names) for group, names in groups.items()}
