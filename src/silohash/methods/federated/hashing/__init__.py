"""Federated methods for hash codes and cross-modal retrieval."""
