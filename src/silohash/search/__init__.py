"""One question asked of every silo, and the answers merged."""
