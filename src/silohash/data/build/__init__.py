"""Builders of data sets from files that anyone can get: each fetches or reads them, and writes a folder of items."""

from silohash.base.registry import Registry

BUILDERS = Registry(
    family="builder",
    group="silohash.build",
    table={
        "icons": "silohash.data.build.icons.builder:build_icons",
        "museums": "silohash.data.build.museums.builder:build_museums",
        "coco18": "silohash.data.build.packed.builder:COCO18",
        "fashion": "silohash.data.build.packed.builder:FASHION",
        "flickr8k-1k": "silohash.data.build.packed.builder:FLICKR8K_1K",
        "clothing10": "silohash.data.build.packed.builder:CLOTHING10",
        "wiki-sift-lda": "silohash.data.build.packed.builder:WIKI_SIFT_LDA",
        "coco-mini": "silohash.data.build.packed.builder:COCO_MINI",
        "nlvr-graphs": "silohash.data.build.packed.builder:NLVR_GRAPHS",
    },
)
"""The named builders. What a name leads to is called with the options of ``silohash data build``."""
