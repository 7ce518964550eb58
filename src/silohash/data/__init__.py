"""Archives of items with a picture and a text: formats of users, benchmarks, protocols."""

from silohash.base.registry import Registry

ARCHIVES = Registry(
    family="archive",
    group="silohash.data",
    table={
        "glyphs": "silohash.data.glyphs.archive:glyphs",
        "icons": "silohash.data.build.icons.archive:ICONS",
        "museums": "silohash.data.build.museums.builder:MUSEUMS",
        "coco18": "silohash.data.packed.sets:COCO18",
        "fashion": "silohash.data.packed.sets:FASHION",
        "wiki-sift-lda": "silohash.data.packed.sets:WIKI_SIFT_LDA",
        "clothing10": "silohash.data.packed.sets:CLOTHING10",
        "flickr8k-1k": "silohash.data.packed.sets:FLICKR8K_1K",
        "coco-mini": "silohash.data.packed.sets:COCO_MINI",
        "nlvr-graphs": "silohash.data.packed.sets:NLVR_GRAPHS",
        "fashion-clip99": "silohash.data.packed.sets:FASHION_CLIP99",
        "pascal-deep": "silohash.data.packed.sets:PASCAL_DEEP",
        "mirflickr25k": "silohash.data.benchmarks.mirflickr:MIRFLICKR25K",
        "nus-wide": "silohash.data.benchmarks.nus_wide:NUS_WIDE",
        "iapr-tc12": "silohash.data.benchmarks.iapr:IAPR_TC12",
        "coco": "silohash.data.benchmarks.coco:COCO",
        "wikipedia": "silohash.data.benchmarks.wikipedia:WIKIPEDIA",
        "fashionvc": "silohash.data.benchmarks.fashion:FASHIONVC",
        "ssense": "silohash.data.benchmarks.fashion:SSENSE",
        "pascal-sentence": "silohash.data.benchmarks.pascal:PASCAL_SENTENCE",
    },
)
"""The named archives. What a name leads to opens the archive: it is called with options."""
