"""The commands ``list`` and ``doctor``: what silohash offers, and what this machine has installed."""

from __future__ import annotations

import importlib.util
import logging
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from silohash.base.cores import available_cores
from silohash.base.errors import NoEffect, UnknownName, UserError
from silohash.base.optional import USES, require
from silohash.base.registry import Registry, suggestion
from silohash.cli.console import print_json, print_result
from silohash.cli.help import ABOUT, AsJson, argument, option

if TYPE_CHECKING:
    from silohash.base.certificates import Finding

KINDS = ("local", "federated", "data", "partition", "measure")
WITH_CARDS = ("local", "federated")
WIDTH = 116


def list_(
    kind: Annotated[str | None, argument("KIND", "local, federated, data, partition or measure. Default: all.")] = None,
    name: Annotated[str | None, argument("NAME", "Local or federated method whose card to print.")] = None,
    as_json: AsJson = False,
) -> None:
    """List methods, archives, partitions and measures.

    With KIND and NAME, print the card of one method.
    """
    if kind is not None and kind not in KINDS:
        raise UnknownName(f'There is no list of "{kind}"{suggestion(kind, KINDS)}. Choose from: {", ".join(KINDS)}.')
    if kind is not None and name is not None:
        about = described(kind, name)
        print_json({kind: [about]}) if as_json else _print_card(kind, about)
        return
    tables = {name: entries(name) for name in KINDS if kind in {None, name}}
    if as_json:
        print_json(tables)
        return
    for name, table in tables.items():
        _print_list(name, table)
    if kind in WITH_CARDS:
        print_result(f"Card of a method: silohash list {kind} NAME")


def _print_list(kind: str, table: list[dict[str, Any]]) -> None:
    print_result(f"{kind}:")
    width = max(len(entry["key"]) for entry in table)
    for entry in table:
        print_result(f"  {entry['key']:{width}}  {entry['summary']}")
        if "conflict" in entry:
            print_result(f"  {'':{width}}  conflict: {entry['conflict']}")


def entries(kind: str) -> list[dict[str, Any]]:
    """Return all entries of a kind. Each has at least ``key`` and ``summary``."""
    if kind == "measure":
        from silohash.evaluate.measures import describe

        return [
            {"key": ", ".join(about["forms"]), "summary": about["meaning"], "options": list(about["options"])}
            for about in describe()
        ]
    from silohash.data import ARCHIVES
    from silohash.data.catalogue import summary_of
    from silohash.data.partitions import PARTITIONS

    if kind == "data":
        return _entries(ARCHIVES, lambda name: {"key": name, "summary": summary_of(name)})
    if kind == "partition":
        return _entries(PARTITIONS, lambda name: {"key": name, "summary": PARTITIONS.resolve(name).summary})
    family = _family(kind)
    return _entries(family, lambda name: asdict(family.card(name)))


