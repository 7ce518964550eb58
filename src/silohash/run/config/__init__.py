"""A run's config: its tables, how they are read and checked, and the methods that they name."""
