"""Messages: the only data that silos and the server exchange."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from silohash.base.errors import OtherVersion, UnreadableMessage
from silohash.base.types import Arrays, ReadArrays

SCHEMA_VERSION = 1
FAULTS = (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError)
"""What reading a damaged message raises."""

SECTIONS = ("params", "extras", "sums", "records", "state", "compressed", "encrypted")


@dataclass(frozen=True)
class Message:
    """Named arrays in sections, with metadata.

    Attributes:
        kind: ``broadcast``, ``update``, ``task`` or ``result``.
        sender: Name of the silo that sends the message, or ``server``.
        round: The round that the message belongs to.
        params: Model parameters by name.
        extras: What a method sends to the silos in addition to parameters, such as prototypes or a memory.
        sums: Values of which the server needs only the sum over silos.
        records: Values that the server needs from each silo separately.
        state: The state of a silo, which is exchanged only between a process and its workers.
        compressed: Parameters in compressed form (`silohash.training.updates.compression`).
        encrypted: What the server can pass on, and at most add up (`silohash.training.updates.encryption`).
        weights: Aggregation weight of each parameter group (the first part of a parameter's name).
        counts: Integers.
        scalars: Real numbers.
        notes: Short strings.
        silo: Index of the silo that sent the message, which the server sets from the connection; -1 elsewhere. It is not
            encoded, so that no silo can name another one.
    """

    kind: str
    sender: str
    round: int
    params: ReadArrays = field(default_factory=dict)
    extras: ReadArrays = field(default_factory=dict)
    sums: ReadArrays = field(default_factory=dict)
    records: ReadArrays = field(default_factory=dict)
    state: ReadArrays = field(default_factory=dict)
    compressed: ReadArrays = field(default_factory=dict)
    encrypted: ReadArrays = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    silo: int = -1

    def arrays(self) -> Arrays:
        """Return all arrays by ``section/name``."""
        return {f"{section}/{name}": array for section in SECTIONS for name, array in getattr(self, section).items()}

    def size_bytes(self) -> int:
        """Return the total size of the arrays in bytes. The encoded header adds about 100 bytes per array."""
        return sum(array.nbytes for array in self.arrays().values())

    def encode(self) -> bytes:
        """Return the message as safetensors bytes. Arrays may have any shape and numeric type; nothing is pickled."""
        header = {
            "schema": SCHEMA_VERSION,
            "kind": self.kind,
            "sender": self.sender,
            "round": self.round,
            "weights": {name: float(value) for name, value in self.weights.items()},
            "counts": {name: int(value) for name, value in self.counts.items()},
            "scalars": {name: repr(float(value)) for name, value in self.scalars.items()},
            "notes": dict(self.notes),
        }
        arrays = {name: np.asarray(array, order="C") for name, array in self.arrays().items()}
        return save(arrays, metadata={"silohash": json.dumps(header)})

    @staticmethod
    def decode(content: bytes) -> Message:
        """Return the message that `encode` turned into bytes.

        Raises:
            UserError: If the bytes are truncated or damaged, or have another schema.
        """
        try:
            header = json.loads(_metadata(content)["silohash"])
            if int(header["schema"]) != SCHEMA_VERSION:
                raise OtherVersion(
                    f"A received message has schema {header['schema']}, and this silohash reads schema {SCHEMA_VERSION}. "
                    "Install the same version of silohash everywhere."
                )
            sections: dict[str, Arrays] = {section: {} for section in SECTIONS}
            for name, array in load(content).items():
                section, _, rest = name.partition("/")
                sections[section][rest] = array
            return Message(
                kind=str(header["kind"]),
                sender=str(header["sender"]),
                round=int(header["round"]),
                weights={name: float(value) for name, value in header["weights"].items()},
                counts={name: int(value) for name, value in header["counts"].items()},
                scalars={name: float(value) for name, value in header["scalars"].items()},
                notes={name: str(value) for name, value in header["notes"].items()},
                silo=-1,
                **sections,
            )
        except (SafetensorError, *FAULTS) as error:
            raise UnreadableMessage(
                f"A message of {len(content):,} bytes is truncated or damaged ({error})."
            ) from error


def _metadata(content: bytes) -> dict[str, str]:
    size = int.from_bytes(content[:8], "little")
    if len(content) < 8 or size > len(content) - 8:
        raise ValueError("the header is cut off")
    metadata = json.loads(content[8 : 8 + size])["__metadata__"]
    return {str(k): str(v) for k, v in metadata.items()}
