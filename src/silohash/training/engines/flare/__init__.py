"""NVIDIA FLARE as the engine: it connects the machines, and runs what is installed on them."""
