"""File layouts in which benchmarks are distributed, and their readers; data sets describe themselves in their files."""
