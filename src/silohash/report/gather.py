"""Gathers what a report shows from the folders of runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from silohash import seeds
from silohash.data.archive import Archive, is_features
from silohash.features.base import Value
from silohash.files import read_json
from silohash.report.page import ExampleHit, ExampleQuery, MethodRun, ReportData, ReportWarning
from silohash.report.plots import LabelTable, RadiusCurve, RoundCurve
from silohash.report.tables import choices, read_results
from silohash.runtime.indexing import shown
from silohash.runtime.run import Run
from silohash.runtime.sections import FederatedConfig, LocalConfig
from silohash.search.hits import Hits
from silohash.search.node import SiloNode
from silohash.search.silos import ask_run, open_nodes
from silohash.types import MODALITIES, Modality, Task, UserError

EXAMPLES_A_TASK = 2
HITS_SHOWN = 8


def report_data(runs: Sequence[Run], *, title: str = "") -> ReportData:
    """Returns what the report of some runs shows; silos, labels and example queries are those of the first.

    Raises:
        UserError: if a run has no figures yet.
    """
    first = runs[0]
    config = first.config
    return ReportData(
        title=title or f"{first.archive.card.name}, {len(first.partition.silos)} silos",
        facts=facts(first),
        runs=tuple(method_run(run) for run in runs),
        digest=config.digest(),
        validation="mAP@all of held-back queries",
        label_table=label_table(first),
        examples=tuple(examples(first)),
        warnings=tuple(warning for run in runs for warning in warnings(run)),
    )


def facts(run: Run) -> dict[str, str]:
    """Returns what was run, in words."""
    config, card = run.config, run.archive.card
    parameters = ", ".join(
        f"{name} {value}" for name, value in run.partition.params.items() if value not in (None, 0.0)
    )
    environment = read_json(run.folder / "environment.json")
    measured = read_results(run.results_path)
    return {
        "data": f"{card.name} ({len(run.archive):,} items), protocol {card.protocol}",
        "measured over": choices(measured[0]) if measured else "nothing",
        "licence of the data": card.licence,
        "partition": f"{run.partition.kind} over {len(run.partition.silos)} silos{f' ({parameters})' if parameters else ''}",
        "local method": f"{config.local.name}, preset {config.local.preset}{_given(config.local)}",
        "federated method": f"{config.federated.name}, preset {config.federated.preset}{_given(config.federated)}",
        "schedule": f"{config.federated.rounds} rounds of {config.federated.local_epochs} epochs",
        **_averaging(config.federated),
        "bits": str(config.local.bits),
        "seed": str(config.seed),
        "config digest": config.digest(),
        "machine": f"{environment['device']}, {environment['machine']}, torch {environment['packages']['torch']}",
        "silohash": str(environment["silohash"]),
    }


def _given(section: LocalConfig | FederatedConfig) -> str:
    """Returns the parameters that a config gives a method itself, as words to add."""
    return "".join(f", {name} {_words(value)}" for name, value in (section.model_extra or {}).items())


def _words(value: object) -> str:
    """Returns a parameter's value; members of a composition with theirs in brackets."""
    if isinstance(value, Mapping):
        rest = ", ".join(f"{name} {_words(other)}" for name, other in value.items() if name != "name")
        return f"{value.get('name', '')} ({rest})" if rest else str(value.get("name", ""))
    return " + ".join(_words(one) for one in value) if isinstance(value, list | tuple) else str(value)


def _averaging(federated: FederatedConfig) -> dict[str, str]:
    """Returns how the silos' parameters are averaged, where it is not plainly by the method's weights."""
    robust, server = federated.robust, federated.server
    found = {
        "rule for faulty silos": "" if robust is None else f"{robust.rule}, for {robust.faulty:.0%} of the silos",
        "the server's own step": "" if server is None else server.optimizer,
        "silos in a round": "" if federated.fraction == 1 else f"{federated.fraction:.0%}",
        "largest weight of a silo": "" if federated.weight_cap == 1 else f"{federated.weight_cap:.0%}",
    }
    return {name: text for name, text in found.items() if text}


def method_run(run: Run) -> MethodRun:
    """Returns one run's figures and curves."""
    records = run.rounds()
    best = [record.round for record in records if record.best]
    curve = RoundCurve(
        name=run.name,
        rounds=tuple(record.round + 1 for record in records),
        losses=tuple(np.nan if record.loss is None else record.loss for record in records),
        validations=tuple(np.nan if record.validation is None else record.validation for record in records),
        best_round=best[-1] + 1 if best and records[best[-1]].validation is not None else None,
    )
    stored = read_json(run.curves_path) if run.curves_path.exists() else []
    return MethodRun(
        name=run.name,
        rows=tuple(read_results(run.results_path)),
        curve=curve,
        radius_curves=tuple(
            RadiusCurve(
                name=run.name,
                task=value["task"],
                precision=tuple(np.nan if p is None else p for p in value["precision"]),
                recall=tuple(value["recall"]),
                prior=value["prior"],
            )
            for value in stored
        ),
        cards=run.config.cards,
    )


