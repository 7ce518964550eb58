"""Packed binary codes, exact indexes over them, and the files that store them."""
