"""The commands of ``account``: the people and programs that may use the service of a hub."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from silohash.base.errors import MissingFile, SettingNeeded
from silohash.base.visible import visible
from silohash.cli.console import print_json, print_result, print_status
from silohash.cli.help import ABOUT, AsJson, argument, flag, option

if TYPE_CHECKING:
    from silohash.service.accounts import Accounts, Scope, Token

Config = Annotated[Path, argument("CONFIG", ABOUT["account add CONFIG"])]
Name = Annotated[str, argument("NAME", "Name of the account.")]
FromInput = Annotated[bool, flag("Read the password from standard input instead of asking for it.", "--password-stdin")]


def add(
    config: Config,
    name: Name,
    admin: Annotated[bool, flag("Let the person administer the service.", "--admin")] = False,
    password_stdin: FromInput = False,
) -> None:
    """Add an account for a person. The password is asked for, and is not shown."""
    with _opened(config) as accounts:
        accounts.add(name, _password(from_input=password_stdin), admin=admin)
    print_status(f'Added the account "{name.strip().lower()}".')


def list_(config: Config, as_json: AsJson = False) -> None:
    """List all accounts and their tokens."""
    with _opened(config) as accounts:
        known, tokens = accounts.all(), accounts.tokens()
    owned = {account.name: [held for held in tokens if held.account == account.name] for account in known}
    if as_json:
        their = {name: list(map(_described, some)) for name, some in owned.items()}
        about = [
            {"name": a.name, "admin": a.admin, "created": _date(a.created), "tokens": their[a.name]} for a in known
        ]
        print_json({"accounts": about})
        return
    for account in known:
        print_result(f"{account.name}{'  administrator' if account.admin else ''}  since {_date(account.created)}")
        for held in owned[account.name]:
            expiry = "without expiry" if held.expires is None else f"until {_date(held.expires)}"
            scopes = ", ".join(sorted(held.scopes))
            print_result(visible(f"  token {held.id}  {scopes}  {expiry}  {held.label}".rstrip()))


def password(config: Config, name: Name, password_stdin: FromInput = False) -> None:
    """Change the password of an account, and sign the person out everywhere."""
    with _opened(config) as accounts:
        accounts.set_password(name, _password(from_input=password_stdin))
    print_status(f'Changed the password of "{name}".')


def remove(config: Config, name: Name) -> None:
    """Remove an account with its sessions and tokens."""
    with _opened(config) as accounts:
        accounts.remove(name)
    print_status(f'Removed the account "{name}".')


def token(
    config: Config,
    name: Name,
    scope: Annotated[list[str] | None, option("search|items|metrics|admin", ABOUT["account token --scope"])] = None,
    label: Annotated[str, option("TEXT", "What the token is for.")] = "",
    days: Annotated[float, option("N", "Number of days after which the token expires.")] = 365.0,
) -> None:
    """Add a token for a program, and print it. It cannot be shown again.

    The program sends it with every request, as the header "Authorization: Bearer TOKEN".
    """
    with _opened(config) as accounts:
        added, secret = accounts.add_token(name, cast("list[Scope]", scope or ["search"]), label=label, days=days)
    print_status(f"Token {added.id} of {name}, until {_date(added.expires or 0.0)}:")
    print_result(secret)


def revoke(config: Config, token_id: Annotated[str, argument("ID", "Public part of the token.")]) -> None:
    """Remove a token, so that it is refused at once."""
    with _opened(config) as accounts:
        accounts.remove_token(token_id)
    print_status(f"Removed the token {token_id}.")


def _opened(config: Path) -> Accounts:
    from silohash.service.accounts import FILE, Accounts

    if not config.is_file():
        raise MissingFile(f"{config} does not exist. Give the config of the hub.")
    return Accounts(config.parent / FILE)


def _password(*, from_input: bool) -> str:
    """Return a password from the terminal or from the first line of standard input."""
    if from_input:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise SettingNeeded("A password can only be asked for in a terminal. Use --password-stdin.")
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))


def _described(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "label": token.label,
        "scopes": sorted(token.scopes),
        "created": _date(token.created),
        "expires": None if token.expires is None else _date(token.expires),
    }


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))
