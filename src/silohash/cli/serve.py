"""``serve``, ``silo``, ``hub`` and ``federation``: the search page over a run, and a federation of several machines."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack, closing
from functools import partial
from logging import DEBUG, INFO
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from silohash.base.errors import NotPermitted, NotSupported
from silohash.base.optional import require
from silohash.base.visible import visible
from silohash.cli.console import print_result, print_status, spinner
from silohash.cli.help import ABOUT, argument, flag, option

if TYPE_CHECKING:
    import socket

    from silohash.service.config import ItemsSettings
    from silohash.service.items.keeper import Server

PORT = 8765
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Addresses that only this machine can reach."""

LeaderKit = Annotated[Path, argument("KIT", "Folder of the kit that starts runs.")]
SiloName = Annotated[str, argument("SILO", "Name of the silo.")]
Port = Annotated[int, option("N", "Port to listen on; 0 for any that is free.", min=0, max=65535)]
NewKey = Annotated[bool, flag(ABOUT["silo --new-key"], "--new-key")]


def serve(
    run: Annotated[Path, argument("RUN", "Folder of an indexed run.")],
    host: Annotated[str, option("ADDRESS", "Address to listen on: 127.0.0.1, localhost or ::1.")] = "127.0.0.1",
    port: Port = PORT,
    open_: Annotated[bool, flag("Open the page in the browser.", "--open")] = False,
) -> None:
    """Open a search page over a finished run, for this machine.

    All silos of the run are searched in this process. The page and its JSON API do not need an account, so only this
    machine can reach them. Stop with Ctrl-C.
    """
    require_page()
    _check_address(host)
    from uvicorn.config import LOGGING_CONFIG

    from silohash.run.folder import Run
    from silohash.service.backends import LocalBackend
    from silohash.service.web.app import create_app
    from silohash.service.web.server import Server, ignoring_signals, listening_socket

    Run.open(run)
    with listening_socket(host, port) as listening:  # a taken port is noticed before the indexes are loaded
        with spinner("Loading the indexes and the model"):
            backend = LocalBackend.open(run)
        with closing(backend):
            address, app = _address(host, listening), create_app(backend)
            print_result(f"The search page is at {address}")
            print_status("Press Ctrl-C to stop.")
            if open_:
                import webbrowser

                webbrowser.open(address)
            with ignoring_signals():
                Server(app, stop_seconds=3, log_config=LOGGING_CONFIG, log_level="warning").run(sockets=[listening])
                print_status("Stopped.")


def require_page() -> None:
    """Check that the search page can be served: the operating system, and the packages."""
    _refuse_windows("serve")
    for package in ("fastapi", "uvicorn", "httptools", "python_multipart", "prometheus_client"):
        require(package, "The search page")


def silo(
    config: Annotated[Path, argument("CONFIG", "TOML file of the silo, or folder of its training kit.")],
    new_key: NewKey = False,
    verbose: Annotated[bool, flag("Also log every request that was answered.", "--verbose")] = False,
) -> None:
    """Answer the queries of a federation with the index of one silo, until stopped with Ctrl-C.

    The process dials out to the federation's bus. Nothing needs to reach it from outside. With the folder of a training kit
    in place of a config, it trains with the federation instead. If the config names the kit (training), it does both.
    """
    _refuse_windows("silo")
    if config.is_dir():
        _run_kit(config)
        return
    _require_bus()
    from silohash.service.config import SiloConfig, read_config
    from silohash.service.logs import log_event, start_logging
    from silohash.service.silo import run_silo

    settings = read_config(config, SiloConfig)
    if new_key:
        _make_keys({settings.bus.key: (settings.silo, "")})
        return
    if settings.items is not None or settings.next_run is not None:
        require("watchfiles", "Watching the items folder")
    serve_items = None if settings.items is None else _items_server(settings.items)
    start_logging(level=DEBUG if verbose else INFO)
    with ExitStack() as beside:
        if settings.training is not None:
            _require_training()
            from silohash.training.sites.members import member_beside

            tell = partial(log_event, "training", silo=settings.silo)
            beside.enter_context(member_beside(settings.training, settings.silo, lambda text: tell(state=text)))
        run_silo(settings, serve_items=serve_items, read_again=lambda: read_config(config, SiloConfig))


