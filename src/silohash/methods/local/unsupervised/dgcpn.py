"""DGCPN: codes of a batch reproduce how much its items and their neighbors have in common, without labels.

Two items are similar if their inputs are, and if they have the same nearest neighbors among the silo's items. After each
step on real-valued codes, a second step pairs the real-valued codes of one modality with the binary codes of the other.

==============  ==========================  ====================================================================
paper and code  code here                   meaning
==============  ==========================  ====================================================================
F_V, F_T        `inputs_of`                 inputs, scaled to length 1
P               `affinity`                  weighted mean of the cosines of the inputs, ``(B, B)``
W               ``graph``, `neighbor_graph` weights of an item's nearest neighbors, which sum to 1, ``(n, M)``
G               W W^T                       graph-neighbor coherence: the neighbors that two items share, ``(B, B)``
S               `batch_similarity`          similarity that the codes reproduce, ``(B, B)``
H_V, H_T        ``outputs.code``            relaxed codes in (-1, 1), ``(B, K)``
B_V, B_T        `losses`                    the same, scaled to length 1
a_1             ``text_weight``             weight of texts in P
a_2             ``graph_weight``            weight of G in S
k               `neighbor_count`            number of neighbors
scale           ``graph_scale`` times k     factor on G
kappa           ``pair_target``             value that the cosine of an item's two codes approaches
lambda_1        ``similarity_weight``       weight of L_g
lambda_2        ``consistency_weight``      weight of L_i
==============  ==========================  ====================================================================

`losses` returns L_c, L_g and L_i. The loss is L_c + lambda_1 L_g + lambda_2 L_i.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from silohash.base import seeds
from silohash.base.types import MethodCard, Outputs, PairBatch, Step, Terms
from silohash.methods.local.base import LocalMethod, MethodParams, SiloData, SiloState, joint_step, signs
from silohash.methods.local.unsupervised import base
from silohash.models.specs import ModelSpec
from silohash.models.towers import HashNet

MOST_STORED = 5000
"""Largest number of items of a silo whose similarities are all stored, which takes 100 MB. With more items, those of each
batch are computed from the neighbors."""

CARD = MethodCard(
    key="dgcpn",
    title="Deep Graph-neighbor Coherence Preserving Network for Unsupervised Cross-modal Hashing",
    authors="Jun Yu, Hao Zhou, Yibing Zhan, Dacheng Tao",
    venue="AAAI",
    year=2021,
    link="https://ojs.aaai.org/index.php/AAAI/article/view/16592",
    summary="Reproduce the similarity of inputs and of their neighbors by the cosines of codes, without labels.",
    differs_from_paper=(
        "The equations and constants are those of the authors' code.",
        "Items are compared by the inputs of the towers: the vectors that features.image and features.text give.",
        "The number of neighbors is a share of the silo's items, and the factor on the coherence is a multiple of it. At "
        "5,000 items both are those of the authors' code, which has fixed numbers and fails for silos of 3,000 items or "
        "fewer.",
        "An item is not its own neighbor. The authors' code removes the largest similarity of each item, which is that of "
        "another item if the silo holds duplicates.",
        "Neighbors have a positive similarity, which matters for vectors with negative entries only.",
        "In silos with more items than `candidates`, neighbors are sought among that many random items. This keeps the "
        "share of neighbors, and memory grows linearly with the number of items.",
        "The two losses with binary codes are minimized in one step. They train different towers on the same outputs, so "
        "this equals a step per tower.",
        "An item that lacks a modality has the code of its other one in its place. Items without a common modality are not "
        "compared, and they do not count for the number of neighbors.",
        "The optimizer is that of the run. The authors use SGD with momentum 0.9, learning rate 0.005, weight decay "
        "0.0005, and batches of 32.",
    ),
)


class DGCPNParams(MethodParams):
    """Parameters of DGCPN."""

    without_effect: ClassVar = MethodParams.switched_off("graph_scale", "neighbors", "candidates", graph_weight=(0,))

    text_weight: float = Field(default=0.01, gt=0, lt=1)
    """Weight of the cosine of texts in the similarity of inputs (a1), between 0 and 1. That of images is the rest."""
    graph_weight: float = Field(default=0.3, ge=0, le=1)
    """Weight of the coherence of neighbors in the similarity (a2), from 0 to 1. At 0 only the items themselves count."""
    graph_scale: float = Field(default=2.0, gt=0)
    """Factor on the coherence, as a multiple of the number of neighbors. Greater than 0."""
    neighbors: float = Field(default=0.4, gt=0, lt=1)
    """Number of neighbors of an item, as a share of the items that it can be compared with, between 0 and 1. There is at
    least one."""
    candidates: int = Field(default=5000, ge=2)
    """Largest number of items among which neighbors are sought, at least 2. A silo with more items chooses them at
    random."""
    pair_target: float = Field(default=1.5, gt=0)
    """Value that the cosine between the two codes of an item approaches (kappa), greater than 0. Above 1 the pull never
    vanishes."""
    similarity_weight: float = Field(default=1.0, ge=0)
    """Weight of the distance between the similarities of codes and of inputs (lambda 1), at least 0."""
    consistency_weight: float = Field(default=1.0, ge=0)
    """Weight of the distance between the similarities of codes within and between modalities (lambda 2), at least 0."""
    initial_deviation: float = Field(default=0.3, gt=0)
    """Standard deviation of the initial weights of the text tower's hash layer, greater than 0. The value of the authors'
    code spreads the codes of texts from the start. Much smaller ones make the first epochs slow."""
    half_binary: bool = True
    """Take a second step per batch, in which the codes of one modality are binary."""


def neighbor_count(candidates: int, share: float) -> int:
    """Return the number of neighbors of an item: the share of the candidates, rounded half up, and at least 1.

    Example:
        >>> [neighbor_count(items, 0.4) for items in (1, 2, 5000)]
        [1, 1, 2000]
    """
    return max(1, min(int(share * candidates + 0.5), candidates - 1))


def comparable_items(data: SiloData, candidates: Tensor) -> int:
    """Return the number of candidates that have a modality in common with an item, as a rounded mean over the items.

    Candidates are positions of items, ``(M,)``. Items without a modality are left out of the mean.
    """
    image, text = data.has_image, data.has_text
    images, texts = image[candidates], text[candidates]
    common = images.sum() * image + texts.sum() * text - (images & texts).sum() * (image & text)
    there = image | text
    return int(common[there].double().mean() + 0.5) if bool(there.any()) else 0


def neighbor_weights(similarity: Tensor, own: Tensor, count: int) -> Tensor:
    """Return the weights of each item's nearest neighbors, ``(n, M)``: shares of their similarities, 0 for all others.

    The weights of an item sum to 1, or to 0 if no other item has a positive similarity. The similarities ``(n, M)`` are
    changed; ``own`` tells which candidate is the item itself.
    """
    values, places = similarity.masked_fill_(own, float("-inf")).topk(count, dim=1, sorted=False)
    values = values.clamp_(min=0.0)
    # An item whose neighbors have no positive similarity keeps weights of 0 instead of NaN.
    values /= values.sum(1, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)
    return torch.zeros_like(similarity).scatter_(1, places, values)


def neighbor_graph(
    data: SiloData,
    candidates: int,
    share: float,
    text_weight: float,
    *,
    similar: Tensor | None = None,
    block: int = 1024,
) -> Tensor:
    """Return the weights of each item's nearest neighbors among the candidates, ``(n, M)`` float32.

    Candidates are all items, or a random sample of the given size, which is always the same. Neighbors are a ``share`` of
    those that an item can be compared with. Similarities are computed for a block of rows at a time, unless those of all
    items are given as ``similar`` ``(n, n)``.
    """
    chosen = candidate_rows(len(data), candidates).to(data.has_image.device)
    others, count = base.inputs_of(data.batch(chosen)), neighbor_count(comparable_items(data, chosen), share)
    graph = data.has_image.new_zeros(len(data), len(chosen), dtype=torch.float32)
    for start in range(0, len(data), block):
        rows = torch.arange(start, min(start + block, len(data)), device=chosen.device)
        if similar is not None:
            to_others = similar[rows][:, chosen]
        elif others.unit and (inputs := base.inputs_of(data.batch(rows))).unit:
            to_others = base.affinity(inputs, others, text_weight).values
        else:
            continue
        graph[rows] = neighbor_weights(to_others, rows.unsqueeze(1) == chosen, count)
    return graph


def candidate_rows(items: int, most: int) -> Tensor:
    """Return the positions of the items among which neighbors are sought: all, or a fixed random sample, ``(M,)`` int64."""
    if items <= most:
        return torch.arange(items)
    return torch.randperm(items, generator=seeds.torch_generator(0, "neighbor candidates"))[:most].sort().values


def batch_similarity(similar: Tensor, shared: Tensor, weight: float) -> Tensor:
    """Return the similarity that codes reproduce, S = 2 ((1 - weight) P + weight G) - 1, ``(B, B)``. It is not clipped."""
    return 2.0 * ((1.0 - weight) * similar + weight * shared) - 1.0


COMPARED = torch.tensor([1.0, 1.0, 0.0, 1.0]).view(4, 1, 1)
"""Which blocks of the cosines L_g compares with S: images, images to texts, (texts to images), texts."""

GAPS = torch.tensor([[-1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, -1.0], [1.0, 0.0, 0.0, -1.0], [0.0, 1.0, -1.0, 0.0]])
"""The differences of blocks whose squares L_i adds, one per row. The columns are the blocks in the order of `COMPARED`."""

SHORTEST = 1e-12
"""Length by which shorter codes are divided."""


class _Losses(torch.autograd.Function):
    """The three losses and their gradient.

    The gradient is written out, because the step of a small batch takes longer to record and differentiate its many small
    operations than to compute them.
    """

    @staticmethod
    def forward(ctx: Any, images: Tensor, texts: Tensor, similarity: Tensor, counted: Tensor, target: float) -> Any:  # noqa: ANN401
        """Return the losses as three scalars. The arguments are those of `losses`."""
        count, pairs = len(similarity), similarity.numel()
        codes = torch.cat([images, texts], -2).view(-1, 2 * count, images.shape[-1])
        lengths = torch.linalg.vector_norm(codes, dim=-1, keepdim=True).clamp_(min=SHORTEST)
        unit = codes / lengths
        blocks = _blocks(unit @ unit.mT, count)
        rest = (blocks - similarity.flatten()).mul_(COMPARED.to(blocks) * counted.flatten())
        gaps = (GAPS.to(blocks) @ blocks.flatten(1)).view_as(blocks)
        apart = _pairs(blocks, count) - target
        ctx.save_for_backward(unit, lengths, rest, gaps, apart)
        ctx.shape = images.shape
        return _square_sum(apart) / count, _square_sum(rest) / pairs, _square_sum(gaps) / pairs

    @staticmethod
    def backward(ctx: Any, coexistence: Tensor, similarity: Tensor, consistency: Tensor) -> Any:  # noqa: ANN401
        """Return the gradients of the codes, given those of the losses."""
        unit, lengths, rest, gaps, apart = ctx.saved_tensors
        count = apart.shape[-1]
        of_blocks = (GAPS.to(gaps).T @ gaps.flatten(1)).view_as(gaps).mul_(consistency * (2.0 / count**2))
        of_blocks.addcmul_(rest, similarity, value=2.0 / count**2)
        _pairs(of_blocks, count).addcmul_(apart, coexistence, value=2.0 / count)
        of_cosines = of_blocks.view(2, 2, -1, count, count).permute(2, 0, 3, 1, 4).reshape(-1, 2 * count, 2 * count)
        of_unit = (of_cosines + of_cosines.mT) @ unit
        of_codes = of_unit.addcmul_(unit, (unit * of_unit).sum(-1, keepdim=True), value=-1.0).div_(lengths)
        images, texts = of_codes.view(*ctx.shape[:-2], 2 * count, -1).split(count, -2)
        return images, texts, None, None, None


def _square_sum(values: Tensor) -> Tensor:
    return values.flatten().dot(values.flatten())


def _blocks(cosines: Tensor, count: int) -> Tensor:
    """Return the four blocks of ``(..., 2B, 2B)`` cosines as ``(4, N, B^2)``, with leading dimensions as N matrices."""
    return cosines.view(-1, 2, count, 2, count).permute(1, 3, 0, 2, 4).reshape(4, -1, count * count)


def _pairs(blocks: Tensor, count: int) -> Tensor:
    """Return a view ``(N, B)`` of the values of the two codes of each item, in the blocks of `_blocks`."""
    return blocks[1].view(-1, count, count).diagonal(dim1=-2, dim2=-1)


def losses(
    images: Tensor, texts: Tensor, similarity: Tensor, counted: Tensor, pair_target: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return L_c, L_g and L_i of the codes ``(..., B, K)`` of a batch, each a scalar, added over leading dimensions.

    L_g compares the pairs that are ``counted`` as 1, ``(B, B)``; the divisor is the number of all pairs.
    """
    found: tuple[Tensor, Tensor, Tensor] = _Losses.apply(  # type: ignore[no-untyped-call]
        images, texts, similarity, counted, pair_target
    )
    return found


