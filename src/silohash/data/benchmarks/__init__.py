"""Read the published benchmark data sets, one file per data set."""
