"""Carry out silo tasks, in this process or in a worker process (``python -m silohash.training.worker FOLDER``)."""

import sys
import traceback
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from silohash.base import seeds
from silohash.base.errors import UserError
from silohash.base.types import PAIR_TASKS, SIDES, Rows, Side, Task, database_modalities, query_modality
from silohash.evaluate.relevance import Pairs
from silohash.evaluate.ties import average_precision, histogram
from silohash.evaluate.validation import ValidationScore, validation_score_of
from silohash.features.device import choose_device
from silohash.methods.federated.base import SiloContext
from silohash.methods.local.base import SiloData
from silohash.methods.message import Message
from silohash.models.backbones import install_published
from silohash.models.parameters import OptimizerPool, params_of
from silohash.models.towers import Adapted
from silohash.run.config.sections import TrainConfig
from silohash.run.model.scores import match_score, paired_rows
from silohash.training.checkpoint import RunState
from silohash.training.engines.port import SiloResult, SiloTask
from silohash.training.engines.processes import available_threads, serve
from silohash.training.engines.wire import decode_task, encode_result
from silohash.training.held_back import counted, relevance_of, silo_code_counts, silo_counts, words_of
from silohash.training.prepared import Prepared
from silohash.training.privacy.training import PrivateRound
from silohash.training.silo import EpochDone, finish_silo, make_context, train_silo

T = TypeVar("T")


class Worker:
    """Carry out silo tasks with one model, and keep the data of each silo in memory once it has been loaded."""

    def __init__(self, prepared: Prepared, device: torch.device) -> None:
        self.epoch_done: EpochDone = lambda epoch, epochs: None
        self.prepared = prepared
        self.device = device
        self.config = prepared.config
        self.local, self.federated = prepared.resolved.local, prepared.resolved.federated
        with seeds.torch_globally(self.config.seed, "initial weights"):
            self.model = self.local.build(prepared.spec, self.config.local.bits).to(device)
        if prepared.published:
            install_published(self.model, prepared.published)
        self.initial = params_of(self.model)
        self.chain = prepared.chain()
        self.chain.prepare(self.model)
        self.data: dict[int, tuple[SiloData, SiloData]] = {}
        self.optimizers = OptimizerPool()

    def do(self, task: SiloTask) -> SiloResult:
        """Carry out a task, and return what leaves the silo.

        The task is to return the silo's weights, to train it, to finish its round, to score the model that it deploys, to
        count its hits and codes, or to return that model. The result is valid until the next task.
        """
        return self.chain.do(task, self._do)

    def _do(self, task: SiloTask, gradients: PrivateRound | None = None) -> SiloResult:
        """Carry out a task as the federated method knows it, with other gradients than those of batches if given."""
        if task.silo not in self.data:
            self.data[task.silo] = self.prepared.silo(task.silo, self.device)
        train, validation = self.data[task.silo]
        context = make_context(task, self.config, model=self.model, local=self.local, data=train, initial=self.initial)
        # A reference would keep the models of the context until the next garbage collection.
        seen = weakref.proxy(context)
        context.validation_score = lambda: self._score(seen, validation).score
        if task.kind == "weigh":
            weights = self.federated.weights(context, self.federated.shared_parameters(self.model))
            return SiloResult(task.silo, Message("weights", train.name, context.round, weights=weights))
        if task.kind == "train":
            return train_silo(context, self.federated, self.config, self.epoch_done, self.optimizers, gradients)
        if task.kind == "finish":
            return finish_silo(context, task.kept, self.federated, self.config)
        with seeds.torch_globally(self.config.seed, "deploy", silo=task.silo, round=task.broadcast.round):
            self.federated.personalize(context)
        if task.kind == "validate":
            found = self._score(context, validation)
            counts = {"queries": len(validation) if np.isfinite(found.score) else 0, "judged": found.judged}
            scores = {"score": found.score, "chance": found.chance}
            if found.judged > 1:
                scores |= {"auc": found.auc, "auc_error": found.auc_error}
            return SiloResult(task.silo, Message("score", train.name, context.round, scalars=scores, counts=counts))
        if task.kind == "calibrate":
            sums = self._judged(silo_counts, context, validation)
            if not self.federated.traits.personalized:  # bits of different models do not add up
                model = Adapted(self.model, self.federated.adapter, context.payload.extras)
                sides = self.local.traits.label_sides
                sums |= silo_code_counts(model, train, self.config.local.bits, with_labels=sides)
            return SiloResult(task.silo, Message("counts", train.name, context.round, sums=sums))
        deployed = Message(kind="model", sender=train.name, round=context.round, params=params_of(self.model))
        return SiloResult(task.silo, deployed)

    def first_state(self) -> RunState:
        """Return the state before the first round, as the server makes it."""
        with seeds.torch_globally(self.config.seed, "server"):
            server = self.federated.init_server(self.model, self.prepared.info())
        return RunState(round=0, server=self.chain.start(server))

    def _judged(self, judge: Callable[..., T], context: SiloContext, validation: SiloData) -> T:
        """Return what a function of codes says about the held-back items among those of the silo."""
        model = Adapted(self.model, self.federated.adapter, context.payload.extras)
        database, queries = self.prepared.judged(context.silo, (context.data, validation))
        sides, ignored = self.local.traits.label_sides, self.prepared.ignored_labels
        return judge(model, database, queries, self.config.local.bits, with_labels=sides, ignore=ignored)

    def _score(self, context: SiloContext, validation: SiloData) -> ValidationScore:
        pictures = self.prepared.pictures(context.silo)
        if pictures is not None and self.local.traits.scores_pairs:
            return match_score(self.model, validation, pictures)
        if pictures is not None:
            model = Adapted(self.model, self.federated.adapter, context.payload.extras)
            return pair_score(model, validation, pictures, self.config.local.bits, self.local.traits.label_sides)
        return self._judged(validation_score, context, validation)


