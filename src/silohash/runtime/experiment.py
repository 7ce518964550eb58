"""A whole training: archive, partition, vectors, rounds, the model that comes out."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import torch

from silohash import __version__, seeds
from silohash.data.archive import Archive
from silohash.data.partition.base import Partition, partition
from silohash.features import featuriser
from silohash.features.base import Featuriser
from silohash.features.device import choose_device
from silohash.federated.base import FederatedMethod, FederationInfo
from silohash.files import explaining_disk_errors
from silohash.runtime.checkpoint import RunState, has_checkpoint, load_checkpoint, save_checkpoint
from silohash.runtime.config import RunConfig
from silohash.runtime.encoder import TrainedModel, deployed_weights
from silohash.runtime.evaluation import check_settings
from silohash.runtime.events import JsonLines, Observer
from silohash.runtime.prepared import Prepared, fit_featurisers, prepare, training_silos
from silohash.runtime.rounds import RoundSettings, run_rounds
from silohash.runtime.run import Run, archive_of
from silohash.runtime.runner import InProcess, Runner, SiloTask, WorkerProcesses
from silohash.runtime.worker import Worker, set_threads
from silohash.types import MODALITIES, Modality, Notify, UserError

PACKAGES = ("torch", "numpy", "numba", "safetensors", "pydantic")


def train(
    config: RunConfig, folder: Path, *, observers: Sequence[Observer] = (), notify: Notify = lambda text: None
) -> Run:
    """Trains a run in a new folder.

    Args:
        config: the run.
        folder: where it goes; must not hold a run.
        observers: who is told of each round, beside ``rounds.jsonl``.
        notify: told what is skipped.

    Returns:
        The run, with its model.

    Raises:
        UserError: if anything in config or data must be put right first; then the folder holds no run.
    """
    run = Run(folder)
    choose_device(config.train.device)
    archive = archive_of(config)
    for sentence in archive.card.skipped:
        notify(f"skipped: {sentence}")
    parts = partition(
        archive, config.partition.kind, config.partition.silos, config.seed, **config.partition.parameters()
    )
    prepared, featurisers = prepare_run(archive, parts, config)
    check_settings(archive, tuple(featurisers), config.evaluate)
    run.create(config, parts, environment(config))
    _train(run, prepared, featurisers, observers)
    return run


def resume(folder: Path, *, observers: Sequence[Observer] = ()) -> Run:
    """Goes on with a run that was interrupted; ends as if it had not been.

    Raises:
        UserError: if the folder holds no run, its checkpoint is damaged, or the archive has changed.
    """
    run = Run(folder)
    prepared, featurisers = prepare_run(run.archive, run.partition, run.config)
    _train(run, prepared, featurisers, observers)
    return run


def prepare_run(archive: Archive, parts: Partition, config: RunConfig) -> tuple[Prepared, dict[Modality, Featuriser]]:
    """Returns a run's training inputs and its fitted featurisers."""
    silos = training_silos(archive, parts, config)
    options: Mapping[Modality, Mapping[str, object]] = {"image": config.features.image, "text": config.features.text}
    unfitted: dict[Modality, Featuriser] = {}
    for modality in MODALITIES:
        column = archive.values(modality)
        if column is not None:
            unfitted[modality] = featuriser(modality, column, options[modality])
    if not unfitted:
        raise UserError(f'Archive "{archive.card.name}" has neither pictures nor texts.')
    fitted = fit_featurisers(archive, silos, unfitted)
    return prepare(archive, silos, fitted, config), fitted


def _train(
    run: Run, prepared: Prepared, featurisers: Mapping[Modality, Featuriser], observers: Sequence[Observer]
) -> None:
    config = run.config
    federated: FederatedMethod = config.federated_method
    settings = RoundSettings(
        rounds=config.federated.rounds,
        silos=[name for name, _, _ in prepared.silos],
        fraction=config.federated.fraction,
        validate=any(validation for _, _, validation in prepared.silos),
        seed=config.seed,
        remarks=config.remarks,
    )
    everyone = [JsonLines(run.rounds_path), *observers]
    with make_runner(run, prepared) as (runner, worker):
        if has_checkpoint(run.checkpoint):
            state = load_checkpoint(run.checkpoint, config.digest())
        else:
            info = FederationInfo(
                silos=len(settings.silos), classes=prepared.spec.classes, bits=config.local.bits,
                total_rounds=settings.rounds,
            )  # fmt: skip
            with seeds.torch_globally(config.seed, "server"):
                state = RunState(round=0, server=federated.init_server(worker.model, info))
        for observer in everyone:
            observer.start(name=config.federated.name, total_rounds=settings.rounds, first_round=state.round)
        try:
            state = run_rounds(
                state, federated=federated, runner=runner, settings=settings, observers=everyone,
                save=lambda state: save_checkpoint(run.checkpoint, state, config.digest()),
            )  # fmt: skip
        finally:
            for observer in everyone:
                observer.finish()
        deploy(run, state, prepared, featurisers, runner).save(run.model_folder)


def deploy(
    run: Run, state: RunState, prepared: Prepared, featurisers: Mapping[Modality, Featuriser], runner: Runner
) -> TrainedModel:
    """Returns what the silos deploy after the round that validation picked."""
    federated: FederatedMethod = run.config.federated_method
    server, kept, number = state.chosen()
    personal = {}
    if federated.personalized:
        tasks = [
            SiloTask("deploy", silo, federated.broadcast(server, silo, round=number + 1), kept.get(silo, {}))
            for silo in range(len(prepared.silos))
        ]
        personal = {result.update.sender: result.update.params for result in runner.run(tasks)}
    return TrainedModel(
        config=run.config,
        spec=prepared.spec,
        featurisers=featurisers,
        weights=deployed_weights(federated, server, personal),
        round=number,
    )


@contextmanager
def make_runner(run: Run, prepared: Prepared) -> Iterator[tuple[Runner, Worker]]:
    """Yields the runner that the config asks for, and a worker of this process; ends worker processes after."""
    config = prepared.config
    set_threads(config)
    worker = Worker(prepared, choose_device(config.train.device))
    if config.train.workers == 1 or len(prepared.silos) == 1:
        yield InProcess(worker), worker
        return
    inputs = run.folder / ".inputs"
    shutil.rmtree(inputs, ignore_errors=True)
    try:
        with explaining_disk_errors(inputs):
            inputs.mkdir(parents=True)
        prepared.save(inputs)
        runner = WorkerProcesses(inputs, min(config.train.workers, len(prepared.silos)))
        try:
            yield runner, worker
        finally:
            runner.close()
    finally:
        shutil.rmtree(inputs, ignore_errors=True)


def environment(config: RunConfig) -> dict[str, object]:
    """Returns what a figure depends on beside the config: versions and machine."""
    return {
        "silohash": __version__,
        "python": sys.version.split()[0],
        "packages": {name: version(name) for name in PACKAGES},
        "machine": platform.machine(),
        "system": platform.system(),
        "device": str(choose_device(config.train.device)),
        "threads": torch.get_num_threads(),
        "config_digest": config.digest(),
    }
