"""A run as one value: frozen models, unknown keys refused with a suggestion, read from and written to TOML."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from silohash.federated import FEDERATED_METHODS
from silohash.files import digest_json
from silohash.local import LOCAL_METHODS
from silohash.registry import Registry, suggestion
from silohash.runtime.paths import make_absolute
from silohash.runtime.sections import (
    DataConfig,
    EvaluateConfig,
    FeaturesConfig,
    FederatedConfig,
    LocalConfig,
    ModelConfig,
    PartitionConfig,
    Section,
    TrainConfig,
)
from silohash.types import MethodCard, UserError

DECIDING_NOTHING = ("workers", "threads", "device")
"""Keys of ``[train]`` that say how a run is computed, not what it is."""


_Section = TypeVar("_Section", bound=Section)


class RunConfig(Section):
    """A whole run; what `silohash train` reads and stores."""

    seed: int = Field(default=0, ge=0)
    """Of every draw."""
    data: DataConfig
    features: FeaturesConfig = FeaturesConfig()
    model: ModelConfig = ModelConfig()
    partition: PartitionConfig = PartitionConfig()
    local: LocalConfig = LocalConfig()
    federated: FederatedConfig = FederatedConfig()
    train: TrainConfig = TrainConfig()
    evaluate: EvaluateConfig = EvaluateConfig()

    @cached_property
    def local_method(self) -> Any:  # noqa: ANN401  a class of the family
        """The local method, ready with its parameters."""
        return _method(LOCAL_METHODS, "local", self.local)

    @cached_property
    def federated_method(self) -> Any:  # noqa: ANN401  a class of the family
        """The federated method, ready with its parameters, its rule for faulty silos and the server's own step."""
        from silohash.federated.robust import robust_aggregation
        from silohash.federated.server_optimizers import ServerOptimizer

        method = _method(FEDERATED_METHODS, "federated", self.federated)
        robust, server = self.federated.robust, self.federated.server
        if (robust or server) and not method.averages:
            section = "federated.robust" if robust else "federated.server"
            raise UserError(
                f'{section}: "{self.federated.name}" does not average parameters, so that it would do nothing. Leave it out.'
            )
        method.aggregation = robust_aggregation(
            **(robust.model_dump() if robust else {}), weight_cap=self.federated.weight_cap
        )
        method.server_optimizer = ServerOptimizer(**server.model_dump()) if server else None
        return method

    @property
    def cards(self) -> tuple[MethodCard, ...]:
        """The cards of the run's methods: the local one, the federated one, the members of a composition."""
        members = getattr(self.federated_method.params, "methods", ())
        names = dict.fromkeys([self.federated.name, *(member.name for member in members)])
        return LOCAL_METHODS.card(self.local.name), *(FEDERATED_METHODS.card(name) for name in names)

    @property
    def remarks(self) -> list[str]:
        """What the federated method takes only roughly under the run's optimiser.

        Raises:
            UserError: if it cannot be used with it.
        """
        train = self.train
        said: list[str] = self.federated_method.check_steps(
            optimizer=train.optimizer, learning_rate=train.learning_rate, momentum=train.momentum
        )
        return said

    def to_json(self) -> dict[str, Any]:
        """Returns the config as a JSON value without what is unset."""
        value: dict[str, Any] = self.model_dump(mode="json", exclude_none=True)
        return value

    def value_of(self, key: str) -> Any:  # noqa: ANN401  as the config has it
        """Returns what holds under a dotted key, methods' defaults and presets included; None where there is no such key."""
        value: Any = self.to_json()
        for section, method in (("local", self.local_method), ("federated", self.federated_method)):
            value[section] = {**method.params.model_dump(mode="json"), **value[section]}
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def digest(self) -> str:
        """Returns a digest of what decides the figures: not of workers, threads and device."""
        value = self.to_json()
        for name in DECIDING_NOTHING:
            value["train"].pop(name)
        return digest_json(value)[:12]

    def to_toml(self) -> str:
        """Returns the config as TOML, every value spelled out."""
        return to_toml(self.to_json())


