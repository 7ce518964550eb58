"""The functions and classes behind the names that ``import silohash`` offers."""
