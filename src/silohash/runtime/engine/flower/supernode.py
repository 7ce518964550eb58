"""Flower's SuperNode at a silo: ``python -m silohash.runtime.engine.flower.supernode OPTION...``, with Flower's options."""

from __future__ import annotations

import os
import sys
import traceback

from flwr.supernode.cli import flower_supernode


def main() -> None:
    """Run the SuperNode, and end this process when it loses the server, so that it is started again.

    Flower's own program would remain without a connection, because a thread of it goes on.
    """
    try:
        flower_supernode()
    except Exception:  # whatever it was, the process must end
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    main()
