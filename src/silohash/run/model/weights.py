"""The weights that the parties of a run deploy: parameters, extras, their digest, and their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from silohash.base.files import digest_arrays, digest_json, read_arrays, write_arrays
from silohash.base.types import Arrays

if TYPE_CHECKING:
    from silohash.methods.federated.base import FederatedMethod, ServerState

GLOBAL = "global"
"""The name of the weights that all silos train together."""


@dataclass(frozen=True)
class Weights:
    """The parameters that a party deploys, and the extras that encoding needs."""

    params: Arrays
    extras: Arrays

    def digest(self, about: str) -> str:
        """Return a digest of the parameters, the extras and ``about``, the digest of towers and featurizers."""
        return digest_json([digest_arrays(self._named()), about])

    def write(self, path: Path) -> None:
        """Write the weights to a safetensors file."""
        write_arrays(path, self._named())

    @staticmethod
    def read(path: Path) -> Weights:
        """Read the weights that `write` wrote.

        Raises:
            UserError: If the file is missing or damaged.
        """
        arrays, _ = read_arrays(path)
        return Weights(params=_section(arrays, "params"), extras=_section(arrays, "extras"))

    def _named(self) -> Arrays:
        return {f"params/{n}": a for n, a in self.params.items()} | {f"extras/{n}": a for n, a in self.extras.items()}


def _section(arrays: Arrays, name: str) -> Arrays:
    return {key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")}


def deployed_weights(
    federated: FederatedMethod, server: ServerState, personal: Mapping[str, Arrays]
) -> dict[str, Weights]:
    """Return the weights that a run ends with: the global ones, and those of each silo's personal model."""
    extras = {name: server.extras[name] for name in federated.traits.encode_extras if name in server.extras}
    weights = {GLOBAL: Weights(params=server.params, extras=extras)}
    return weights | {silo: Weights(params=params, extras=extras) for silo, params in personal.items()}
