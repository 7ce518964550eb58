"""Silos on different machines: their archives, which are parts of a pooled one, and an engine without machines."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from silohash.methods.message import Message
from silohash.training.engines.port import WAIT_FOR_ALL, Absence, Answer, InProcess, Limits, SiloResult, SiloTask
from silohash.training.engines.wire import decode_answer, decode_task, encode_distant_task, encode_result
from silohash.training.sites.settings import SiteSettings
from silohash.training.sites.trainer import Site
from tests.runs import write_archive, write_metadata

NAMES = ("place-0", "place-1", "place-2")


def site_archives(pooled: Path, folder: Path, names: Sequence[str] = NAMES) -> list[Path]:
    """Writes one archive per place, with the items of the pooled archive in their order."""
    with (pooled / "metadata.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    archives = []
    for name in names:
        kept = [number for number, row in enumerate(rows) if row["place"] == name]
        own = folder / name
        own.mkdir(parents=True)
        write_metadata(own, [rows[number] for number in kept])
        for given in pooled.glob("*.npy"):
            np.save(own / given.name, np.load(given, allow_pickle=False)[kept])
        archives.append(own)
    return archives


def archives_with_pictures(folder: Path, count: int) -> tuple[Path, list[Path]]:
    """Writes an archive with small color pictures, and one archive per place as `site_archives` does."""
    pooled = write_archive(folder / "pooled", count=count, image=None, text="words")
    apart = site_archives(pooled, folder / "sites")
    with (pooled / "metadata.csv").open(encoding="utf-8", newline="") as stream:
        rows = [{**row, "file_name": f"{row['id']}.png"} for row in csv.DictReader(stream)]
    for number, row in enumerate(rows):
        drawn = Image.fromarray(np.random.default_rng(number).integers(0, 256, (5, 5, 3), dtype=np.uint8))
        for own in (pooled, apart[NAMES.index(row["place"])]):
            drawn.save(own / row["file_name"])
    for own, place in ((pooled, ""), *zip(apart, NAMES, strict=True)):
        write_metadata(own, [row for row in rows if row["place"].startswith(place)])
    return pooled, apart


class Sites:
    """A worker that passes each task to the site of its silo, as encoded messages."""

    def __init__(self, archives: list[Path], state: Path) -> None:
        self.archives, self.state = archives, state
        self.restart()

    def restart(self) -> None:
        self.sites = [
            Site(SiteSettings.model_validate(
                {"silo": name, "state": self.state / name, "device": "cpu", "threads": 1, "data": {"path": archive}}
            ))
            for name, archive in zip(NAMES, self.archives, strict=True)
        ]  # fmt: skip

    def do(self, task: SiloTask) -> SiloResult:
        read = decode_task(Message.decode(encode_distant_task(task)))
        answer = encode_result(self.sites[task.silo].do("first", read))
        result = decode_answer(task, NAMES[task.silo], answer)
        assert isinstance(result, SiloResult), result
        if task.kind == "deploy":
            assert not result.update.arrays()
        return result


class Missing(InProcess):
    """An engine in which some silos do not train in some rounds.

    Args:
        sites: carries out the tasks.
        missed: the number of each such round, with that of the silo.
    """

    def __init__(self, sites: Sites, missed: Collection[tuple[int, int]]) -> None:
        super().__init__(sites)
        self.missed = missed

    def send(self, tasks: Iterable[SiloTask], limits: Limits = WAIT_FOR_ALL) -> Iterator[Answer]:
        for task in tasks:
            missed = task.kind == "train" and (task.broadcast.round, task.silo) in self.missed
            yield Absence(task.silo, "does not train") if missed else self.worker.do(task)
