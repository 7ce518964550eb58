"""Time of a text query over 1,000 pictures in two stages, and how much the first stage finds.

    python benchmarks/matching_search.py [--local NAME] [--bits N] [--rounds N] [--smoke]

A model that scores pairs is trained on ``flickr8k-1k`` and all its pictures are indexed in one silo. Captions that were not
trained on are then searched for as `silohash search` does: the words are encoded, the codes of the pictures find
candidates, and the model scores these. Times are those of one thread, after one query. The processor time depends little on
other programs, and the wall time does.
The exhaustive ranking scores all pictures. Recall@C is the share of its first ten pictures that are among C candidates by
code, with ties counted as in the figures of a run.
"""

from __future__ import annotations

import argparse
import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import tempfile  # noqa: E402  the thread counts must be set before torch is loaded
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402

from silohash.api.runs import TrainedRun, train  # noqa: E402
from silohash.data.pairs import picture_numbers  # noqa: E402
from silohash.evaluate.measures import Measure, evaluate_all  # noqa: E402
from silohash.evaluate.scores import best_scored  # noqa: E402
from silohash.index.codes import pack  # noqa: E402
from silohash.run.folder import Run  # noqa: E402
from silohash.run.model.scores import ArchiveScores  # noqa: E402

GOAL_MS, GOAL_RECALL, CANDIDATES = 100.0, 0.98, 100
CUTOFFS = (50, CANDIDATES, 200)
QUERIES, SMOKE_QUERIES = 300, 5
DEFAULT_ROUNDS = 20


def config(local: str, bits: int, rounds: int) -> dict[str, Any]:
    """Return the config of the run: one silo, and texts and regions as in ``recipes/matching.toml``."""
    return {
        "data": {"name": "flickr8k-1k", "options": {"image": "regions"}},
        "features": {"text": {"kind": "words", "min_texts": 2}},
        "model": {"hidden": 256, "dropout": 0.3},
        "partition": {"kind": "iid", "silos": 1},
        "local": {"name": local, "bits": bits},
        "federated": {"name": "centralized", "rounds": rounds, "local_epochs": 1},
        "train": {"batch": 64, "learning_rate": 5e-4, "weight_decay": 0.0, "clip_norm": 2.0, "threads": 1},
        "evaluate": {"measures": ["R@10[by=pairs]"], "evaluations": ["GG"], "validation": 0.0},
    }


def first_stage(run: Run) -> None:
    """Print the recall of the first stage over all pictures, for the captions of the split query."""
    archive, encoder = run.archive, run.model.encoder()
    queries = archive.split("query")
    pictures = np.sort(np.unique(picture_numbers(archive), return_index=True)[1])
    scores = ArchiveScores(run.model, archive).of_model("t2i", "global", queries, pictures)
    words, items = (
        pack(encoder.outputs(encoder.featurizers[modality].transform(archive.values(modality), rows), modality))
        for modality, rows in (("text", queries), ("image", pictures))
    )
    measures = [Measure.parse(f"R@{cutoff}[by=scores]") for cutoff in CUTOFFS]
    found = evaluate_all(measures, words, items, best_scored(scores), encoder.bits)
    print(f"{len(queries):,} captions, {len(pictures):,} pictures, codes of {encoder.bits} bits")
    for measure, cutoff in zip(measures, CUTOFFS, strict=True):
        recall = found[measure].mean()
        goal = f"   goal {GOAL_RECALL} {'met' if recall >= GOAL_RECALL else 'NOT MET'}" if cutoff == CANDIDATES else ""
        print(f"recall@{cutoff:<4} {recall:.3f}{goal}")


def times(run: TrainedRun, texts: list[str]) -> None:
    """Print the time per query."""
    run.search(texts[0], candidates=CANDIDATES, previews=False)
    taken: dict[str, list[float]] = {"processor time": [], "wall time": []}
    clocks = dict(zip(taken, (time.process_time, time.perf_counter), strict=True))
    for text in texts:
        started = {name: clock() for name, clock in clocks.items()}
        hits = run.search(text, candidates=CANDIDATES, previews=False)
        for name, clock in clocks.items():
            taken[name].append(1e3 * (clock() - started[name]))
        assert hits.order == "score", "the silo did not score its candidates"
    for name, values in taken.items():
        median, most = np.percentile(values, [50, 99])
        met = "met" if median <= GOAL_MS else "NOT MET"
        print(f"query, {name:14}: median {median:.1f} ms, 99th percentile {most:.1f} ms   goal {GOAL_MS:.0f} ms {met}")


def main() -> None:
    """Train, index, and print every line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--local", default="gsmn", help="local method")
    parser.add_argument("--bits", type=int, default=256, help="code length")
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help="number of epochs")
    parser.add_argument("--smoke", action="store_true", help="train once and ask little, to check that it runs")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        rounds = 1 if given.smoke else given.rounds
        run = train(config(given.local, given.bits, rounds), Path(folder) / "run", report=False, index=False)
        print(f"{given.local}, {rounds} epochs in {time.process_time() - started:.0f} s of processor time")
        run.index(all_items=True)
        trained = Run.open(run.folder)
        first_stage(trained)
        rows = trained.archive.split("query")[::5][: SMOKE_QUERIES if given.smoke else QUERIES]
        times(run, [trained.archive.caption(int(row)) for row in rows])


if __name__ == "__main__":
    main()
