"""Speed of matching: each word of 1,000 texts with each region of 1,000 images, and training steps of 32 pairs.

    python benchmarks/matching.py [--smoke] [--steps]

The models score every image with every text, from 36 regions and 12 words of 1,024 random numbers. The direct form computes
the context of each word and region for each pair. Ours computes the same scores from inner products. Both run here on one
thread, forward only. Times are CPU seconds per 1,000 pairs: ours for all pairs, and those of the direct form for few
texts, the minimum of several trials.

The training steps are those of matching alone: scores, hinge loss and gradients of 32 images and 32 texts, without the
encoders. The public form computes what the published code of SCAN and GSMN does, in its order: one text after the other,
with only the words that it has, copied for all images; GSMN twice, for words and for regions, with the values of the
neighbors stored for every node. Ours compares all texts at once, which are padded to the longest. Lengths are 12 on
average, or those with one text of 40 words. The ratio is ours divided by the public form, the minimum of several trials
that alternate.
"""

from __future__ import annotations

import argparse
import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import math  # noqa: E402  the thread counts must be set before torch is loaded
import time  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from functools import partial  # noqa: E402

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812  torch's usual name
from torch import Tensor  # noqa: E402

from silohash.base.seeds import torch_generator, torch_globally  # noqa: E402
from silohash.methods.local.matching.attention import in_blocks  # noqa: E402
from silohash.methods.local.matching.base import max_violation  # noqa: E402
from silohash.methods.local.matching.gsmn import GraphMatching, GSMNParams, word_edges  # noqa: E402
from silohash.methods.local.matching.scan import SCANNet, SCANParams  # noqa: E402
from silohash.models.nodes import Nodes  # noqa: E402

ITEMS, SMOKE_ITEMS = 1_000, 40
REGIONS, WORDS, WIDTH = 36, 12, 1_024
BLOCKS, KERNELS, KERNEL_WIDTH = 16, 8, 4
SHARPNESS = {"t2i": 9.0, "i2t": 4.0, "gsmn": 10.0}
DIRECT_TEXTS, DIRECT_IMAGES, AT_A_TIME = 4, 128, 64
TRIALS = 3
GOALS = {"scan t2i": 3.0, "scan i2t": 3.0, "gsmn dense": 5.0, "gsmn sparse": 5.0}
PAIRS, MEAN_WORDS, FEWEST_WORDS, LONG_TEXT = 32, 12, 4, 40
STEPS = ((128, 8), (128, 16), (256, 16), (1_024, 16))
"""Dimensions of the common space and number of blocks of GSMN in the training steps."""
STEP_GOAL = 1.0
REACH = 2
"""In the sparse graph, words are neighbors if at most one word is between them."""

Form = Callable[["Items"], Tensor]
Scores = Callable[[Nodes, Nodes], Tensor]


@dataclass(frozen=True)
class Items:
    """Images and texts with unit vectors.

    Attributes:
        images: ``(I, R, D)``.
        boxes: ``(I, R, 4)``.
        texts: ``(T, W, D)``.
        neighbors: ``(T, W, W)`` bool, or None if all words are neighbors.
    """

    images: Tensor
    boxes: Tensor
    texts: Tensor
    neighbors: Tensor | None = None

    def some(self, images: slice, texts: slice) -> Items:
        """Return some of the images and texts."""
        neighbors = None if self.neighbors is None else self.neighbors[texts]
        return Items(self.images[images], self.boxes[images], self.texts[texts], neighbors)

    @property
    def masks(self) -> tuple[Tensor, Tensor]:
        """Masks without padding, of the images and of the texts."""
        return tuple(torch.ones(values.shape[:2], dtype=torch.bool) for values in (self.images, self.texts))  # type: ignore[return-value]

    @property
    def nodes(self) -> tuple[Nodes, Nodes]:
        """The images and the texts."""
        image_mask, text_mask = self.masks
        return Nodes(self.images, image_mask, self.boxes), Nodes(self.texts, text_mask)


