"""Builders of the packed data sets: from the files of the official sources, with ids, splits and digests as facts."""
