"""The TOML file of a silo that trains with its own data.

Paths in the file are relative to its folder. `silohash.training.sites.kits.SITE_TEMPLATE` explains its keys.
"""

import re
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from silohash.base.errors import InvalidFile, InvalidName
from silohash.base.files import read_toml
from silohash.base.forms import fault
from silohash.run.config.sections import DataConfig
from silohash.training.updates.encryption import KEY

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class SiteSettings(BaseModel, frozen=True, extra="forbid"):
    """The settings of a silo. The number of threads is by default one per core."""

    silo: str = Field(min_length=1)
    state: Path = Path("state")
    device: str = "auto"
    threads: int | None = Field(default=None, ge=1)
    downloads: bool = False
    files: bool = False
    key: Path = Path(KEY)
    data: DataConfig


def check_run_name(name: str) -> None:
    """Check that a run can be stored under its name.

    Raises:
        UserError: If it cannot.
    """
    if not RUN_NAME.fullmatch(name):
        raise InvalidName(
            f'A run in a federation cannot have the name "{name}". Use at most 64 letters, digits, - and _, and begin '
            "with a letter or digit."
        )


def read_site_settings(path: Path) -> SiteSettings:
    """Read the file of a silo.

    Raises:
        UserError: If it is missing, is not TOML, or a value is wrong.
    """
    try:
        settings = SiteSettings.model_validate(read_toml(path))
    except ValidationError as error:
        raise InvalidFile(f"{path}: {fault(error)}.") from error
    folder = path.resolve().parent
    data = settings.data
    if data.path is not None:
        data = data.model_copy(update={"path": folder / data.path})
    return settings.model_copy(update={"state": folder / settings.state, "key": folder / settings.key, "data": data})
