"""The config of a run: frozen models, one per table, which refuse unknown keys.

The docstring under each key becomes its comment in the files that ``silohash new`` writes.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from silohash.base.errors import UserError
from silohash.base.files import digest_json
from silohash.base.types import EVALUATIONS, TASKS, Evaluation, Modality, Task
from silohash.run.config.toml import to_toml

EXECUTION_KEYS = ("workers", "threads", "device")
"""Keys of ``[train]`` that change how a run is computed, but not what it is; the digest leaves them out."""

WEIGHT_CAP, NORM_LIMIT = 0.4, 5.0
"""Defaults of ``federated.weight_cap`` and ``federated.norm_limit`` with silos on other machines."""

Width = Annotated[int, Field(ge=8, le=16384)]

DECAY_KEYS: Mapping[str, tuple[str, ...]] = {
    "none": (), "cosine": (), "geometric": ("final_learning_rate",), "steps": ("decay_factor", "decay_epochs"),
}  # fmt: skip
"""Value of ``train.decay`` -> the keys of ``[train]`` that only it uses."""


class Section(BaseModel):
    """A table of the config: frozen, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class DataConfig(Section):
    """``[data]``: the archive."""

    name: str | None = None
    """Name of an archive, for example "glyphs" (`silohash list data` shows all)."""
    path: Path | None = None
    """Path of a folder with a metadata.csv, .jsonl or .parquet file, relative to the config file. Set either name or
    path."""
    protocol: str | None = None
    """Evaluation protocol of a named data set: which items are included, and how they are split into queries and
    database (`silohash data list` shows the protocols)."""
    follow_links: bool = False
    """Follow symbolic links that lead out of the folder at path. Otherwise such pictures are skipped and reported."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the archive's reader, for example { labels = "article_type" }."""
    modality: Modality | None = None
    """"image" or "text": use only this modality, for hashing within one modality. Set evaluate.tasks to ["i2i"] or
    ["t2t"]."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.name is None) == (self.path is None):
            raise ValueError('set either name (an archive, for example "glyphs") or path (a folder)')
        if self.follow_links and self.path is None:
            raise ValueError("follow_links is for a folder. Remove it, or set path instead of name")
        if self.protocol is not None and self.name is None:
            raise ValueError(
                'a folder has no protocol. Remove protocol; the column "split" of the metadata takes its place'
            )
        return self

    @model_validator(mode="after")
    def _known_protocol(self) -> Self:
        from silohash.data import ARCHIVES
        from silohash.data.benchmarks.dataset import Dataset, benchmarks
        from silohash.data.build.archive import BuiltSet

        if self.protocol is None or self.name is None or self.name not in ARCHIVES.names():
            return self
        try:
            dataset = ARCHIVES.resolve(self.name)
            if not isinstance(dataset, Dataset | BuiltSet):
                raise ValueError(f"{self.name} has splits of its own. Protocols exist for {', '.join(benchmarks())}")
            dataset.protocol(self.protocol)
        except UserError as error:
            raise ValueError(str(error)) from error
        return self


class FeaturesConfig(Section):
    """``[features]``: how images and texts become vectors."""

    image: dict[str, Any] = Field(default_factory=dict)
    """Image features: kind = "auto", "pixels", "given", "regions", "picture_regions", "huggingface" or "cnnf", and the
    options of the kind (size, channels; model)."""
    text: dict[str, Any] = Field(default_factory=dict)
    """Text features: kind = "auto", "tfidf", "count", "binary", "given", "words", "huggingface" or "tokens", and the
    options of the kind (buckets, analysis, languages; model)."""


class ModelConfig(Section):
    """``[model]``: the towers, one network per modality."""

    hidden: int = Field(default=512, ge=8, le=16384)
    """Width of the feature layer before the hash layer, from 8 to 16384."""
    widths: dict[Modality, Annotated[tuple[Width, ...], Field(min_length=1)]] = Field(default_factory=dict)
    """Widths of the layers of a tower in place of hidden, from its input to its feature layer, each from 8 to 16384. For
    example { image = [4096], text = [8192, 4096] }. Several layers need vectors as input. A modality that is not named has
    one layer of the width hidden."""
    dropout: float = Field(default=0.5, ge=0, lt=1)
    """Dropout probability on the feature layer during training, at least 0 and less than 1."""
    image: dict[str, Any] = Field(default_factory=dict)
    """Published network to fine-tune as the image tower: backbone = "huggingface" or "cnnf", and its options (model,
    pooling, freeze). Empty to train a tower from scratch."""
    text: dict[str, Any] = Field(default_factory=dict)
    """Published network to fine-tune as the text tower. It needs features.text = { kind = "tokens", model = ... }.
    Empty to train a tower from scratch."""

    def of(self, modality: Modality) -> dict[str, Any]:
        """Return the table of a modality's published network; empty for a tower that is trained from scratch."""
        return self.image if modality == "image" else self.text


