"""From a TOML file to a config, and to the methods that it names.

`load_config` reads and checks a config. A command that trains or encodes calls `load_resolved` once and hands the
result down.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import BaseModel, ValidationError

from silohash.base import errors
from silohash.base.attempts import attempted
from silohash.base.files import read_toml
from silohash.base.forms import detail, located
from silohash.base.registry import Registry, suggestion
from silohash.base.types import MODALITIES, MethodCard, ValidationBy
from silohash.base.visible import visible
from silohash.features.network import NETWORK_FILES
from silohash.methods.federated import DEFAULT_MEMBERS, FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS
from silohash.run.config import objections, sections
from silohash.run.config.exchange import objections_to_exchange, objections_to_privacy
from silohash.run.config.wrong_types import missing, wrong_type

if TYPE_CHECKING:
    from silohash.methods.federated.base import FederatedMethod, RunFacts
    from silohash.methods.federated.compose import MemberConfig
    from silohash.methods.local.base import LocalMethod, MethodParams

Source = Path | Mapping[str, Any]
MethodTable: TypeAlias = "sections.LocalConfig | sections.FederatedConfig | MemberConfig"


@dataclass(frozen=True)
class ResolvedConfig:
    """A config with the methods that it names.

    Attributes:
        local: The local method with its parameters.
        federated: The federated method with its parameters, robust rule and server-side optimizer.
        remarks: In what respects the methods only approximate their papers in this run, and which methods of other
            packages are not used because their names are taken.
    """

    config: sections.RunConfig
    local: LocalMethod
    federated: FederatedMethod
    remarks: tuple[str, ...] = ()

    @property
    def cards(self) -> tuple[MethodCard, ...]:
        """The cards of the methods, see `cards_of`."""
        return cards_of(self.config)

    @property
    def needs_labels(self) -> bool:
        """Whether the local or the federated method learns from labels."""
        return self.local.traits.needs_labels or self.federated.traits.needs_labels

    @property
    def validation_by(self) -> ValidationBy:
        """How held-back items choose the round; see the key ``evaluate.validation_by``."""
        chosen = self.config.evaluate.validation_by
        if chosen != "auto":
            return chosen
        return "labels" if self.needs_labels else "pairs"

    @cached_property
    def values(self) -> dict[str, Any]:
        """All values as a JSON value, including defaults and presets of the methods."""
        value = self.config.to_json()
        methods: dict[str, Any] = {"local": self.local, "federated": self.federated}
        for section, method in methods.items():
            value[section] = {**method.params.model_dump(mode="json"), **value[section]}
        return value

    def value_of(self, key: str) -> Any:  # noqa: ANN401  as the config holds it
        """Return the value of a dotted key, including defaults and presets of the methods; None for an unknown key."""
        value: Any = self.values
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value


def cards_of(config: sections.RunConfig) -> tuple[MethodCard, ...]:
    """Return the cards of the local method, of the federated method, and of the members of a composition.

    The methods are not imported, and their parameters are not checked.
    """
    federated = config.federated
    default = DEFAULT_MEMBERS if federated.name == "compose" else ()
    members = (federated.model_extra or {}).get("methods", default)
    names = dict.fromkeys([federated.name, *(member["name"] for member in members)])
    return LOCAL_METHODS.card(config.local.name), *(FEDERATED_METHODS.card(name) for name in names)


def load_resolved(source: Source, overrides: Sequence[str] = ()) -> ResolvedConfig:
    """Read a config and make its methods; arguments and exceptions are those of `load_config`."""
    return resolve(read_config(source, overrides), where=_name_of(source), overrides=overrides)


def load_config(source: Source, overrides: Sequence[str] = ()) -> sections.RunConfig:
    """Read a config and check it, including the parameters of its methods.

    Args:
        source: A TOML file, or a mapping with the content of one. Relative paths of data and models in a file are
            relative to the file; all others are relative to the working directory.
        overrides: ``section.key=value`` as on the command line. The value is read as TOML, or else as a string.

    Raises:
        UserError: If the file is missing or is not TOML, a key is unknown, or a value is wrong.
    """
    return load_resolved(source, overrides).config


def read_config(source: Source, overrides: Sequence[str] = ()) -> sections.RunConfig:
    """Read a config without looking at the parameters of its methods, which are imported only by `resolve`.

    The names of the methods are checked, and torch is not imported. Arguments and exceptions are those of `load_config`.
    """
    value = _read_toml(source) if isinstance(source, Path) else json.loads(json.dumps(source, default=str))
    for override in overrides:
        _override(value, override)
    _make_absolute(value, Path())
    try:
        config = sections.RunConfig.model_validate(value)
        _check_name(LOCAL_METHODS.target, "local", config.local.name)
        _check_name(FEDERATED_METHODS.target, "federated", config.federated.name)
    except ValidationError as error:
        raise _located(_wrong_value(error, sections.RunConfig), _name_of(source), overrides) from error
    except errors.WrongValue as error:
        raise _located(error, _name_of(source), overrides) from error
    return config


def resolve(config: sections.RunConfig, *, where: str = "the config", overrides: Sequence[str] = ()) -> ResolvedConfig:
    """Make the methods that a config names.

    Args:
        config: The config.
        where: What messages call the config.
        overrides: The overrides that were applied to the config. A message about a value that one of them sets names
            the override.

    Raises:
        UserError: If a method, a preset or a parameter does not exist, or two settings exclude each other.
    """
    try:
        local_kind, local_params = _parameters(LOCAL_METHODS, "local", config.local)
        federated_kind, federated_params = _parameters(FEDERATED_METHODS, "federated", config.federated)
        local: LocalMethod = local_kind(local_params)
        federated: FederatedMethod = federated_kind(federated_params, _facts(config, local))
        refuse(_objections(config, local, federated))
        # An installed package may add a method under the name of one of the config.
        members = [member.name for member in federated.params.members()]
        found = [LOCAL_METHODS.conflict(config.local.name)]
        found += [FEDERATED_METHODS.conflict(name) for name in dict.fromkeys([config.federated.name, *members])]
        remarks = (
            *objections.remarks_on_methods(config, local, federated),
            *local.traits.remarks,
            *federated.traits.remarks,
            *objections.remarks_on_settings(config, federated),
            *[sentence for sentence in found if sentence],
        )
        return ResolvedConfig(config, local, federated, remarks)
    except errors.UserError as error:
        raise _located(error, where, overrides) from error


def _located(error: errors.UserError, where: str, overrides: Sequence[str]) -> errors.UserError:
    """Return the error with the override that it is about, or with the name of the config, in front."""
    key, message = error.setting if isinstance(error, errors.WrongValue) else "", str(error)
    for override in reversed(overrides):
        name = override.partition("=")[0].strip()
        if key and (f"{key}.".startswith(f"{name}.") or name.startswith(f"{key}.")):
            return errors.WrongOverride(override, message.removeprefix(f"{name}: "))
    return error.reworded(f"{where}: {message}{_remedy_for_other_method(key, message, overrides)}")


def _remedy_for_other_method(key: str, message: str, overrides: Sequence[str]) -> str:
    """Return what to do about a setting of the config that an override's method does not have; empty if it is not one."""
    section = key.partition(".")[0]
    for name, _, value in (override.partition("=") for override in overrides):
        if name.strip() == f"{section}.name" and message.startswith("unknown key"):
            method = value.strip().strip("\"'")
            return f" Remove it, or replace the whole table: --set '{section}={{name=\"{method}\"}}'"
    return ""


