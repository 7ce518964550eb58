"""A run as one value: frozen models, unknown keys refused with a suggestion, read from and written to TOML."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from silohash.federated import FEDERATED_METHODS
from silohash.files import digest_json
from silohash.local import LOCAL_METHODS
from silohash.registry import Registry, suggestion
from silohash.runtime.paths import make_absolute
from silohash.types import EVALUATIONS, TASKS, Evaluation, Modality, Task, UserError

DECIDING_NOTHING = ("workers", "threads", "device")
"""Keys of ``[train]`` that say how a run is computed, not what it is."""


class Section(BaseModel):
    """A table of the config; frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


_Section = TypeVar("_Section", bound=Section)


class DataConfig(Section):
    """``[data]``: which archive."""

    name: str | None = None
    """A named archive: glyphs, coco18, fashion, ... (`silohash list data`)."""
    path: Path | None = None
    """A folder of your own with metadata.csv, .jsonl or .parquet."""
    protocol: str | None = None
    """Of a data set in circulation: who counts, and which rows ask and are searched (`silohash data list`)."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What the archive's reader understands, for example labels = "article_type"."""

    @model_validator(mode="after")
    def _one_source(self) -> DataConfig:
        if (self.name is None) == (self.path is None):
            raise ValueError('give either name (an archive, for example "glyphs") or path (a folder of your own)')
        if self.protocol is not None and self.name is None:
            raise ValueError("a folder of your own has no protocol: its column split says which row is what")
        return self

    @model_validator(mode="after")
    def _known_protocol(self) -> DataConfig:
        from silohash.data import ARCHIVES
        from silohash.data.protocols import PROTOCOLS, protocol_of

        if self.protocol is None or self.name not in ARCHIVES:
            return self
        if self.name not in PROTOCOLS:
            raise ValueError(f"{self.name} brings its own splits; protocols are of {', '.join(PROTOCOLS)}")
        try:
            protocol_of(self.name, self.protocol)
        except UserError as error:
            raise ValueError(str(error)) from error
        return self


class FeaturesConfig(Section):
    """``[features]``: how pictures and texts become vectors."""

    image: dict[str, Any] = Field(default_factory=dict)
    """kind = "auto", "pixels", "given", "huggingface" or "cnnf", and its options (size, channels; model)."""
    text: dict[str, Any] = Field(default_factory=dict)
    """kind = "auto", "tfidf", "count", "binary", "given", "huggingface" or "tokens", and its options (buckets; model)."""


class ModelConfig(Section):
    """``[model]``: the towers."""

    hidden: int = Field(default=512, ge=8, le=16384)
    """Width of the feature before the hash layer."""
    dropout: float = Field(default=0.5, ge=0, lt=1)
    """Share of the feature that is dropped in training."""
    image: dict[str, Any] = Field(default_factory=dict)
    """backbone = "huggingface" or "cnnf", with its options (model, pooling, freeze): a published network trained on from."""
    text: dict[str, Any] = Field(default_factory=dict)
    """The same for texts, which need features.text = { kind = "tokens", model = ... }."""

    def of(self, modality: Modality) -> dict[str, Any]:
        """Returns the table of a modality's published network; empty for a tower from scratch."""
        return self.image if modality == "image" else self.text


class PartitionConfig(Section):
    """``[partition]``: how the archive is spread over silos."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    kind: str = "iid"
    """iid, dirichlet, shards, quantity, nested, column, pseudo (`silohash list partition`)."""
    silos: int = Field(default=5, ge=1)
    """How many silos."""

    def parameters(self) -> dict[str, Any]:
        """Returns the kind's own parameters."""
        return dict(self.model_extra or {})


class LocalConfig(Section):
    """``[local]``: what each silo optimises; the method's own parameters stand beside these."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    name: str = "dcmh"
    """The local method (`silohash list local`)."""
    bits: int = Field(default=64, ge=8, le=256)
    """Length of the codes."""
    preset: str = "recommended"
    """`recommended`, or the paper's own values: `paper`."""


