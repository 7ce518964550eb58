"""``python -m silohash.cli``: the command line."""

from silohash.cli.app import main

main()
