"""The data sets in circulation whose files users bring: where they come from, in which layouts, under which protocols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from PIL import Image

from silohash.data.archive import Archive, ArchiveCard, Features, Pictures
from silohash.data.benchmarks import annotations as collectors
from silohash.data.benchmarks import arrays, mat_layouts, text_lists
from silohash.data.benchmarks.files import AUTO, complete_layout, folder_of, missing_files
from silohash.data.benchmarks.raw import Layout, Raw
from silohash.data.pictures.packing import PictureFiles
from silohash.data.protocols.apply import PROTOCOLS, Choice, apply, protocol_of
from silohash.data.protocols.rule import SplitProtocol
from silohash.files import digest_arrays, digest_json
from silohash.registry import suggestion
from silohash.types import Rows, UserError

OPTIONS = ("root", "layout", "protocol", "seed")
"""Options of every data set; each layout's reader has more."""

Option: TypeAlias = "str | int | float | bool | None"
"""What an option of a reader may be."""

RESEARCH = "not stated with the files; the pictures belong to their authors, for research only"


@dataclass(frozen=True)
class Dataset:
    """A data set in circulation.

    Attributes:
        key: what a user types.
        title: its usual name.
        source: who collected it, and where it was published.
        licence: as far as it is told.
        layouts: the sets of files in which it circulates; the first one that is complete is read.
        default_protocol: the protocol where none is named.
    """

    key: str
    title: str
    source: str
    licence: str
    layouts: tuple[Layout, ...]
    default_protocol: str

    @property
    def protocols(self) -> Mapping[str, SplitProtocol]:
        """Its protocols by their names."""
        return PROTOCOLS[self.key]

    def layout(self, name: str, folder: Path) -> Layout:
        """Returns a layout by name, or the first complete one.

        Raises:
            UserError: if there is no such layout, or files of it are missing; names them.
        """
        if name == AUTO:
            return complete_layout(self.key, folder, self.layouts)
        known = {layout.name: layout for layout in self.layouts}
        if name not in known:
            near = suggestion(name, [*known, AUTO])
            raise UserError(f'{self.key} has no layout "{name}"{near}; it has: {", ".join(known)}, or {AUTO}.')
        if known[name].missing(folder):
            raise UserError(missing_files(self.key, folder, [known[name]]))
        return known[name]


DATASETS: Mapping[str, Dataset] = {
    dataset.key: dataset
    for dataset in (
        Dataset(
            key="mirflickr25k",
            title="MIRFlickr-25K",
            source="Huiskes and Lew, The MIR Flickr Retrieval Evaluation, MIR 2008",
            licence="each picture under its own Creative Commons licence",
            layouts=(*mat_layouts.MIRFLICKR, *text_lists.MIRFLICKR, *collectors.MIRFLICKR),
            default_protocol="dcmh",
        ),
        Dataset(
            key="nus-wide",
            title="NUS-WIDE",
            source="Chua et al., NUS-WIDE: A Real-World Web Image Database, CIVR 2009",
            licence=RESEARCH,
            layouts=(*mat_layouts.NUS_WIDE, *text_lists.NUS_WIDE, *collectors.NUS_WIDE),
            default_protocol="dcmh",
        ),
        Dataset(
            key="iapr-tc12",
            title="IAPR TC-12",
            source="Grubinger et al., The IAPR TC-12 Benchmark, 2006; Escalante et al., The Segmented and Annotated IAPR "
            "TC-12 Benchmark, CVIU 2010",
            licence=RESEARCH,
            layouts=(*mat_layouts.IAPR, *collectors.IAPR),
            default_protocol="dcmh",
        ),
        Dataset(
            key="coco",
            title="MS-COCO",
            source="Lin et al., Microsoft COCO, ECCV 2014; Chen et al., arXiv 1504.00325",
            licence="annotations CC BY 4.0; pictures under their Flickr licences",
            layouts=(*mat_layouts.COCO, *text_lists.COCO, *arrays.COCO, *collectors.COCO),
            default_protocol="feduch",
        ),
        Dataset(
            key="wikipedia",
            title="Wikipedia",
            source="Rasiwasia et al., A New Approach to Cross-Modal Multimedia Retrieval, ACM Multimedia 2010",
            licence=RESEARCH,
            layouts=(*mat_layouts.WIKIPEDIA, *collectors.WIKIPEDIA),
            default_protocol="rasiwasia",
        ),
        Dataset(
            key="fashionvc",
            title="FashionVC",
            source="Song et al., NeuroStylist, ACM Multimedia 2017, as SHDCH gives it (github.com/SDU-MIMA/SHDCH)",
            licence=RESEARCH,
            layouts=mat_layouts.FASHIONVC,
            default_protocol="fedcafe",
        ),
        Dataset(
            key="ssense",
            title="Ssense",
            source="Sun et al., Supervised Hierarchical Cross-Modal Hashing, SIGIR 2019, as SHDCH gives it "
            "(github.com/SDU-MIMA/SHDCH)",
            licence=RESEARCH,
            layouts=mat_layouts.SSENSE,
            default_protocol="fedcafe",
        ),
        Dataset(
            key="pascal-sentence",
            title="Pascal Sentence",
            source="Rashtchian et al., Collecting Image Annotations Using Amazon's Mechanical Turk, NAACL HLT 2010 workshop",
            licence=RESEARCH,
            layouts=(*mat_layouts.PASCAL, *collectors.PASCAL),
            default_protocol="default",
        ),
    )
}
"""The data sets in circulation by key."""


