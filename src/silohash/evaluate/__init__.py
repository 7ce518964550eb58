"""Measure retrieval: ties, measures, curves and significance. Searching and evaluating do not need torch."""
