"""Whether items are found by their own words: the whole caption, the name of a label, and the rarest word of the caption.

    python benchmarks/search_words.py RUN...

Each run is indexed with all items, and its silos release captions and labels. 200 items that have a caption are drawn at
random over all silos. ``caption`` is the share whose caption, as a query, finds the item first, or another with the same
caption. ``label`` is the share of labels of drawn items whose name finds an item with the label among the first ten, and
``rare word`` the share of drawn items whose rarest word finds an item with the word there. Stop words and words of one
character are left out.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from silohash.api.runs import TrainedRun, open_run
from silohash.base.analysis import Analysis, analyze, stop_words, words_of
from silohash.base.errors import UnknownWords
from silohash.search.hits import Hits
from silohash.search.silos import open_nodes

ITEMS = 200
FIRST = 10
SEED = 0


def main() -> None:
    """Measure the runs on the command line."""
    print(f"{'in %':30} {'caption':>9} {'label':>9} {'rare word':>9}")
    for folder in sys.argv[1:]:
        with open_run(Path(folder)) as run:
            shares = " ".join(f"{100 * share:9.1f}" for share in measured(run))
        print(f"{folder[-30:]:30} {shares}", flush=True)


def measured(run: TrainedRun) -> tuple[float, float, float]:
    """Return the three shares, from 0 to 1."""
    analysis, payloads = released(run)
    frequency = Counter(word for payload in payloads for word in words(payload["caption"], analysis))
    rng = np.random.default_rng(SEED)
    drawn = [payloads[row] for row in rng.choice(len(payloads), min(ITEMS, len(payloads)), replace=False)]

    def has_caption(payload: dict[str, Any], caption: str) -> bool:
        return analyze(str(payload.get("caption") or ""), analysis) == analyze(caption, analysis)

    captions = [payload["caption"] for payload in drawn]
    found = [any(has_caption(payload, caption) for payload in hits(run, caption, 1).payloads) for caption in captions]
    labels = list(dict.fromkeys(label for payload in drawn for label in payload.get("labels") or ()))
    with_label = [any(label in hit.labels for hit in hits(run, label, FIRST)) for label in labels]
    rare = [
        min(held, key=lambda word: (frequency[word], word))
        for caption in captions
        if (held := words(caption, analysis))
    ]
    with_word = [any(word in words(hit.caption, analysis) for hit in hits(run, word, FIRST)) for word in rare]
    return share(found), share(with_label), share(with_word)


def released(run: TrainedRun) -> tuple[Analysis, list[dict[str, Any]]]:
    """Return the analysis of the indexes, and the payloads of all items that have a caption."""
    nodes = open_nodes(run.folder / "index")
    stores = [loaded.store for node in nodes for loaded in list(node.indexes()[0].values())[:1]]
    payloads = [payload for store in stores for payload in store.first_payloads(sys.maxsize)]
    analysis = stores[0].manifest.analysis
    for node in nodes:
        node.close()
    return analysis, [payload for payload in payloads if payload.get("caption")]


def words(text: str, analysis: Analysis) -> list[str]:
    """Return the words of a text that are not stop words, as `words_of` does."""
    return [word for word in words_of(text, analysis) if len(word) > 1 and word not in stop_words(analysis)]


def hits(run: TrainedRun, text: str, k: int) -> Hits:
    """Return the hits of a text, without any if the model and the items do not know its words."""
    try:
        return run.search(text, k=k)
    except UnknownWords:
        return Hits()


def share(found: list[bool]) -> float:
    """Return the share of true values; 0 without values."""
    return sum(found) / len(found) if found else 0.0


if __name__ == "__main__":
    main()
