"""Flower as the engine: it connects the machines, and runs what is installed on them.

Flower can send programs to silos. This is not used: both ends of a connection are processes of silohash that take tasks from
Flower's runtime, and never install what comes with a run. Nothing phones home.
"""

import os

OFFLINE = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
"""Variables that stop Flower from reporting its use and from looking for updates. It reads them when it is imported."""

os.environ.update(OFFLINE)
