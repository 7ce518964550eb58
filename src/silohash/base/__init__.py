"""What every folder may use: checked files, locks, seeds, registries, types."""
