"""``list`` and ``doctor``: what silohash has, and whether this machine is fit for it."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer

from silohash.cli.talk import answer, answer_json
from silohash.registry import suggestion
from silohash.types import UserError

KINDS = ("local", "federated", "data", "partition", "measure")
PACKAGES = {
    "torch": "training and encoding; without it a silo can still search: pip install 'silohash[train]'",
    "numba": "the fast kernels of index and evaluator",
    "faiss-cpu": "an index for machines without numba: pip install 'silohash[faiss]'",
    "transformers": "published backbones: pip install 'silohash[backbones]'",
    "onnx": "export to ONNX: pip install 'silohash[onnx]'",
    "onnxruntime": "export to ONNX: pip install 'silohash[onnx]'",
    "onnxscript": "export to ONNX: pip install 'silohash[onnx]'",
    "tensorboard": "curves in TensorBoard: pip install 'silohash[tensorboard]'",
}


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(name="list")(list_)
    app.command()(doctor)


def list_(
    kind: Annotated[
        str | None, typer.Argument(help="local, federated, data, partition or measure; all by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List methods, archives, partitions and measures."""
    if kind is not None and kind not in KINDS:
        raise UserError(f'There is no list of "{kind}"{suggestion(kind, KINDS)}; there are: {", ".join(KINDS)}.')
    tables = {name: entries(name) for name in KINDS if kind in {None, name}}
    if as_json:
        answer_json(tables)
        return
    for name, table in tables.items():
        answer(f"{name}:")
        width = max(len(entry["key"]) for entry in table)
        for entry in table:
            answer(f"  {entry['key']:{width}}  {entry['summary']}")


def entries(kind: str) -> list[dict[str, Any]]:
    """Returns what there is of a kind; each entry has at least ``key`` and ``summary``."""
    if kind in {"local", "federated"}:
        from silohash.federated import FEDERATED_METHODS
        from silohash.local import LOCAL_METHODS

        family = LOCAL_METHODS if kind == "local" else FEDERATED_METHODS
        return [asdict(card) for card in family.cards()]
    if kind == "data":
        from silohash.data import ARCHIVES, summary_of

        return [{"key": name, "summary": summary_of(name)} for name in ARCHIVES]
    if kind == "partition":
        from silohash.data.partition import kinds

        return [{"key": name, "summary": summary} for name, summary in kinds().items()]
    from silohash.evaluate.measures import describe

    return [
        {"key": ", ".join(about["forms"]), "summary": about["meaning"], "options": list(about["options"])}
        for about in describe()
    ]


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """Tell what this machine has, and what is missing for what."""
    facts: dict[str, Any] = {
        "python": sys.version.split()[0],
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "silohash": version("silohash"),
    }
    for name in PACKAGES:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = None
    facts["device"] = _device()
    facts["real data (SILOHASH_DATA)"] = _real_data()
    if as_json:
        answer_json(facts)
        return
    for name, value in facts.items():
        answer(f"{name:26} {value if value is not None else f'missing: {PACKAGES[name]}'}")


def _device() -> str:
    if importlib.util.find_spec("torch") is None:
        return "none: training needs torch"
    from silohash.features.device import choose_device

    return str(choose_device("auto"))


def _real_data() -> str:
    from silohash.data.shared_files import data_root

    try:
        return str(data_root())
    except UserError as error:
        return str(error)
