"""Published benchmarks whose files the user provides: one file per data set, and what they share."""
