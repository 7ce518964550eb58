"""What tests of a user's own folder of pictures share: colors, and the config of a small run."""

from __future__ import annotations

COLORS = {"red": (220, 30, 30), "green": (30, 180, 40), "blue": (30, 40, 220), "yellow": (230, 220, 30)}

_CONFIG = """
[data]
path = "{path}"
[features]
image = {{ kind = "pixels", size = 16 }}
[model]
hidden = 32
dropout = 0.0
[partition]
silos = 2
[local]
bits = 32
[federated]
rounds = {rounds}
local_epochs = {local_epochs}
[train]
batch = 8
learning_rate = 0.003
device = "cpu"
threads = 1
[evaluate]
validation = 0
"""


def small_config(path: str, *, rounds: int, local_epochs: int) -> str:
    """Return a config for a folder of a few pictures with texts, as TOML."""
    return _CONFIG.format(path=path, rounds=rounds, local_epochs=local_epochs)