def _make_keys(names: Mapping[Path, tuple[str, str]]) -> None:
    """Make the keys of a member that are missing, each with a request for a certificate with a name and further options."""
    from silohash.base.certificates import write_request

    missing = [key for key in names if not key.exists()]
    for key in missing or names:
        name, options = names[key]
        request = write_request(key, name)
        print_result(f"silohash federation sign AUTHORITY {quote(str(request))} {quote(name)}{options}")
    print_status("Send each request to whoever has the folder of the authority, who signs it with the command above.")


def _items_server(settings: ItemsSettings) -> Server | None:
    """Return what serves the API for programs that add items; None if there is none."""
    if settings.listen is None:
        return None
    for package in ("fastapi", "uvicorn", "python_multipart"):
        require(package, "The items API")
    from silohash.service.config import host_and_port
    from silohash.service.web.items import read_token, serving

    token = read_token(settings.token)
    print_result(f"The items API is at http://{settings.listen}/v1/items, with the token in {settings.token}")
    return partial(serving, address=host_and_port(settings.listen), token=token)


def hub(
    config: Annotated[Path, argument("CONFIG", "TOML file of the hub.")],
    host: Annotated[str, option("ADDRESS", ABOUT["hub --host"])] = LOOPBACK[0],
    port: Port = PORT,
    new_key: NewKey = False,
    write_nats_config: Annotated[Path | None, option("FILE", ABOUT["hub --write-nats-config"])] = None,
    exclude: Annotated[str | None, option("SILO", ABOUT["hub --exclude"])] = None,
    take_back: Annotated[str | None, option("SILO", "Ask an excluded silo again, and exit.")] = None,
    verbose: Annotated[bool, flag(ABOUT["hub --verbose"], "--verbose")] = False,
) -> None:
    """Search all silos of a federation through an API and a page, until stopped with Ctrl-C.

    If there are accounts beside the config (silohash account), people sign in and programs send tokens. Otherwise the API
    and the page are open, and listen on addresses of this machine only.
    """
    _refuse_windows("hub")
    _require_bus()
    from silohash.base.certificates import HUB
    from silohash.base.files import write_text
    from silohash.service.config import HubConfig, read_config
    from silohash.service.exclusions import Exclusions
    from silohash.service.nats_server import server_config

    settings = read_config(config, HubConfig)
    if new_key:
        names = {settings.bus.key: (HUB, "")}
        if settings.nats is not None:
            names[settings.nats.key] = str(urlsplit(settings.bus.servers[0]).hostname), " --server"
        _make_keys(names)
    if write_nats_config is not None:
        write_text(write_nats_config, server_config(settings))
        print_status(f"Start the server with: nats-server -c {write_nats_config}")
    for silo_name, excluded in ((exclude, True), (take_back, False)):
        if silo_name is not None:
            listed = Exclusions(settings).change(silo_name, excluded=excluded)
            print_status(f"Excluded silos: {', '.join(listed) or 'none'}")
    if not any((new_key, write_nats_config, exclude, take_back)):
        _serve_hub(config, host, port, verbose=verbose)


def _serve_hub(config: Path, host: str, port: int, *, verbose: bool) -> None:
    from silohash.service.accounts import accounts_beside
    from silohash.service.config import HubConfig, read_config
    from silohash.service.link import run_loop
    from silohash.service.logs import start_logging
    from silohash.service.web.hub_process import serve_hub
    from silohash.service.web.server import listening_socket

    with ExitStack() as stack:
        accounts = accounts_beside(config)
        if accounts is None:
            _check_address(host, ", or add an account: silohash account add CONFIG NAME")
        else:
            stack.enter_context(accounts)
        listening = stack.enter_context(listening_socket(host, port))
        start_logging(level=DEBUG if verbose else INFO)
        serving = serve_hub(
            read_config(config, HubConfig),
            listening,
            accounts=accounts,
            ready=lambda: print_result(f"The search page is at {_address(host, listening)}"),
            read_again=lambda: read_config(config, HubConfig),
        )
        run_loop(serving)


