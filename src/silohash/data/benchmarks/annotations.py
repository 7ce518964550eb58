"""The layouts in which collectors themselves distribute their data sets: pictures, texts and lists, no arrays."""

from __future__ import annotations

from silohash.data.benchmarks.raw import Layout, Need

CAPTIONS = "first, all (joined) or each (an item a caption)"

MIRFLICKR: tuple[Layout, ...] = (
    Layout(
        name="raw",
        summary="the collectors' release: im*.jpg, mirflickr25k_annotations_v080/*.txt and meta/tags/tags*.txt",
        needs=(
            Need("**/im*.jpg", "the 25,000 pictures"),
            Need("**/mirflickr25k_annotations*/*.txt", "a file a concept, with the numbers of its pictures"),
            Need("**/tags/tags*.txt", "a file of tags a picture, a tag in each line"),
        ),
        reader="silohash.data.benchmarks.mirflickr_raw:mirflickr",
        options={"concepts": "24, or 38 with those that hold only the pictures in which the concept is prominent"},
    ),
)

NUS_WIDE: tuple[Layout, ...] = (
    Layout(
        name="raw",
        summary="the collectors' release: Groundtruth/AllLabels, NUS_WID_Tags/AllTags1k.txt and ImageList/Imagelist.txt",
        needs=(
            Need("**/Imagelist.txt", "the names of the 269,648 pictures"),
            Need("**/AllLabels/Labels_*.txt", "81 files, a concept each, with 0 or 1 in each line"),
            Need("**/AllTags1k.txt", "which of the 1,000 tags each picture has"),
            Need("**/TagList1k.txt", "the 1,000 tags, for text = words", optional=True),
            Need("Flickr/*/*.jpg", "the pictures", optional=True),
        ),
        reader="silohash.data.benchmarks.nus_raw:nus_wide",
        options={
            "classes": "81, or the 21 or 10 with the most pictures",
            "text": "tags (1,000 of 0 and 1) or words",
            "pictures": "the folder of pictures, relative to the data set's",
        },
    ),
)

COCO: tuple[Layout, ...] = (
    Layout(
        name="json",
        summary="the collectors' release: annotations/instances_*.json and captions_*.json of 2014 or 2017",
        needs=(
            Need("**/instances_*20*.json", "pictures, categories and boxes"),
            Need("**/captions_*20*.json", "captions", optional=True),
            Need("**/*20*/*.jpg", "the pictures, in train2014 and val2014, or train2017 and val2017", optional=True),
        ),
        reader="silohash.data.benchmarks.coco_json:coco",
        options={"year": "2014 or 2017", "captions": CAPTIONS},
    ),
    Layout(
        name="karpathy-json",
        summary="Karpathy's dataset_coco.json: captions of COCO 2014 in train, restval, val and test",
        needs=(
            Need("**/dataset_coco.json", "pictures with captions and splits"),
            Need("**/instances_*2014.json", "pictures, categories and boxes, for labels = true", optional=True),
            Need("**/*2014/*.jpg", "the pictures, in train2014 and val2014", optional=True),
        ),
        reader="silohash.data.benchmarks.coco_json:karpathy",
        options={
            "captions": CAPTIONS,
            "restval": "whether the part restval is trained on",
            "labels": "whether to read the 80 categories from instances_*2014.json",
        },
    ),
)

IAPR: tuple[Layout, ...] = (
    Layout(
        name="raw",
        summary="the collectors' release with the segments of SAIAPR: images, annotations, labels.txt and wlist.txt",
        needs=(
            Need("**/images/**/*.jpg", "the 20,000 pictures"),
            Need("**/*.eng", "an annotation in English a picture"),
            Need("**/labels.txt", "picture, segment and label of each segment"),
            Need("**/wlist.txt", "the labels' names"),
        ),
        reader="silohash.data.benchmarks.documents_raw:iapr_tc12",
        options={
            "concepts": "255 (the labels that occur) or 275 (all of the list)",
            "fields": "the parts of an annotation that make the text, joined with |",
        },
    ),
)

WIKIPEDIA: tuple[Layout, ...] = (
    Layout(
        name="raw",
        summary="the collectors' release: two lists, texts/*.xml, images/<category>/*.jpg and categories.list",
        needs=(
            Need("**/trainset_txt_img_cat.list", "text, picture and category of each training item"),
            Need("**/testset_txt_img_cat.list", "text, picture and category of each test item"),
            Need("**/texts/*.xml", "the articles"),
            Need("**/images/**/*.jpg", "the pictures"),
            Need("**/categories.list", "the categories' names"),
        ),
        reader="silohash.data.benchmarks.documents_raw:wikipedia",
    ),
)

PASCAL: tuple[Layout, ...] = (
    Layout(
        name="raw",
        summary="the collectors' release: dataset/<class>/*.jpg and sentence/<class>/*.txt with five sentences each",
        needs=(
            Need("**/dataset/*/*.jpg", "the pictures"),
            Need("**/sentence/*/*.txt", "five sentences a picture"),
        ),
        reader="silohash.data.benchmarks.documents_raw:pascal_sentence",
        options={"captions": CAPTIONS},
    ),
)
