"""The layouts in which data sets circulate as Matlab and HDF5 files of arrays."""

from __future__ import annotations

from collections.abc import Mapping

from silohash.data.benchmarks.raw import Layout, Need

ARRAYS = "silohash.data.benchmarks.mat_arrays"
FOLDERS = "silohash.data.benchmarks.mat_folders"

SWAP = "auto, yes or no: whether height and width are exchanged in the pictures' array"
SHUFFLED = "refuse or accept files whose rows are out of step"
OVERLAP = "refuse or accept stated splits that share many items"
RAND = "auto, yes or no: whether the shuffled files with -rand in their name are taken"
PICTURE_OPTIONS: Mapping[str, str] = {"swap": SWAP, "shuffled": SHUFFLED}
FEATURE_OPTIONS: Mapping[str, str] = {"rand": RAND, "shuffled": SHUFFLED}
STATED_OPTIONS: Mapping[str, str] = {"overlap": OVERLAP, "shuffled": SHUFFLED}


def _pictures(stem: str, name: str, reader: str) -> Layout:
    """Returns the layout of DCMH's files: pictures, tags, labels and names apart."""
    return Layout(
        name=name,
        summary=f"DCMH: {stem}-iall.mat (pictures), -yall.mat (tags), -lall.mat (labels), -fall.mat (names)",
        needs=(
            Need(f"**/{stem}-iall.mat", "IAll: the pictures, 224 x 224, version 7.3"),
            Need(f"**/{stem}-yall.mat", "YAll: the tags, one row an item"),
            Need(f"**/{stem}-lall.mat", "LAll: the labels, one row an item"),
            Need(f"**/{stem}-fall.mat", "FAll: the pictures' names", optional=True),
        ),
        reader=f"{ARRAYS}:{reader}",
        options=PICTURE_OPTIONS,
    )


def _features(stem: str, part: str, name: str, reader: str) -> Layout:
    """Returns the layout of given picture features with the tags and labels of the same folder."""
    return Layout(
        name=name,
        summary=f"UCCH: {stem}-{part}*.mat (picture features) with -yall.mat and -lall.mat of the same folder",
        needs=(
            Need(f"**/{stem}-{part}*.mat", "XAll: the pictures' features"),
            Need(f"**/{stem}-yall*.mat", "YAll: the tags, from the same folder"),
            Need(f"**/{stem}-lall*.mat", "LAll: the labels, from the same folder"),
            Need(f"**/{stem}-fall*.mat", "FAll: the pictures' names, from the same folder", optional=True),
        ),
        reader=f"{ARRAYS}:{reader}",
        options=FEATURE_OPTIONS,
    )


def _torchcmh(end: str = "") -> Layout:
    """Returns the layout of torchcmh's lists, with the pictures as files."""
    return Layout(
        name="torchcmh",
        summary="torchcmh: imgList.mat, tagList.mat and labelList.mat, and the pictures as files",
        needs=(
            Need(f"**/imgList{end}.mat", "FAll or imgs: the pictures' names"),
            Need(f"**/tagList{end}.mat", "YAll or tags: the tags"),
            Need(f"**/labelList{end}.mat", "LAll or labels: the labels"),
        ),
        reader=f"{FOLDERS}:torchcmh",
        options={"pictures": "the folder that the names are relative to, relative to the data set's"},
    )


def _fashion(reader: str, coarse: int, fine: int) -> tuple[Layout, ...]:
    """Returns the layout of SHDCH's folders."""
    return (
        Layout(
            name="shdch",
            summary="SHDCH: image.mat, tag.mat and label.mat; the first rows are queries",
            needs=(
                Need("**/image.mat", "Image: the pictures, 224 x 224"),
                Need("**/tag.mat", "Tag: words of the description"),
                Need("**/label.mat", f"Label: {coarse} coarse and {fine} fine classes"),
            ),
            reader=f"{FOLDERS}:{reader}",
            options={
                "labels": f"fine ({fine} classes), coarse ({coarse}) or both",
                "queries": "how many of the first rows are queries",
                **PICTURE_OPTIONS,
            },
        ),
    )


def _dscmr(reader: str) -> Layout:
    """Returns the layout of DSCMR's features."""
    return Layout(
        name="dscmr",
        summary="DSCMR: train_ and test_ each with img.mat, txt.mat and img_lab.mat (features and class numbers)",
        needs=tuple(
            Need(f"**/{part}_{what}.mat", f"{part}_{what}: {meaning}")
            for part in ("train", "test")
            for what, meaning in (("img", "picture features"), ("txt", "text features"), ("img_lab", "class numbers"))
        ),
        reader=f"{FOLDERS}:{reader}",
        options=STATED_OPTIONS,
    )


MIRFLICKR: tuple[Layout, ...] = (
    _pictures("mirflickr25k", "dcmh-mat", "mirflickr_pictures"),
    Layout(
        name="dcmh-merged",
        summary="DCMH and FedCAFE: FLICKR-25K.mat with pictures, tags and labels, in any of its three layouts",
        needs=(Need("**/FLICKR-25K.mat", "images, YAll and LAll"),),
        reader=f"{ARRAYS}:mirflickr_merged",
        options=PICTURE_OPTIONS,
    ),
    _features("mirflickr25k", "iall-vgg", "ucch-mat", "mirflickr_features"),
    _torchcmh(),
)

NUS_WIDE: tuple[Layout, ...] = (
    _pictures("nus-wide-tc21", "dcmh-mat-21", "nus21_pictures"),
    _pictures("nus-wide-tc10", "dcmh-mat-10", "nus10_pictures"),
    _features("nus-wide-tc21", "xall", "features-mat-21", "nus21_features"),
    _features("nus-wide-tc10", "xall", "features-mat-10", "nus10_features"),
    _torchcmh("*"),
    _dscmr("dscmr"),
)

IAPR: tuple[Layout, ...] = (
    Layout(
        name="ucch-mat",
        summary="UCCH: iapr-tc12-rand.mat, features of a database and a test part",
        needs=(Need("**/iapr-tc12-rand.mat", "VDatabase, YDatabase, databaseL, VTest, YTest and testL"),),
        reader=f"{ARRAYS}:iapr_features",
        options=STATED_OPTIONS,
    ),
    _torchcmh(),
)

COCO: tuple[Layout, ...] = (
    Layout(
        name="ucch-h5py",
        summary="UCCH: MSCOCO_deep_doc2vec_data_rand.h5py, features of which the last 5,000 rows are queries",
        needs=(Need("**/MSCOCO_deep_doc2vec_data_rand.h5py", "XAll, YAll and LAll"),),
        reader=f"{ARRAYS}:coco_features",
        options=STATED_OPTIONS,
    ),
    _torchcmh(),
)

WIKIPEDIA: tuple[Layout, ...] = (_dscmr("wikipedia"),)

PASCAL: tuple[Layout, ...] = (_dscmr("dscmr"),)

FASHIONVC: tuple[Layout, ...] = _fashion("fashionvc", 8, 27)

SSENSE: tuple[Layout, ...] = _fashion("ssense", 4, 28)