def init(
    run: Annotated[Path, argument("RUN", "Folder of a trained run.")],
    folder: Annotated[Path, argument("FOLDER", "New folder for the files of the federation.")],
    silo_names: Annotated[list[str] | None, option("NAME", ABOUT["federation init --silo"], "--silo")] = None,
    name: Annotated[str | None, option("NAME", "Name of the federation. Default: the name of FOLDER.")] = None,
    server: Annotated[str, option("ADDRESS", "Address of the NATS server for all members.")] = "tls://127.0.0.1:4222",
    kits: Annotated[Path | None, option("FOLDER", ABOUT["federation init --kits"])] = None,
) -> None:
    """Write all files of a federation: a folder per silo, one for the hub and one for the NATS server.

    Each folder has what its member needs: the file of the member, its key and certificate, the model, and the index of a
    silo that is indexed in the run. Move each folder to the machine of its member, or start all of them on this machine.
    """
    _require_bus()
    from silohash.index.listing import is_indexed
    from silohash.run.folder import Run
    from silohash.service.new_federation import commands, write_federation

    silos = write_federation(Run.open(run), folder, silos=silo_names or (), name=name, server=server, kits=kits)
    print_status(f"Wrote {folder}. Each folder in it holds a secret key; give it to its member only.")
    for silo in silos:
        if not is_indexed(Run(folder / silo / "run").index_folder, silo):
            print_status(f"Index the items of {silo}: silohash index {folder / silo / 'run'} ARCHIVE --name {silo}")
    print_status("Start each of these in a terminal of its own:")
    print_result(*(f"  {command}" for command in commands(folder, silos)))


def key(
    file: Annotated[Path, argument("FILE", "New file for the secret key, which only you can read.")],
) -> None:
    """Make the key with which a member encrypts and signs its messages, and print the public key for the other members.

    The public key of a silo is entered in the hub's file: [sealing.silos]. That of the hub is entered in the file of each
    silo: [sealing] hub.
    """
    _require_bus()
    from silohash.service.envelope import new_key as make_key

    print_result(make_key(file))
    print_status(f"The secret key is in {file}. Enter it in this member's file: [sealing] key.")


def sign(
    authority: Annotated[Path, argument("AUTHORITY", "Folder of the authority, such as museums/authority.")],
    request: Annotated[Path, argument("REQUEST", "Request of a member, which --new-key makes.")],
    name: Annotated[str, argument("NAME", "Name of the silo, hub, or with --server the host of the NATS server.")],
    server: Annotated[bool, flag("The certificate is that of the NATS server.", "--server")] = False,
    days: Annotated[int, option("N", "Days for which the certificate is valid.", min=1)] = 730,
    out: Annotated[Path | None, option("FILE", "File of the certificate. Default: beside the request.")] = None,
) -> None:
    """Sign the certificate of a member that made its own key.

    The member gets the name that is given here, whatever the request says.
    """
    _require_bus()
    from silohash.base.certificates import AUTHORITY, Authority, subject
    from silohash.base.files import check_replaceable, write_bytes

    certificate = out or request.with_suffix(".pem")
    check_replaceable(certificate, b"-----BEGIN CERTIFICATE")
    write_bytes(certificate, Authority.load(authority).sign_request(request, name, server=server, days=days))
    print_result(str(certificate))
    print_status(f"Send it to {name}, with {authority / AUTHORITY}. Its subject is {subject(name)}.")