class DGCPN(LocalMethod[DGCPNParams]):
    """Graph-neighbor coherence preserving hashing, for one or two modalities."""

    def __init__(self, params: DGCPNParams) -> None:
        self.params = params
        self._stored = base.SiloCache()

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Build towers whose outputs are in (-1, 1). The hash layer of texts starts with larger weights."""
        base.refuse_networks(spec, CARD.key)
        model = HashNet(spec, bits, relaxation="tanh")
        if "text" in model.modalities:
            nn.init.normal_(model.get_parameter("text.hash.weight"), std=self.params.initial_deviation)
        return model

    def steps(self, model: nn.Module) -> Sequence[Step]:
        """Return a step on real-valued codes, and one on codes of which half are binary. Both train all towers."""
        step = joint_step(model)
        half_binary = replace(step, name="half_binary", regularize=False)
        return [step, half_binary] if self.params.half_binary else [step]

    def init_state(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Store the similarities of a small silo's items, or a large one's graph of neighbors, made once per process."""
        state.buffers = {}
        if len(data) <= MOST_STORED:
            state.buffers["similarities"] = self._stored.get(data, lambda: self._similarities(data))
        elif self.params.graph_weight:
            state.buffers["graph"] = self._stored.get(data, lambda: self._graph(data))

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return the losses of a batch with real-valued codes, or the sums of both with half of the codes binary."""
        batch, codes = base.with_inputs(batch, outputs.code)
        if not codes:
            return {}
        image, text = base.code_pair(codes, batch)
        prefix = ""
        if step.name != "joint":
            prefix = "binary_"
            image, text = torch.stack([image, signs(image)]), torch.stack([signs(text), text])
        coexistence, similarity, consistency = losses(
            image, text, *self._similarity(batch, state), self.params.pair_target
        )
        return {
            f"{prefix}coexistence": (1.0, coexistence),
            f"{prefix}similarity": (self.params.similarity_weight, similarity),
            f"{prefix}consistency": (self.params.consistency_weight, consistency),
        }

    def _similarity(self, batch: PairBatch, state: SiloState) -> tuple[Tensor, Tensor]:
        """Return the similarity of a batch's items and the pairs that count, both ``(B, B)``.

        Both steps of a batch use them, so they are stored until the next batch.
        """
        if "rows" not in state.buffers or not torch.equal(state.buffers["rows"], batch.row):
            found = self._of_batch(batch, state)
            counted = torch.ones_like(found).fill_diagonal_(0.0)
            unknown = found.isnan()
            state.buffers["rows"] = batch.row
            state.buffers["similarity"] = found.masked_fill(unknown, 0.0)
            state.buffers["counted"] = counted.masked_fill_(unknown, 0.0)
        return state.buffers["similarity"], state.buffers["counted"]

    def _of_batch(self, batch: PairBatch, state: SiloState) -> Tensor:
        """Return the similarity of a batch's items, ``(B, B)``; NaN for pairs that cannot be compared."""
        if "similarities" in state.buffers:
            return state.buffers["similarities"].index_select(0, batch.row).index_select(1, batch.row)
        graph, inputs = state.buffers.get("graph"), base.inputs_of(batch)
        similar = base.affinity(inputs, inputs, self.params.text_weight)
        return self._between(similar, None if graph is None else graph.index_select(0, batch.row))

    def _similarities(self, data: SiloData) -> Tensor:
        """Return the similarity of all items of a silo, ``(n, n)``; NaN for pairs that cannot be compared."""
        inputs = base.inputs_of(data.batch(torch.arange(len(data), device=data.has_image.device)))
        if not inputs.unit:
            return torch.full((len(data), len(data)), float("nan"), device=data.has_image.device)
        similar = base.affinity(inputs, inputs, self.params.text_weight)
        return self._between(similar, self._graph(data, similar.values) if self.params.graph_weight else None)

    def _between(self, similar: base.Similarity, graph: Tensor | None) -> Tensor:
        """Return the similarity of some items, ``(B, B)``; NaN for pairs that cannot be compared."""
        values, known = similar
        shared = torch.zeros_like(values) if graph is None else base.products_of_rows(graph)
        found = batch_similarity(values, shared, self.params.graph_weight)
        return found if known is None else found.masked_fill(known == 0, float("nan"))

    def _graph(self, data: SiloData, similar: Tensor | None = None) -> Tensor:
        """Return the weights of the nearest neighbors, ``(n, M)``, so that their products are the scaled coherence."""
        params = self.params
        chosen = candidate_rows(len(data), params.candidates).to(data.has_image.device)
        scale = params.graph_scale * neighbor_count(comparable_items(data, chosen), params.neighbors)
        graph = neighbor_graph(data, params.candidates, params.neighbors, params.text_weight, similar=similar)
        return graph.mul_(scale**0.5)
