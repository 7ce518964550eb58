"""The embedded archive: characters drawn in the fonts that matplotlib ships, with their Unicode names."""
