"""Train a run with silos that hold their own data, from the config to the model: the part of the server."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from silohash import __version__
from silohash.base.errors import TooFewSilos
from silohash.base.files import write_bytes, write_json, write_text
from silohash.base.names import describe_near
from silohash.base.types import Notify
from silohash.features.base import Featurizers
from silohash.features.device import choose_device
from silohash.methods.federated.base import ServerState
from silohash.methods.message import Message
from silohash.run.config.load import ResolvedConfig
from silohash.run.events import Observer
from silohash.run.folder import ENVIRONMENT, Run
from silohash.run.model.trained import TrainedModel
from silohash.training.checkpoint import RunState, has_checkpoint, load_checkpoint
from silohash.training.engines.port import WAIT_FOR_ALL, Attendance, Engine, Limits, SiloTask
from silohash.training.experiment import deploy_tasks, environment, judgments, save_model, train_rounds
from silohash.training.prepared import Prepared
from silohash.training.privacy.training import check_private_model
from silohash.training.sites.plan import PLAN, Plan, announcements, check_separable, read_message, unusable
from silohash.training.updates.sealed import SEALED
from silohash.training.worker import Worker, set_threads

RUNS = "runs"
"""Folder of the runs in the kit of the server. They outlive jobs, so that a new job continues a run."""

COPIED = ("config.toml", "environment.json", "rounds.jsonl", "model")

SETUP_SECONDS = 3600.0
"""How long to wait until all silos have computed their features before the first round."""

LOCK_SECONDS = 60.0
"""How long to wait until an earlier job of the run has left its folder."""

STORE_SECONDS = 600.0
"""How long silos may at least take to store their models after the last round."""


def train_at_sites(
    resolved: ResolvedConfig,
    folder: Path,
    engine: Engine,
    silos: Sequence[str],
    *,
    limits: Limits = WAIT_FOR_ALL,
    observers: Sequence[Observer] = (),
    notify: Notify = lambda text: None,
) -> Run:
    """Train a run, or continue it from its checkpoint, and return it. Its folder does not contain items or a partition.

    Silos use their own data in place of the archive of the config. The engine is started and stopped here.

    Raises:
        UserError: If the config does not fit the silos or the checkpoint of the run, or too few silos answer.
    """
    check_separable(resolved)
    run = Run(folder, resolved)
    with run.writing(LOCK_SECONDS):
        if has_checkpoint(run.checkpoint):
            # Before anything of that run is replaced, at the server or at the silos.
            load_checkpoint(run.checkpoint, resolved.config.digest())
        write_json(folder / ENVIRONMENT, environment(resolved.config))
        write_text(run.config_path, resolved.config.to_toml())
        engine.start(silos)
        try:
            plan = agree(run, engine, silos, limits, notify)
            prepared = plan.server_inputs(resolved)
            check_private_model(resolved, prepared.spec)
            set_threads(resolved.config.train)
            worker = Worker(prepared, choose_device(resolved.config.train.device))
            state = train_rounds(run, worker, plan.featurizers, engine, observers=observers, limits=limits)
            trained = deploy_at_sites(state, prepared, plan.featurizers, engine, limits=limits, notify=notify)
            save_model(run, trained, prepared, notify)
        finally:
            engine.stop()
    return run


def copy_run(folder: Path, copy: Path) -> None:
    """Copy what whoever started a run gets of it: the records of the rounds, and the model."""
    copy.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        source = folder / name
        if source.is_dir():
            shutil.copytree(source, copy / name, dirs_exist_ok=True)
        elif source.exists():
            shutil.copyfile(source, copy / name)


def agree(run: Run, engine: Engine, silos: Sequence[str], limits: Limits, notify: Notify) -> Plan:
    """Return the plan of a run, after sending it to the silos that can take part.

    Before the first round, it is merged from what the silos tell about their items. A run that continues keeps its plan. So
    it continues without silos that are away, and silos that were away at the beginning join it.

    Raises:
        UserError: If too few silos answer, the descriptions do not fit together, or the stored plan is damaged.
    """
    path, continues = run.folder / PLAN, has_checkpoint(run.checkpoint)
    needed = limits.quorum if continues else limits.start or len(silos)
    asked = Attendance(engine, Limits(SETUP_SECONDS, needed))
    notes = {"config": run.config.to_toml(), "silos": json.dumps(list(silos))}
    notes |= {"version": __version__, "digest": run.config.shared_digest()}
    announcement = Message(kind="broadcast", sender="server", round=0, notes=notes)
    answers = asked.results(SiloTask("describe", silo, announcement) for silo in asked.invited(range(len(silos))))
    descriptions = []
    for answer in answers:
        if (reason := unusable(answer.update)) is None:
            descriptions.append(answer.update)
        else:
            asked.absent[answer.silo] = f"sent a description that cannot be used ({reason})"
    _check_start(asked, silos, needed)
    if continues and path.exists():
        message = read_message(path)
        plan = Plan.decode(message)
    else:
        plan = _merged(descriptions, silos, notify).with_networks(run.resolved)
        message = plan.encode()
        write_bytes(path, message.encode())
    plan = replace(plan, announced=announcements(run.folder, plan, descriptions, begins=not continues))
    present = [silo for silo in range(len(silos)) if silo not in asked.absent]
    for _ in asked.results(SiloTask("prepare", silo, message) for silo in present):
        pass
    _check_start(asked, silos, needed)
    for silo, reason in asked.absent.items():
        notify(f"{silos[silo]} does not take part yet: it {reason.removesuffix('.')}.")
    return plan


def _merged(descriptions: Sequence[Message], silos: Sequence[str], notify: Notify) -> Plan:
    plan = Plan.merged(descriptions, silos)
    if near := describe_near("labels of the silos", plan.labels):
        notify(near)
    return plan


def _check_start(asked: Attendance, silos: Sequence[str], needed: int) -> None:
    there = len(silos) - len(asked.absent)
    if there < needed:
        reasons = "; ".join(f"{silos[silo]} {reason.removesuffix('.')}" for silo, reason in asked.absent.items())
        raise TooFewSilos(
            f"{there} of {len(silos)} silos can begin, and {needed} must: {reasons}. Start the run again when they can."
        )


def deploy_at_sites(
    state: RunState, prepared: Prepared, featurizers: Featurizers, engine: Engine, *, limits: Limits, notify: Notify
) -> TrainedModel:
    """Let each silo store the model that it deploys, and return the model of the server, without personal ones."""
    seconds = None if limits.deadline_seconds is None else max(limits.deadline_seconds, STORE_SECONDS)
    attendance = Attendance(engine, Limits(seconds, quorum=0))
    silos = attendance.invited(range(len(prepared.silos)))
    learned = judgments(state, prepared, engine, attendance.limits)._asdict()
    notes = {name: json.dumps({key: asdict(one) for key, one in found.items()}) for name, found in learned.items()}
    for _ in attendance.results(deploy_tasks(state, prepared, silos, notes=notes)):
        pass
    for silo, reason in attendance.absent.items():
        notify(
            f"{prepared.silos[silo][0]} has not stored its model: it {reason.removesuffix('.')}. Start the run again, with "
            "the same config and folder, when it can."
        )
    federated = prepared.resolved.federated
    server, _, number = state.chosen()
    if federated.traits.personalized and federated.traits.shares == "none":
        server = replace(server, params={})  # those of the beginning
    if SEALED in server.private:
        server = ServerState(params={})
    return replace(prepared.trained(featurizers, server, {}, round=number), **learned)
