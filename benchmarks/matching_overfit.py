"""Recall of VSE++ and of a linear method with the same inputs, for training pictures and for new ones.

    python benchmarks/matching_overfit.py [--pictures N ...] [--epochs N] [--smoke]

The pictures are those of ``flickr8k-1k`` with five captions each. Both methods see the mean of a picture's regions. VSE++
reads the words of a caption with a GRU. The linear method is canonical correlation analysis (CCA) with ridge terms on bags
of words. Each line has the sum of the six recalls, at most 600, among pictures that the method was fitted on (300 at most),
and among the 300 pictures of the split query.
"""

from __future__ import annotations

import argparse
import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

from dataclasses import dataclass  # noqa: E402  the thread counts must be set before torch is loaded

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from silohash.base.seeds import torch_globally  # noqa: E402
from silohash.data.pairs import picture_numbers  # noqa: E402
from silohash.evaluate.measures import evaluate_all  # noqa: E402
from silohash.evaluate.relevance import Pairs  # noqa: E402
from silohash.evaluate.scores import NO_WORDS, Scores  # noqa: E402
from silohash.features.nodes.word_ids import SPECIAL  # noqa: E402
from silohash.features.vectors import vectors  # noqa: E402
from silohash.methods.local.matching.base import max_violation  # noqa: E402
from silohash.methods.local.matching.vsepp import VSEpp  # noqa: E402
from silohash.models.matching_net import MatchingNet, nodes_of, scores_of  # noqa: E402
from silohash.models.nodes import BOX  # noqa: E402
from silohash.models.specs import ModelSpec, TowerSpec  # noqa: E402
from silohash.run.config.load import load_resolved  # noqa: E402
from silohash.run.folder import archive_of  # noqa: E402
from silohash.run.model.scores import RECALL_SUM  # noqa: E402
from silohash.training.experiment import unfitted_featurizers  # noqa: E402

CONFIG = {
    "data": {"name": "flickr8k-1k", "options": {"image": "regions"}},
    "features": {"text": {"kind": "words", "min_texts": 2}},
    "local": {"name": "vsepp"},
    "federated": {"name": "centralized"},
    "evaluate": {"measures": ["RSum[by=pairs]"]},
}
WIDTH, DROPOUT, BATCH, RATE, CLIP, MARGIN, EASY_EPOCHS = 128, 0.3, 24, 5e-4, 2.0, 0.2, 4
RIDGE_IMAGE, RIDGE_TEXT = 1.0, 10.0
"""Ridge terms of CCA, as multiples of the mean variance of a column."""


