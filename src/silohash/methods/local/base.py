"""The contract of a local method: what one silo optimizes on its own pairs."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn
from typing_extensions import TypeVar, get_original_bases

from silohash.base.errors import SettingNeeded, UnsuitableMethod
from silohash.base.types import Arrays, Modality, Outputs, PairBatch, ReadArrays, Step, Terms
from silohash.methods.local.label_counts import FederationLabels
from silohash.methods.traits import Traits
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import Adapted, HashNet, Part, outputs_over, standardized

Presets: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Preset -> the parameters that it sets; all others keep their defaults."""

WithoutEffect: TypeAlias = Mapping[str, Mapping[str, tuple[object, ...]]]
"""Parameter -> other parameters that switch it off, with the values at which they do."""


Items = TypeVar("Items", "SiloData", PairBatch)
OwnParams = TypeVar("OwnParams", default=Any)

COLUMNS = ("row", "image", "text", "labels", "has_image", "has_text")
"""Names of the tensors of a batch."""


class MethodParams(BaseModel):
    """Parameters of a method. Unknown names are rejected."""

    without_effect: ClassVar[WithoutEffect] = {}
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    def members(self) -> Sequence[Any]:
        """Return the tables of the methods that a method combines; none by default."""
        return ()

    @staticmethod
    def switched_off(*names: str, **switches: tuple[object, ...]) -> dict[str, Mapping[str, tuple[object, ...]]]:
        """Return parameters as `without_effect` states them, with the switches that they have in common."""
        return dict.fromkeys(names, switches)


@dataclass(frozen=True)
class SiloData:
    """The training pairs of one silo, as tensors on its device.

    Attributes:
        name: Name of the silo.
        image: ``(n, D)``, ``(n, R, D)`` or ``(n, c, h, w)``, or None without images. uint8 pixels are converted and scaled
            in `batch`.
        text: ``(n, V)``, or None without texts.
        labels: ``(n, C)`` float multi-hot, or None.
        has_image: ``(n,)`` bool.
        has_text: ``(n,)`` bool.
        pixel_mean: ``(c, 1, 1)``, subtracted from uint8 pixels (0 to 255).
        pixel_deviation: ``(c, 1, 1)``, by which the centered pixels are divided.
        federation: Counts of the labels of all silos, or None without labels.
        coarse_labels: ``(n, C')`` float multi-hot labels of a coarser level, or None if the local method does not name a
            column for them.
        pictures: ``(n,)`` int64 numbers of the items' pictures, or None if nothing needs them. Equal numbers mean the same
            picture.
    """

    name: str
    image: Tensor | None
    text: Tensor | None
    labels: Tensor | None
    has_image: Tensor
    has_text: Tensor
    pixel_mean: Tensor | None = None
    pixel_deviation: Tensor | None = None
    federation: FederationLabels | None = None
    coarse_labels: Tensor | None = None
    pictures: Tensor | None = None

    def __len__(self) -> int:
        return len(self.has_image)

    def has(self, modality: Modality) -> Tensor:
        """Return which rows have the modality, ``(n,)`` bool."""
        return self.has_image if modality == "image" else self.has_text

    def count(self, modality: Modality) -> int:
        """Return the number of rows that have the modality."""
        return int(self.has(modality).sum())

    def class_counts(self) -> Tensor:
        """Return the number of rows with each label, ``(C,)``; empty without labels."""
        return self.has_image.new_zeros(0, dtype=torch.float32) if self.labels is None else self.labels.sum(0)

    def batch(self, rows: Tensor) -> PairBatch:
        """Return the pairs at ``rows (B,)`` int64."""
        image = None if self.image is None else self.image.index_select(0, rows)
        return PairBatch(
            row=rows,
            image=None if image is None else standardized(image, self.pixel_mean, self.pixel_deviation),
            text=None if self.text is None else self.text.index_select(0, rows),
            labels=None if self.labels is None else self.labels.index_select(0, rows),
            has_image=self.has_image.index_select(0, rows),
            has_text=self.has_text.index_select(0, rows),
        )

    def take(self, rows: Tensor) -> "SiloData":
        """Return the same silo restricted to some of its rows."""
        return rows_of(self, ("image", "text", "labels", "coarse_labels", "pictures", "has_image", "has_text"), rows)


def rows_of(items: Items, columns: Sequence[str], rows: Tensor | slice) -> Items:
    """Return some of the items of a batch or a silo, at positions ``(n,)`` int64 or in a slice.

    The columns are its tensors with one row per item; those that are None remain so.
    """
    columns = [name for name in columns if getattr(items, name) is not None]
    return replace(items, **{name: getattr(items, name)[rows] for name in columns})


@dataclass
class SiloState:
    """Named tensors of a silo: working tensors of one round, and tensors that persist.

    Attributes:
        buffers: Working tensors of the local method, reinitialized at the start of each phase.
        kept: Tensors that persist between rounds and are part of the checkpoint, such as a personal model or mixing
            weights.
        epochs: Number of local epochs before the present one, over all rounds, for schedules. The loop counts them.
    """

    buffers: dict[str, Tensor] = field(default_factory=dict)
    kept: dict[str, Tensor] = field(default_factory=dict)
    epochs: int = 0


