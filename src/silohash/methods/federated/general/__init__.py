"""Federated methods that do not depend on what is learned, and the references without a federation."""
