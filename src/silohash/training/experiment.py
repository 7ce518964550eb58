"""Train a run from config to model: read the archive, partition it, prepare inputs, run the rounds, save the model."""

import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from silohash import __version__
from silohash.base import errors, seeds
from silohash.base.files import digest_file, read_json
from silohash.base.locks import INPUTS
from silohash.base.types import MODALITIES, Modality, Notify, Task
from silohash.data.archive import Archive
from silohash.data.formats.columns import unused_columns
from silohash.data.partitions.base import Partition, partition
from silohash.data.partitions.columns import remark_on_values
from silohash.evaluate.calibration import Calibration
from silohash.evaluate.collapse import CodeUse
from silohash.features import featurizer
from silohash.features.base import Featurizer, Featurizers
from silohash.features.device import choose_device
from silohash.features.nodes.regions import RegionFeatures
from silohash.features.nodes.word_ids import WordSequences
from silohash.features.truncation import truncation_remark
from silohash.measure.measurable import check_settings, remark_on_measures, unmeasured
from silohash.methods.federated.statistics import ENCRYPTION, RevealParams, check_revealing_sums
from silohash.methods.local import LOCAL_METHODS
from silohash.models.parameters import buffers_of
from silohash.run.config.exchange import objections_to_private_silos
from silohash.run.config.load import ResolvedConfig, refuse
from silohash.run.config.objections import objections_to_silos
from silohash.run.config.sections import RunConfig
from silohash.run.events import JsonLines, Observer, ProgressReporter
from silohash.run.folder import ENVIRONMENT, Run, archive_of
from silohash.run.model.network_saving import save_networks
from silohash.run.model.onnx_graph import COMPARED_ITEMS, onnx_files
from silohash.run.model.trained import TrainedModel
from silohash.run.model.word_start import GIVE_ANOTHER, VECTORS, install_word_vectors
from silohash.training.checkpoint import RunState, has_checkpoint, load_checkpoint, save_checkpoint
from silohash.training.checks import needs_labels
from silohash.training.engines import port
from silohash.training.engines.worker_processes import WorkerProcesses
from silohash.training.held_back import calibrations, code_uses
from silohash.training.prepared import Prepared, fit_featurizers, prepare, remarks_on, training_silos
from silohash.training.privacy.training import check_private_model
from silohash.training.rounds import RoundSettings, run_rounds
from silohash.training.updates.encryption import SiloKey
from silohash.training.updates.received import FOLDER, ReceivedUpdates
from silohash.training.updates.sealed import broadcast_of, opened_state, run_digest
from silohash.training.worker import Worker, set_threads

RECORDED_PACKAGES = ("torch", "numpy", "numba", "pillow", "safetensors", "pydantic")


def train(
    resolved: ResolvedConfig, folder: Path, *, observers: Sequence[Observer] = (), notify: Notify = lambda text: None
) -> Run:
    """Train a run in a new folder, and return it.

    Args:
        resolved: The config with its methods.
        folder: The folder of the new run. It must not hold a run yet.
        observers: Receive the record of each round, in addition to ``rounds.jsonl``.
        notify: Called with one line per warning about the archive and per skipped row, and with a line if the towers
            could not be saved as ONNX files.

    Raises:
        UserError: If the config or the data must be corrected, or another process writes to the folder. In this case
            no run is created.
    """
    Run(folder).check_free()
    with Run(folder).writing():
        return _train_new(resolved, folder, observers, notify)


def _train_new(resolved: ResolvedConfig, folder: Path, observers: Sequence[Observer], notify: Notify) -> Run:
    config = resolved.config
    choose_device(config.train.device)
    archive = archive_of(config.data)
    for remark in archive.card.remarks():
        notify(remark)
    parts = partition(
        archive, config.partition.kind, config.partition.silos, config.seed, **config.partition.parameters()
    )
    column = parts.params.get("column")
    unused = unused_columns(archive.columns, [column]) if archive.folder is not None else ""
    for remark in filter(None, [remark_on_values(archive, column), unused]):
        notify(remark)
    prepared, featurizers = prepare_run(archive, parts, resolved)
    check_settings(archive, tuple(featurizers), config.evaluate)
    remarks = [*remarks_on(prepared, featurizers), truncation_remark(archive, featurizers)]
    remarks += [unmeasured(archive), remark_on_measures(archive, config.evaluate)]
    for remark in filter(None, remarks):
        notify(remark)
    if config.exchange.privacy is not None:
        check_private_model(prepared.resolved, prepared.spec)
    vectors = config.features.text.get("vectors")
    if vectors and not Path(str(vectors)).is_file():
        raise errors.MissingFile(f"{vectors} is missing. {GIVE_ANOTHER}")
    run = Run(folder, resolved)
    run.check_free()
    run.describe(parts, environment(config), archive)
    _train(run, prepared, featurizers, observers, notify)
    return run


