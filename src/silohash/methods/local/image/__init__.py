"""Hashing methods for one modality, one file per paper. With two modalities, they train each tower separately."""
