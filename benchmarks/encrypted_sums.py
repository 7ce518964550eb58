"""Cost of encrypted sums: what a round takes beside one in which the server can read what silos send.

    python benchmarks/encrypted_sums.py [--smoke]

Random parameters of models of 1 and 20 million, and the sums with which FedCCA starts: second moments of vectors as wide as
the inputs of coco18 (1,280 for pictures and 2,048 for texts). Times are CPU seconds of one silo and of the server with two
silos. Each is printed with its ratio to the same work without encryption, measured in turn in this run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from silohash.methods.federated.statistics import add_sums
from silohash.methods.message import Message
from silohash.training.updates.encryption import PARAMETERS, SUMS, EncryptedSum, Scheme, SiloKey, public_context

SILOS = 2
WIDTH = 1280 + 2048
RESULT = TypeVar("RESULT")


@dataclass
class Cost:
    """What a round takes.

    Attributes:
        silo: CPU seconds of a silo to make its message.
        server: CPU seconds of the server to read and add up the messages of all silos.
        opening: CPU seconds of the silo that decrypts the sum, and seals and opens the result.
        sent_bytes: size of a silo's message.
    """

    silo: float = 0.0
    server: float = 0.0
    opening: float = 0.0
    sent_bytes: int = 0


def main() -> None:
    """Measure and print every line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="use few values, to check that it runs")
    divisor = 1000 if parser.parse_args().smoke else 1
    moments = WIDTH * (WIDTH + 1) // 2 + WIDTH + 1
    key = SiloKey.new()
    print(f"{'':34} {'silo':>16} {'server':>16} {'decrypting silo':>16} {'bytes sent':>20} {'largest error':>14}")
    for what, count, scheme, kind in (
        ("1 million parameters", 1_000_000, PARAMETERS, np.float32),
        ("20 million parameters", 20_000_000, PARAMETERS, np.float32),
        ("second moments of FedCCA", moments, SUMS, np.float64),
    ):
        measure(what, count // divisor, scheme, np.dtype(kind), key)


def measure(what: str, count: int, scheme: Scheme, kind: np.dtype[Any], key: SiloKey) -> None:
    """Measure and print one line."""
    given = [np.random.default_rng(silo).normal(size=count).astype(kind) for silo in range(SILOS)]
    plain, total = plain_round(given)
    encrypted, found = encrypted_round(given, scheme, key)
    error = float(np.abs(found - total).max())
    times = [(encrypted.silo, plain.silo), (encrypted.server, plain.server)]
    columns = "".join(f" {ours:7.2f} s {ours / theirs:5.0f}x" for ours, theirs in times)
    size = f"{encrypted.sent_bytes / 1e6:8.1f} MB {encrypted.sent_bytes / plain.sent_bytes:5.1f}x"
    print(f"{what:34}{columns} {encrypted.opening:14.2f} s {size:>20} {error:14.1e}", flush=True)


def timed(work: Callable[[], RESULT]) -> tuple[RESULT, float]:
    """Return the result of a function call and its CPU seconds."""
    started = time.process_time()
    return work(), time.process_time() - started


def plain_round(given: list[np.ndarray]) -> tuple[Cost, np.ndarray]:
    """Return the cost of a round without encryption, and the sum in float64."""
    cost = Cost()
    sums: dict[str, np.ndarray] = {}
    for values in given:
        content, cost.silo = timed(lambda values=values: Message("update", "silo", 0, sums={"values": values}).encode())
        _, seconds = timed(lambda content=content: add_sums(sums, Message.decode(content).sums))
        cost.server += seconds
        cost.sent_bytes = len(content)
    return cost, np.sum([values.astype(np.float64) for values in given], axis=0)


def encrypted_round(given: list[np.ndarray], scheme: Scheme, key: SiloKey) -> tuple[Cost, np.ndarray]:
    """Return the cost of a round with encryption, and the decrypted sum."""
    cost, count = Cost(), len(given[0])
    total = EncryptedSum(public_context(scheme), count)
    for values in given:
        content, cost.silo = timed(
            lambda values=values: Message(
                "update", "silo", 0, encrypted=key.encrypted(scheme, values.astype(np.float64), SILOS)
            ).encode()
        )
        _, seconds = timed(lambda content=content: total.add(Message.decode(content).encrypted))
        cost.server += seconds
        cost.sent_bytes = len(content)
    vector, seconds = timed(total.vector)
    cost.server += seconds
    found, cost.opening = timed(lambda: key.decrypted(scheme, vector, count))
    _, seconds = timed(lambda: key.opened(key.sealed(found.tobytes(), "the state"), "the state"))
    cost.opening += seconds
    return cost, found


if __name__ == "__main__":
    main()