class FederatedConfig(Section):
    """``[federated]``: how silos cooperate; the method's own parameters stand beside these."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    name: str = "fedavg"
    """The federated method (`silohash list federated`)."""
    preset: str = "recommended"
    """`recommended`, or the reference's own values: `reference`."""
    rounds: int = Field(default=20, ge=1)
    """How many rounds."""
    local_epochs: int = Field(default=2, ge=1)
    """Passes over a silo's own data in a round."""
    fraction: float = Field(default=1.0, gt=0, le=1)
    """Share of the silos that take part in a round."""


class TrainConfig(Section):
    """``[train]``: batches, optimiser, machine."""

    batch: int = Field(default=128, ge=2)
    """Pairs a step."""
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """Made anew every round."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Of the first round."""
    decay: bool = False
    """Whether the learning rate falls to a tenth over the rounds, on a half cosine."""
    weight_decay: float = Field(default=1e-4, ge=0)
    """Of the optimiser."""
    clip_norm: float = Field(default=0.0, ge=0)
    """Gradients are scaled to at most this norm; 0 for no limit."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda`, `cuda:1`, `mps`."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """`bfloat16` runs the towers in it; weights stay float32."""
    workers: int = Field(default=1, ge=1, le=64)
    """Silos trained at the same time, each in a process of its own."""
    threads: int = Field(default=0, ge=0, le=256)
    """Threads of each worker; 0 shares the cores among the workers. The same number gives the same bits."""


class EvaluateConfig(Section):
    """``[evaluate]``: what is measured."""

    measures: tuple[str, ...] = ("mAP@all",)
    """As in `silohash list measure`."""
    evaluations: tuple[Evaluation, ...] = ("GG", "PG", "XS")
    """GG, GL (global model), PL, PG (personal models), XS (across silos)."""
    tasks: tuple[Task, ...] = ("i2t", "t2i")
    """i2t, t2i, i2i, t2t."""
    ignore_labels: tuple[str, ...] = ()
    """Labels that do not make two items relevant; items with no other label are left out."""
    validation: float = Field(default=0.1, ge=0, lt=1)
    """Share of each silo's training items held back to choose the round; 0 takes the last round."""
    no_hits: Literal["zero", "skip"] = "zero"
    """Queries without a relevant item count as `zero`, or are left out: `skip`. [empty=...] in a measure goes before."""
    own_item: Literal["exclude", "count"] = "exclude"
    """Where a protocol has queries in the database: whether i2i and t2t leave a query's own item out of its ranking."""

    @field_validator("evaluations", "tasks", mode="before")
    @classmethod
    def _known(cls, value: Any, info: Any) -> Any:  # noqa: ANN401  pydantic's
        known = EVALUATIONS if info.field_name == "evaluations" else TASKS
        for name in value if isinstance(value, list | tuple) else ():
            if name not in known:
                raise ValueError(f'"{name}" is none of {", ".join(known)}')
        return value

    @field_validator("measures")
    @classmethod
    def _readable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        from silohash.evaluate.measures import Measure

        for text in value:
            try:
                Measure.parse(text)
            except UserError as error:
                raise ValueError(str(error)) from error
        return value


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
        """The federated method, ready with its parameters."""
        return _method(FEDERATED_METHODS, "federated", self.federated)

    def to_json(self) -> dict[str, Any]:
        """Returns the config as a JSON value without what is unset."""
        value: dict[str, Any] = self.model_dump(mode="json", exclude_none=True)
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
        _ = config.local_method, config.federated_method
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
    if config.preset not in kind.presets:
        raise UserError(
            f'{section}.preset: {config.name} has no preset "{config.preset}"{suggestion(config.preset, kind.presets)}; '
            f"it has: {', '.join(kind.presets)}."
        )
    own = dict(config.model_extra or {})
    known = [*type(config).model_fields, *kind.Params.model_fields]
    try:
        return kind(kind.Params(**{**kind.presets[config.preset], **own}))
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
        return f'[{key}] is missing. Add it, for example: [data] with name = "glyphs".'
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