def _entries(family: Registry, about: Callable[[str], dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is said about each member, or why it cannot be used. One of another package is imported to find out."""
    found: list[dict[str, Any]] = []
    for name in family.names():
        conflict = family.conflict(name)
        try:
            if name not in family.table:
                family.resolve(name)
            found.append({**about(name), **({"conflict": conflict} if conflict else {})})
        except UserError as error:
            found.append({"key": name, "summary": f"broken: {' '.join(str(error).split())}", "broken": str(error)})
    return found


def _family(kind: str) -> Registry:
    from silohash.methods.federated import FEDERATED_METHODS
    from silohash.methods.local import LOCAL_METHODS

    return LOCAL_METHODS if kind == "local" else FEDERATED_METHODS


def described(kind: str, name: str) -> dict[str, Any]:
    """Return the card of a method with its ``parameters`` (name, default, meaning) and ``presets``.

    Both are None if the method cannot be imported, for example without torch. ``not_imported`` then has the reason.

    Raises:
        UserError: If entries of this kind have no cards, the method does not exist, or its card cannot be read.
    """
    if kind not in WITH_CARDS:
        other = f" For an archive, run: silohash data card {name}" if kind == "data" else f' Leave out "{name}".'
        raise NoEffect(f"Only {' and '.join(WITH_CARDS)} methods have cards.{other}")
    family = _family(kind)
    about = asdict(family.card(name))
    if conflict := family.conflict(name):
        about["conflict"] = conflict
    try:
        method = family.resolve(name)
    except UserError as error:
        if name not in family.table:
            raise
        return {**about, "parameters": None, "presets": None, "not_imported": str(error)}
    parameters = [
        {
            "name": key,
            "default": None if field.is_required() else field.get_default(call_default_factory=True),
            "meaning": " ".join((field.description or "").split()),
        }
        for key, field in method.Params.model_fields.items()
    ]
    presets = {preset: dict(values) for preset, values in method.presets.items()}
    return {**about, "parameters": parameters, "presets": presets}


def _print_card(kind: str, about: dict[str, Any]) -> None:
    print_result(f"{about['key']}: {about['title']}")
    for line in _summary_of(about):
        _print_indented(line)
    headings = {"sends": "a silo sends:", "keeps": "a silo keeps:", "differs_from_paper": "differs from the paper:"}
    for key, heading in headings.items():
        if about[key] or (kind == "federated" and key != "differs_from_paper"):
            _print_indented(heading)
            for line in about[key] or ["nothing"]:
                _print_indented(line, "    - ")
    if about["parameters"] is None:
        _print_indented(f"parameters and presets cannot be shown: {about['not_imported']}")
        return
    _print_parameters(kind, about)


def _summary_of(about: dict[str, Any]) -> list[str]:
    """Return the lines of a card from the paper to the need for labels."""
    paper = [about["authors"], f"{about['venue']} {about['year']}", about["link"]]
    labels = "needed" if about["supervised"] else "not needed"
    labels += ", also of a query" if about["needs_label_at_query"] else ""
    conflict = [f"conflict: {about['conflict']}"] if "conflict" in about else []
    return [*filter(None, paper), about["summary"], f"labels: {labels}", *conflict]


def _print_parameters(kind: str, about: dict[str, Any]) -> None:
    from silohash.run.config.toml import toml_value

    _print_indented(f"parameters in [{kind}], with their defaults:" if about["parameters"] else "parameters: none")
    for entry in about["parameters"]:
        shown = "not set" if entry["default"] is None else toml_value(entry["default"])
        _print_indented(f"{entry['name']} = {shown}", "    ")
        _print_indented(entry["meaning"], "        ")
    _print_indented("presets:")
    for preset, values in about["presets"].items():
        changed = ", ".join(f"{key} = {toml_value(value)}" for key, value in values.items())
        _print_indented(f"{preset}: {changed or 'the defaults'}", "    ")


def _print_indented(text: str, first: str = "  ") -> None:
    print_result(*textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=" " * len(first)))


def doctor(
    kit: Annotated[Path | None, option("KIT", ABOUT["doctor --kit"])] = None,
    member: Annotated[Path | None, option("CONFIG", ABOUT["doctor --member"])] = None,
    as_json: AsJson = False,
) -> None:
    """Check what is installed, and what each missing part is for."""
    if kit is not None:
        require("nvflare", "Checking a kit")
        from silohash.training.sites.kits import check_kit

        _print_findings(check_kit(kit), as_json=as_json)
        return
    if member is not None:
        require("nats", "Checking a member")
        from silohash.service.checks import check_member

        logging.disable()  # what the connection would log is printed
        try:
            found = check_member(member)
        finally:
            logging.disable(logging.NOTSET)
        _print_findings(found, as_json=as_json)
        return
    facts: dict[str, Any] = {
        "python": sys.version.split()[0],
        "cores": available_cores(),
        "silohash": version("silohash"),
    }
    for name in USES:
        facts[name] = None
        with suppress(PackageNotFoundError):
            facts[name] = version(name)
    facts["device"] = _device()
    facts["real data (SILOHASH_DATA)"] = _real_data()
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        print_result(f"{name:26} {value if value is not None else f'missing: {USES[name]}'}")


def _print_findings(found: Sequence[Finding], *, as_json: bool) -> None:
    """Print what was found about a member, and exit with 1 if something must be done."""
    if as_json:
        print_json({"findings": [asdict(finding) for finding in found]})
    for finding in () if as_json else found:
        print_result(f"{finding.subject:26} {finding.text}")
    if not all(finding.good for finding in found):
        raise typer.Exit(1)


def _device() -> str:
    if importlib.util.find_spec("torch") is None:
        return "none (training needs torch)"
    from silohash.features.device import choose_device

    return str(choose_device("auto"))


def _real_data() -> str:
    from silohash.data.packed.reader import data_root

    try:
        return str(data_root())
    except UserError as error:
        return str(error)
