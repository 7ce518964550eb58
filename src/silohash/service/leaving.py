"""A silo leaves a federation for good: the hub does not ask it any more, and the NATS server does not let it in.

``left.json`` beside the hub's file lists who has left, so that the command can be repeated after an interruption.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

import tomlkit

from silohash.base.certificates import HUB
from silohash.base.errors import TooFewSilos, UnknownName
from silohash.base.files import read_json, read_text, write_json, write_text
from silohash.base.registry import suggestion
from silohash.run.folder import Run
from silohash.service.config import MISSING, REMEDY, HubConfig, read_config
from silohash.service.nats_server import server_config
from silohash.service.new_federation import NATS


def leave_federation(file: Path, silo: str) -> bool:
    """Take a silo out of the hub's file, and out of the NATS server's config, if `write_federation` wrote it beside.

    A silo that has left before is not an error. Return whether the config of the NATS server was written.

    Raises:
        UserError: If the silo never belonged to the federation or is the only one, or a file cannot be read or written.
    """
    config, listing, nats = read_config(file, HubConfig), file.with_name("left.json"), file.parent.parent / NATS
    left, known = read_json(listing, dict[str, str]) if listing.exists() else {}, config.silos
    if silo not in {**known, **left}:
        raise UnknownName(f'{file} has no silo "{silo}"{suggestion(silo, known)}. Its silos are: {", ".join(known)}.')
    staying = {name: key for name, key in known.items() if name != silo}
    if not staying:
        raise TooFewSilos(f"{silo} is the only silo of {config.federation}. Stop the hub and the NATS server instead.")
    written = file.parent.name == HUB and (nats / "nats.conf").exists()
    server = server_config(config.model_copy(update={"silos": staying}), beside=nats) if written else ""
    if silo in config.silos:
        write_json(listing, {**left, silo: datetime.now(UTC).isoformat(timespec="seconds")})
        document = tomlkit.parse(read_text(file, remedy=REMEDY, missing=MISSING))
        del document["silos"][silo]
        del document["sealing"]["silos"][silo]
        write_text(file, tomlkit.dumps(document))
    if written:
        write_text(nats / "nats.conf", server)
    return written


def remains(file: Path, silo: str) -> Iterator[str]:
    """Yield what still holds something of a silo that has left, and what to do about it. The file is that of the hub."""
    config, own = read_config(file, HubConfig), file.parent.parent / silo
    if file.parent.name == HUB and own.is_dir():
        yield f"{own} holds its files, such as a secret key and an index. Hand it over or delete it."
    for folder in filter(None, (config.run, config.next_run)):
        if any(one.silo == silo and one.rejected is None for record in Run(folder).rounds() for one in record.silos):
            yield f"{folder} was trained with it. Train without it: silohash retrain RUN --without {quote(silo)} --out NEW"
    yield "Members keep copies of models, logs and backups, and the training server the checkpoints of its runs."
    yield "It keeps its index, the model, and the common key of encrypted sums. If there is such a key, make new kits."