class PartitionConfig(Section, extra="allow"):
    """``[partition]``: how the archive is divided among silos."""

    kind: str = "iid"
    """Kind of partition: iid, dirichlet, shards, quantity, nested, column or pseudo (`silohash list partition`). Its
    parameters are further keys of this table."""
    silos: int = Field(default=5, ge=1)
    """Number of silos, at least 1."""

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the kind."""
        return dict(self.model_extra or {})


class LocalConfig(Section, extra="allow"):
    """``[local]``: the method that each silo trains with; its parameters are further keys of this table."""

    name: str = "dcmh"
    """Local method (`silohash list local`)."""
    bits: int = Field(default=64, ge=8, le=256)
    """Code length in bits, from 8 to 256."""
    preset: str = "recommended"
    """Preset of the method's parameters: `recommended`, or `paper` for the values of the paper."""


class RobustConfig(Section):
    """``[federated.robust]``: how to limit the influence of faulty silos."""

    rule: Literal["median", "trimmed_mean", "multi_krum", "clip"]
    """Aggregation rule: `median` or `trimmed_mean` of each parameter, `multi_krum`, or `clip`, which limits the norm
    of every update."""
    faulty: float = Field(default=0.3, ge=0, lt=0.5)
    """Share of silos that may be faulty, at least 0 and less than 0.5; rounded up to f silos of each round. Class
    statistics are used only if at least 2f + 1 silos send them. `trimmed_mean` drops this share of values at each end.
    `multi_krum` drops f silos and needs at least 2f + 3 silos per round."""
    clip_factor: float = Field(default=1.0, gt=0)
    """Norm limit of the rule `clip`, as a multiple of the median norm of the updates. Greater than 0."""


class ServerConfig(Section):
    """``[federated.server]``: the server-side optimizer, which is applied to the averaged update."""

    optimizer: Literal["fedavgm", "fedadam", "fedyogi"]
    """Server-side optimizer: `fedavgm` (momentum), `fedadam` (Adam) or `fedyogi` (Yogi)."""
    learning_rate: float | None = Field(default=None, gt=0)
    """Server-side learning rate, greater than 0. By default 1 for `fedavgm`, and 0.01 for `fedadam` and `fedyogi`."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Decay rate of the running mean of updates, at least 0 and less than 1."""
    square_decay: float = Field(default=0.99, ge=0, lt=1)
    """Decay rate of the running mean of squared updates, at least 0 and less than 1. `fedavgm` does not use it."""
    floor: float = Field(default=1e-3, gt=0)
    """Constant added to the denominator for numerical stability, greater than 0. `fedavgm` does not use it."""