@dataclass(frozen=True)
class SomePictures:
    """Some of a column's pictures.

    Attributes:
        whole: the column.
        rows: ``(n,)`` int64, its rows.
    """

    whole: Pictures
    rows: Rows

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self.rows)

    def picture(self, row: int) -> Image.Image:
        """Decodes one picture."""
        return self.whole.picture(int(self.rows[row]))

    def digest(self) -> str:
        """Returns a digest of the column's content and of the rows."""
        return digest_json([self.whole.digest(), digest_arrays({"rows": self.rows})])


def read_raw(key: str, *, root: str = "", layout: str = AUTO, choice: Choice | None = None, **reader: Option) -> Raw:
    """Reads a data set's files, before any protocol chooses among their items.

    Args:
        key: the data set.
        root: the folder of its files; see `folder_of`.
        layout: a layout's name, or ``auto`` for the first that is complete.
        choice: the protocol that will be applied; its reader's options are taken where the user gives none.
        reader: options of the layout's reader.

    Raises:
        UserError: if files are missing or damaged, or the reader has no such option.
    """
    dataset, folder = DATASETS[key], folder_of(key, root)
    known = [*OPTIONS, *(option for one in dataset.layouts for option in one.options)]
    for option in reader:
        if option not in known:
            told = ", ".join(dict.fromkeys(known))
            raise UserError(f'{key} has no option "{option}"{suggestion(option, known)}; it has: {told}.')
    chosen = dataset.layout(layout, folder)
    for option in reader:
        if option not in chosen.options:
            has = f"it has: {', '.join(chosen.options)}" if chosen.options else "it has none"
            raise UserError(f'The layout {chosen.name} of {key} has no option "{option}"; {has}. Set another layout.')
    usual = choice.protocol.reader if choice is not None else {}
    return chosen.read(folder, **{name: value for name, value in usual.items() if name in chosen.options} | reader)


def open_dataset(
    key: str, *, root: str = "", layout: str = AUTO, protocol: str = "", seed: int = 0, **reader: Option
) -> Archive:
    """Opens a data set in circulation under a protocol.

    Args:
        key: the data set.
        root: the folder of its files; else ``$SILOHASH_DATA/<key>``, else ``./data/<key>``.
        layout: a layout's name, or ``auto`` for the first that is complete.
        protocol: its name, or empty for the data set's usual one.
        seed: of the rows that a protocol draws. It is no part of the run's seed: the same items are the queries of all runs.
        reader: options of the layout's reader.

    Raises:
        UserError: if files are missing or damaged, or do not fit the protocol.
    """
    choice = protocol_of(key, protocol or DATASETS[key].default_protocol)
    raw = read_raw(key, root=root, layout=layout, choice=choice, **reader)
    return archive_under(raw, choice, seed=seed)