def _objections(
    config: sections.RunConfig, local: LocalMethod, federated: FederatedMethod
) -> Iterator[objections.Objection]:
    """Yield the settings that exclude each other. The first one is what the user is told."""
    yield from _objections_to_partition(config.partition)
    yield from objections.objections_to_methods(config, local, federated)
    yield from objections.objections_to_kept_state(config, local, federated)
    if config.exchange.privacy is not None:
        yield from objections_to_privacy(config, config.exchange.privacy, local, federated)
    yield from objections.objections(config, federated)
    if federated.solver is not None and config.federated.robust is not None:
        yield (
            "federated.robust",
            f'federated.robust: no robust rule protects the sums that silos send with local.name = "{config.local.name}". '
            "Remove federated.robust, or choose another local method.",
        )
    if config.exchange != sections.ExchangeConfig():
        yield from objections_to_exchange(config, local, federated)


def _facts(config: sections.RunConfig, local: LocalMethod) -> RunFacts:
    """Return what the federated method is told about the run, with the robust rule and the server-side optimizer."""
    from silohash.methods.federated.base import RunFacts
    from silohash.methods.federated.robust import robust_aggregation
    from silohash.methods.federated.server_optimizers import ServerOptimizer

    settings, server, train = config.federated, config.federated.server, config.train
    rule = {} if settings.robust is None else settings.robust.model_dump()
    return RunFacts(
        local=local,
        aggregation=robust_aggregation(**rule, weight_cap=settings.given_cap),
        server_optimizer=ServerOptimizer(**server.model_dump()) if server else None,
        optimizer=train.optimizer,
        learning_rate=train.learning_rate,
        momentum=train.momentum,
    )


