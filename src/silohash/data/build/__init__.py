"""Builders of data sets from files that anyone can get: each fetches or reads them, and writes a folder of items."""

from silohash.base.registry import Registry

BUILDERS = Registry(
    family="builder", group="silohash.build", table={"icons": "silohash.data.build.icons.builder:build_icons"}
)
"""The named builders. What a name leads to is called with the options of ``silohash data build``."""
