"""Measure retrieval: ties, measures, curves and significance. Searching and evaluating need no torch."""
