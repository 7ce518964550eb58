"""Closed-form parts of federated methods that do not learn from labels."""
