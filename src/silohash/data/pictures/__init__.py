"""Decode, pack and check pictures."""
