"""The walks of the architecture page are the files that a trace of the code enters, in the same order."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from itertools import groupby
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
from silohash.models.parameters import Optimizer
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.run.config.load import ResolvedConfig
from silohash.run.folder import Run
from silohash.run.indexing import index_run
from silohash.search.hits import Hits, Query
from silohash.search.node import SiloNode
from silohash.search.policy import Policy
from silohash.search.silos import open_nodes
from silohash.search.wire import Response, decode_answer, encode_request
from silohash.service import silo
from silohash.service.audit import AuditLog
from silohash.service.config import BusSettings, SiloConfig
from silohash.service.items.change import ModelChange
from silohash.service.link import Link
from silohash.service.models import SiloModels
from silohash.service.nats_bus import NatsBus
from silohash.training.checkpoint import RunState
from silohash.training.engines.port import InProcess, SiloResult, SiloTask
from silohash.training.prepared import Prepared
from silohash.training.rounds import RoundSettings
from silohash.training.worker import Worker
from tests.nats import Federation, needs_nats
from tests.runs import silohash, tiny
from tests.silos import ask_run
from tests.walks import Walk, folder_of, returns

pytestmark = pytest.mark.whole_run

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "architecture.md"
FROM_THE_CONFIG = (
    *(ResolvedConfig, BaseModel, ModelSpec, TowerSpec, Partition, Prepared, Run, Worker, InProcess),
    *(RoundSettings, RunState, ServerState, FederationInfo, Aggregation, Message),
    *(SiloTask, SiloContext, SiloResult, Phase, Step, nn.Module, Optimizer),
)
"""The config and everything that is resolved from it; methods are recognized by their ``Params``."""
READING = ("base/files.py", "base/forms.py")
"""Files that read and check any file, which the page leaves out."""

FROM_THE_CONFIG_OF_A_SILO = (
    *(SiloConfig, BusSettings, Run, Policy, SiloNode, SiloModels, ModelChange, AuditLog, Link),
    *(Query, Hits, Response),
)
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
    assert len(files) <= 20
    assert returns(files) <= 5


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
    assert len(files) <= 11


@needs_nats
def test_from_the_config_of_a_silo_to_its_answer(trained: tuple[Run, list[str]], tmp_path: Path) -> None:
    run, _ = trained
    code = run.model.encoder().encode("rightwards arrow", "text")
    query = Query(words=code.words[0], bits=code.bits, model_digest=code.model_digest, target="image", k=3)
    sent, answers = encode_request(query), dict[str, bytes]()

    async def ask(federation: Federation) -> None:
        bus = NatsBus(federation.hub)
        await bus.link.start(wait_seconds=60)
        while not answers:
            answers.update((await bus.ask({"silo-1": sent}, 60)).answers)
        os.kill(os.getpid(), signal.SIGTERM)
        await bus.link.stop()

    def ask_apart() -> None:
        sys.setprofile(None)  # the walk is that of the silo
        asyncio.run(ask(federation))

    def carries(value: object) -> bool:
        if isinstance(value, bytes):
            return code.model_digest.encode() in value
        is_file = isinstance(value, Path) and value.name == "silo-1.toml"
        return is_file or isinstance(value, FROM_THE_CONFIG_OF_A_SILO)

    walk = Walk(carries, stop=lambda where, name: (where, name) == ("service/silo.py", "_log"))
    with Federation(tmp_path, "silo-1", run=run.folder) as federation:
        thread = threading.Thread(target=ask_apart)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(silo, "log_event", lambda event, **_: thread.start() if event == "silo started" else None)
            walk.follow(lambda: silohash("silo", tmp_path / "silo-1.toml"))
        thread.join(60)
    assert len(decode_answer(answers["silo-1"], "silo-1")) == 3
    assert walk.ended
    files = [name for name in walk.files if name not in READING]
    assert files == listed("From the config of a silo to its answer")
    assert len(files) <= 20
    stays = len(list(groupby(name for name in walk.stays if name not in READING)))
    assert stays <= 50
