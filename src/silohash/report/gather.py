"""The content of a report, as plain values, collected from the folders of runs. `page` draws it."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from silohash.base.files import MEASURE_AGAIN, TRAIN_AGAIN, read_json
from silohash.base.types import MethodCard, Modality, ResultRow
from silohash.data.partitions.drift import drift_of
from silohash.evaluate.collapse import COLLAPSED, CodeUse
from silohash.evaluate.measures import by_pairs
from silohash.measure.evaluation import UNSEEN, RadiusCurve, or_nan, trained_rows
from silohash.measure.measurable import unmeasured
from silohash.report.examples import Examples, read_examples, released
from silohash.report.plots import LabelTable, RoundCurve
from silohash.report.tables import choices, read_results
from silohash.run.config.load import cards_of
from silohash.run.config.sections import FederatedConfig, LocalConfig
from silohash.run.events import epsilon_words
from silohash.run.folder import Run
from silohash.search.silos import POLICIES

DRIFT = "total variation"
"""The distance between label distributions that the report shows."""


WarningKind: TypeAlias = Literal["training", "rejected update", "skipped rows", "archive", "collapsed codes"]


@dataclass(frozen=True)
class ReportWarning:
    """A fact that a reader needs to know before trusting the figures."""

    kind: WarningKind
    text: str


@dataclass(frozen=True, kw_only=True)
class SiloSummary:
    """One silo of a run.

    Attributes:
        items: Number of items of all splits, as ``train`` is that of training items.
        lacks: What was withheld from the silo: pictures, texts or pairs; empty if it lacks nothing.
        drift: Total variation distance, from 0 to 1, between the silo's label distribution and that of all silos;
            None without labels.
        rejected: Number of rounds in which the silo's update was rejected.
    """

    name: str
    items: int
    train: int
    lacks: str = ""
    drift: float | None = None
    rejected: int = 0
    warnings: int = 0


@dataclass(frozen=True, kw_only=True)
class MethodRun:
    """One run of one method, under its name in tables and legends, which is `ResultRow.run` of its rows.

    The cards are those of the local and the federated method.

    Attributes:
        unseen: The figures over the items that no silo trained on, where these are not all items and there are some.
        costs: The figures beside those of real-valued vectors and of ITQ, if they were compared.
    """

    name: str
    rows: tuple[ResultRow, ...] = ()
    unseen: tuple[ResultRow, ...] = ()
    costs: tuple[ResultRow, ...] = ()
    curve: RoundCurve | None = None
    radius_curves: tuple[RadiusCurve, ...] = ()
    cards: tuple[MethodCard, ...] = ()

    def unseen_row(self, row: ResultRow) -> ResultRow | None:
        """Return the figure over unseen items that belongs to a figure over all items, if there is one."""
        wanted = (row.evaluation, row.task, row.measure)
        return next((one for one in self.unseen if (one.evaluation, one.task, one.measure) == wanted), None)

    @property
    def needs_label_at_query(self) -> bool:
        """Whether the method uses the label of the query, which no real search has."""
        return any(card.needs_label_at_query for card in self.cards) or any(row.oracle for row in self.rows)


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """Everything that a report shows.

    Attributes:
        facts: What was run, name -> value, in order: data, partition, methods, bits, seed, digest and so on.
        validation: Name of the validation score, for example "mAP@all of held-back queries".
        label_table: Number of items per silo and label; None without labels.
        examples: Example searches; None if the run has none.
        warnings: Warnings about the archive, skipped rows, rejected updates and warnings during training.
        unmeasured: Why the first run has no figures, as a sentence; empty if it has them.
    """

    title: str
    facts: Mapping[str, str]
    runs: tuple[MethodRun, ...]
    validation: str = "mAP"
    label_table: LabelTable | None = None
    examples: Examples | None = None
    silos: tuple[SiloSummary, ...] = ()
    warnings: tuple[ReportWarning, ...] = ()
    unmeasured: str = ""

    @property
    def rows(self) -> list[ResultRow]:
        """The figures of all runs."""
        return [row for run in self.runs for row in run.rows]

    @property
    def pairs(self) -> bool:
        """Whether some figures judge by pairs."""
        return any(by_pairs(row.measure) for row in self.rows)

    @property
    def fair_rows(self) -> list[ResultRow]:
        """The figures of the runs whose method does not use the label of the query."""
        return [row for run in self.runs if not run.needs_label_at_query for row in run.rows]

    @property
    def fair_unseen(self) -> list[ResultRow]:
        """The same over the items that no silo trained on; empty if a run does not have any of its own."""
        fair = [run for run in self.runs if run.rows and not run.needs_label_at_query]
        return [row for run in fair for row in run.unseen] if all(run.unseen for run in fair) else []


def report_data(runs: Sequence[Run], *, title: str = "", examples: bool = True) -> ReportData:
    """Return the content of the report of one or several runs.

    Silos, labels, facts and example searches are those of the first run. Example searches show items of the silos, and can
    be left out. Without a title, it is made from the archive and the number of silos.

    Raises:
        UserError: If a run has no figures yet.
    """
    first = runs[0]
    return ReportData(
        title=title or f"{first.archive.card.name}, {len(first.partition.silos)} silos",
        facts=facts(first),
        runs=tuple(method_run(run) for run in runs),
        validation=validation_name(runs),
        label_table=label_table(first),
        examples=released_examples(first) if examples else None,
        silos=silo_summaries(first),
        warnings=tuple(warning for run in runs for warning in warnings(run)),
        unmeasured=unmeasured(first.archive),
    )


def released_examples(run: Run) -> Examples | None:
    """Return the example searches of a run, as far as the policies of its silos release them. See `released`."""
    stored = read_examples(run.examples_path)
    return None if stored is None else released(stored, run.folder / POLICIES)


def validation_name(runs: Sequence[Run]) -> str:
    """Return the name of the score that chose the rounds of some runs."""
    kinds = {record.validation_by for run in runs for record in run.rounds() if record.validation is not None}
    if kinds == {"pairs"}:
        scored = all(map(_scores_pairs, runs))
        return "mean recall of held-back pairs" if scored else "reciprocal rank of held-back pairs"
    return "score of held-back items" if len(kinds) > 1 else "mAP@all of held-back queries"


def _scores_pairs(run: Run) -> bool:
    return run.model_folder.exists() and run.model.record.spec.scores_pairs


def facts(run: Run) -> dict[str, str]:
    """Return what was run, as name -> value."""
    config, card = run.config, run.archive.card
    parameters = ", ".join(
        f"{name} {value}" for name, value in run.partition.params.items() if value not in (None, 0.0)
    )
    environment = read_json(run.folder / "environment.json", _Environment, remedy=TRAIN_AGAIN)
    measured = read_results(run.results_path)
    return {
        "data": f"{card.name} ({len(run.archive):,} items), protocol {card.protocol}",
        "evaluation": choices(measured[0])
        if measured
        else "not measured"
        if unmeasured(run.archive)
        else "not recorded",
        "searched items": _searched(run), "license of the data": card.license,
        "partition": f"{run.partition.kind} over {len(run.partition.silos)} silos{f' ({parameters})' if parameters else ''}",
        "local method": f"{config.local.name}, preset {config.local.preset}{_given(config.local)}",
        "federated method": f"{config.federated.name}, preset {config.federated.preset}{_given(config.federated)}",
        "schedule": f"{config.federated.rounds} rounds of {config.federated.local_epochs} epochs",
        **_averaging(config.federated), **_privacy(run),
        "bits": f"{config.local.bits}{' (for candidates; scores of pairs are measured)' if _scores_pairs(run) else ''}",
        **{f"codes, {modality}": use.words for modality, use in _codes(run).items()},
        "seed": str(config.seed), "config digest": config.digest(),
        "machine": f"{environment.device}, {environment.machine}, torch {environment.packages.get('torch', 'unknown')}",
        "silohash": environment.silohash,
    }  # fmt: skip


def _codes(run: Run) -> Mapping[Modality, CodeUse]:
    """Return how much of their length the codes use, if the model is there."""
    return run.model.record.codes if run.model_folder.exists() else {}


def _searched(run: Run) -> str:
    database = run.archive.splits.get("database", np.zeros(0, np.int64))
    database = np.intersect1d(database, np.concatenate([silo.rows for silo in run.partition.silos]))
    known = np.intersect1d(database, trained_rows(run))
    number = "none" if not len(known) else "all" if len(known) == len(database) else f"{len(known):,}"
    return f"{len(database):,} in the database, {number} of which silos trained on"


def _given(section: LocalConfig | FederatedConfig) -> str:
    """Return the method parameters that a config sets, as text to append."""
    return "".join(f", {name} {_words(value)}" for name, value in (section.model_extra or {}).items())


def _words(value: object) -> str:
    """Return a parameter's value as text. Members of a composition have their parameters in parentheses."""
    if isinstance(value, Mapping):
        rest = ", ".join(f"{name} {_words(other)}" for name, other in value.items() if name != "name")
        return f"{value.get('name', '')} ({rest})" if rest else str(value.get("name", ""))
    return " + ".join(_words(one) for one in value) if isinstance(value, list | tuple) else str(value)