@dataclass(frozen=True)
class Items:
    """Captions and their pictures.

    Attributes:
        images: ``(n, 1, D + 4)``, the mean of the regions of each caption's picture, as one region.
        texts: ``(n, W)``, numbers of words.
        pictures: ``(n,)``, number of each caption's picture.
        words: Number of different words.
    """

    images: Tensor
    texts: Tensor
    pictures: np.ndarray
    words: int

    def of_pictures(self, count: int) -> Items:
        """Return the captions of the first pictures."""
        rows = np.flatnonzero(np.isin(self.pictures, np.unique(self.pictures)[:count]))
        return Items(self.images[rows], self.texts[rows], self.pictures[rows], self.words)

    def features(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean regions ``(n, D)`` and the bags of words ``(n, words)``."""
        bags = torch.zeros(len(self.texts), self.words + 1)
        places = torch.where(self.texts < SPECIAL, self.words, self.texts).long()
        bags.scatter_(1, places, 1.0)
        return self.images[:, 0, :-BOX].double().numpy(), bags[:, :-1].double().numpy()


def read() -> tuple[Items, Items]:
    """Return the items of the splits train and query."""
    resolved = load_resolved(CONFIG)
    archive = archive_of(resolved.config.data)
    numbers, rows = picture_numbers(archive), archive.split("train")
    parts: list[dict[str, Tensor]] = [{}, {}]
    for modality, unfitted in unfitted_featurizers(archive, resolved).items():
        fitted = unfitted.fitted(unfitted.statistics(archive.values(modality), rows))
        for part, of in zip(parts, (rows, archive.split("query")), strict=True):
            part[modality] = torch.from_numpy(np.array(vectors(archive, fitted, of, archive.has(modality)[of])))
    words = int(max(part["text"].max() for part in parts)) + 1
    train, query = (
        Items(part["image"].float().mean(1, keepdim=True), part["text"], numbers[of], words)
        for part, of in zip(parts, (rows, archive.split("query")), strict=True)
    )
    return train, query


def recall_sum(values: np.ndarray, pictures: np.ndarray) -> float:
    """Return the sum of the six recalls, given the scores of pictures ``(p, n)`` in ascending order with all captions."""
    numbers = np.unique(pictures)
    both = ((values, numbers, pictures), (values.T, pictures, numbers))
    found = (
        evaluate_all([RECALL_SUM], NO_WORDS, Scores(scores), Pairs.of_groups(asked, searched), 0)[RECALL_SUM]
        for scores, asked, searched in both
    )
    return 100 * sum(float(values.mean()) for values in found)


def trained(items: Items, epochs: int) -> MatchingNet:
    """Train VSE++ as a run of one silo does."""
    towers = {
        "image": TowerSpec(kind="regions", shape=tuple(items.images.shape[1:]), hidden=WIDTH, dropout=DROPOUT),
        "text": TowerSpec(
            kind="words",
            shape=tuple(items.texts.shape[1:]),
            hidden=WIDTH,
            dropout=DROPOUT,
            settings={"words": items.words},
        ),
    }
    net = VSEpp(VSEpp.Params()).network(ModelSpec(towers=towers, classes=0))
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    pictures = torch.from_numpy(items.pictures)
    for epoch in range(epochs):
        for rows in torch.randperm(len(pictures)).split(BATCH):
            images, texts = net.image(items.images[rows]), net.text(items.texts[rows])
            same = pictures[rows].unsqueeze(0) == pictures[rows].unsqueeze(1)
            loss = max_violation(net.score(images, texts), MARGIN, hardest=epoch >= EASY_EPOCHS, same=same)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
            optimizer.step()
    return net


def recall_of_vse(net: MatchingNet, items: Items) -> float:
    """Return the sum of recalls of VSE++."""
    first = np.unique(items.pictures, return_index=True)[1]
    images, texts = nodes_of(net, items.images[first], "image"), nodes_of(net, items.texts, "text")
    return recall_sum(scores_of(net, images, texts).numpy(), items.pictures)


def recalls_of_cca(train: Items, asked: list[Items]) -> list[float]:
    """Fit CCA, and return the sum of recalls for each of several sets of items."""
    images, bags = train.features()
    rarity = np.log(len(bags) / (1 + bags.sum(0)))

    def scaled(values: np.ndarray) -> np.ndarray:
        values = values * rarity
        return values / np.linalg.norm(values, axis=1, keepdims=True).clip(1e-9)

    centers = images.mean(0), scaled(bags).mean(0)
    left, right = images - centers[0], scaled(bags) - centers[1]
    roots = []
    for part, ridge in ((left, RIDGE_IMAGE), (right, RIDGE_TEXT)):
        moments = part.T @ part / len(part)
        moments += ridge * np.trace(moments) / len(moments) * np.eye(len(moments))
        roots.append(np.linalg.inv(np.linalg.cholesky(moments)).T)
    first, strengths, second = np.linalg.svd(roots[0].T @ (left.T @ right / len(left)) @ roots[1], full_matrices=False)
    maps = roots[0] @ (first * strengths)[:, :WIDTH], roots[1] @ (second.T * strengths)[:, :WIDTH]
    found = []
    for items in asked:
        images, bags = items.features()
        places = np.unique(items.pictures, return_index=True)[1]
        ends = (images[places] - centers[0]) @ maps[0], (scaled(bags) - centers[1]) @ maps[1]
        one, other = (end / np.linalg.norm(end, axis=1, keepdims=True).clip(1e-9) for end in ends)
        found.append(recall_sum(one @ other.T, items.pictures))
    return found


def main() -> None:
    """Fit both methods on more and more pictures, and print every line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, nargs="+", default=[150, 300, 600], help="numbers of training pictures")
    parser.add_argument("--epochs", type=int, default=6, help="epochs of VSE++")
    parser.add_argument("--smoke", action="store_true", help="train on few pictures once, to check that it runs")
    given = parser.parse_args()
    torch.set_num_threads(1)
    train, query = read()
    print(f"{'pictures':>8}  {'method':8} {'training':>8} {'new':>8}", flush=True)
    for count in [30] if given.smoke else given.pictures:
        known = train.of_pictures(count)
        asked = [known.of_pictures(300), query]
        with torch_globally(0, "training"):
            net = trained(known, 1 if given.smoke else given.epochs)
        for name, found in (
            ("CCA", recalls_of_cca(known, asked)),
            ("VSE++", [recall_of_vse(net, items) for items in asked]),
        ):
            print(f"{count:8}  {name:8} {found[0]:8.1f} {found[1]:8.1f}", flush=True)


if __name__ == "__main__":
    main()