def _objections_to_partition(partition: sections.PartitionConfig) -> Iterator[objections.Objection]:
    """Yield an objection for a kind that does not exist, or for each parameter that it does not take."""
    from silohash.data.partitions.base import objections_to_settings

    table = f'partition={{kind="{partition.kind}",silos={partition.silos}}}'
    for name, message in objections_to_settings(partition.kind, partition.parameters()):
        remedy = "" if name == "kind" else f" Remove it, or replace the whole table: --set '{table}'"
        yield f"partition.{name}", f"{message}{remedy}"


def refuse(found: Iterable[objections.Objection]) -> None:
    """Refuse a config because of the first objection.

    Raises:
        WrongValue: If there is one.
    """
    for key, message in found:
        raise errors.WrongValue(key, message)


def evaluate_config(value: Mapping[str, Any]) -> sections.EvaluateConfig:
    """Return the table ``[evaluate]`` with some values.

    Raises:
        UserError: If a value is wrong.
    """
    try:
        return sections.EvaluateConfig.model_validate(value)
    except ValidationError as error:
        raise _wrong_value(
            error, sections.EvaluateConfig, prefix="evaluate", known=list(sections.EvaluateConfig.model_fields)
        ) from error


def read_override(override: str) -> tuple[str, Any]:
    """Return key and value of ``section.key=value``; the value is read as TOML, or else as a string.

    Raises:
        UserError: If the text has another form.
    """
    key, equals, text = override.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise errors.WrongForm(
            f'--set "{override}" is not of the form section.key=value. Write it like federated.rounds=5.'
        )
    read = attempted(lambda: tomllib.loads(f"value = {text}")["value"], tomllib.TOMLDecodeError, otherwise=text)
    return key.strip(), read


def similar_file(path: Path) -> str:
    """Return `` (did you mean "x"?)`` with the closest name of a TOML file in the same folder, or an empty string."""
    return suggestion(path.stem, [file.stem for file in path.parent.glob("*.toml")])


def _read_toml(path: Path) -> dict[str, Any]:
    if path.is_dir():
        raise errors.WrongKindOfPath(f'"{path}" is a folder, not a TOML file. Create a config: silohash new run.toml')
    if not path.exists():
        raise errors.MissingFile(
            f'The config file "{path}" does not exist{similar_file(path)}. Create one: silohash new {path}'
        )
    value = read_toml(path, remedy="Correct the file.")
    if "axis" in value:
        raise errors.WrongKindOfFile(
            f'"{path}" is a study, not the config of one run. Run all of it: silohash study {path}'
        )
    _make_absolute(value, path.parent)
    return value


def _override(value: dict[str, Any], override: str) -> None:
    key, new = read_override(override)
    parts = key.split(".")
    for part in parts[:-1]:
        value = value.setdefault(part, {})
        if not isinstance(value, dict):
            raise errors.WrongOverride(override, f'"{part}" is a value, not a table. Set "{part}" itself.')
    value[parts[-1]] = new


