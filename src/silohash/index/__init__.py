"""Exact and fast search in the codes of one silo: codes, files, and the backends that search them, by name.

A backend in memory is built from the index file each time. It is a class that takes the code length and, by keyword, the
number of items and of threads to prepare for, and implements `silohash.index.base.Index`. A server holds a copy of the
codes, for silos that outgrow one machine. It is a subclass of `silohash.index.server.ServerIndex`.
"""

from silohash.base.registry import Registry

IN_MEMORY = Registry(
    family="index backend",
    group="silohash.index.memory",
    table={
        "flat": "silohash.index.flat:FlatIndex",
        "trie": "silohash.index.trie:TrieIndex",
        "faiss": "silohash.index.faiss:FaissIndex",
    },
)

SERVERS = Registry(
    family="index backend",
    group="silohash.index.servers",
    table={"pgvector": "silohash.index.pgvector:PgvectorIndex", "milvus": "silohash.index.milvus:MilvusIndex"},
)
