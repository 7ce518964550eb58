"""Plain and compressed bytes are read in order, and the end of compressed ones is checked."""

from __future__ import annotations

import io
import zlib

import pytest

from silohash.data.formats import matlab5_bytes
from silohash.data.formats.matlab5_bytes import InflatedSource, PlainSource, Source

CONTENT = bytes(range(256)) * 40


def sources() -> list[Source]:
    packed = zlib.compress(CONTENT)
    return [PlainSource(io.BytesIO(CONTENT)), InflatedSource(io.BytesIO(packed + b"more"), len(packed))]


@pytest.mark.parametrize("block", [1, 7, 256, 1 << 16])
@pytest.mark.parametrize("number", [0, 1])
def test_bytes_are_taken_and_left_out_in_order(number: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matlab5_bytes, "BLOCK_BYTES", block)
    source = sources()[number]
    assert source.take(0) == b""
    assert source.take(300) == CONTENT[:300]
    source.skip(1000)
    source.skip(0)
    assert source.take(5) == CONTENT[1300:1305]
    assert source.take(len(CONTENT)) == CONTENT[1305:]
    assert source.take(1) == b""


def test_compressed_bytes_end_where_they_should() -> None:
    packed = zlib.compress(CONTENT)

    def opened(content: bytes) -> InflatedSource:
        return InflatedSource(io.BytesIO(content), len(content))

    whole = opened(packed)
    assert not whole.is_complete()
    whole = opened(packed)
    whole.skip(len(CONTENT))
    assert whole.is_complete()
    cut = opened(packed[:-1])
    cut.skip(len(CONTENT))
    assert not cut.is_complete()
    with pytest.raises(ValueError, match="the compressed data end too early"):
        opened(packed).skip(len(CONTENT) + 1)
    wrong = opened(packed[:-1] + bytes([packed[-1] ^ 1]))
    with pytest.raises(zlib.error, match="incorrect data check"):
        wrong.skip(len(CONTENT)), wrong.is_complete()
