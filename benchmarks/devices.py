"""What a GPU gains over the processor: a round of training with narrow and wide towers, and encoding pictures.

    python benchmarks/devices.py [--smoke]

The processor uses all of its cores. Each line has the seconds on the processor, those on the GPU, and their ratio; both
are measured in turn in this run. Without a GPU, the seconds of the processor are shown alone. A round is one of federated
averaging with DCMH in ten silos. Pictures are encoded with a vision transformer of the size ViT-B/16 with random weights,
whose inputs are already resized.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from training import CONFIG, coco18_or_drawn, side_by_side
from transformers import ViTConfig, ViTModel
from transformers.utils.logging import disable_progress_bar

from silohash.base.cores import available_cores
from silohash.base.files import write_json
from silohash.data.partitions.base import partition
from silohash.features.network import Network, make_network
from silohash.methods.federated.base import FederationInfo
from silohash.run.config.load import load_resolved
from silohash.training.checkpoint import RunState
from silohash.training.engines.port import InProcess
from silohash.training.experiment import prepare_run
from silohash.training.prepared import Prepared
from silohash.training.rounds import RoundSettings, run_rounds
from silohash.training.worker import Worker

SIZES = ((256, 128), (256, 512), (1024, 128), (4096, 128), (4096, 512))
"""Widths of the towers' hidden layers, each with a batch."""
SMALL_SIZES = ((32, 128),)
PICTURES = 64
SIDE = 224
SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}


def main() -> None:
    """Measure and print all lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="use small networks, to check that it runs")
    smoke = parser.parse_args().smoke
    torch.set_num_threads(available_cores())
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    print(f"processor with {available_cores()} cores, {_gpu()}, torch {torch.__version__}")
    for hidden, batch in SMALL_SIZES if smoke else SIZES:
        prepared = federation(hidden, batch)
        report(
            f"a round, {hidden} hidden units, batches of {batch}", [round_of(prepared, device) for device in devices]
        )
    with tempfile.TemporaryDirectory() as folder:
        network = vision_transformer(Path(folder), SMALL if smoke else {})
        noise = np.random.default_rng(0).integers(0, 256, (PICTURES, SIDE, SIDE, 3), dtype=np.uint8)
        inputs = network.prepare(Image.fromarray(pixels) for pixels in noise)
        for half in (False, True):
            tasks = [partial(network.embed, inputs, device, half=half) for device in devices]
            report(f"encoding {PICTURES} pictures, {'16' if half else '32'} bits", tasks)


def _gpu() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"


def report(text: str, tasks: Sequence[Callable[[], object]]) -> None:
    """Measure a task on each device in turn, and print one line."""
    seconds = side_by_side(*tasks)
    shown = [f"{device} {value:8.3f} s" for device, value in zip(("processor", "GPU"), seconds, strict=False)]
    if len(seconds) > 1:
        shown.append(f"the GPU is {seconds[0] / seconds[1]:.2f} times as fast")
    print(f"{text:<44} " + "   ".join(shown), flush=True)


def federation(hidden: int, batch: int) -> Prepared:
    """Return the inputs of a run with towers of some width."""
    changes: Mapping[str, Mapping[str, object]] = {
        "model": {"hidden": hidden},
        "train": {**CONFIG["train"], "batch": batch, "threads": 0},
    }
    resolved = load_resolved({**CONFIG, **changes})
    archive = coco18_or_drawn(resolved.config)
    prepared, _ = prepare_run(archive, partition(archive, "iid", 10, 0), resolved)
    return prepared


def round_of(prepared: Prepared, device: str) -> Callable[[], object]:
    """Return the function that trains one round on a device."""
    worker, federated = Worker(prepared, torch.device(device)), prepared.resolved.federated
    silos = [name for name, _, _ in prepared.silos]
    info = FederationInfo(
        silos=len(silos), classes=prepared.spec.classes, bits=prepared.config.local.bits, total_rounds=100
    )
    state = RunState(round=0, server=federated.init_server(worker.model, info))
    settings = RoundSettings(rounds=1, silos=silos, validate=False)
    return partial(run_rounds, state, federated=federated, engine=InProcess(worker), settings=settings)


def vision_transformer(folder: Path, settings: Mapping[str, int]) -> Network:
    """Write a vision transformer with random weights into a folder, and return it as a featurizer's network."""
    disable_progress_bar()
    ViTModel(ViTConfig(image_size=SIDE, **settings)).save_pretrained(folder)
    write_json(
        folder / "preprocessor_config.json",
        {
            "image_processor_type": "ViTImageProcessor",
            "size": {"height": SIDE, "width": SIDE},
            "resample": 2,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
        },
    )
    return make_network("huggingface", "image", {"model": str(folder)})


if __name__ == "__main__":
    main()
