"""What the server received in the last round, kept in the folder of the run for measuring what it reveals."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from silohash.base.files import write_bytes
from silohash.base.forms import reading
from silohash.base.types import ReadArrays
from silohash.methods.message import Message

FOLDER = "received"
ORIGIN = "origin.safetensors"
RUN_AGAIN = "Train the run again."


@dataclass(frozen=True)
class ReceivedUpdates:
    """The updates of one round, one file per silo in the folder ``received`` of a run, and what the server sent before."""

    folder: Path

    def begin(self, round: int, params: ReadArrays, extras: ReadArrays) -> None:  # noqa: A002  the field's word
        """Remove the updates of the round before, and write the parameters and extras that the server sent."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        sent = Message(kind="broadcast", sender="server", round=round, params=params, extras=extras)
        write_bytes(self.folder / ORIGIN, sent.encode())

    def add(self, silo: int, update: Message) -> None:
        """Write the update of a silo, without compression."""
        write_bytes(self.folder / f"{silo}.safetensors", update.encode())

    @property
    def kept(self) -> bool:
        """Whether there are updates."""
        return (self.folder / ORIGIN).exists()

    def origin(self) -> Message:
        """Return what the server sent at the beginning of the round."""
        return _read(self.folder / ORIGIN)

    def updates(self) -> Iterator[tuple[int, Message]]:
        """Yield the number and the update of each silo, in silo order."""
        numbers = sorted(int(path.stem) for path in self.folder.glob("*.safetensors") if path.stem.isdigit())
        for number in numbers:
            yield number, _read(self.folder / f"{number}.safetensors")


def _read(path: Path) -> Message:
    with reading(path, remedy=RUN_AGAIN):
        content = path.read_bytes()
    return Message.decode(content)