def make_items(count: int, *, sparse: bool) -> Items:
    """Draw images and texts."""
    generator = torch_generator(0, "matching benchmark")
    images, texts = (
        F.normalize(torch.randn(count, nodes, WIDTH, generator=generator), dim=-1) for nodes in (REGIONS, WORDS)
    )
    boxes = torch.rand(count, REGIONS, 2, 2, generator=generator).sort(2).values.flatten(2)
    near = (torch.arange(WORDS) - torch.arange(WORDS).unsqueeze(1)).abs() <= REACH
    return Items(images, boxes, texts, near.expand(count, -1, -1) if sparse else None)


def direct_contexts(images: Tensor, text: Tensor, direction: str, sharpness: float) -> Tensor:
    """Return the contexts of one text's words ``(I, W, D)``, or of the regions ``(I, R, D)``."""
    affinity = F.leaky_relu(images @ text.T, 0.1)
    if direction == "t2i":
        return (F.normalize(affinity, dim=2) * sharpness).softmax(1).mT @ images
    return (F.normalize(affinity, dim=1) * sharpness).softmax(2) @ text


def block_cosines(queries: Tensor, contexts: Tensor, blocks: int = BLOCKS) -> Tensor:
    """Return the cosines of queries and contexts per block of dimensions, ``(I, N, P)``."""
    return F.cosine_similarity(in_blocks(queries, blocks), in_blocks(contexts, blocks), dim=-1)


def scan_forms(direction: str) -> tuple[Form, Form]:
    """Return the factored and the direct form of stacked cross attention with mean pooling, ``(I, T)``."""
    sharpness = SHARPNESS[direction]

    params = SCANParams(direction="t2i" if direction == "t2i" else "i2t", inverse_temperature=sharpness)
    net = SCANNet(torch.nn.Identity(), torch.nn.Identity(), params)

    def factored(items: Items) -> Tensor:
        return net.score(*items.nodes)

    def direct(items: Items) -> Tensor:
        scores = []
        for text in items.texts:
            contexts = direct_contexts(items.images, text, direction, sharpness)
            queries = text if direction == "t2i" else items.images
            scores.append(F.cosine_similarity(queries, contexts, dim=-1).mean(1))
        return torch.stack(scores, 1)

    return factored, direct


def gsmn_forms() -> tuple[Form, Form]:
    """Return the factored and the direct form of graph matching, ``(I, T)``. Both match structure alike."""
    sharpness = SHARPNESS["gsmn"]
    with torch_globally(0, "matching benchmark"):
        params = GSMNParams(blocks=BLOCKS, kernels=KERNELS, kernel_width=KERNEL_WIDTH, inverse_temperature=sharpness)
        model = GraphMatching(params)

    def factored(items: Items) -> Tensor:
        scores: Tensor = model(*items.nodes, items.neighbors)
        return scores

    def direct(items: Items) -> Tensor:
        image_mask, text_mask = items.masks
        near_regions = model.regions.edges(items.boxes, image_mask)
        near_words = word_edges(items.texts, text_mask, sharpness, items.neighbors)
        scores = []
        for row, text in enumerate(items.texts):
            one = slice(row, row + 1)
            words = block_cosines(text, direct_contexts(items.images, text, "t2i", sharpness)).transpose(0, 1)[None]
            regions = block_cosines(items.images, direct_contexts(items.images, text, "i2t", sharpness))[None]
            of_words = model.words(words, near_words[one], text_mask[one])
            scores.append(of_words + model.regions(regions, near_regions, image_mask))
        return torch.cat(scores).T

    return factored, direct


@dataclass(frozen=True)
class Batch:
    """A batch of pairs.

    Attributes:
        images: ``(B, R, D)``.
        boxes: ``(B, R, 4)``.
        texts: ``(B, W, D)``, padded.
        words: Number of words of each text.
    """

    images: Tensor
    boxes: Tensor
    texts: Tensor
    words: list[int]

    def nodes(self) -> tuple[Nodes, Nodes]:
        """Return the images and the texts, of length 1."""
        images, texts = F.normalize(self.images, dim=2), F.normalize(self.texts, dim=2)
        there = torch.arange(texts.shape[1]) < torch.tensor(self.words).unsqueeze(1)
        regions = torch.ones(images.shape[:2], dtype=torch.bool)
        return Nodes(images, regions, self.boxes), Nodes(torch.where(there.unsqueeze(2), texts, 0.0), there)