def resume(run: Run, *, observers: Sequence[Observer] = (), notify: Notify = lambda text: None) -> Run:
    """Continue an interrupted run, and return it. The result is identical to that of an uninterrupted run.

    Raises:
        UserError: If the folder does not hold a run, its checkpoint is damaged, the archive has changed, or another
            process writes to the run.
    """
    run.check()
    if run.is_trained and not has_checkpoint(run.checkpoint):  # as studies leave it
        return run
    with run.writing():
        prepared, featurizers = prepare_run(run.archive, run.partition, run.resolved)
        _train(run, prepared, featurizers, observers, notify)
    return run


def prepare_run(archive: Archive, parts: Partition, resolved: ResolvedConfig) -> tuple[Prepared, Featurizers]:
    """Return a run's training inputs and its fitted featurizers.

    Raises:
        UserError: If the archive does not fit the config or the methods, or too few silos take part for the robust rule.
    """
    silos = training_silos(archive, parts, resolved)
    if not resolved.federated.traits.pooled:
        refuse(objections_to_silos(resolved.config.federated, len(silos)))
    if resolved.config.exchange.privacy is not None:
        refuse(objections_to_private_silos(resolved.config, len(silos)))
    unfitted = unfitted_featurizers(archive, resolved)
    fitted = fit_featurizers(archive, silos, unfitted, private=resolved.config.exchange.privacy is not None)
    check_methods(archive, len(fitted), sum(len(silo.validation) for silo in silos), resolved)
    return prepare(archive, silos, fitted, resolved), fitted


def unfitted_featurizers(archive: Archive, resolved: ResolvedConfig) -> dict[Modality, Featurizer]:
    """Return the configured featurizer of each modality of an archive, before it is fitted.

    Raises:
        UserError: If the archive has no modality, or the featurizers do not fit it or the local method.
    """
    features = resolved.config.features
    options: Mapping[Modality, Mapping[str, object]] = {"image": features.image, "text": features.text}
    unfitted: dict[Modality, Featurizer] = {}
    for modality in MODALITIES:
        column = archive.values(modality)
        if column is not None:
            unfitted[modality] = featurizer(modality, column, options[modality])
    if not unfitted:
        raise errors.ModalityNeeded(
            f'Archive "{archive.card.name}" has neither images nor texts. Add a column of either.'
        )
    check_tokens(unfitted, resolved)
    return unfitted


NODE_FEATURES = (RegionFeatures, WordSequences)
"""Featurizers that give an item as a set of nodes."""


def check_tokens(featurizers: Featurizers, resolved: ResolvedConfig) -> None:
    """Check that the local method takes what the featurizers give: one vector per item, vectors of tokens, or nodes.

    Raises:
        UserError: If it takes something else.
    """
    name, scores = resolved.config.local.name, resolved.local.traits.scores_pairs
    for modality, found in featurizers.items():
        if isinstance(found, NODE_FEATURES) != scores:
            raise errors.UnsuitableFeatures(
                f'The local method "{name}" matches regions with words, and features.{modality} are "{found.kind}". Use an '
                'archive with regions or set features.image.kind = "picture_regions", and set features.text.kind = "words".'
                if scores
                else f'[features.{modality}] kind "{found.kind}" gives several nodes per item, and the local method '
                f'"{name}" takes one vector. Choose another kind of features, or a local method that matches nodes.'
            )
        if not scores and len(found.shape) == 2 and not resolved.local.traits.takes_tokens:
            able = [name for name in LOCAL_METHODS.table if LOCAL_METHODS.resolve(name).traits.takes_tokens]
            raise errors.UnsuitableFeatures(
                f'[features.{modality}] pooling = "tokens" gives a vector per token, and the local method '
                f'"{resolved.config.local.name}" takes one per item. Remove pooling, or set local.name = "{able[0]}".'
            )


