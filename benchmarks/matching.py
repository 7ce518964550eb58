"""Speed of exhaustive matching: each word of 1,000 texts with each region of 1,000 images.

    python benchmarks/matching.py [--smoke]

The models score every image with every text, from 36 regions and 12 words of 1,024 random numbers. The direct form, which
the published code uses, computes the context of each word and region for each pair. Ours computes the same scores from
inner products. Both run here on one thread, forward only. Times are CPU seconds per 1,000 pairs: ours for all pairs, and
those of the direct form for few texts, the minimum of several trials.
"""

from __future__ import annotations

import argparse
import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import math  # noqa: E402  the thread counts must be set before torch is loaded
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from dataclasses import dataclass  # noqa: E402

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812  torch's usual name
from torch import Tensor  # noqa: E402

from silohash.base.seeds import torch_generator, torch_globally  # noqa: E402
from silohash.methods.local.matching.attention import in_blocks  # noqa: E402
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
REACH = 2
"""In the sparse graph, words are neighbors if at most one word is between them."""

Form = Callable[["Items"], Tensor]


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


def block_cosines(queries: Tensor, contexts: Tensor) -> Tensor:
    """Return the cosines of queries and contexts per block of dimensions, ``(I, N, P)``."""
    return F.cosine_similarity(in_blocks(queries, BLOCKS), in_blocks(contexts, BLOCKS), dim=-1)


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
    smoke = parser.parse_args().smoke
    torch.set_num_threads(1)
    count, trials = (SMOKE_ITEMS, 1) if smoke else (ITEMS, TRIALS)
    dense, sparse = (make_items(count, sparse=sparse) for sparse in (False, True))
    print(f"CPU seconds per 1,000 pairs, {count} images x {count} texts, one thread")
    print(f"{'model':12} {'direct':>8} {'factored':>9} {'ratio':>7}")
    with torch.inference_mode():
        compare("scan t2i", scan_forms("t2i"), dense, trials)
        compare("scan i2t", scan_forms("i2t"), dense, trials)
        compare("gsmn dense", gsmn_forms(), dense, trials)
        compare("gsmn sparse", gsmn_forms(), sparse, trials)


if __name__ == "__main__":
    main()
