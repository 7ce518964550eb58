"""``python -m silohash``: the command line."""

from silohash.cli.app import main

main()