def kits(
    folder: Annotated[Path, argument("FOLDER", "New folder for the kits.")],
    silo_names: Annotated[list[str], option("NAME", "Name of a silo. Can be repeated.", "--silo")],
    host: Annotated[str, option("NAME", "Name or address under which silos reach the training server.")] = LOOPBACK[0],
    port: Annotated[int, option("N", "Port of the training server.", min=1, max=65535)] = 8002,
    days: Annotated[int, option("N", "Days for which the certificates are valid.", min=1)] = 730,
) -> None:
    """Write the kits for training with silos on different machines: certificates, and settings that refuse foreign code.

    There is one kit per silo, one for the server, and one for whoever starts runs. Each holds a secret key. The folder of
    the authority holds the key that signs all certificates.
    """
    require("nvflare", "Training on other machines")
    from silohash.training.engines.flare.kits import write_kits
    from silohash.training.sites.kits import LEADER, LOCAL, SERVER, SITE_FILE, Training

    write_kits(folder, silo_names, Training(host=host, port=port, valid_days=days))
    print_status(f"Wrote {folder}. Each folder in it holds a secret key; give it to its member only.")
    print_status(*(f"Enter the data of {name} in {folder / name / LOCAL / SITE_FILE}" for name in silo_names))
    print_status("Start each of these in a terminal of its own:")
    print_result(f"  silohash server {folder / SERVER}")
    print_result(*(f"  silohash silo {folder / name}" for name in silo_names))
    print_result(f"  silohash train CONFIG --on {folder / LEADER}")


def disable(kit: LeaderKit, silo: SiloName) -> None:
    """Lock a silo out of training, also when the server is started again. Its certificate remains valid."""
    _set_admission(kit, silo, admitted=False)
    print_result(f"{silo} cannot connect any more. To let it in again: silohash federation enable {kit} {silo}")


def enable(kit: LeaderKit, silo: SiloName) -> None:
    """Let a silo that was locked out connect again."""
    _set_admission(kit, silo, admitted=True)
    print_result(f"{silo} can connect.")


def _set_admission(kit: Path, silo: str, *, admitted: bool) -> None:
    require("nvflare", "Training on other machines")
    from silohash.training.engines.flare.jobs import set_admission

    set_admission(kit, silo, admitted=admitted)


def leave(
    config: Annotated[Path, argument("CONFIG", "TOML file of the hub.")],
    silo: SiloName,
    kit: Annotated[Path | None, option("KIT", ABOUT["federation leave --kit"])] = None,
) -> None:
    """Take a silo out of a federation for good: out of the hub's file, the NATS server's config, and training.

    The command can be repeated, for example if the training server could not be reached.
    """
    from silohash.service.leaving import leave_federation, remains

    written = leave_federation(config, silo)
    print_result(visible(f"{silo} has left. For the running processes:"))
    if not written:
        print_result(f"  silohash hub {config} --write-nats-config FILE")
    print_result(
        "  nats-server --signal reload    ends its connection",
        "  kill -HUP PID                  of the hub, which then does not ask it any more",
    )
    if kit is not None:
        _set_admission(kit, silo, admitted=False)
        print_result(visible(f"{silo} cannot connect to the training server any more."))
    print_result("What remains:")
    print_result(*(visible(f"  {line}") for line in remains(config, silo)))


def server(kit: Annotated[Path, argument("KIT", "Folder of the server's training kit.")]) -> None:
    """Run the server of a training federation, until stopped with Ctrl-C.

    It sends models to silos and adds up what they send. It does not see data. If its process dies, it is started again.
    """
    _refuse_windows("server")
    _run_kit(kit)


def _refuse_windows(command: str) -> None:
    """Check that the system has the signals and locks on which the services rely."""
    if sys.platform == "win32":
        raise NotSupported(
            f"silohash {command} does not run on Windows, whose processes do not receive the signals that it needs. Run it "
            "on Linux, in the Windows Subsystem for Linux or in a container."
        )


def _require_training() -> None:
    require("torch", "Training")
    require("nvflare", "Training on other machines")


def _run_kit(kit: Path) -> None:
    _require_training()
    from silohash.training.sites.members import run_member

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print_status("Press Ctrl-C to stop.")
    run_member(kit, print_status)


def _check_address(host: str, otherwise: str = ".") -> None:
    """Check that only this machine can reach an address. ``otherwise`` ends the message, with another remedy if any."""
    if host not in LOOPBACK:
        raise NotPermitted(
            f'There are no accounts, so the page listens only on addresses of this machine, and "{host}" is not one of '
            f"them. Use --host {LOOPBACK[0]}{otherwise}"
        )


def _address(host: str, listening: socket.socket) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"


def _require_bus() -> None:
    for package in ("nats", "cryptography"):
        require(package, "A federation of several machines")
