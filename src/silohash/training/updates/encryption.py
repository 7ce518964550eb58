"""Encrypt what silos send, so that the server can add it up but not read it.

Sums are encrypted with CKKS, whose ciphertexts can be added. All silos have the same secret key, and the server has none.
What is computed from a sum is sealed with an ordinary authenticated cipher (AES-GCM) under a key of the same file.

CKKS computes with rounded numbers. Two sets of parameters are in use, both with a security of more than 128 bits:

============  =======  ==================  ==========================================================  ==================
set           modulus  largest sum         error of a sum over K silos                                 used for
============  =======  ==================  ==========================================================  ==================
`PARAMETERS`  60 bits  2^22                below K 2^-24                                               weighted parameters
`SUMS`        120 bits 2^50                below 2^-41 of the largest sum of a block, or of 1; whole   other sums, weights
                                           numbers up to 2^40 are exact
============  =======  ==================  ==========================================================  ==================

Source: Cheon, Kim, Kim and Song, "Homomorphic Encryption for Arithmetic of Approximate Numbers", ASIACRYPT 2017.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from silohash.base.errors import OutOfRange, UnusableSecret
from silohash.base.files import check_private, read_arrays, write_arrays
from silohash.base.optional import require
from silohash.base.types import Arrays, ReadArrays
from silohash.training.updates.chain import DamagedUpdateError

DEGREE = 8192
"""Degree of the polynomials of both sets of parameters."""

BLOCK = DEGREE // 2
"""Number of values of a ciphertext."""

KEY = "silos.key"
"""Name of the file of the key in the folder of a run on one machine, and in the kit of a silo."""

OTHER_KEY = "exchange.encryption needs the key that all silos share. Copy the file from another silo."

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Scheme:
    """Parameters of CKKS.

    Attributes:
        primes: Sizes of the prime factors of the modulus in bits. The last one is not part of a ciphertext's modulus.
        scale_bits: Binary logarithm of the factor by which values are multiplied before they are rounded.
        largest: Limit on the absolute value of a sum.
        grid_bits: Sums are rounded to multiples of two to the power of minus this, times the largest sum of a block; None
            for sums that are not rounded.
    """

    name: str
    primes: tuple[int, ...]
    scale_bits: int
    largest: float
    grid_bits: int | None = None


PARAMETERS = Scheme("parameters", (60, 60), scale_bits=36, largest=2.0**22)
SUMS = Scheme("sums", (60, 60, 60), scale_bits=58, largest=2.0**50, grid_bits=41)
SCHEMES = (PARAMETERS, SUMS)


def new_context(scheme: Scheme) -> Any:  # noqa: ANN401  a context of tenseal, which has no types
    """Return a context with a new secret key."""
    require("tenseal", "Encryption of updates")
    import tenseal

    context = tenseal.context(
        tenseal.SCHEME_TYPE.CKKS, poly_modulus_degree=DEGREE, coeff_mod_bit_sizes=list(scheme.primes),
        encryption_type=tenseal.ENCRYPTION_TYPE.SYMMETRIC, n_threads=1,
    )  # fmt: skip
    context.global_scale = 2.0**scheme.scale_bits
    return context


def context_bytes(context: Any, *, secret: bool) -> bytes:  # noqa: ANN401
    """Return a context as bytes, with its secret key or with the parameters alone."""
    content: bytes = context.serialize(
        save_public_key=False, save_secret_key=secret, save_galois_keys=False, save_relin_keys=False
    )
    return content


@cache
def public_context(scheme: Scheme) -> Any:  # noqa: ANN401
    """Return a context without a key, which can add."""
    import tenseal

    return tenseal.context_from(context_bytes(new_context(scheme), secret=False), n_threads=1)


@dataclass
class EncryptedSum:
    """The sum of encrypted vectors of the same length. It does not need a key."""

    context: Any
    count: int
    blocks: list[Any] = field(default_factory=list)

    def add(self, vector: ReadArrays) -> None:
        """Add an encrypted vector; raise `DamagedUpdateError` if it is not one of that length."""
        given = read_blocks(self.context, vector, self.count)
        if not self.blocks:
            self.blocks = given
            return
        for total, block in zip(self.blocks, given, strict=True):
            total.add_(block)

    def vector(self) -> Arrays:
        """Return the encrypted sum."""
        return packed([block.serialize() for block in self.blocks])


def packed(blocks: Sequence[bytes]) -> Arrays:
    """Return ciphertexts as arrays of a message."""
    return {"data": np.frombuffer(b"".join(blocks), np.uint8), "lengths": np.array([*map(len, blocks)], np.int64)}


def read_blocks(context: Any, vector: ReadArrays, count: int) -> list[Any]:  # noqa: ANN401
    """Return the ciphertexts of an encrypted vector; raise `DamagedUpdateError` if they do not hold ``count`` values."""
    import tenseal

    try:
        ends = [0, *np.cumsum(vector["lengths"]).tolist()]
        content = vector["data"].tobytes()
        if (vector["lengths"] <= 0).any() or ends[-1] != len(content):
            raise ValueError("wrong length")
        blocks = [tenseal.ckks_vector_from(context, content[start:end]) for start, end in pairwise(ends)]
        sizes = [block.size() for block in blocks]
    except (KeyError, ValueError, RuntimeError, TypeError, IndexError) as error:
        raise DamagedUpdateError(f"its encrypted values are damaged ({error})") from error
    if sizes != sizes_of_blocks(count):
        raise DamagedUpdateError(f"it sent {sum(sizes)} encrypted values instead of {count}")
    return blocks


def sizes_of_blocks(count: int) -> list[int]:
    """Return the numbers of values of the ciphertexts of a vector.

    Example:
        >>> sizes_of_blocks(5000)
        [4096, 904]
    """
    return [min(BLOCK, count - start) for start in range(0, count, BLOCK)]


@dataclass(frozen=True)
class SiloKey:
    """The secret that all silos of a federation share, and that the server must not have.

    It holds a serialized context with a secret key per scheme, and 32 bytes that seal what is computed from sums.
    """

    contexts: Mapping[str, bytes] = field(repr=False)
    seal: bytes = field(repr=False)

    @classmethod
    def new(cls) -> Self:
        """Return a new random key."""
        require("cryptography", "Encryption of updates")
        return cls({scheme.name: context_bytes(new_context(scheme), secret=True) for scheme in SCHEMES}, os.urandom(32))

    def save(self, path: Path) -> None:
        """Write the key to a file that only its owner can read."""
        contents = {**self.contexts, "seal": self.seal}
        arrays = {name: np.frombuffer(content, np.uint8) for name, content in contents.items()}
        write_arrays(path, arrays, private=True)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the key that `save` wrote.

        Raises:
            UserError: If the file is missing or damaged, or others can read it.
        """
        arrays = read_arrays(path, remedy=OTHER_KEY, missing=OTHER_KEY)[0]
        names = [scheme.name for scheme in SCHEMES]
        if arrays.keys() != {*names, "seal"} or arrays["seal"].nbytes != 32:
            raise UnusableSecret(f"{path} does not hold the key of a federation. {OTHER_KEY}")
        check_private(path)
        return cls({name: arrays[name].tobytes() for name in names}, arrays["seal"].tobytes())

    @classmethod
    def of_run(cls, folder: Path) -> Self:
        """Return the key of a run whose silos are on this machine. It is made when it is first needed."""
        path = folder / KEY
        if not path.exists():
            cls.new().save(path)
        return cls.load(path)

    @cached_property
    def _opened(self) -> dict[str, Any]:
        require("tenseal", "Encryption of updates")
        import tenseal

        return {name: tenseal.context_from(content, n_threads=1) for name, content in self.contexts.items()}

    def encrypted(self, scheme: Scheme, values: Values, silos: int) -> Arrays:
        """Return the ciphertext of finite values, ``(n,)``, which is added to those of the other silos.

        Raises:
            UserError: If a sum over the silos could exceed what the scheme can hold.
        """
        import tenseal

        most = float(np.abs(values).max(initial=0.0))
        if most * silos > scheme.largest:
            raise OutOfRange(
                f"A value of {most:.3g} is too large to be encrypted: the sum of {silos} silos can be "
                f"{scheme.largest:.3g} at most. Lower train.learning_rate, or remove exchange.encryption."
            )
        context = self._opened[scheme.name]
        blocks = (values[start : start + BLOCK] for start in range(0, len(values), BLOCK))
        return packed([tenseal.ckks_vector(context, block).serialize() for block in blocks])

    def decrypted(self, scheme: Scheme, vector: ReadArrays, count: int) -> Values:
        """Return the values of an encrypted sum, ``(count,)``; raise `DamagedUpdateError` if it is damaged."""
        blocks = read_blocks(self._opened[scheme.name], vector, count)
        parts = [on_grid(np.array(block.decrypt(), np.float64), scheme.grid_bits) for block in blocks]
        values = np.concatenate([np.zeros(0), *parts])
        if not (np.abs(values) <= 1.001 * scheme.largest).all():  # with their error
            raise DamagedUpdateError("the encrypted sums are damaged")
        return values

    def sealed(self, content: bytes, label: str) -> npt.NDArray[np.uint8]:
        """Return some bytes so that only silos can read them: with `opened`, under the same label."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(12)
        return np.frombuffer(nonce + AESGCM(self.seal).encrypt(nonce, content, label.encode()), np.uint8)

    def opened(self, sealed: np.ndarray, label: str) -> bytes:
        """Return the bytes that `sealed` sealed under the same label.

        Raises:
            UserError: If they were changed, are those of another label, or were sealed with another key.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        content = sealed.tobytes()
        try:
            return AESGCM(self.seal).decrypt(content[:12], content[12:], label.encode())
        except (InvalidTag, ValueError) as error:
            raise UnusableSecret(
                f"What was received as {label} was not sealed with the key of this silo. Give all silos the same key file."
            ) from error


def on_grid(values: Values, bits: int | None) -> Values:
    """Return sums of a block ``(n,)``, rounded to the precision that they have, so that whole numbers and zeros are exact.

    Example:
        >>> on_grid(np.array([3.0000000000001, 1e-14, 0.5]), 41).tolist()
        [3.0, 0.0, 0.5]
    """
    if bits is None or not len(values) or not np.isfinite(values).all():
        return values
    exponent = max(0, int(np.ceil(np.log2(max(1.0, float(np.abs(values).max()))))))
    return np.asarray(np.ldexp(np.rint(np.ldexp(values, bits - exponent)), exponent - bits))
