"""silohash: federated training of cross-modal hash codes, and search across silos whose data cannot be pooled.

The names below are the public Python API. They are imported when they are first used, so that ``import silohash`` loads
neither torch nor numba.
"""

from os import environ as _environ

for _switch in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY"):
    # Read by onnxruntime and huggingface_hub when they are imported. Both take an empty value for a missing one.
    _environ[_switch] = _environ.get(_switch) or "1"

TYPE_CHECKING = False  # as typing.TYPE_CHECKING, without the time that importing typing takes

if TYPE_CHECKING:
    from silohash.api.codes import Score, evaluate_codes, nearest
    from silohash.api.data import list_methods, load_archive, partition
    from silohash.api.runs import TrainedRun, train
    from silohash.api.runs import open_run as open  # noqa: A004  silohash.open, as in gzip.open
    from silohash.base.errors import UserError
    from silohash.base.types import MethodCard, PlausibilityWarning
    from silohash.data.archive import Archive
    from silohash.data.partitions.base import Partition
    from silohash.index.base import Neighbors
    from silohash.index.codes import Codes
    from silohash.search.hits import Hits
    from silohash.search.released import Hit
    from silohash.service.clients.search import Client, connect

__version__ = "0.1.0"

__all__ = [
    "Archive", "Client", "Codes", "Hit", "Hits", "MethodCard", "Neighbors", "Partition", "PlausibilityWarning",
    "Score", "TrainedRun", "UserError", "__version__", "connect", "evaluate_codes", "list_methods", "load_archive",
    "nearest", "open", "partition", "train",
]  # fmt: skip

_DEFINED_IN = {
    "Archive": "silohash.data.archive:Archive",
    "Client": "silohash.service.clients.search:Client",
    "Codes": "silohash.index.codes:Codes",
    "Hit": "silohash.search.released:Hit",
    "Hits": "silohash.search.hits:Hits",
    "MethodCard": "silohash.base.types:MethodCard",
    "Neighbors": "silohash.index.base:Neighbors",
    "Partition": "silohash.data.partitions.base:Partition",
    "PlausibilityWarning": "silohash.base.types:PlausibilityWarning",
    "Score": "silohash.api.codes:Score",
    "TrainedRun": "silohash.api.runs:TrainedRun",
    "UserError": "silohash.base.errors:UserError",
    "connect": "silohash.service.clients.search:connect",
    "evaluate_codes": "silohash.api.codes:evaluate_codes",
    "list_methods": "silohash.api.data:list_methods",
    "load_archive": "silohash.api.data:load_archive",
    "nearest": "silohash.api.codes:nearest",
    "open": "silohash.api.runs:open_run",
    "partition": "silohash.api.data:partition",
    "train": "silohash.api.runs:train",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'silohash' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _DEFINED_IN[name].partition(":")
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the names of the module, including public names that have not been imported yet."""
    return sorted({*globals(), *__all__})