def validation_score(
    model: torch.nn.Module,
    database: SiloData,
    queries: SiloData,
    bits: int,
    *,
    with_labels: Sequence[Side] = (),
    ignore: tuple[int, ...] = (),
) -> ValidationScore:
    """Return the mean of the expected mAP@all over i2t and t2i, and the mAP@all expected of random codes.

    With only one modality, the task is i2i or t2t. The values are NaN if there are no labels or no pairs to rank.

    Sides in ``with_labels`` are encoded with true labels. Columns of labels in ``ignore`` do not count, and items without
    any other label are left out.
    """
    if not len(queries) or not len(database) or queries.labels is None or database.labels is None:
        return ValidationScore()
    query_codes = words_of(model, queries, "query", with_labels)
    database_codes = words_of(model, database, "database", with_labels)
    alone: tuple[Task, ...] = ("i2i",) if "image" in query_codes else ("t2t",)
    tasks = PAIR_TASKS if len(query_codes) == 2 else alone
    scores: list[float] = []
    chances: list[float] = []
    found = []
    for task in tasks:
        asked, [searched] = query_modality(task), database_modalities(task)
        query_rows = np.flatnonzero(counted(queries, asked, ignore))
        item_rows = np.flatnonzero(counted(database, searched, ignore))
        if not len(query_rows) or not len(item_rows):
            continue
        relevance = relevance_of([database], queries, (query_rows, item_rows), ignore)
        counts = histogram(query_codes[asked][query_rows], database_codes[searched][item_rows], relevance, bits)
        scores.append(float(average_precision(counts).expected.mean()))
        chances.append(float(counts.relevant_in_all.mean()) / counts.database)
        found.append((query_rows, counts))
    return validation_score_of(scores, chances, found)


def pair_score(
    model: torch.nn.Module, items: SiloData, pictures: Rows, bits: int, with_labels: Sequence[Side] = ()
) -> ValidationScore:
    """Return how early items find their own partners among each other, and the same for random codes.

    The score is the mean over i2t and t2i of the expected mAP@all by pairs, which is the mean reciprocal rank if each
    picture has one text. The values are NaN if fewer than two pictures have a text.
    """
    rows = paired_rows(items, pictures)
    if not rows:
        return ValidationScore()
    query_codes, item_codes = (words_of(model, items, side, with_labels) for side in SIDES)
    scores: list[float] = []
    chances: list[float] = []
    found = []
    for task in PAIR_TASKS:
        asked, [searched] = query_modality(task), database_modalities(task)
        pairs = Pairs.of_groups(pictures[rows[asked]], pictures[rows[searched]])
        counts = histogram(query_codes[asked][rows[asked]], item_codes[searched][rows[searched]], pairs, bits)
        for values, of in ((scores, counts), (chances, counts.all_tied())):
            values.append(float(average_precision(of).expected.mean()))
        found.append((pictures[rows[asked]], counts))
    return validation_score_of(scores, chances, found)


def set_threads(train: TrainConfig) -> None:
    """Set the number of threads of this process. By default the available threads are divided among the workers."""
    torch.set_num_threads(train.threads or max(1, available_threads() // train.workers))


def _prepare() -> Callable[[bytes], bytes]:
    """Load the inputs from the folder given on the command line, and return the function that carries out a task."""
    prepared = Prepared.load(Path(sys.argv[1]))
    set_threads(prepared.config.train)
    worker = Worker(prepared, choose_device(prepared.config.train.device))

    def answer(request: bytes) -> bytes:
        """Return the result of a task, or a message that describes why it failed."""
        try:
            return encode_result(worker.do(decode_task(Message.decode(request))))
        except Exception as error:
            notes = {"crash": traceback.format_exc()}
            if isinstance(error, UserError):
                notes = {"failure": str(error), "key": error.key}
            return Message(kind="failure", sender="worker", round=-1, notes=notes).encode()

    return answer


if __name__ == "__main__":
    serve(_prepare)