class FederatedConfig(Section, extra="allow"):
    """``[federated]``: the method by which silos cooperate; its parameters are further keys of this table."""

    name: str = "fedavg"
    """Federated method (`silohash list federated`)."""
    preset: str = "recommended"
    """Preset of the method's parameters: `recommended`, `paper` for the values of the paper, or `authors_code` for those of
    the authors' public code if they differ."""
    rounds: int = Field(default=20, ge=1)
    """Number of rounds, at least 1."""
    local_epochs: int = Field(default=2, ge=1)
    """Local epochs per round, at least 1."""
    fraction: float = Field(default=1.0, gt=0, le=1)
    """Fraction of the silos that take part in each round, greater than 0 and at most 1. At least one silo takes
    part."""
    weight_cap: float | None = Field(default=None, gt=0, le=1, examples=[WEIGHT_CAP])
    """Upper limit on a silo's share of the aggregation weight, at least 1 divided by the number of silos per round, and at
    most 1. At 1 there is no limit. By default there is none in simulations, and 0.4 with silos on other machines, if at
    least three take part in a round."""
    norm_limit: float | None = Field(default=None, ge=0, examples=[NORM_LIMIT])
    """Refuse updates longer than this multiple of the median length of a round's updates, at least 1. At 0 there is no
    limit, nor with fewer than three updates. By default there is none in simulations, and 5 with silos on other machines."""
    robust: RobustConfig | None = None
    """Limit the influence of faulty silos, for example with { rule = "median" }. The rules are "median",
    "trimmed_mean", "multi_krum" and "clip"."""
    server: ServerConfig | None = None
    """Server-side optimizer applied to the averaged update, for example { optimizer = "fedavgm" }. The optimizers are
    "fedavgm", "fedadam" and "fedyogi"."""

    @property
    def given_cap(self) -> float:
        """The weight cap of the config, and 1 if it does not set one."""
        return self.weight_cap or 1.0

    def participants(self, silos: int) -> int:
        """Return how many of the silos take part in each round: the fraction, rounded half up, and at least one."""
        return max(1, math.floor(self.fraction * silos + 0.5))