def archive_under(raw: Raw, choice: Choice, *, seed: int = 0) -> Archive:
    """Makes an archive of what a reader found, under a protocol.

    Raises:
        UserError: if the items do not fit the protocol.
    """
    dataset = DATASETS[choice.protocol.dataset]
    split = apply(raw, choice, seed)
    whole = len(split.rows) == len(raw)
    told = "as published, " if choice.scaled or choice.drawn else ""
    rules = {f"{told}{name}": words for name, words in choice.protocol.rules().items()}
    return Archive(
        ids=raw.ids[split.rows],
        image=raw.image if whole else _taken(raw.image, split.rows),
        text=split.text,
        labels=split.labels,
        label_names=split.label_names,
        splits=split.splits,
        card=ArchiveCard(
            name=dataset.key,
            source=f"{dataset.title}: {dataset.source}",
            licence=dataset.licence,
            protocol=split.protocol + (f"/seed{seed}" if seed else ""),
            notes={"about the protocol": choice.protocol.about, **rules, **raw.notes, **split.notes},
        ),
        columns=split.columns,
        has_image=raw.has("image")[split.rows],
        has_text=raw.has("text")[split.rows],
        captions=None if raw.captions is None else raw.captions[split.rows],
        query_in_database=split.query_in_database,
    ).with_digest()


def _taken(column: Pictures | Features | None, rows: Rows) -> Pictures | Features | None:
    if column is None or isinstance(column, np.ndarray):
        return None if column is None else column[rows]
    if isinstance(column, PictureFiles):
        return column.taken(rows)
    return SomePictures(column, rows)


def mirflickr25k(*, root: str = "", layout: str = AUTO, protocol: str = "", seed: int = 0, **reader: Option) -> Archive:
    """Opens MIRFlickr-25K from files that the user brings: 25,000 photos with tags, 24 or 38 labels.

    Options as for `open_dataset`.
    """
    return open_dataset("mirflickr25k", root=root, layout=layout, protocol=protocol, seed=seed, **reader)


def nus_wide(*, root: str = "", layout: str = AUTO, protocol: str = "", seed: int = 0, **reader: Option) -> Archive:
    """Opens NUS-WIDE from files that the user brings: 269,648 photos with tags, 10, 21 or 81 labels.

    Options as for `open_dataset`.
    """
    return open_dataset("nus-wide", root=root, layout=layout, protocol=protocol, seed=seed, **reader)


def iapr_tc12(*, root: str = "", layout: str = AUTO, protocol: str = "", seed: int = 0, **reader: Option) -> Archive:
    """Opens IAPR TC-12 from files that the user brings: 20,000 photos with descriptions, 255 labels.

    Options as for `open_dataset`.
    """
    return open_dataset("iapr-tc12", root=root, layout=layout, protocol=protocol, seed=seed, **reader)


def coco(*, root: str = "", layout: str = AUTO, protocol: str = "", seed: int = 0, **reader: Option) -> Archive:
    """Opens MS-COCO from files that the user brings: 123,287 photos with captions, 80 labels.

    Options as for `open_dataset`.
    """
    return open_dataset("coco", root=root, layout=layout, protocol=protocol, seed=seed, **reader)


def wikipedia(*, root: str = "", layout: str = AUTO, protocol: str = "", seed: int = 0, **reader: Option) -> Archive:
    """Opens Wikipedia from files that the user brings: 2,866 pictures with articles in ten classes.

    Options as for `open_dataset`.
    """
    return open_dataset("wikipedia", root=root, layout=layout, protocol=protocol, seed=seed, **reader)


def fashionvc(*, root: str = "", layout: str = AUTO, protocol: str = "", seed: int = 0, **reader: Option) -> Archive:
    """Opens FashionVC from files that the user brings: 19,862 products, 27 fine labels under 8 coarse ones.

    Options as for `open_dataset`.
    """
    return open_dataset("fashionvc", root=root, layout=layout, protocol=protocol, seed=seed, **reader)


def ssense(*, root: str = "", layout: str = AUTO, protocol: str = "", seed: int = 0, **reader: Option) -> Archive:
    """Opens Ssense from files that the user brings: 15,696 products, 28 fine labels under 4 coarse ones.

    Options as for `open_dataset`.
    """
    return open_dataset("ssense", root=root, layout=layout, protocol=protocol, seed=seed, **reader)


def pascal_sentence(
    *, root: str = "", layout: str = AUTO, protocol: str = "", seed: int = 0, **reader: Option
) -> Archive:
    """Opens Pascal Sentence from files that the user brings: 1,000 photos with five sentences, 20 classes.

    Options as for `open_dataset`.
    """
    return open_dataset("pascal-sentence", root=root, layout=layout, protocol=protocol, seed=seed, **reader)