def _averaging(federated: FederatedConfig) -> dict[str, str]:
    """Return how updates are averaged, where it differs from the average by the method's weights."""
    robust, server = federated.robust, federated.server
    found = {
        "rule for faulty silos": "" if robust is None else f"{robust.rule}, for {robust.faulty:.0%} of the silos",
        "server optimizer": "" if server is None else server.optimizer,
        "silos per round": "" if federated.fraction == 1 else f"{federated.fraction:.0%}",
        "largest weight of a silo": "" if federated.given_cap == 1 else f"{federated.given_cap:.0%}",
    }
    return {name: text for name, text in found.items() if text}


def _privacy(run: Run) -> dict[str, str]:
    """Return unit, epsilon and delta of differential privacy after the last round; empty without it."""
    records = [record.privacy for record in run.rounds() if record.privacy is not None]
    if not records:
        return {}
    simulated = ", simulated with noise that follows from the seed" if records[-1].repeatable else ""
    return {"differential privacy": f"per {records[-1].unit}, {epsilon_words(records[-1])}{simulated}"}


def method_run(run: Run) -> MethodRun:
    """Return the figures and the curves of one run. Its name says so if they depend on the labels of the queries."""
    rows = read_results(run.results_path)
    # A run that an earlier version measured has no figures over unseen items.
    unseen = read_results(run.unseen_results_path) if run.unseen_results_path.exists() else []
    name = f"{run.name} (oracle)" if any(row.oracle for row in rows) else run.name
    return MethodRun(
        name=name,
        rows=tuple(replace(row, run=name) for row in rows),
        unseen=tuple(replace(row, run=name) for row in unseen if row.protocol.endswith(UNSEEN)),
        costs=tuple(read_results(run.costs_path)) if run.costs_path.exists() else (),
        curve=replace(round_curve(run), name=name),
        radius_curves=tuple(replace(curve, name=name) for curve in radius_curves(run)),
        cards=cards_of(run.config),
    )


