"""The tables of a run's config: frozen models that refuse unknown keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from silohash.types import EVALUATIONS, TASKS, Evaluation, Modality, Task, UserError


class Section(BaseModel):
    """A table of the config; frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


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
    modality: Modality | None = None
    """"image" or "text": the other is left aside, for hashing of one modality (then set evaluate.tasks = ["i2i"])."""

    @model_validator(mode="after")
    def _one_source(self) -> DataConfig:
        if (self.name is None) == (self.path is None):
            raise ValueError('give either name (an archive, for example "glyphs") or path (a folder of your own)')
        if self.protocol is not None and self.name is None:
            raise ValueError("a folder of your own has no protocol: its column split says which row is what")
        return self

    @model_validator(mode="after")
    def _known_protocol(self) -> DataConfig:
        from silohash.data.benchmarks.table import DATASETS, protocol_of
        from silohash.data.catalogue import ARCHIVES

        if self.protocol is None or self.name is None or self.name not in ARCHIVES:
            return self
        if self.name not in DATASETS:
            raise ValueError(f"{self.name} brings its own splits; protocols are of {', '.join(DATASETS)}")
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


class RobustConfig(Section):
    """``[federated.robust]``: how faulty silos are borne."""

    rule: Literal["median", "trimmed_mean", "multi_krum", "clip"]
    """`median` or `trimmed_mean` of each number, `multi_krum`, or `clip`: moves are cut to a common length."""
    faulty: float = Field(default=0.3, ge=0, lt=0.5)
    """Share of silos that may be faulty: so many are trimmed at each end, or left out by Krum."""
    clip_factor: float = Field(default=1.0, gt=0)
    """`clip`: moves are cut to so many times the median move."""


class ServerConfig(Section):
    """``[federated.server]``: how the server steps by the averaged move."""

    optimizer: Literal["fedavgm", "fedadam", "fedyogi"]
    """Momentum, Adam or Yogi."""
    learning_rate: float | None = Field(default=None, gt=0)
    """1 with momentum and 0.01 with Adam and Yogi, if not given."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Of the running mean."""
    square_decay: float = Field(default=0.99, ge=0, lt=1)
    """Of the running mean of squares."""
    floor: float = Field(default=1e-3, gt=0)
    """Added to the root of the squares."""


class FederatedConfig(Section):
    """``[federated]``: how silos cooperate; the method's own parameters stand beside these."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    name: str = "fedavg"
    """The federated method (`silohash list federated`)."""
    preset: str = "recommended"
    """`recommended`; `paper` for the paper's values; `authors_code` where its authors' public code does something else."""
    rounds: int = Field(default=20, ge=1)
    """How many rounds."""
    local_epochs: int = Field(default=2, ge=1)
    """Passes over a silo's own data in a round."""
    fraction: float = Field(default=1.0, gt=0, le=1)
    """Share of the silos that take part in a round."""
    weight_cap: float = Field(default=1.0, gt=0, le=1)
    """No silo weighs more than this share of all."""
    robust: RobustConfig | None = None
    """`{ rule = "median" }`, "trimmed_mean", "multi_krum" or "clip": how faulty silos are borne."""
    server: ServerConfig | None = None
    """`{ optimizer = "fedavgm" }`, "fedadam" or "fedyogi": the server's own step by the averaged move."""


class TrainConfig(Section):
    """``[train]``: batches, optimiser, machine."""

    batch: int = Field(default=128, ge=2)
    """Pairs a step."""
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """Made anew every round."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Of `sgd`; 0 for plain steps."""
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
