"""The federated methods, one file per paper."""