def check_methods(archive: Archive, modalities: int, validation: int, resolved: ResolvedConfig) -> None:
    """Check that the archive and the silos have what the methods require.

    Raises:
        UserError: If labels, modalities or validation queries are missing, or the user does not allow what silos send.
    """
    config, federated = resolved.config, resolved.federated
    if resolved.local.traits.scores_pairs and modalities < len(MODALITIES):
        lacking = "image" if archive.image is None else "text"
        note = f" (regions: {archive.card.notes['regions']})" if "regions" in archive.card.notes else ""
        raise errors.ModalityNeeded(
            f'The local method "{config.local.name}" scores images against texts, and archive "{archive.card.name}" has no '
            f"{lacking} column{note}. Use an archive that has both."
        )
    labeled = archive.labels is not None and bool(archive.labels.any())
    if resolved.needs_labels and not labeled:
        raise errors.LabelsNeeded(needs_labels(archive, resolved))
    if modalities < federated.traits.min_modalities:
        raise errors.ModalityNeeded(
            f'"{config.federated.name}" needs {federated.traits.min_modalities} modalities, and archive '
            f'"{archive.card.name}" has {modalities}. Choose another federated method.'
        )
    _check_item_bits(resolved, modalities)
    _check_exchange(resolved)
    _check_validation(archive, modalities, resolved)
    _check_scores(judged=validation > 0 and (labeled or resolved.validation_by == "pairs"), resolved=resolved)


def _check_item_bits(resolved: ResolvedConfig, modalities: int) -> None:
    """Check that bits of items, if the local method has any, leave bits for the classes and are trained and deployed."""
    bits, item_bits = resolved.config.local.bits, resolved.local.traits.item_bits
    if not item_bits:
        return
    if item_bits >= bits:
        raise errors.OutOfRange(
            f"local.item_bits = {item_bits} does not leave any bits for the classes, because codes have {bits} bits. "
            f"Set local.item_bits to at most {bits - 1}."
        )
    if modalities < len(MODALITIES):
        raise errors.NoEffect(
            f"Nothing trains the bits of local.item_bits = {item_bits}, because the archive has one modality. Set "
            "local.item_bits = 0."
        )
    if resolved.federated.traits.class_codes:
        raise errors.NoEffect(
            f'"{resolved.config.federated.name}" replaces the bits of local.item_bits = {item_bits}, because its codes '
            "tell only classes apart. Set local.item_bits = 0, or choose another federated method."
        )


def _check_exchange(resolved: ResolvedConfig) -> None:
    """Check that the user allows what silos send, for every member of a composition."""
    settings, federated = resolved.config.federated, resolved.federated
    given = {
        "federated.robust": settings.robust is not None,
        "federated.weight_cap": settings.given_cap < 1,
        "federated.server": settings.server is not None,
        ENCRYPTION: resolved.config.exchange.encryption is not None,
    }
    for label, member in federated.parts(settings.name).items():
        if member.traits.reveals:
            allowed = isinstance(member.params, RevealParams) and member.params.reveal_items
            check_revealing_sums(label, member.traits.reveals, allowed=allowed, rules=[k for k in given if given[k]])


def _check_validation(archive: Archive, modalities: int, resolved: ResolvedConfig) -> None:
    """Check that the archive has what the config wants to choose the round by."""
    settings = resolved.config.evaluate
    if not settings.validation:
        return
    if settings.validation_by == "labels" and archive.labels is None:
        raise errors.LabelsNeeded(
            f'evaluate.validation_by = "labels" chooses the round by labels, and archive "{archive.card.name}" has none. '
            'Set it to "pairs", or set evaluate.validation = 0 to take the last round.'
        )
    if settings.validation_by == "pairs" and modalities < len(MODALITIES):
        raise errors.PairsNeeded(
            'evaluate.validation_by = "pairs" chooses the round by pairs of a picture and a text, and the archive '
            f'"{archive.card.name}" has one modality. Set evaluate.validation = 0 to take the last round.'
        )