def make_batch(width: int, *, long_text: bool) -> Batch:
    """Draw the vectors of a batch, whose texts have 12 words on average."""
    generator = torch_generator(0, "matching benchmark, steps")
    words = (MEAN_WORDS + 4 * torch.randn(PAIRS, generator=generator)).round().clamp(min=FEWEST_WORDS).int().tolist()
    words[0] = LONG_TEXT if long_text else words[0]
    images, texts = (torch.randn(PAIRS, nodes, width, generator=generator) for nodes in (REGIONS, max(words)))
    boxes = torch.rand(PAIRS, REGIONS, 2, 2, generator=generator).sort(2).values.flatten(2)
    return Batch(images.requires_grad_(), boxes, texts.requires_grad_(), words)


def public_contexts(queries: Tensor, keys: Tensor, sharpness: float) -> Tensor:
    """Return the contexts ``(I, N, D)`` of all queries among the keys ``(I, M, D)`` of the other item of their pair."""
    affinity = F.normalize(F.leaky_relu(torch.bmm(keys, queries.mT), 0.1), dim=2)
    return torch.bmm((affinity.mT * sharpness).softmax(2), keys)


def public_scan(images: Nodes, texts: Nodes, words: list[int], direction: str) -> Tensor:
    """Return the scores of stacked cross attention, ``(I, T)``, one text after the other."""
    scores = []
    for text, count in zip(texts.values, words, strict=True):
        caption = text[:count].repeat(len(images), 1, 1)
        queries, keys = (caption, images.values) if direction == "t2i" else (images.values, caption)
        found = public_contexts(queries, keys, SHARPNESS[direction])
        scores.append(F.cosine_similarity(queries, found, dim=2).mean(1))
    return torch.stack(scores, 1)


def public_graph(values: Tensor, edges: Tensor, kernels: torch.nn.Linear, score: torch.nn.Module) -> Tensor:
    """Return the scores of graphs, ``(I,)``, of their nodes' values ``(I, N, P)`` and edges per kernel ``(I, N, N, K)``."""
    count, nodes, width = values.shape
    neighbors = values.unsqueeze(1).repeat(1, nodes, 1, 1).view(count * nodes, nodes, width)
    moved = torch.bmm(edges.reshape(count * nodes, nodes, KERNELS).mT, neighbors)
    biases = [None] * KERNELS if kernels.bias is None else kernels.bias.chunk(KERNELS)
    parts = zip(kernels.weight.chunk(KERNELS), biases, strict=True)
    found = torch.cat([F.linear(moved[:, kernel], *part) for kernel, part in enumerate(parts)], 1)
    return score(found).view(count, nodes).mean(1)  # type: ignore[no-any-return]


def public_gsmn(model: GraphMatching, images: Nodes, texts: Nodes, words: list[int]) -> Tensor:
    """Return the scores of dense graph matching, ``(I, T)``, one text after the other."""
    blocks, sharpness = model.params.blocks, SHARPNESS["gsmn"]
    assert images.boxes is not None
    edges = model.regions.edges(images.boxes, images.mask).permute(0, 2, 3, 1).contiguous()
    of_words, of_regions = [], []
    for row, count in enumerate(words):
        text = texts.values[row : row + 1, :count]
        caption = text.repeat(len(images), 1, 1)
        cosines = block_cosines(caption, public_contexts(caption, images.values, sharpness), blocks)
        near = (sharpness * text @ text.mT).softmax(2).unsqueeze(3).repeat(len(images), 1, 1, KERNELS)
        of_words.append(public_graph(cosines, near, model.words.kernels, model.words.score))
    for text, count in zip(texts.values, words, strict=True):
        caption = text[:count].repeat(len(images), 1, 1)
        cosines = block_cosines(images.values, public_contexts(images.values, caption, sharpness), blocks)
        of_regions.append(public_graph(cosines, edges, model.regions.kernels, model.regions.score))
    return torch.stack(of_words, 1) + torch.stack(of_regions, 1)


