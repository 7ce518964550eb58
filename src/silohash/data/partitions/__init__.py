"""Spread the items of an archive over silos: kinds of partition, cuts, clusters, and how far silos lie apart."""
