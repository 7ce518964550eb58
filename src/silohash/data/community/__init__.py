"""Readers of the files in which the field's data sets circulate, and the protocols by which they are used."""
