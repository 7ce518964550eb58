"""The folder of a run: its config, its archive's fingerprint, its model, and the codes of its items."""
