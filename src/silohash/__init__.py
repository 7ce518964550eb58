"""silohash: federated training of cross-modal hash codes, and search across silos that may not pool their data."""

__version__ = "0.1.0"