class TrainConfig(Section):
    """``[train]``: batches, optimizer and machine."""

    batch: int = Field(default=128, ge=2)
    """Batch size, in pairs. At least 2."""
    optimizer: Literal["adam", "adamw", "sgd"] = "adamw"
    """Optimizer: `adamw`, `adam` or `sgd`."""
    optimizer_state: Literal["reset", "keep"] = "reset"
    """State of the optimizer, such as its momentum, at the start of a round: `reset`, or `keep` to continue with that of
    the silo's last round, although the parameters have been replaced."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Momentum of `sgd`, at least 0 and less than 1. At 0 it is plain SGD. The other optimizers ignore it."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Learning rate of the first round, greater than 0."""
    decay: Literal["none", "cosine", "geometric", "steps"] = "none"
    """How the learning rate changes from round to round: `none`, `cosine` (down to a tenth over the rounds, along a half
    cosine), `geometric` (by the same factor from each round to the next, down to final_learning_rate in the last round), or
    `steps` (by decay_factor after every decay_epochs local epochs). `true` stands for `cosine`, and `false` for `none`."""
    final_learning_rate: float = Field(default=1e-6, gt=0)
    """Learning rate of the last round with decay = "geometric", greater than 0. The other choices do not use it."""
    decay_factor: float = Field(default=0.1, gt=0, le=1)
    """Factor on the learning rate with decay = "steps", greater than 0 and at most 1. The other choices do not use it."""
    decay_epochs: int = Field(default=10, ge=1)
    """Local epochs between two steps with decay = "steps", at least 1, counted over all rounds. The rate changes at the
    start of a round, so a step within a round takes effect in the next one. The other choices do not use it."""
    weight_decay: float = Field(default=1e-2, ge=0)
    """Weight decay, at least 0. At 0 it is off. In each step `adamw` multiplies all parameters by
    1 - learning_rate * weight_decay, so common values lie between 0.01 and 1. `adam` and `sgd` add weight_decay times
    the parameter to the gradient (L2). `adam` then turns a gradient of zero, such as that of a word that a batch
    lacks, into steps of the full learning rate toward zero. For bags of words use `adamw`, or set it to 0."""
    clip_norm: float = Field(default=0.0, ge=0)
    """Maximum gradient norm, at least 0. At 0 gradients are not clipped."""
    device: str = "auto"
    """Device: `auto`, `cpu`, `cuda`, `cuda:1` or `mps`. `auto` takes a GPU if there is one."""
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    """Precision of the towers' computations: `float32`, `bfloat16`, or `auto`, which takes `bfloat16` if the device
    computes in it. Wide towers and large batches gain most. Weights are float32 in any case. With `auto`, figures depend
    on the machine."""
    workers: int = Field(default=1, ge=1, le=64)
    """Number of silos trained at the same time, each in a worker process, from 1 to 64. The results do not depend on
    it."""
    threads: int = Field(default=0, ge=0, le=256)
    """Threads per worker, up to 256. At 0 the workers share the cores, or the number of threads in OMP_NUM_THREADS if
    that is set. The same number of threads gives bitwise identical results."""

    @field_validator("decay", mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        names: Mapping[object, str] = {True: "cosine", False: "none"}
        return names[value] if isinstance(value, bool) else value


class CompressionConfig(Section):
    """``[exchange.compression]``: how silos compress the parameters that they send."""

    kind: Literal["half", "int8", "top_k", "hash_layers"]
    """What silos send of their parameters: the differences from those that they received in half precision (`half`) or in
    8 bits per value (`int8`), the values that differ most (`top_k`), or only the hash layers, in which case the other
    layers keep their initial values (`hash_layers`). With `int8` and `top_k`, a silo adds what it left out to its next
    update."""
    share: float = Field(default=0.1, gt=0, le=1)
    """Share of the values of each parameter that `top_k` sends, greater than 0 and at most 1. At 1 nothing is left out.
    The other kinds do not use it."""


class PrivacyConfig(Section):
    """``[exchange.privacy]``: differential privacy of what silos send."""

    unit: Literal["record", "silo"]
    """What the noise hides: `record` hides whether a silo trained on some item, from everyone who sees what the silo
    sends. `silo` hides what a silo contributed to the models of the rounds, but less of it from the server."""
    clip_norm: float = Field(default=1.0, gt=0)
    """Limit on the norm of what is hidden, greater than 0: of an item's gradient, or of a silo's change of the
    parameters."""
    noise_multiplier: float = Field(default=1.0, gt=0)
    """Standard deviation of the noise, as a multiple of clip_norm, greater than 0. A larger one gives a smaller epsilon."""
    statistics_noise_multiplier: float = Field(default=4.0, gt=0)
    """Standard deviation of the noise on class statistics, as a multiple of the norm of an item's largest possible share
    in them. Greater than 0. Methods that send parameters only do not use it."""
    delta: float = Field(default=1e-5, gt=0, lt=1)
    """Probability for which epsilon need not hold, greater than 0 and less than 1. It should be well below 1 divided by
    the number of items or silos."""
    repeatable: bool = False
    """Derive the noise from the seed, so that a run can be repeated. Everyone who knows the seed can then subtract it, so
    this is for experiments only. Otherwise each silo draws it with a secret of its own."""


class ExchangeConfig(Section):
    """``[exchange]``: how silos change their updates before they send them."""

    compression: CompressionConfig | None = None
    """Compression of the parameters that silos send, for example { kind = "int8" }. The kinds are "half", "int8", "top_k"
    and "hash_layers". Sums that silos send beside parameters are not compressed."""
    encryption: Literal["ckks"] | None = None
    """Encryption of what silos send: `ckks`. The server adds up the silos' updates without being able to read them, and only
    silos have the key. Federated methods and rules whose server needs the update of each silo are refused. It needs the
    extra "encryption" of silohash."""
    privacy: PrivacyConfig | None = None
    """Differential privacy: limit and hide what an item or a silo contributes, and count epsilon. For example
    { unit = "record" }. It needs the extra "privacy" of silohash."""
    keep_updates: bool = False
    """Keep what the server received in the last round, in the folder `received` of the run, so that `silohash audit` can
    measure what it reveals. The updates reveal more than the model, so delete them afterwards."""


class EvaluateConfig(Section):
    """``[evaluate]``: what is measured."""

    measures: tuple[str, ...] = Field(default=("mAP@all",), min_length=1)
    """Measures to compute (`silohash list measure`)."""
    evaluations: tuple[Evaluation, ...] = Field(default=("GG", "PG", "XS"), min_length=1)
    """Evaluations: GG and GL use the global model, PL and PG the silos' personal models, XS searches across silos."""
    tasks: tuple[Task, ...] = ("i2t", "t2i")
    """Retrieval tasks: i2t, t2i, i2i, t2t, from the modality of the query to the modality of the database. i2item and
    t2item find items by the nearer of their picture code and their text code, as a search does. i2unified and t2unified
    find items by one code, the signs of the sum of the outputs for their picture and for their text."""
    ignore_labels: tuple[str, ...] = ()
    """Labels that do not make two items relevant to each other. Items without any other label are left out. The choice of
    the round follows the same rule."""
    validation: float = Field(default=0.1, ge=0, lt=1)
    """Share of each silo's training items held back to choose the best round, at least 0 and less than 1. At 0 the last
    round is used."""
    validation_by: Literal["auto", "labels", "pairs"] = "auto"
    """How held-back items choose the round: `labels` searches the training items and takes the mAP of shared labels,
    `pairs` searches the held-back items and takes the mean reciprocal rank of a picture's own text and of a text's own
    picture. For models that score pairs, it takes the mean of R@1, R@5 and R@10. `auto` takes `labels` if a method of the
    run learns from labels, and otherwise `pairs`."""
    no_hits: Literal["zero", "skip"] = "zero"
    """Queries without a relevant item: `zero` counts them as 0, `skip` leaves them out. [empty=...] in a measure takes
    precedence."""
    own_item: Literal["exclude", "count"] = "exclude"
    """If the protocol's database contains the queries: `exclude` removes a query's own item from its
    rankings in all tasks but i2t and t2i, `count` keeps it."""

    @field_validator("evaluations", "tasks", mode="before")
    @classmethod
    def _known(cls, value: Any, info: Any) -> Any:  # noqa: ANN401  pydantic's
        known = EVALUATIONS if info.field_name == "evaluations" else TASKS
        for name in value if isinstance(value, list | tuple) else ():
            if name not in known:
                raise ValueError(f'"{name}" is not one of {", ".join(known)}')
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
    """The whole config of a run: plain, frozen data."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed for all random choices of the run, at least 0 and less than 2^63."""
    data: DataConfig
    features: FeaturesConfig = FeaturesConfig()
    model: ModelConfig = ModelConfig()
    partition: PartitionConfig = PartitionConfig()
    local: LocalConfig = LocalConfig()
    federated: FederatedConfig = FederatedConfig()
    train: TrainConfig = TrainConfig()
    exchange: ExchangeConfig = ExchangeConfig()
    evaluate: EvaluateConfig = EvaluateConfig()

    def to_json(self) -> dict[str, Any]:
        """Return the config as a JSON value, without None values."""
        value: dict[str, Any] = self.model_dump(mode="json", exclude_none=True)
        return value

    def to_toml(self) -> str:
        """Return the config as TOML, with every value spelled out."""
        return to_toml(self.to_json())

    def digest(self) -> str:
        """Return a digest of everything that decides the results, 12 hexadecimal digits.

        Where the data is does not decide the results. A run notices by the content of its archive if that has changed.
        """
        value = self._deciding()
        value["data"].pop("path", None)
        value["data"]["options"].pop("root", None)
        return digest_json(value)[:12]

    def located_digest(self) -> str:
        """Return a digest of everything that decides the results and of where the data is, 12 hexadecimal digits.

        Without a path it equals `digest`.
        """
        return digest_json(self._deciding())[:12]

    def shared_digest(self) -> str:
        """Return a digest of what all machines of a run have in common: everything but the data, 12 hexadecimal digits."""
        return digest_json({name: value for name, value in self._deciding().items() if name != "data"})[:12]

    def _deciding(self) -> dict[str, Any]:
        value = self.to_json()
        for name in EXECUTION_KEYS:
            value["train"].pop(name)
        if not self.data.follow_links:
            value["data"].pop("follow_links")
        value["federated"].setdefault("weight_cap", 1.0)
        value["train"]["decay"] = {"none": False, "cosine": True}.get(self.train.decay, self.train.decay)
        for name in {key for keys in DECAY_KEYS.values() for key in keys} - {*DECAY_KEYS[self.train.decay]}:
            value["train"].pop(name)
        if not self.model.widths:
            value["model"].pop("widths")
        if self.train.optimizer_state == "reset":  # a config that does not set it has the same results
            value["train"].pop("optimizer_state")
        if self.evaluate.validation_by == "auto":  # so has one that does not set this
            value["evaluate"].pop("validation_by")
        value["exchange"].pop("keep_updates")  # it does not change the results
        if not value["exchange"]:  # so is this table
            value.pop("exchange")
        return value
