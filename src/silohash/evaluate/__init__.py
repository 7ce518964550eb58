"""Retrieval figures that treat the ties of Hamming distance honestly."""
