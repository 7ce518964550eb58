"""Encrypted sums: precision, what the server holds, and what is refused."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silohash.base.errors import MissingFile, OutOfRange, UnusableSecret

pytest.importorskip("tenseal")

import tenseal

from silohash.training.updates.compression import DamagedUpdateError
from silohash.training.updates.encryption import (
    BLOCK,
    PARAMETERS,
    SCHEMES,
    SUMS,
    EncryptedSum,
    Scheme,
    SiloKey,
    context_bytes,
    on_grid,
    public_context,
    sizes_of_blocks,
)

SILOS = 5


@pytest.fixture(scope="module")
def key() -> SiloKey:
    return SiloKey.new()


def summed(key: SiloKey, scheme: Scheme, vectors: list[np.ndarray]) -> np.ndarray:
    total = EncryptedSum(public_context(scheme), len(vectors[0]))
    for values in vectors:
        total.add(key.encrypted(scheme, values, len(vectors)))
    return key.decrypted(scheme, total.vector(), len(vectors[0]))


@pytest.mark.parametrize("count", [0, 1, 100, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_the_sum_of_parameters_is_that_of_plain_ones_within_the_stated_error(key: SiloKey, count: int) -> None:
    vectors = [1000.0 * np.random.default_rng(silo).normal(size=count) for silo in range(SILOS)]
    found = summed(key, PARAMETERS, vectors)
    assert found.shape == (count,)
    assert np.abs(found - np.sum(vectors, axis=0)).max(initial=0.0) < SILOS * 2.0**-24


@pytest.mark.parametrize("spread", [1e-3, 1.0, 1e6, 1e12])
def test_sums_have_twelve_digits_and_whole_numbers_and_zeros_are_exact(key: SiloKey, spread: float) -> None:
    generator = np.random.default_rng(0)
    vectors = [spread * generator.normal(size=2 * BLOCK) for _ in range(SILOS)]
    for values in vectors:
        values[::3] = 0.0
        if spread <= 1e6:
            values[1::3] = generator.integers(0, 1000, len(values[1::3]))
    found, expected = summed(key, SUMS, vectors), np.sum(vectors, axis=0)
    for block in (slice(0, BLOCK), slice(BLOCK, None)):
        limit = 2.0**-41 * max(1.0, float(np.abs(expected[block]).max()))
        assert np.abs(found[block] - expected[block]).max() <= limit
    assert not found[::3].any()
    if spread <= 1e6:
        assert np.array_equal(found[1::3], expected[1::3])


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_the_server_has_no_key(key: SiloKey, scheme: Scheme) -> None:
    server = public_context(scheme)
    assert not server.has_secret_key()
    with_key = tenseal.context_from(key.contexts[scheme.name])
    assert with_key.has_secret_key()
    # Its serialized form has the parameters alone: it is the same for all keys, and far smaller than a secret key.
    content = context_bytes(server, secret=False)
    assert len(content) < 200
    assert content == context_bytes(with_key, secret=False)
    assert len(key.contexts[scheme.name]) > 50_000
    total = EncryptedSum(server, 10)
    total.add(key.encrypted(scheme, np.arange(10.0), 1))
    with pytest.raises(ValueError, match="secret_key"):
        total.blocks[0].decrypt()
    with pytest.raises(ValueError, match="Secret key"):
        context_bytes(server, secret=True)


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_another_key_does_not_decrypt(key: SiloKey, scheme: Scheme) -> None:
    vector = key.encrypted(scheme, np.ones(BLOCK), 1)
    with pytest.raises(DamagedUpdateError, match="the encrypted sums are damaged"):
        SiloKey.new().decrypted(scheme, vector, BLOCK)


def test_equal_values_are_encrypted_differently(key: SiloKey) -> None:
    first, second = (key.encrypted(SUMS, np.ones(3), 1)["data"] for _ in range(2))
    assert not np.array_equal(first, second)


def test_bytes(key: SiloKey) -> None:
    sizes = {scheme.name: key.encrypted(scheme, np.ones(BLOCK), 1)["data"].nbytes / BLOCK for scheme in SCHEMES}
    assert 30 < sizes["parameters"] < 33
    assert 60 < sizes["sums"] < 65
    assert sizes_of_blocks(2 * BLOCK + 3) == [BLOCK, BLOCK, 3]
    assert sizes_of_blocks(0) == []


def test_values_that_could_exceed_the_range_are_refused(key: SiloKey) -> None:
    largest = PARAMETERS.largest / 4
    found = summed(key, PARAMETERS, [np.full(3, largest)] * 4)
    assert np.allclose(found, PARAMETERS.largest)
    with pytest.raises(OutOfRange, match="5"):
        key.encrypted(PARAMETERS, np.full(3, largest), 5)


def damaged(vector: dict[str, np.ndarray], how: str) -> dict[str, np.ndarray]:
    data, lengths = vector["data"], vector["lengths"]
    return {
        "missing": {"data": data},
        "cut": {"data": data[:-5], "lengths": lengths - 5},
        "short": {"data": data[:-5], "lengths": lengths},
        "empty": {"data": data[:0], "lengths": lengths[:0]},
        "nothing": {"data": data[:0], "lengths": lengths * 0},
        "negative": {"data": data, "lengths": np.array([-len(data)])},
        "noise": {"data": np.full(1000, 7, np.uint8), "lengths": np.array([1000])},
        "words": {"data": data, "lengths": np.array(["x"])},
    }[how]


@pytest.mark.parametrize("how", ["missing", "cut", "short", "empty", "nothing", "negative", "noise", "words"])
def test_damaged_vectors_are_refused(key: SiloKey, how: str) -> None:
    total = EncryptedSum(public_context(SUMS), 10)
    total.add(key.encrypted(SUMS, np.ones(10), 1))
    with pytest.raises(DamagedUpdateError):
        total.add(damaged(key.encrypted(SUMS, np.ones(10), 1), how))
    with pytest.raises(DamagedUpdateError, match="it sent 11 encrypted values instead of 10"):
        total.add(key.encrypted(SUMS, np.ones(11), 1))
    assert key.decrypted(SUMS, total.vector(), 10).tolist() == [1.0] * 10


def test_messages_do_not_show_a_key(key: SiloKey) -> None:
    assert repr(key) == str(key) == "SiloKey()"


def test_a_key_survives_its_file_which_only_its_owner_reads(key: SiloKey, tmp_path: Path) -> None:
    key.save(tmp_path / "silos.key")
    assert stat.S_IMODE((tmp_path / "silos.key").stat().st_mode) == 0o600
    read = SiloKey.load(tmp_path / "silos.key")
    assert read.decrypted(SUMS, key.encrypted(SUMS, np.arange(3.0), 1), 3).tolist() == [0.0, 1.0, 2.0]
    assert read.opened(key.sealed(b"state", "here"), "here") == b"state"
    assert SiloKey.of_run(tmp_path).seal == key.seal
    assert SiloKey.of_run(tmp_path / "other").seal == SiloKey.of_run(tmp_path / "other").seal != key.seal
    with pytest.raises(MissingFile, match="needs the key that all silos share"):
        SiloKey.load(tmp_path / "nothing.key")


def test_a_file_without_a_key_is_refused(tmp_path: Path) -> None:
    from silohash.base.files import write_arrays

    write_arrays(tmp_path / "x.key", {"seal": np.zeros(32, np.uint8)})
    with pytest.raises(UnusableSecret):
        SiloKey.load(tmp_path / "x.key")


@pytest.mark.parametrize("what", ["label", "content", "nonce", "key", "cut"])
def test_what_is_sealed_is_refused_if_anything_about_it_changed(key: SiloKey, what: str) -> None:
    sealed = key.sealed(b"the parameters", "the state of round 3")
    assert b"parameters" not in sealed.tobytes()
    changed: Any = sealed.copy()
    changed[{"content": 15, "nonce": 2}.get(what, 0)] ^= int(what in ("content", "nonce"))
    label = "the state of round 2" if what == "label" else "the state of round 3"
    reader = SiloKey.new() if what == "key" else key
    with pytest.raises(UnusableSecret):
        reader.opened(changed[:8] if what == "cut" else changed, label)


def test_sums_are_rounded_to_the_precision_that_they_have() -> None:
    values = np.array([1e7, 3e-7, 5.0 + 1e-8])
    assert on_grid(values, 41).tolist() == [1e7, 0.0, 5.0]
    assert on_grid(values, None) is values
    assert on_grid(np.zeros(0), 41).shape == (0,)
    assert np.isnan(on_grid(np.array([np.nan, 1.0]), 41)[0])