def label_table(run: Run) -> LabelTable | None:
    """Returns items of each label in each silo, or None without labels."""
    counts = run.partition.label_table(run.archive)
    if not counts.shape[1]:
        return None
    return LabelTable(
        silos=tuple(silo.name for silo in run.partition.silos), labels=run.archive.label_names, counts=counts
    )


def warnings(run: Run) -> list[ReportWarning]:
    """Returns what a reader must know: skipped rows, rejected updates, what was said of silos in training."""
    found = [ReportWarning("skipped rows", sentence) for sentence in run.archive.card.skipped]
    for record in run.rounds():
        found += [
            ReportWarning("rejected update", f"{run.name}, round {record.round + 1}, {silo.silo}: {silo.rejected}")
            for silo in record.silos
            if silo.rejected
        ]
    said: dict[tuple[str, str], list[str]] = {}
    for record in run.rounds():
        for warning in record.warnings:
            who, _, what = warning.partition(": ")
            said.setdefault((who, re.sub(r"\d+", "", what)), []).append(warning)
    for texts in said.values():  # a warning that comes back with other numbers is one, and its last stands for all
        often = f" (in {len(texts)} rounds)" if len(texts) > 1 else ""
        found.append(ReportWarning("training", f"{run.name}, {texts[-1]}{often}"))
    return found


def examples(run: Run) -> list[ExampleQuery]:
    """Returns some of the run's own queries with what the silos answer; none before `silohash index`."""
    if not run.index_folder.exists():
        return []
    archive = run.archive
    modalities = [m for m in MODALITIES if m in run.model.featurisers]
    tasks: list[Task] = ["t2i", "i2t"] if len(modalities) == 2 else ["i2i" if modalities == ["image"] else "t2t"]
    nodes = open_nodes(run.index_folder)
    place = {item: row for row, item in enumerate(archive.ids.tolist())}
    found = []
    for task in tasks:
        asked_by: Modality = "image" if task[0] == "i" else "text"
        queries = archive.split("query")
        queries = queries[archive.has(asked_by)[queries]]
        drawn = seeds.numpy_generator(run.config.seed, f"examples/{task}").permutation(queries)[:EXAMPLES_A_TASK]
        found += [example(run, int(row), task, nodes, place) for row in drawn]
    return found


def example(run: Run, row: int, task: Task, nodes: list[SiloNode], place: dict[str, int]) -> ExampleQuery:
    """Asks the silos one item of the archive."""
    archive = run.archive
    asked_by: Modality = "image" if task[0] == "i" else "text"
    target: Modality = "image" if task[2] == "i" else "text"
    hits = ask_run(run, value_of(archive, row, asked_by), asked_by, target, k=HITS_SHOWN, nodes=nodes)
    pictures = archive.pictures()
    return ExampleQuery(
        task=task,
        caption=shown(archive, row),
        picture=pictures.picture(row) if pictures is not None and asked_by == "image" else None,
        labels=tuple(archive.labels_of(row)),
        hits=tuple(example_hits(archive, hits, place, labels=set(archive.labels_of(row)))),
        ties_at_cut=hits.ties_at_cut if hits.comparable else 0,
        missing_silos=hits.missing_silos,
    )


def example_hits(archive: Archive, hits: Hits, place: dict[str, int], *, labels: set[str]) -> list[ExampleHit]:
    """Returns hits with the pictures that the archive holds of them."""
    pictures = archive.pictures()
    found = []
    for item, silo, distance, payload in zip(hits.ids, hits.silos, hits.distances, hits.payloads, strict=True):
        row = place.get(item)
        own = tuple(payload.get("labels", ()))
        found.append(
            ExampleHit(
                item_id=item,
                silo=silo,
                distance_bits=distance,
                relevant=bool(labels & set(own)) if labels else None,
                caption=str(payload.get("caption", "")),
                picture=pictures.picture(row) if pictures is not None and row is not None else None,
                labels=own,
            )
        )
    return found


def value_of(archive: Archive, row: int, modality: Modality) -> Value:
    """Returns one item's picture, text or given vector, as a question.

    Raises:
        UserError: if the archive lacks the modality.
    """
    column = archive.values(modality)
    if column is None:
        raise UserError(f'Archive "{archive.card.name}" has no {modality}.')
    if not isinstance(column, np.ndarray):
        return column.picture(row)
    return np.asarray(column[row]) if is_features(column) else str(column[row])
