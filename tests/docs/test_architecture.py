"""The walks of the architecture page are the files that a trace of the code enters, in the same order."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import BaseModel
from torch import nn

from silohash.base.types import Outputs, PairBatch, Phase, Step
from silohash.data.partitions.base import Partition
from silohash.index.codes import Codes
from silohash.methods.federated.averaging import Aggregation
from silohash.methods.federated.base import FederationInfo, ServerState, SiloContext
from silohash.methods.message import Message
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.run.config.load import ResolvedConfig
from silohash.run.folder import Run
from silohash.run.indexing import index_run
from silohash.search.hits import Hits, Query
from silohash.search.silos import ask_run, open_nodes
from silohash.training.checkpoint import RunState
from silohash.training.engines.in_process import InProcess
from silohash.training.engines.port import SiloResult, SiloTask
from silohash.training.prepared import Prepared
from silohash.training.rounds import RoundSettings
from silohash.training.worker import Worker
from tests.runs import silohash, tiny
from tests.walks import Walk, folder_of, returns

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "architecture.md"
FROM_THE_CONFIG = (
    *(ResolvedConfig, BaseModel, ModelSpec, TowerSpec, Partition, Prepared, Run, Worker, InProcess),
    *(RoundSettings, RunState, ServerState, FederationInfo, Aggregation, Message),
    *(SiloTask, SiloContext, SiloResult, Phase, Step, nn.Module, torch.optim.Optimizer),
)
"""The config and everything that is resolved from it; methods are recognized by their ``Params``."""
READING = ("base/files.py", "base/forms.py")
"""Files that read and check any file, which the page leaves out."""

FROM_A_PICTURE = (Image.Image, np.ndarray, torch.Tensor, PairBatch, Outputs, Codes)


def listed(heading: str) -> list[str]:
    """Return the files that the page lists under a heading."""
    section = PAGE.read_text(encoding="utf-8").partition(f"### {heading}\n")[2].partition("\n#")[0]
    return re.findall(r"^\d+\. \[`([\w/]+\.py)`\]", section, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[str]]:
    """A small run on pictures and texts, trained by the command, and the files that its config entered."""
    folder = tmp_path_factory.mktemp("walks")
    config = {
        **tiny(folder, federated={"rounds": 1, "local_epochs": 1}, partition={"silos": 2}),
        "data": {"name": "glyphs", "options": {"faces": 1, "limit": 300}},
        "features": {"image": {"size": 16, "cache": False}, "text": {"buckets": 64}},
    }
    from silohash.run.config.load import load_config

    file = folder / "run.toml"
    file.write_text(load_config(config).to_toml(), encoding="utf-8")

    def carries(value: object) -> bool:
        if isinstance(value, Run):
            return value.given is not None  # otherwise it is only a folder
        return (
            isinstance(value, FROM_THE_CONFIG)
            or hasattr(type(value), "Params")
            or (isinstance(value, Path) and value == file)
        )

    walk = Walk(carries, stop=lambda where, name: (where, name) == ("training/silo.py", "_step"))
    walk.follow(lambda: silohash("train", file, "--out", folder / "run"))
    assert walk.ended
    run = Run.open(folder / "run")
    index_run(run)
    return run, [name for name in walk.files if name not in READING]


def test_from_the_config_to_the_first_gradient(trained: tuple[Run, list[str]]) -> None:
    _, files = trained
    assert files == listed("From the config to the first gradient")
    assert len(files) <= 22
    assert returns(files) <= 6


def test_from_a_picture_to_its_code(trained: tuple[Run, list[str]]) -> None:
    encoder = trained[0].model.encoder()
    picture = Image.new("RGB", (40, 30), (200, 120, 40))
    walk = Walk(lambda value: isinstance(value, FROM_A_PICTURE))
    files = walk.follow(lambda: encoder.encode(picture, "image"))
    assert files == listed("From a picture to its code")
    assert len(files) <= 5
    assert "training" not in map(folder_of, files)


def after_the_query() -> Callable[[object], bool]:
    """Return what carries a query: the query, and from then on arrays and hits too."""
    asked = False

    def carries(value: object) -> bool:
        nonlocal asked
        asked = asked or isinstance(value, Query)
        return isinstance(value, (Query, Hits)) or (asked and isinstance(value, np.ndarray))

    return carries


def test_from_a_query_to_the_merged_hits(trained: tuple[Run, list[str]]) -> None:
    run, _ = trained
    nodes = open_nodes(run.index_folder)

    def search() -> Hits:
        return ask_run(run, "rightwards arrow", "text", "image", k=3, nodes=nodes)

    walk = Walk(after_the_query())
    files = walk.follow(search)
    assert files == listed("From a query to the merged hits")
    assert len(files) <= 10
