"""MS-COCO: its card, its layouts and its protocols."""

from __future__ import annotations

from functools import partial

from silohash.data.benchmarks import sources
from silohash.data.benchmarks.dataset import Dataset
from silohash.data.benchmarks.layouts import captioned_json, matlab_arrays, reading
from silohash.data.benchmarks.layouts.matlab_files import Named
from silohash.data.benchmarks.layouts.picture_lists import LISTS, picture_list_layout
from silohash.data.benchmarks.layouts.reading import Layout, Need
from silohash.data.benchmarks.layouts.region_arrays import REGION_ARRAYS

KEY = "coco"
ITEMS = (122_218, 123_287)
CLASSES = 80

_UCCH_FILE = "MSCOCO_deep_doc2vec_data_rand.h5py"
_UCCH_ARRAYS = matlab_arrays.ArrayFiles(
    image=Named(_UCCH_FILE, ("XAll",)),
    text=Named(_UCCH_FILE, ("YAll",)),
    labels=Named(_UCCH_FILE, ("LAll",)),
    items=ITEMS,
    classes=CLASSES,
)

LAYOUTS = (
    Layout(
        name="ucch-h5py",
        summary=f"UCCH: {_UCCH_FILE}, features of which the last 5,000 rows are queries",
        needs=(Need(f"**/{_UCCH_FILE}", "XAll, YAll and LAll"),),
        read=partial(matlab_arrays.read_with_last_queries, _UCCH_ARRAYS, 5_000),
        options=matlab_arrays.STATED_OPTIONS,
    ),
    picture_list_layout({CLASSES: ITEMS}),
    LISTS,
    REGION_ARRAYS,
    Layout(
        name="json",
        summary="the collectors' release: annotations/instances_*.json and captions_*.json of 2014 or 2017",
        needs=(
            Need("**/instances_*20*.json", "pictures, categories and boxes"),
            Need("**/captions_*20*.json", "captions", optional=True),
            Need("**/*20*/*.jpg", "the pictures, in train2014 and val2014, or train2017 and val2017", optional=True),
        ),
        read=captioned_json.read_annotations,
        options={"year": "2014 or 2017", "captions": reading.CAPTIONS_OPTION},
    ),
    Layout(
        name="karpathy-json",
        summary="Karpathy's dataset_coco.json: captions of the pictures of 2014 in train, restval, val and test",
        needs=(
            Need("**/dataset_coco.json", "pictures with captions and splits"),
            Need("**/instances_*2014.json", "pictures, categories and boxes, for labels = true", optional=True),
            Need("**/*2014/*.jpg", "the pictures, in train2014 and val2014", optional=True),
        ),
        read=partial(captioned_json.read_karpathy, "dataset_coco.json"),
        options={
            "captions": reading.CAPTIONS_OPTION,
            "restval": "whether to train on the part restval",
            "labels": "whether to read the 80 categories from instances_*2014.json",
        },
    ),
)

# fmt: off
_protocol = partial(sources.protocol, dataset=KEY, items=122_218, classes=CLASSES, population="labeled",
    collected=123_287)
_lists = partial(_protocol, query=5_000, train=10_000, draw="stated", measure=sources.MAP_AT_5000)
_karpathy = partial(_protocol, source="FedBi-GNNs", query=5_000, train=113_287, database=5_000, items=123_287, classes=0,
    population="all", draw="stated", searched="query", measure="Success@1", round_by="validation",
    reader={"captions": "each"})

PROTOCOLS = (
    _protocol(sources.FEDHAP, query=4_992, database=112_226,
        about="4,992 queries and 112,226 searched items add up to 117,218, which is the 122,218 labeled items without "
        "5,000: the database list of DeepHash, split again. 4,992 is 39 batches of 128, so a last batch of eight was "
        "dropped. The paper does not say which 5,000 are missing, so they are drawn."),
    _protocol(sources.FEDUCH, query=2_000, database=121_287, items=123_287, population="all",
        about="All 123,287 items, of which 1,069 have no label. They are relevant to nothing, and count as 0 as queries."),
    _lists(sources.DEEPHASH, database=117_218,
        about="117,218 items are searched: all except the queries, including the training items. The other published list "
        "has 112,218 (hashnet-112218). The best epoch is chosen on the queries."),
    _lists(sources.HASHNET, name="hashnet-112218", database=112_218, searched="not train",
        about="The authors' lists: 112,218 items are searched, all except the training items. All 5,000 queries are among "
        "them, so a picture query finds itself first. Our figures within one modality exclude the query's own item; "
        'evaluate.own_item = "count" follows the published convention.'),
    _lists(sources.CSQ, train=9_992, items=None,
        about="Its own lists, with 9,992 training items. The paper does not state the size of the database."),
    _protocol(sources.UCCH, query=5_000, train=117_218, database=117_218,
        about="The last 5,000 rows of the file are the queries; training uses all others without labels."),
    _protocol(sources.TORCHCMH, query=5_000, train=10_000, database=None, items=None, population="all", numpy_seed=8,
        about=f"{sources.SEEDED_LISTS} Their number of rows is not stated."),
    _karpathy(name="fedbi-gnns", partition='kind = "nested", fractions = [0.6, 0.8, 1.0]',
        about="Karpathy's split with five captions per picture. An answer is right if it is about the same picture, so the "
        "queries themselves are searched. Silos hold 60, 80 and 100 % of the training pictures, each a subset of the "
        "next: 67,973, 90,630 and 113,287. The paper's table has 7,972 for the first (fedbi-gnns-7972)."),
    _karpathy(name="fedbi-gnns-7972", partition='kind = "nested", fractions = [0.070369, 0.8, 1.0]',
        about="As fedbi-gnns, with the smallest silo as printed in the paper's table: 7,972 pictures and 39,860 texts; "
        "60 % would be 67,972 and 339,860."),
)
# fmt: on

COCO = Dataset(
    key=KEY,
    title="MS-COCO",
    summary="Open MS-COCO from files that the user provides: 123,287 photos with captions and 80 labels.",
    source="Lin et al., Microsoft COCO, ECCV 2014; Chen et al., arXiv 1504.00325",
    license="annotations CC BY 4.0; pictures under their Flickr licenses",
    layouts=LAYOUTS,
    published=PROTOCOLS,
    default_protocol="feduch",
)