def load_config(source: Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> RunConfig:
    """Reads a config.

    Args:
        source: a TOML file, or what one would hold. A data path in a file (and the root of a data set's files) is relative
            to the file, any other to the working directory.
        overrides: ``section.key=value``, as on the command line; the value is read as TOML, else as a string.

    Raises:
        UserError: if the file is missing or no TOML, a key is unknown (names the nearest) or a value is of the wrong type.
    """
    where = str(source) if isinstance(source, Path) else "the config"
    value = _read_toml(source) if isinstance(source, Path) else json.loads(json.dumps(source, default=str))
    for override in overrides:
        _override(value, override)
    make_absolute(value, Path())
    try:
        config = RunConfig.model_validate(value)
    except ValidationError as error:
        raise UserError(f"{where}: {_explain(error)}") from error
    try:
        _ = config.local_method, config.remarks
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    return config


def checked(section: type[_Section], value: Mapping[str, Any], *, where: str) -> _Section:
    """Returns one table of a config.

    Raises:
        UserError: if a value is wrong; ``where`` names the table.
    """
    try:
        return section.model_validate(value)
    except ValidationError as error:
        raise UserError(_explain(error, prefix=where, known=list(section.model_fields))) from error


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f'There is no config file "{path}". Make one: silohash new {path}') from error
    except IsADirectoryError as error:
        raise UserError(f'"{path}" is a folder; a config is a TOML file. Make one: silohash new run.toml') from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no TOML: {error}.") from error
    make_absolute(value, path.parent)
    return value


def read_override(override: str) -> tuple[str, Any]:
    """Returns key and value of ``section.key=value``, as on the command line; the value is read as TOML, else as a string.

    Raises:
        UserError: if it is of another form.
    """
    key, equals, text = override.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise UserError(f'--set "{override}" is not of the form section.key=value, for example federated.rounds=5.')
    try:
        return key.strip(), tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), text


def _override(value: dict[str, Any], override: str) -> None:
    key, new = read_override(override)
    parts = key.split(".")
    for part in parts[:-1]:
        value = value.setdefault(part, {})
        if not isinstance(value, dict):
            raise UserError(f'--set "{override}": "{part}" is no table.')
    value[parts[-1]] = new


def _method(registry: Registry, section: str, config: LocalConfig | FederatedConfig) -> Any:  # noqa: ANN401
    kind = registry.resolve(config.name)
    if config.preset == "reference" and "paper" in kind.presets:
        code = ', or "authors_code" for those of its authors\' public code' if "authors_code" in kind.presets else ""
        raise UserError(
            f'{section}.preset: {config.name} has no preset "reference". Set "paper" for the values of the paper{code}.'
        )
    if config.preset not in kind.presets:
        raise UserError(
            f'{section}.preset: {config.name} has no preset "{config.preset}"{suggestion(config.preset, kind.presets)}; '
            f"it has: {', '.join(kind.presets)}."
        )
    own = dict(config.model_extra or {})
    known = [*type(config).model_fields, *kind.Params.model_fields]
    try:
        params = kind.Params(**{**kind.presets[config.preset], **own})
        for number, member in enumerate(getattr(params, "methods", ())):  # those of a composition
            _method(registry, f"{section}.methods.{number}", member)
        return kind(params)
    except ValidationError as error:
        raise UserError(_explain(error, prefix=section, known=known)) from error


def _explain(error: ValidationError, *, prefix: str = "", known: Sequence[str] = ()) -> str:
    """Returns the first thing that is wrong, in one sentence."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    key = ".".join([prefix, *path] if prefix else path)
    if first["type"] == "extra_forbidden":
        names = known or _keys_at(path[:-1])
        there = f"; known: {', '.join(names)}" if names else ""
        return f'unknown key "{key}"{suggestion(path[-1], names)}{there}.'
    if first["type"] == "missing":
        if key == "data":
            return '[data] is missing. Add it, for example: [data] with name = "glyphs".'
        return f"{key} is missing. Add it."
    message = first["msg"].removeprefix("Value error, ")
    shown = first.get("input")
    seen = f" (got {shown!r})" if isinstance(shown, str | int | float | bool | None) else ""
    return f"{key}: {message[0].lower()}{message[1:]}{seen}."


def _keys_at(path: Sequence[str]) -> list[str]:
    model: type[BaseModel] = RunConfig
    for part in path:
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)


def to_toml(value: Mapping[str, Any]) -> str:
    """Returns a nested mapping of JSON values as TOML."""
    lines: list[str] = []

    def write(table: Mapping[str, Any], prefix: str) -> None:
        """Adds a table's own keys, then the tables in it."""
        plain = {k: v for k, v in table.items() if not isinstance(v, Mapping)}
        nested = {k: v for k, v in table.items() if isinstance(v, Mapping) and v}
        if prefix and (plain or not nested):
            lines.append(f"\n[{prefix}]" if lines else f"[{prefix}]")
        lines.extend(f"{_key(k)} = {toml_value(v)}" for k, v in plain.items() if v is not None)
        for name, inner in nested.items():
            write(inner, f"{prefix}.{_key(name)}" if prefix else _key(name))

    write(value, "")
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)


def toml_value(value: object) -> str:
    """Returns a JSON value as TOML on one line, a table as an inline table; what is unset in a table is left out."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(name)} = {toml_value(item)}" for name, item in value.items() if item is not None)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)
