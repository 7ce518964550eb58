"""The run that a silo stores: its index is built with the model that the silo deploys."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from silohash.config.load import load_resolved
from silohash.exchange.message import Message
from silohash.index.store import Store
from silohash.models.parameters import params_of
from silohash.runtime.experiment import prepare_run
from silohash.runtime.indexing import index_run
from silohash.runtime.run import Run, archive_of, archive_of_data
from silohash.runtime.sites.own_run import store_own_run
from silohash.runtime.sites.plan import rows_of_site
from silohash.runtime.worker import Worker
from silohash.types import UserError
from tests.runs import tiny, write_archive


def stored(tmp_path: Path, method: str) -> tuple[Run, Path]:
    """Returns the run that the second of two silos stores, with initial parameters, and its archive."""
    data = write_archive(tmp_path / "data", count=40)
    resolved = load_resolved(tiny(data, federated={"name": method}))
    archive = archive_of(resolved.config)
    prepared, featurisers = prepare_run(archive, rows_of_site(archive, 1, ["north", "south"], 0), resolved)
    params = params_of(Worker(prepared, torch.device("cpu")).model)
    store_own_run(
        tmp_path / "first", prepared, featurisers, broadcast=Message("broadcast", "server", 4, params),
        model=Message("model", "south", 4, params), notify=lambda text: None,
    )  # fmt: skip
    return Run.open(tmp_path / "first"), data


@pytest.mark.parametrize("method", ["fedavg", "fedala"])
def test_index_is_built_with_the_model_that_the_silo_deploys(tmp_path: Path, method: str) -> None:
    run, _ = stored(tmp_path, method)
    assert run.model.round == 3
    assert index_run(run) == {"south": 33}
    name = "south" if method == "fedala" else "global"
    assert run.model.deployed_by("south") == name
    with Store.open(run.index_folder / "south" / "image.sqlite") as index:
        assert index.manifest.model_digest == run.model.digest(name)
    assert (run.model_folder / f"image-{run.model.names.index(name):03d}.onnx").exists()
    if method == "fedala":
        with pytest.raises(UserError, match=r"Name the model of a silo: south\."):
            run.model.encoder("global", run_by="torch")


def test_items_that_have_changed_since_are_noticed(tmp_path: Path) -> None:
    run, data = stored(tmp_path, "fedavg")
    text = (data / "metadata.csv").read_text()
    (data / "metadata.csv").write_text(text.replace("number 3", "number three"))
    with pytest.raises(UserError, match="has changed since"):
        index_run(Run.open(run.folder))


def test_model_without_items_encodes_the_items_of_each_silo(tmp_path: Path) -> None:
    run, _ = stored(tmp_path, "fedavg")
    for name in ("partition.json", "archive.safetensors"):
        (run.folder / name).unlink()
    copied = Run.open(run.folder)
    assert copied.silo_names == ()
    with pytest.raises(UserError, match=r"hold their items on their own machines\. Give the folder"):
        index_run(copied)
    assert index_run(copied, archive_of_data(copied.config.data), name="north") == {"north": 33}
