"""Supervised hashing methods, one file per paper."""
