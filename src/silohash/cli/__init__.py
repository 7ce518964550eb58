"""The command line. Answers go to standard output, talk to standard error."""

from silohash.cli.app import app, main

__all__ = ["app", "main"]
