"""The image and the containers of a real deployment: their commands, files, limits and packages are those of the code.

There is no container engine where the tests run, so the two files are read instead of used.
"""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from silohash.base.certificates import AUTHORITY, HUB
from silohash.service.new_federation import CERTIFICATE, CERTIFICATE_KEY, NATS
from tests.docs.test_readme import objections
from tests.plain_install import plain_install

ENTRY = "silohash"


@pytest.fixture(scope="module")
def compose(repository: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((repository / "compose.yaml").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def dockerfile(repository: Path) -> list[list[str]]:
    """The instructions of the Dockerfile, as words."""
    text = (repository / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    return [line.split() for line in lines if line]


def test_the_commands_of_the_containers_exist(compose: dict[str, Any]) -> None:
    for name in ("hub", "silo"):
        command = compose["services"][name]["command"]
        assert objections(shlex.join([ENTRY, *command]), whole=True) == []
    assert compose["services"]["hub"]["command"][:2] == ["hub", "hub.toml"]
    assert compose["services"]["silo"]["command"][:2] == ["silo", "silo.toml"]
    assert compose["services"]["nats"]["command"] == ["nats-server", "-c", "nats.conf"]


def test_every_container_is_restricted_and_watched(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {"nats", "hub", "silo"}
    for service in compose["services"].values():
        assert service["read_only"] is True
        assert service["user"] == "${SILOHASH_USER:-1000:1000}"
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["restart"] == "unless-stopped"
        assert service["healthcheck"]["test"][0] == "CMD"
        assert {"cpus", "memory", "pids"} == set(service["deploy"]["resources"]["limits"])
    assert "ports" not in compose["services"]["silo"], "nothing dials in to a silo"
    assert compose["services"]["hub"]["ports"] == ["127.0.0.1:8765:8765"]


def test_the_folders_are_those_of_a_new_federation(compose: dict[str, Any]) -> None:
    services, root = compose["services"], "${FEDERATION:-./federation}"
    assert services["hub"]["volumes"] == [f"{root}/{HUB}:/federation"]
    assert services["silo"]["volumes"] == [f"{root}/${{SILO:-silo}}:/federation"]
    assert services["hub"]["working_dir"] == services["silo"]["working_dir"] == "/federation"
    files = {name: entry["file"] for kind in ("configs", "secrets") for name, entry in compose[kind].items()}
    mounted = {
        files[entry["source"]].removeprefix(f"{root}/{NATS}/"): entry["target"]
        for kind in ("configs", "secrets")
        for entry in services["nats"][kind]
    }
    folder = services["nats"]["working_dir"]
    assert mounted == {name: f"{folder}/{name}" for name in ("nats.conf", CERTIFICATE, CERTIFICATE_KEY, AUTHORITY)}
    assert files[services["nats"]["secrets"][0]["source"]].endswith(CERTIFICATE_KEY), "the key is a secret"


@pytest.mark.whole_run
def test_the_health_check_of_a_silo_sees_a_connection(compose: dict[str, Any]) -> None:
    _, python, *arguments = compose["services"]["silo"]["healthcheck"]["test"]
    assert python == "python"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        assert subprocess.run([sys.executable, *arguments], timeout=300).returncode == 0
    nothing = arguments[1].replace("'/proc/net/' + name", "'/dev/null'")
    assert nothing != arguments[1]
    assert subprocess.run([sys.executable, "-c", nothing], timeout=300).returncode == 1


def test_the_image_is_built_from_files_that_exist(repository: Path, dockerfile: list[list[str]]) -> None:
    ignored = (repository / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [word for words in dockerfile if words[0] == "COPY" and "--from" not in words[1] for word in words[1:-1]]
    assert {"pyproject.toml", "constraints.txt", "src", "recipes"} <= {*copied}
    for name in copied:
        assert (repository / name).exists()
        assert f"!{name}" in ignored
    assert "*" in ignored, "archives, runs and keys stay out of the image"
    readme = 'readme = "README.md"' in (repository / "pyproject.toml").read_text(encoding="utf-8")
    assert readme == ("README.md" in copied)


def test_in_the_image_no_program_reports_to_the_makers_of_its_libraries(dockerfile: list[list[str]]) -> None:
    [variables] = [words[1:] for words in dockerfile if words[0] == "ENV"]
    assert {"ORT_DISABLE_TELEMETRY=1", "HF_HUB_DISABLE_TELEMETRY=1"} <= {*variables}


def test_the_image_runs_as_a_user_and_starts_the_program(dockerfile: list[list[str]]) -> None:
    user = [words[1] for words in dockerfile if words[0] == "USER"]
    assert user == ["10001:10001"]
    assert len([words for words in dockerfile if words[0] == "FROM"]) == 2
    assert ["ENTRYPOINT", f'["{ENTRY}"]'] in dockerfile


@pytest.mark.whole_run
def test_what_the_image_installs_is_enough_for_its_commands(
    repository: Path, dockerfile: list[list[str]], tmp_path: Path
) -> None:
    [extras] = {words[1].removeprefix("EXTRAS=") for words in dockerfile if words[0] == "ARG" and "EXTRAS" in words[1]}
    [install] = [" ".join(words) for words in dockerfile if "install" in words]
    assert '-c constraints.txt ".[${EXTRAS}]"' in install
    python = plain_install(tmp_path / "venv", repository, extras=extras.split(","))
    modules = ("web.hub_process", "silo", "accounts", "new_federation")
    source = "".join(f"import silohash.service.{name}\n" for name in modules)
    source += "import sys; print('torch' in sys.modules)"
    done = subprocess.run([python, "-c", source], capture_output=True, text=True, timeout=600, env={"PATH": ""})
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