def round_curve(run: Run) -> RoundCurve:
    """Return loss and validation score per round. The kept round is the last best one, if there are scores."""
    records = run.rounds()
    best = [record.round for record in records if record.best and record.validation is not None]
    return RoundCurve(
        name=run.name,
        rounds=tuple(record.round + 1 for record in records),
        losses=tuple(or_nan(record.loss) for record in records),
        validations=tuple(or_nan(record.validation) for record in records),
        best_round=best[-1] + 1 if best else None,
    )


def radius_curves(run: Run) -> tuple[RadiusCurve, ...]:
    """Return precision and recall by radius, one curve per task, as the evaluation stored them."""
    if not run.curves_path.exists():
        return ()
    stored = read_json(run.curves_path, tuple[RadiusCurve, ...], remedy=MEASURE_AGAIN)
    return tuple(replace(curve, name=run.name) for curve in stored)


@dataclass(frozen=True)
class _Environment:
    """The entries of ``environment.json`` that a report shows."""

    silohash: str
    device: str
    machine: str
    packages: dict[str, str]


def label_table(run: Run) -> LabelTable | None:
    """Return the number of items per silo and label, or None without labels."""
    counts = run.partition.label_table(run.archive)
    if not counts.shape[1]:
        return None
    return LabelTable(
        silos=tuple(silo.name for silo in run.partition.silos), labels=run.archive.label_names, counts=counts
    )


def silo_summaries(run: Run) -> tuple[SiloSummary, ...]:
    """Return the size, the drift and the faults of every silo."""
    records = run.rounds()
    rejected = Counter(silo.silo for record in records for silo in record.silos if silo.rejected)
    warned = Counter(warning.partition(": ")[0] for record in records for warning in record.warnings)
    return tuple(
        SiloSummary(
            name=silo.name,
            items=len(silo.rows),
            train=len(silo.split(run.archive, "train")),
            lacks=" and ".join(silo.lacks),
            drift=drift,
            rejected=rejected[silo.name],
            warnings=warned[silo.name],
        )
        for silo, drift in zip(run.partition.silos, _drifts(run), strict=True)
    )


def _drifts(run: Run) -> list[float | None]:
    if run.archive.labels is None:
        return [None] * len(run.partition.silos)
    found = drift_of(run.partition, run.archive).from_pool(DRIFT)
    return [float(distance) if np.isfinite(distance) else None for distance in found]


def warnings(run: Run) -> list[ReportWarning]:
    """Return what a reader needs to know: warnings about the archive and about silos, skipped rows, rejected updates."""
    card = run.archive.card
    found = [ReportWarning("archive", sentence) for sentence in card.warnings]
    found += [ReportWarning("skipped rows", sentence) for sentence in card.skipped]
    for record in run.rounds():
        found += [
            ReportWarning("rejected update", f"{run.name}, round {record.round + 1}, {silo.silo}: {silo.rejected}")
            for silo in record.silos
            if silo.rejected
        ]
    found += [
        ReportWarning("collapsed codes", f"{run.name}, {modality}: {use.words}. {COLLAPSED}")
        for modality, use in _codes(run).items()
        if use.collapsed
    ]
    return [*found, *_repeated_once(run)]


def _repeated_once(run: Run) -> list[ReportWarning]:
    """Return the warnings of all rounds. Of warnings that differ in their numbers only, the last one is kept."""
    alike: dict[tuple[str, str], list[str]] = {}
    for record in run.rounds():
        for warning in record.warnings:
            subject, _, text = warning.partition(": ")
            alike.setdefault((subject, re.sub(r"\d+", "", text)), []).append(warning)
    return [
        ReportWarning("training", f"{run.name}, {texts[-1]}{f' (in {len(texts)} rounds)' if len(texts) > 1 else ''}")
        for texts in alike.values()
    ]