class WithParams(Generic[OwnParams]):
    """A method whose parameters are of the class in brackets, as in ``LocalMethod[ContrastParams]``.

    Attributes:
        Params: Class of the method's parameters, which a method can also set by itself.
    """

    Params: ClassVar[type[MethodParams]] = MethodParams

    def __init_subclass__(cls) -> None:
        """Take `Params` from the brackets."""
        super().__init_subclass__()
        named = [kind for base in get_original_bases(cls) for kind in get_args(base) if isinstance(kind, type)]
        if named and "Params" not in vars(cls):
            cls.Params = named[0]


class LocalMethod(WithParams[OwnParams], ABC):
    """What a silo optimizes. One paper, one file, one class.

    A method combines pure formulas. It never loops over data, calls ``backward`` or steps an optimizer; the loop in
    ``training/silo.py`` does. It names its `Params`, implements `terms`, and overrides the hooks in which it differs from a
    method that trains towers ending in a tanh on one loss and keeps nothing between batches. Two additions are optional:
    `ServerSolved` for values that the server computes, and `ClosedForm` in place of gradient steps.

    Attributes:
        presets: Preset -> the parameters that it sets. All methods have ``recommended`` and ``paper``, and ``authors_code``
            if the authors' code differs from the paper in a way that matters.
        traits: What shared code must know about the method. The constructor replaces traits that depend on parameters.
        relaxation: Function that turns outputs into relaxed codes: ``tanh``, or ``identity`` if the loss takes outputs.
        by_tower: Whether each tower is trained in a step of its own, on a loss of its own.
        params: Parameters of this instance.
    """

    presets: ClassVar[Presets] = {"recommended": {}, "paper": {}}
    traits: Traits = Traits()
    relaxation: ClassVar[Literal["identity", "tanh"]] = "tanh"
    by_tower: ClassVar[bool] = False

    def __init__(self, params: OwnParams) -> None:
        self.params = params

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Build the network; by default towers."""
        return HashNet(spec, bits, relaxation=self.relaxation)

    def steps(self, model: nn.Module) -> Sequence[Step]:
        """Return the optimizer steps for each batch, in order; by default one for all parameters, or one per tower."""
        return tower_steps(model) if self.by_tower else [joint_step(model)]

    def init_state(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Initialize the working tensors at the start of a phase, from the current model. By default there are none."""

    @abstractmethod
    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return the loss of one step as named terms; empty if no item of the batch has what the step needs."""

    def record(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> None:
        """Update the working tensors after an optimizer step."""

    def end_epoch(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Update the working tensors after a pass over the data."""

    def warnings(self, terms: Mapping[str, float]) -> list[str]:
        """Return warnings about an epoch's mean terms, such as a collapse of the codes; by default none."""
        return []


class TowerMethod(LocalMethod[OwnParams]):
    """A local method that trains each tower on a loss of the items that have its modality, and that needs labels."""

    traits = Traits(needs_labels=True)
    by_tower = True

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return the loss of one tower; empty if no item of the batch has its modality."""
        (modality,) = step.modalities
        held = batch.rows_with(modality)
        codes, rows, labels = outputs.code[modality][held], batch.row[held], labels_of(batch)[held]
        return self.tower_terms(modality, codes, rows, labels, state) if len(rows) else {}

    @abstractmethod
    def tower_terms(self, modality: Modality, codes: Tensor, rows: Tensor, labels: Tensor, state: SiloState) -> Terms:
        """Return the terms for the outputs ``(n, K)`` and labels of at least one of the silo's items, at ``rows (n,)``."""


@runtime_checkable
class ServerSolved(Protocol):
    """A local method whose model holds values that the server computes from sums over silos, such as class codes.

    The values are fixed buffers of the model (`silohash.models.parameters.fixed_buffers`). They start as `build` sets them,
    which is the same in all silos. The server sends them with the parameters, and no silo changes them. After each round of
    a federated method that shares parameters, the server solves for new ones (`silohash.methods.federated.server_values`).
    """

    def silo_sums(self, model: nn.Module, data: SiloData) -> Arrays:
        """Return the sums of a silo after its training, by name. Names and shapes are the same for a silo without items."""

    def empty_sums(self, params: ReadArrays) -> Arrays:
        """Return the sums of a silo without items; nothing if the server does not hold the buffers, and needs no sums."""

    def solve(self, params: ReadArrays, sums: ReadArrays) -> Arrays:
        """Return the new values on the server, by name of the buffer; nothing if the server does not hold the buffers."""


