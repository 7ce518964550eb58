"""Many runs as one study: a grid of settings, tables over seeds, figures, tuning, and the papers' own tables."""
