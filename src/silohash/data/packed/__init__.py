"""Small real data sets for development, packed into the folder that ``SILOHASH_DATA`` names."""
