"""What a curious server can learn from what it received, measured on a run."""
