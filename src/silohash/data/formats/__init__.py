"""Read the files that users bring: folders with metadata, silohash's native format, MATLAB files."""
