"""Answers of a Milvus server that are larger than it returns for one request."""

from __future__ import annotations

import pytest

from silohash.index.codes import pack
from tests import servers
from tests.contract.test_index_backends import check_row, clustered, filled

pytestmark = pytest.mark.whole_run

milvus = pytest.importorskip("silohash.index.milvus", exc_type=ImportError)


@pytest.mark.whole_run
def test_milvus_answers_beyond_its_limit_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit of 900 rows per request, answers of more rows are put together from several requests."""
    monkeypatch.setattr(milvus, "MOST_ROWS", 900)

    with servers.started("milvus") as url:
        index, oracle = filled(lambda bits: milvus.MilvusIndex(url, "contract", bits, create=True), 24)
        query = clustered(1, 24, 3)
        expected = oracle.ordered(query[0])
        assert index.keys.tolist() == sorted(oracle.codes)
        assert [key for keys, _ in index.stored() for key in keys.tolist()] == sorted(oracle.codes)
        for k in (800, 1_000):
            found = index.search(pack(query), k)
            check_row(True, k, expected, found.keys[0], found.distances[0], int(found.ties_at_cut[0]))
        index.close()