def compare_steps(name: str, score: Scores, public: Scores, batch: Batch, trials: int) -> None:
    """Print the time of a training step in both forms and their ratio, after a check that their scores are equal."""
    gap = (score(*batch.nodes()) - public(*batch.nodes())).abs().max().item()
    assert gap < 1e-5, f"{name}: the scores differ by {gap}"
    best = [math.inf, math.inf]
    for _ in range(trials):
        for place, form in enumerate((score, public)):
            started = time.process_time()
            max_violation(form(*batch.nodes()), 0.2).backward()  # type: ignore[no-untyped-call]
            best[place] = min(best[place], time.process_time() - started)
    ratio = best[0] / best[1]
    met = "met" if ratio <= STEP_GOAL else "NOT MET"
    print(f"{name:34} {best[1]:8.3f} {best[0]:8.3f} {ratio:7.2f}   goal {STEP_GOAL:.1f} {met}", flush=True)


def steps(trials: int, widths: Sequence[tuple[int, int]]) -> None:
    """Measure and print the training steps."""
    print(f"\nCPU seconds per training step of {PAIRS} pairs, without the encoders, one thread")
    print(f"{'model':34} {'public':>8} {'ours':>8} {'ratio':>7}")
    for width, blocks in widths:
        for long_text in (False, True):
            batch = make_batch(width, long_text=long_text)
            ending = f"D = {width}{f', one of {LONG_TEXT} words' if long_text else ''}"
            for direction in () if (width, blocks) == STEPS[0] else ("t2i", "i2t"):
                params = SCANParams(direction=direction, inverse_temperature=SHARPNESS[direction])
                net = SCANNet(torch.nn.Identity(), torch.nn.Identity(), params)
                public = partial(public_scan, words=batch.words, direction=direction)
                compare_steps(f"scan {direction}, {ending}", net.score, public, batch, trials)
            with torch_globally(0, "matching benchmark"):
                model = GraphMatching(GSMNParams(blocks=blocks, kernels=KERNELS, kernel_width=KERNEL_WIDTH))
            compare_steps(
                f"gsmn P = {blocks}, {ending}", model, partial(public_gsmn, model, words=batch.words), batch, trials
            )


def seconds_per_thousand(score: Form, items: Items) -> float:
    """Return the CPU seconds per 1,000 pairs, with `AT_A_TIME` images and texts at a time, as in an evaluation."""
    started = time.process_time()
    for first in range(0, len(items.images), AT_A_TIME):
        for start in range(0, len(items.texts), AT_A_TIME):
            score(items.some(slice(first, first + AT_A_TIME), slice(start, start + AT_A_TIME)))
    return (time.process_time() - started) / (len(items.images) * len(items.texts)) * 1e3


def compare(name: str, forms: tuple[Form, Form], items: Items, trials: int) -> None:
    """Print the time of both forms and their ratio, after a check that their scores are equal."""
    few = items.some(slice(DIRECT_IMAGES), slice(DIRECT_TEXTS))
    factored, direct = forms
    gap = (factored(few) - direct(few)).abs().max().item()
    assert gap < 1e-5, f"{name}: the scores differ by {gap}"
    theirs = math.inf
    for _ in range(trials):
        theirs = min(theirs, seconds_per_thousand(direct, few))
    ours = seconds_per_thousand(factored, items)
    ratio, goal = theirs / ours, GOALS[name]
    met = "met" if ratio >= goal else "NOT MET"
    print(f"{name:12} {theirs:8.4f} {ours:9.4f} {ratio:7.1f}   goal {goal:.0f} x {met}", flush=True)


def main() -> None:
    """Measure and print every line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="use few items, to check that it runs")
    parser.add_argument("--steps", action="store_true", help="measure the training steps only")
    given = parser.parse_args()
    smoke = given.smoke
    torch.set_num_threads(1)
    if given.steps:
        return steps(1 if smoke else TRIALS, STEPS[:1] if smoke else STEPS)
    count, trials = (SMOKE_ITEMS, 1) if smoke else (ITEMS, TRIALS)
    dense, sparse = (make_items(count, sparse=sparse) for sparse in (False, True))
    print(f"CPU seconds per 1,000 pairs, {count} images x {count} texts, one thread")
    print(f"{'model':12} {'direct':>8} {'factored':>9} {'ratio':>7}")
    with torch.inference_mode():
        compare("scan t2i", scan_forms("t2i"), dense, trials)
        compare("scan i2t", scan_forms("i2t"), dense, trials)
        compare("gsmn dense", gsmn_forms(), dense, trials)
        compare("gsmn sparse", gsmn_forms(), sparse, trials)
    return steps(trials, STEPS[:1] if smoke else STEPS)


if __name__ == "__main__":
    main()
