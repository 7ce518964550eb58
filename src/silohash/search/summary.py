"""The summary of a silo: what a hub and those who search learn of it before they ask for an item."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from silohash import __version__
from silohash.base.errors import UserError
from silohash.search.loaded_index import LoadedIndex, most_frequent
from silohash.search.requests import MOST_EXAMPLES, MOST_SUMMARY_LABELS, Item, SiloStatus

if TYPE_CHECKING:
    from silohash.search.node import SiloNode


def summary_of(node: SiloNode) -> SiloStatus:
    """Return the summary of a silo. If it cannot be searched, the summary has the reason instead of an error."""
    indexes, unusable = node.indexes()
    reasons = [reason for modality, reason in unusable.items() if node.has(modality)]
    try:
        digest = node.model_digest
        first = next(iter(indexes.values()), None)
        return SiloStatus(
            name=node.name, version=__version__,
            items={modality: len(loaded.index) for modality, loaded in indexes.items()}, model_digest=digest,
            reason=" ".join(dict.fromkeys(reasons)), reachable=bool(indexes), fields=node.policy.fields,
            columns=node.policy.columns, labels={} if first is None else _labels(node, first),
            examples=() if first is None else _examples(node, first), models=(digest, *node.other_models),
            accepts_content=node.policy.accept_query_content, accepts_words=node.policy.accept_query_words,
            about=node.policy.about,
        )  # fmt: skip
    except UserError as error:
        return SiloStatus(name=node.name, version=__version__, reason=str(error), reachable=False)


def _examples(node: SiloNode, loaded: LoadedIndex) -> tuple[Item, ...]:
    """Return some items of an index, spread evenly over it, as far as the policy approves them."""
    keys = loaded.index.keys
    count = min(MOST_EXAMPLES, len(keys))
    places = (2 * np.arange(count) + 1) * len(keys) // (2 * max(count, 1))
    return tuple(node.item(name) for name in loaded.store.item_ids(keys[places]) if node.approves(name))


def _labels(node: SiloNode, loaded: LoadedIndex) -> dict[str, int]:
    """Return the labels of the items that the silo releases, in order; the most frequent ones if there are too many."""
    released = "labels" in node.policy.fields
    return most_frequent(loaded.labels(node.approved_ids()), MOST_SUMMARY_LABELS) if released else {}
