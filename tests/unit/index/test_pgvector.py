"""The index in PostgreSQL without a server: errors and the form of rows. Searches are in tests/contract."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from silohash.types import UserError

pytest.importorskip("psycopg")

from silohash.index.pgvector import PgvectorIndex, _filter, _row_type, drop_table


def test_rows_have_the_binary_form_of_copy() -> None:
    index = PgvectorIndex.__new__(PgvectorIndex)
    index.bits = 12
    packed = np.array([[1, 2], [255, 0]], np.uint8)
    rows = index._rows(np.array([7, 2**40]), packed)
    assert rows == b"".join(
        struct.pack(">hiqii", 2, 8, key, 6, 16) + code for key, code in ((7, b"\x01\x02"), (2**40, b"\xff\x00"))
    )
    keys, words = index._read(bytearray(b"head" + rows), 4, 2, _row_type(2))
    assert keys.tolist() == [7, 2**40]
    assert words.tolist() == [[0x0201], [0x00FF]]


def test_filters_are_parameters_of_the_statement() -> None:
    assert _filter(None) == ("", {})
    assert _filter([3, 4]) == ("WHERE key = ANY(%(chosen)s)", {"chosen": [3, 4]})
    assert _filter([], "code = 1") == ("WHERE code = 1 AND key = ANY(%(chosen)s)", {"chosen": []})


def test_a_server_that_does_not_answer_is_named_without_its_password() -> None:
    url = "postgresql://me:s3cret@127.0.0.1:9/x"
    for use in (lambda: PgvectorIndex(url, "x", 64), lambda: drop_table(url, "x")):
        with pytest.raises(UserError, match="pgvector server of the index could not be used") as caught:
            use()
        assert "s3cret" not in str(caught.value)
    with pytest.raises(UserError, match="code length"):
        PgvectorIndex(url, "x", 7)