def _check_scores(*, judged: bool, resolved: ResolvedConfig) -> None:
    """Check that validation queries with known answers exist if a method weights silos by their scores."""
    config, federated = resolved.config, resolved.federated
    members = federated.parts(config.federated.name)
    scoring = [label for label, member in members.items() if member.traits.needs_scores]
    if scoring and not judged:
        raise errors.ValidationNeeded(
            f'"{scoring[0]}" weights silos by their scores on validation queries, and no silo has any with known answers '
            f"(evaluate.validation is {config.evaluate.validation:g}). Set evaluate.validation = 0.1, or the method's "
            'weighting = "examples".'
        )


def _train(
    run: Run, prepared: Prepared, featurizers: Featurizers, observers: Sequence[Observer], notify: Notify
) -> None:
    """Train a run with the configured engine of this machine, and save its model."""
    train = prepared.config.train
    if prepared.config.exchange.encryption:
        prepared = replace(prepared, key=SiloKey.of_run(run.folder))
    set_threads(train)
    worker = Worker(prepared, choose_device(train.device))
    workers = min(train.workers, len(prepared.silos))
    inputs = run.folder / INPUTS
    engine: port.Engine = port.InProcess(worker) if workers == 1 else WorkerProcesses(inputs, workers, prepared.save)
    try:
        engine.start([name for name, _, _ in prepared.silos])
        state = train_rounds(run, worker, featurizers, engine, observers=observers)
        learned = judgments(state, prepared, engine)
        save_model(run, replace(deploy(state, prepared, featurizers, engine), **learned._asdict()), prepared, notify)
    finally:
        engine.stop()


def train_rounds(
    run: Run,
    worker: Worker,
    featurizers: Featurizers,
    engine: port.Engine,
    *,
    observers: Sequence[Observer] = (),
    limits: port.Limits = port.WAIT_FOR_ALL,
) -> RunState:
    """Run the remaining rounds of a run with an engine that has been started, and return the state after the last."""
    prepared = worker.prepared
    resolved, config = prepared.resolved, prepared.config
    remarks = resolved.remarks
    if config.features.text.get("vectors") and not has_checkpoint(run.checkpoint):
        path, recorded = Path(str(config.features.text["vectors"])), run.folder / ENVIRONMENT
        known = read_json(recorded, dict[str, Any]).get("files", {}).get(VECTORS)
        remarks = (*remarks, install_word_vectors(worker.model, featurizers.get("text"), path, known))
    recipients = [JsonLines(run.rounds_path), *observers]
    keeps = config.exchange.keep_updates and config.exchange.encryption is None
    settings = RoundSettings(
        rounds=config.federated.rounds, silos=[name for name, _, _ in prepared.silos],
        fraction=config.federated.fraction, validate=any(validation for _, _, validation in prepared.silos),
        validation_by=resolved.validation_by, seed=config.seed, remarks=remarks, buffers=buffers_of(worker.model),
        folder=run.folder, limits=limits, chain=worker.chain, announced=prepared.announced,
        keep=ReceivedUpdates(run.folder / FOLDER) if keeps else None,
    )  # fmt: skip
    resumes = has_checkpoint(run.checkpoint)
    state = load_checkpoint(run.checkpoint, config.digest()) if resumes else worker.first_state()
    for observer in recipients:
        observer.start(name=config.federated.name, total_rounds=settings.rounds, first_round=state.round)
    progress = ProgressReporter(recipients)
    worker.epoch_done = progress.epoch_done
    try:
        return run_rounds(
            state, federated=resolved.federated, engine=engine, settings=settings, observers=recipients,
            progress=progress,
            save=lambda state: save_checkpoint(run.checkpoint, state, config.digest()),
        )  # fmt: skip
    finally:
        for observer in recipients:
            observer.finish()


def save_model(run: Run, trained: TrainedModel, prepared: Prepared, notify: Notify) -> None:
    """Save the model of a run, with its towers as ONNX files if that is possible. Otherwise ``notify`` is told why."""
    towers = onnx_files(trained, {modality: samples(prepared, modality) for modality in trained.featurizers})
    if towers.reason and not trained.spec.scores_pairs:
        notify(f"The model is saved without ONNX files, so searching with it needs torch. {towers.reason}")
    trained.save(run.model_folder, towers)
    save_networks(trained.featurizers, notify)


