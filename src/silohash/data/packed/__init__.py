"""Read the data sets that are packed for the development of silohash."""
