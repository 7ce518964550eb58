"""Speed and memory of decoding and preparing pictures, compared with the smallest published backbone.

    python benchmarks/loader.py [--pictures 10000]

Photos from coco18, or random pictures if it is missing, are written as JPEG files of 320 x 240 pixels. The loader alone
reads, decodes, resizes and crops them for MobileNetV2. The network alone processes pictures that are already prepared.
Both use all cores and take turns, so that a busy machine affects both. MobileNetV2 (width 1.0, 224 pixels, random
weights, which do not change the time) is the smallest of the common backbones: 0.3 billion multiplications per picture,
a sixth of ResNet-18.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from silohash.base.errors import UserError
from silohash.base.files import write_json
from silohash.base.seeds import numpy_generator
from silohash.base.types import Arrays, Rows
from silohash.data.catalogue import open_archive
from silohash.data.pictures.reading import PictureFiles
from silohash.features.base import blocks
from silohash.features.loading import loader_threads, prefetched
from silohash.features.network import Network
from silohash.models.huggingface import frozen

SIZE_PIXELS = (320, 240)
BATCH = 32
TURNS = 10
GOAL_RATIO = 3.0
GOAL_MEGABYTES = 150
PREPARATION = {
    "image_processor_type": "MobileNetV2ImageProcessor",
    "size": {"shortest_edge": 256},
    "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224},
    "resample": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}


def main() -> None:
    """Measure and print both figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=int, default=10_000)
    count = parser.parse_args().pictures
    torch.set_grad_enabled(False)
    with tempfile.TemporaryDirectory() as folder:
        pictures = written(Path(folder) / "pictures", count)
        network = smallest_backbone(Path(folder) / "mobilenet")
        measure(network, pictures)


def report(claim: str, value: float, goal: str, *, met: bool) -> None:
    """Print one line."""
    print(f"{claim:84} {value:7.2f}   goal {goal:8} {'met' if met else 'NOT MET'}", flush=True)


def written(folder: Path, count: int) -> PictureFiles:
    """Write JPEG files with quality 85 and return them as a column."""
    folder.mkdir()
    try:
        photos = open_archive("coco18", options={"image": "jpeg"}).pictures()
    except UserError as error:
        print(f"{error} Using random pictures.", file=sys.stderr)
        photos = None

    def write(number: int) -> str:
        """Write one file and return its name."""
        if photos is None:
            coarse = numpy_generator(number, "loader").integers(0, 255, (24, 32, 3)).astype(np.uint8)
            picture = Image.fromarray(coarse)
        else:
            picture = photos.picture(number % len(photos))
        name = f"{number:06}.jpg"
        picture.resize(SIZE_PIXELS, Image.Resampling.BICUBIC).save(folder / name, quality=85)
        return name

    with ThreadPoolExecutor(loader_threads()) as pool:
        return PictureFiles(folder, list(pool.map(write, range(count))))


def smallest_backbone(folder: Path) -> Network:
    """Return MobileNetV2 with random weights."""
    from transformers import MobileNetV2Config, MobileNetV2Model

    MobileNetV2Model(MobileNetV2Config()).save_pretrained(folder)
    write_json(folder / "preprocessor_config.json", PREPARATION)
    return frozen("image", model=str(folder))


def measure(network: Network, pictures: PictureFiles) -> None:
    """Run loader and network in turn, and print both figures."""

    def prepare(rows: Rows) -> Arrays:
        """Decode and prepare one batch."""
        return network.prepare(pictures.picture(int(row)) for row in rows)

    def load(rows: Rows) -> Arrays:
        """Run the loader alone and return its last batch."""
        groups = [block for _, block in blocks(rows, BATCH)]
        batch: Arrays = {}
        for batch in prefetched(groups, prepare, threads=loader_threads(), ahead=loader_threads() + 2):  # noqa: B007
            pass
        return batch

    batch = prepare(np.arange(BATCH))
    load(np.arange(min(len(pictures), 16 * BATCH)))
    network.embed(batch, "cpu", half=False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loading = computing = 0.0
    for rows in np.array_split(np.arange(len(pictures)), TURNS):
        started = time.perf_counter()
        load(rows)
        loading += time.perf_counter() - started
        started = time.perf_counter()
        network.embed(batch, "cpu", half=False)
        computing += time.perf_counter() - started
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / 1e6
    loader_rate, network_rate = len(pictures) / loading, TURNS * BATCH / computing
    print(f"{len(pictures):,} pictures; {loader_threads()} loading threads, {torch.get_num_threads()} network threads")
    ratio = loader_rate / network_rate
    claim = f"loader alone / MobileNetV2 alone ({loader_rate:.0f} and {network_rate:.0f} pictures per second)"
    report(claim, ratio, f">= {GOAL_RATIO:g}", met=ratio >= GOAL_RATIO)
    claim = f"growth of peak memory over {len(pictures):,} pictures, in MB"
    report(claim, grown, f"<= {GOAL_MEGABYTES}", met=grown <= GOAL_MEGABYTES)


if __name__ == "__main__":
    main()
