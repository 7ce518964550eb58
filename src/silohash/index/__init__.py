"""Packed binary codes, the exact flat index over them, and the database that it is rebuilt from."""