def samples(prepared: Prepared, modality: Modality) -> npt.NDArray[np.generic]:
    """Return the vectors of some training items that have a modality, ``(n, *shape)``, at least one.

    If no item has it here, as where the items are on other machines, the vectors are random. Ids of word pieces are 0 or 1,
    which every vocabulary has.
    """
    rows = np.flatnonzero(prepared.arrays.get(f"has_{modality}", ()))[:COMPARED_ITEMS]
    if not len(rows):
        tower, generator = prepared.spec.towers[modality], seeds.numpy_generator(prepared.config.seed, "samples")
        shape = (COMPARED_ITEMS, *tower.shape)
        if len(tower.shape) == 3:
            return generator.integers(256, size=shape, dtype=np.uint8)
        if tower.kind == "network":
            return generator.integers(2, size=shape, dtype=np.int32)
        return generator.normal(size=shape).astype(np.float32)
    return np.asarray(prepared.arrays[modality][rows])


def deploy(state: RunState, prepared: Prepared, featurizers: Featurizers, engine: port.Engine) -> TrainedModel:
    """Return the trained model of the best round, with a personal model per silo if the method has them."""
    server, _, number = state.chosen()
    server = opened_state(prepared.key, run_digest(prepared.config), server, number + 1)
    personal = {}
    if prepared.resolved.federated.traits.personalized:
        personal = {
            answer.update.sender: dict(answer.update.params)
            for answer in engine.send(deploy_tasks(state, prepared, range(len(prepared.silos))))
            if isinstance(answer, port.SiloResult)
        }
    return prepared.trained(featurizers, server, personal, round=number)


class Judgments(NamedTuple):
    """What silos found about the best round's model, as `TrainedModel` has it."""

    calibration: dict[Task, Calibration]
    codes: dict[Modality, CodeUse]


def judgments(
    state: RunState, prepared: Prepared, engine: port.Engine, limits: port.Limits = port.WAIT_FOR_ALL
) -> Judgments:
    """Return how sure hits of the best round's model are, and the use of its codes, unless it scores pairs or is private."""
    if prepared.resolved.local.traits.scores_pairs or prepared.config.exchange.privacy is not None:
        return Judgments({}, {})
    attendance = port.Attendance(engine, limits)
    tasks = deploy_tasks(state, prepared, attendance.invited(range(len(prepared.silos))), kind="calibrate")
    announced = dict(enumerate(prepared.announced))
    sent = [(dict(result.update.sums), announced.get(result.silo)) for result in attendance.results(tasks)]
    bits = prepared.config.local.bits
    return Judgments(calibrations(sent, bits), code_uses(sent, bits))


def deploy_tasks(
    state: RunState,
    prepared: Prepared,
    silos: Iterable[int],
    *,
    kind: port.TaskKind = "deploy",
    notes: Mapping[str, str] | None = None,
) -> Iterator[port.SiloTask]:
    """Yield the tasks to deploy the model of the best round, or to judge it, one per silo."""
    server, kept, number = state.chosen()
    for silo in silos:
        broadcast = broadcast_of(prepared.resolved.federated, server, silo, number + 1)
        yield port.SiloTask(
            kind, silo, replace(broadcast, notes={**broadcast.notes, **(notes or {})}), kept.get(silo, {})
        )


def environment(config: RunConfig) -> dict[str, object]:
    """Return what the results depend on in addition to the config: software versions, machine and the file of vectors."""
    vectors = config.features.text.get("vectors")
    return {
        "silohash": __version__,
        "python": sys.version.split()[0],
        "packages": {name: version(name) for name in RECORDED_PACKAGES},
        "machine": platform.machine(),
        "system": platform.system(),
        "device": str(choose_device(config.train.device)),
        "threads": torch.get_num_threads(),
        "config_digest": config.digest(),
        **({"files": {VECTORS: digest_file(Path(str(vectors)))}} if vectors and Path(str(vectors)).is_file() else {}),
    }
