"""Spread the items of an archive over silos."""