class ClosedForm(LocalMethod[OwnParams]):
    """A local method that computes the network's parameters without gradient steps.

    The loop calls `fit` in place of the epochs of a phase, and none of the hooks that gradient steps need. A method whose
    bits mean something else in every silo has the trait ``codes_comparable = False``. Its models are not averaged.
    """

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Build towers that consist of a hash layer."""
        return HashNet(linear_spec(spec), bits)

    @abstractmethod
    def fit(self, model: nn.Module, data: SiloData) -> dict[str, float]:
        """Compute the parameters from the pairs of a silo, at least one, and copy them into the model.

        The result is for the record of the round; ``loss`` is the objective. It may be empty.
        """

    def remarks(self, spec: ModelSpec, bits: int) -> list[str]:
        """Return what a user should know before the training, as sentences; by default nothing."""
        return []

    def steps(self, model: nn.Module) -> Sequence[Step]:
        """Return no steps."""
        return []

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return no terms."""
        return {}


def linear_spec(spec: ModelSpec) -> ModelSpec:
    """Return the structure of a model whose hash layers are applied to the inputs.

    A tower that is a published network keeps it, and its hash layer is applied to the outputs of the network.
    """
    towers = {
        modality: replace(tower, hidden=int(tower.settings["width"]), dropout=0.0)
        if tower.kind == "network"
        else TowerSpec("linear", tower.shape, hidden=math.prod(tower.shape))
        for modality, tower in spec.towers.items()
    }
    return replace(spec, towers=towers)


def labels_of(items: SiloData | PairBatch) -> Tensor:
    """Return the labels ``(n, C)`` of items, which a method with the trait `needs_labels` always has."""
    assert items.labels is not None  # noqa: S101  checked when the run is put together
    return items.labels


def federation_of(data: SiloData, method: str) -> FederationLabels:
    """Return what all silos know about the labels, for a method of a given name that cannot do without it.

    Raises:
        UserError: If the data lack it, which only data made by other packages can.
    """
    if data.federation is None:
        raise SettingNeeded(
            f'{method} needs the label counts of all silos and their common seed, and the data of "{data.name}" have none. '
            "Set SiloData.federation, or choose another local method."
        )
    return data.federation


def signs(values: Tensor) -> Tensor:
    """Return the signs with ``sign(0) = +1``, in the dtype of the values.

    Example:
        >>> signs(torch.tensor([-0.5, 0.0, 2.0]))
        tensor([-1.,  1.,  1.])
    """
    # torch.sign gives 0 for 0, which is not a bit.
    return torch.where(values >= 0, 1.0, -1.0).to(values.dtype)


def joint_step(model: nn.Module) -> Step:
    """Return the optimizer step that trains all parameters of a `HashNet` on one loss."""
    assert isinstance(model, HashNet)  # noqa: S101  built by the method
    towers = tuple(f"{modality}." for modality in model.modalities)
    # Networks beside the towers have no common prefix, so their parameters are named one by one.
    others = tuple(name for name, _ in model.named_parameters() if not name.startswith(towers))
    return Step(name="joint", parameters=towers + others, modalities=model.modalities)


def tower_steps(model: nn.Module) -> Sequence[Step]:
    """Return one optimizer step per tower of a `HashNet`, with the name of its modality."""
    assert isinstance(model, HashNet)  # noqa: S101  built by the method
    return [Step(name=m, parameters=(f"{m}.",), modalities=(m,)) for m in model.modalities]


def unadapted(model: nn.Module) -> nn.Module:
    """Return the network of a local method, without the federated method that adapts its outputs."""
    return model.model if isinstance(model, Adapted) else model


def shared_width(spec: ModelSpec, name: str) -> int:
    """Return the width of the feature layers of all towers, for a method of a given name whose towers share layers.

    Raises:
        UserError: If the feature layers of the towers have different widths.
    """
    widths = {tower.hidden for tower in spec.towers.values()}
    if len(widths) > 1:
        raise UnsuitableMethod(
            f"{name} shares layers between towers, and their feature layers have {' and '.join(map(str, widths))} units. "
            "Use the same width for both, or another local method."
        )
    return widths.pop()


def class_group(number: int) -> str:
    """Return the name of a parameter that belongs to a single class, such as its learned code.

    Silos weigh such a parameter by their number of items of the class, so those without any do not change it.
    """
    return f"class{number}"


def outputs_of(model: nn.Module, data: SiloData, *, part: Part = "code", batch: int = 1024) -> dict[Modality, Tensor]:
    """Run all towers over all rows in evaluation mode.

    The results are features ``(n, H)``, or hash layer outputs or relaxed codes ``(n, K)``, per modality. Rows without the
    modality are zero.
    """
    device = data.has_image.device
    rows = (torch.arange(start, min(start + batch, len(data)), device=device) for start in range(0, len(data), batch))
    return outputs_over(model, map(data.batch, rows), part=part)


def store_all(model: nn.Module, data: SiloData, state: SiloState) -> None:
    """Store the model's relaxed codes of all items, and which items have them (``has_image``, ``has_text``).

    The codes are the working tensor with the name of the modality, ``(n, K)``. Rows without the modality are zero.
    """
    outputs = outputs_of(model, data)
    state.buffers |= {str(modality): codes for modality, codes in outputs.items()}
    state.buffers |= {f"has_{modality}": data.has(modality) for modality in outputs}
