"""Folders and files that an archive is read from."""
