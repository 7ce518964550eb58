"""Training runs: the loop, its workers, its checkpoints, and what comes out."""
