"""Federated methods that the server solves from sums over all silos, without gradient steps."""