def _make_absolute(value: Mapping[str, Any], base: Path) -> None:
    """Make the paths in a config's tables absolute, in place. What is not a file is taken for a model's name."""
    data = _table(value, "data")
    for table, key in ((data, "path"), (_table(data, "options"), "root")):
        if isinstance(table.get(key), str) and table[key]:
            table[key] = str(absolute_path(base, table[key]))
    for section, modality, key in product(("features", "model"), MODALITIES, NETWORK_FILES):
        table = _table(_table(value, section), modality)
        named = table.get(key)
        if isinstance(named, str) and named and absolute_path(base, named).exists():
            table[key] = str(absolute_path(base, named))


def absolute_path(base: Path, path: str) -> Path:
    """Return a path of a config, which is relative to a folder, as an absolute one.

    Raises:
        UserError: If no file can have the path.
    """
    try:
        return (base / Path(path).expanduser()).resolve()
    except (ValueError, RuntimeError, OSError) as error:  # a NUL character, an unknown home folder, a circle of links
        raise errors.WrongForm(f'"{visible(path)}" is not a path ({detail(error)}). Correct it.') from error


def _table(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _parameters(registry: Registry, section: str, config: MethodTable) -> tuple[Any, MethodParams]:
    """Return the class of a method and its parameters, which are checked, as are those of the members of a composition."""
    _check_name(registry.target, section, config.name)
    kind = registry.resolve(config.name)
    if config.name not in registry.table:  # the report of the run needs the card of a method that a package adds
        _check_name(registry.card, section, config.name)
    if config.preset not in kind.presets:
        raise errors.WrongValue(
            f"{section}.preset",
            f'{section}.preset: {config.name} has no preset "{config.preset}"{suggestion(config.preset, kind.presets)}. '
            f"Its presets are: {', '.join(kind.presets)}.",
        )
    known = [*type(config).model_fields, *kind.Params.model_fields]
    try:
        params = kind.Params(**{**kind.presets[config.preset], **(config.model_extra or {})})
        refuse(
            objections.objections_to_parameters(section, config.model_extra or {}, params, kind.presets[config.preset])
        )
        for number, member in enumerate(params.members()):
            _parameters(registry, f"{section}.methods.{number}", member)
        return kind, params
    except ValidationError as error:
        raise _wrong_value(error, kind.Params, prefix=section, known=known) from error


def _check_name(check: Callable[[str], object], section: str, name: str) -> None:
    """Check the name of a method with a function of its family."""
    try:
        check(name)
    except errors.UserError as error:
        raise errors.WrongValue(f"{section}.name", str(error)) from error


def _name_of(source: Source) -> str:
    """Return what messages call a config: its file, if there is one."""
    return str(source) if isinstance(source, Path) else "the config"


def _wrong_value(
    error: ValidationError, model: type[BaseModel], *, prefix: str = "", known: Sequence[str] = ()
) -> errors.WrongValue:
    """Return the error about the first value that is wrong."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    key = ".".join([prefix, *path] if prefix else path)
    if first["type"] == "extra_forbidden":
        _, table = located(path[:-1], sections.RunConfig)
        keys = known or list(table.model_fields if table else ())
        there = f" The known keys are: {', '.join(keys)}." if keys else ""
        return errors.WrongValue(key, f'unknown key "{key}"{suggestion(path[-1], keys)}.{there}')
    return errors.WrongValue(key, _explain(first, key, model))


def _explain(error: Mapping[str, Any], key: str, model: type[BaseModel]) -> str:
    """Return what is wrong with a value, and what to write if its type is wrong."""
    if error["type"] == "missing":
        return '[data] is missing. Add it, for example: [data] with name = "glyphs".' if key == "data" else missing(key)
    if sentences := wrong_type(error, key, model):
        return f"{key}: {sentences}"
    message, value = error["msg"].removeprefix("Value error, "), error.get("input")
    seen = f" (got {value!r})" if isinstance(value, str | int | float | bool | None) else ""
    return f"{key}: {message[0].lower()}{message[1:].removesuffix('.')}{seen}."
