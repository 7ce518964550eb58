"""Train a run: the loop, its engines, its checkpoints, and what happens to an update on its way."""
