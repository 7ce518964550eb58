"""Codes: order of bits, supported lengths, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from silohash.base.errors import (
    BitsDiffer,
    DamagedFile,
    LengthsDiffer,
    MissingFile,
    NotFinite,
    OutOfRange,
    UserError,
    WrongKindOfFile,
    WrongShape,
    WrongType,
)
from silohash.index import codes
from silohash.index.codes import (
    Codes,
    check_words,
    from_bytes,
    magnitudes_of,
    pack,
    pack_bits,
    to_bytes,
    unpack,
    word_count,
    word_type,
)


def test_bit_order_and_the_sign_of_zero():
    values = np.full((1, 12), -1.0)
    values[0, [0, 9]] = [0.0, 2.5]
    assert pack(values).tolist() == [[1 + 2**9]]
    assert pack(-np.zeros((1, 8))).tolist() == [[255]]


@pytest.mark.parametrize(
    ("bits", "name", "words"),
    [(8, "uint16", 1), (16, "uint16", 1), (17, "uint32", 1), (33, "uint64", 1), (65, "uint64", 2)],
)
def test_words_by_length(bits, name, words):
    assert word_type(bits).name == name
    assert word_count(bits) == words


def test_codes_print_as_one_line():
    made = Codes(np.zeros((1200, 1), np.uint16), 16, np.arange(1200).astype(str), "text", "ab12")
    assert repr(made) == "Codes(1,200 text codes of 16 bits, model ab12)"


@pytest.mark.parametrize("bits", [8, 256])
def test_shortest_and_longest_lengths(bits):
    signs = np.where(np.arange(2 * bits).reshape(2, bits) % 3, 1, -1)
    assert (unpack(pack(signs), bits) == signs).all()


def test_blocks_of_a_long_table_are_packed_alike(monkeypatch):
    values = np.random.default_rng(0).normal(size=(10, 20))
    whole = pack(values)
    monkeypatch.setattr(codes, "BLOCK_ROWS", 3)
    assert (pack(values) == whole).all()
    values[7, 0] = np.nan
    with pytest.raises(NotFinite, match="item 7"):
        pack(values)


@pytest.mark.parametrize(("bits", "octets"), [(8, 1), (9, 2), (16, 2), (17, 3), (256, 32)])
def test_bytes_per_code(bits, octets):
    assert codes.byte_count(bits) == octets
    assert to_bytes(pack(np.ones((1, bits))), bits).shape == (1, octets)


@pytest.mark.parametrize("bits", [0, 7, 257])
def test_unsupported_lengths(bits):
    with pytest.raises(OutOfRange, match="from 8 to 256"):
        pack(np.ones((2, bits)))


def test_nan_has_no_sign():
    values = np.ones((3, 16))
    values[2, 5] = np.nan
    with pytest.raises(NotFinite, match="item 2"):
        pack(values)


def test_integers_and_empty_tables_pack():
    assert unpack(pack(np.array([[1, -1] * 4])), 8).tolist() == [[1, -1] * 4]
    assert pack(np.empty((0, 64))).shape == (0, 1)


def test_other_widths_are_refused():
    words = pack(np.ones((2, 64)))
    for bad in (words[0], words.astype(np.uint32), np.hstack([words, words]), words.astype(np.float64)):
        with pytest.raises(WrongShape):
            check_words(bad, 64)
    with pytest.raises(BitsDiffer, match="48"):
        check_words(words, 48)


def test_bytes_drop_the_padding():
    words = pack(np.random.default_rng(0).normal(size=(5, 24)))
    assert to_bytes(words, 24).shape == (5, 3)
    assert (from_bytes(to_bytes(words, 24), 24) == words).all()


def test_codes_take_and_signs():
    signs = np.where(np.random.default_rng(0).random((4, 20)) < 0.5, -1, 1)
    codes = Codes(pack(signs), 20, np.array(list("abcd")), "text", "digest")
    assert len(codes) == 4
    assert (codes.take(np.array([2, 0])).signs() == signs[[2, 0]]).all()
    with pytest.raises(LengthsDiffer, match="3 ids"):
        Codes(pack(signs), 20, np.array(list("abc")), "text", "digest")


@pytest.mark.parametrize(
    ("bits", "name", "words"), [(32, "uint32", 1), (64, "uint64", 1), (128, "uint64", 2), (256, "uint64", 4)]
)
def test_lengths_that_fill_their_words(bits, name, words):
    assert (word_type(bits).name, word_count(bits)) == (name, words)
    full = pack(np.ones((1, bits)))
    assert (check_words(full, bits) == full).all()


@pytest.mark.parametrize(("bits", "beyond"), [(12, 16), (20, 32), (40, 64), (100, 128)])
def test_bits_beyond_the_length_are_refused_in_the_last_word_alone(bits, beyond):
    allowed = pack(np.ones((1, bits)))
    assert (check_words(allowed, bits) == allowed).all()
    for bit in (bits, beyond - 1):
        wrong = allowed.copy()
        wrong[0, -1] |= wrong.dtype.type(1 << bit % (8 * wrong.dtype.itemsize))
        with pytest.raises(BitsDiffer, match=str(bits)):
            check_words(wrong, bits)


def test_only_tables_are_packed():
    with pytest.raises(WrongShape, match=r"shape \(8,\)"):
        pack(np.ones(8))


CODES = {"words": pack(np.ones((2, 20))), "bits": 20, "ids": ["a", "b"], "modality": "text", "model_digest": "m"}


def test_codes_hold_arrays_of_any_library():
    torch = pytest.importorskip("torch")
    codes = Codes(**{**CODES, "words": torch.tensor(CODES["words"]), "bits": np.int64(20), "ids": ("a", "b")})
    assert type(codes.words) is type(codes.ids) is np.ndarray
    assert (codes.bits, codes.ids.tolist(), codes.take([1]).ids.tolist()) == (20, ["a", "b"], ["b"])
    assert len(Codes(**{**CODES, "words": CODES["words"][:0], "ids": []}).take(slice(0, 5))) == 0


@pytest.mark.parametrize(
    ("field", "value", "kind", "says"),
    [
        ("bits", 20.0, OutOfRange, r"20.0"),
        ("bits", True, OutOfRange, None),
        ("bits", "20", OutOfRange, "20"),
        ("bits", 300, OutOfRange, "300"),
        ("words", CODES["words"].tolist(), WrongType, "words of codes are a list"),
        ("words", CODES["words"].astype(np.int64), WrongShape, "int64"),
        ("words", None, WrongType, "NoneType"),
        ("ids", [1, 2], WrongType, "not all of type str"),
        ("ids", np.array([1, 2]), WrongType, "int64"),
        ("ids", np.array([["a", "b"]]), WrongType, "<U1"),
        ("ids", "ab", WrongType, "type"),
        ("modality", "audio", WrongType, "audio"),
        ("modality", ["image"], WrongType, None),
        ("model_digest", None, WrongType, "str"),
    ],
)
def test_codes_of_other_types_are_refused(field, value, kind: type[UserError], says: str | None):
    with pytest.raises(kind, match=says):
        Codes(**{**CODES, field: value})


@pytest.mark.parametrize("rows", [[2], [0.5], "a", np.ones(3, bool), [[0]], 0, None])
def test_rows_that_do_not_exist_cannot_be_taken(rows):
    with pytest.raises(UserError):
        Codes(**CODES).take(rows)


def test_bits_are_packed_in_order():
    bits = np.random.default_rng(0).random((3, 20)) < 0.5
    assert (pack_bits(bits) == pack(np.where(bits, 1, -1))).all()
    with pytest.raises(OutOfRange, match="from 8 to 256"):
        pack_bits(bits[:, :7])


def test_magnitudes_are_relative_to_the_largest_of_each_row():
    outputs = np.array([[-4.0, 2.0, 1.0, 0.0], [0.0] * 4, [np.inf, -1.0, 1e300, 0.0], [1e-300, -1e-300, 0.0, 0.0]])
    expected = [[255, 128, 64, 0], [0] * 4, [255, 0, 0, 0], [255, 255, 0, 0]]
    found = magnitudes_of(outputs)
    assert (found.tolist(), found.dtype) == (expected, np.uint8)
    assert magnitudes_of(np.zeros((0, 8), np.float32)).shape == (0, 8)


def test_magnitudes_belong_to_codes():
    outputs = np.random.default_rng(0).normal(size=(3, 8))
    about = {
        "words": pack(outputs),
        "bits": 8,
        "ids": np.array(["a", "b", "c"]),
        "modality": "text",
        "model_digest": "",
    }
    codes = Codes(**about, magnitudes=magnitudes_of(outputs))
    assert (codes.take(np.array([2])).magnitudes == magnitudes_of(outputs)[2:]).all()
    with pytest.raises(LengthsDiffer):
        Codes(**about, magnitudes=codes.magnitudes[:, :7])


def some_codes(*, magnitudes: bool = False) -> Codes:
    outputs = np.random.default_rng(3).standard_normal((5, 20)).astype(np.float32)
    return Codes(
        words=pack(outputs), bits=20, ids=np.array([f"item-{n}" for n in range(5)]), modality="text", model_digest="abc",
        magnitudes=magnitudes_of(outputs) if magnitudes else None,
    )  # fmt: skip


@pytest.mark.parametrize("magnitudes", [False, True])
def test_saved_codes_are_loaded_as_they_were(tmp_path: Path, magnitudes: bool) -> None:
    codes = some_codes(magnitudes=magnitudes)
    codes.save(tmp_path / "codes.npz")
    found = Codes.load(tmp_path / "codes.npz")
    np.testing.assert_array_equal(found.words, codes.words)
    assert found.ids.tolist() == codes.ids.tolist()
    assert (found.bits, found.modality, found.model_digest) == (20, "text", "abc")
    if magnitudes:
        np.testing.assert_array_equal(found.magnitudes, codes.magnitudes)
    codes.take(np.arange(2)).save(tmp_path / "codes.npz")
    assert len(Codes.load(tmp_path / "codes.npz")) == 2


@pytest.mark.parametrize("content", [b"no codes", b"PK\x03\x04"])
def test_a_file_without_codes_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "codes.npz"
    path.write_bytes(content)
    with pytest.raises(UserError):
        Codes.load(path)
    with pytest.raises(UserError):
        some_codes().save(path)
    assert path.read_bytes() == content
    with pytest.raises(MissingFile):
        Codes.load(tmp_path / "other.npz")
    np.savez(tmp_path / "other.npz", words=np.zeros(3))
    with pytest.raises(DamagedFile):
        Codes.load(tmp_path / "other.npz")


def test_a_parquet_table_holds_ids_and_code_bytes(tmp_path: Path) -> None:
    codes = some_codes()
    codes.to_parquet(tmp_path / "codes.parquet")
    table = parquet.read_table(tmp_path / "codes.parquet")
    assert table["id"].to_pylist() == codes.ids.tolist()
    assert table["code"].to_pylist() == [row.tobytes() for row in to_bytes(codes.words, 20)]
    assert table.schema.metadata[b"bits"] == b"20"
    codes.to_parquet(tmp_path / "codes.parquet")
    with pytest.raises(WrongKindOfFile):
        codes.to_parquet(tmp_path / "codes.npz")


def test_an_index_of_faiss_finds_each_code_itself() -> None:
    codes = some_codes()
    distances, rows = codes.to_faiss().search(np.ascontiguousarray(to_bytes(codes.words, 20)), 1)
    assert distances[:, 0].tolist() == [0] * 5
    assert rows[:, 0].tolist() == list(range(5))
