"""Compressed updates: what a silo sends in place of its parameters, and what it keeps for its next update."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import nn

from silohash.base.types import Arrays, ReadArrays, UserError
from silohash.methods.federated.base import FederatedMethod, ServerState
from silohash.methods.message import Message
from silohash.models.towers import hash_layers
from silohash.run.config.sections import CompressionConfig
from silohash.training.engines.port import SiloResult
from silohash.training.updates.compression import RESIDUAL, Codec, Half, Int8, TopK, compressed

TRAINED_ALONE = ("backbone", "hash")
"""Parts of a tower of which the hash layers can be trained alone."""


def codec_of(compression: CompressionConfig | None) -> Codec | None:
    """Return the way of compressing parameters; None if silos send those that they send as they are."""
    if compression is None or compression.kind == "hash_layers":
        return None
    codecs: dict[str, Codec] = {"half": Half(), "int8": Int8(), "top_k": TopK(compression.share)}
    return codecs[compression.kind]


def reference(federated: FederatedMethod, received: Message) -> Arrays:
    """Return the parameters from which a silo's update is measured, given the message that the silo received."""
    return federated.origin(ServerState(params=dict(received.params), extras=dict(received.extras)))


@dataclass(frozen=True)
class Compression:
    """The silo's side of a compression.

    Attributes:
        codec: The way of compressing; None if silos send those that they send as they are.
        hash_layers_only: Whether only the hash layers are trained and sent.
        federated: The federated method.
    """

    codec: Codec | None
    hash_layers_only: bool
    federated: FederatedMethod

    @classmethod
    def of(cls, compression: CompressionConfig, federated: FederatedMethod) -> Compression:
        """Return the compression of a config."""
        return cls(codec_of(compression), compression.kind == "hash_layers", federated)

    def prepare(self, model: nn.Module) -> None:
        """Freeze the layers that silos do not send, so that they keep their initial values.

        Raises:
            UserError: If the model has layers that are neither hash layers nor in front of them.
        """
        if not self.hash_layers_only:
            return
        others = [name for name in model.state_dict() if name.split(".")[1:2] not in ([part] for part in TRAINED_ALONE)]
        if others or not hash_layers(model.state_dict()):
            raise UserError(
                f'exchange.compression: "hash_layers" would leave {others[0] if others else "all layers"} untrained. Use '
                'the kind "int8", "half" or "top_k", or another local method.'
            )
        sent = set(hash_layers(model.state_dict()))
        for name, parameter in model.named_parameters():
            parameter.requires_grad = parameter.requires_grad and name in sent

    def applied(self, result: SiloResult, kept: ReadArrays, received: Message) -> SiloResult:
        """Return a silo's result with a compressed update, and with what is left out among the arrays that it keeps.

        Args:
            result: The result of training, or of finishing a round. Statistics are not compressed.
            kept: The arrays that the silo stored before.
            received: The message that the silo received.
        """
        update, start = result.update, f"{RESIDUAL}/"
        if self.hash_layers_only:
            sent = hash_layers(update.params)
            return replace(result, update=replace(update, params={name: update.params[name] for name in sent}))
        if self.codec is None:
            return result
        residual = {name.removeprefix(start): kept[name] for name in kept if name.startswith(start)}
        if update.kind == "update":
            update, residual = compressed(update, reference(self.federated, received), residual, self.codec)
        return replace(
            result, update=update, kept={**result.kept, **{start + name: array for name, array in residual.items()}}
        )
