"""``account`` on the command line: accounts and tokens are added, listed and removed, and no password is printed."""

from __future__ import annotations

import io
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from silohash.service.accounts import Accounts
from tests.accounts import PASSWORD
from tests.runs import silohash


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\nanother one!\n"))
    path = tmp_path / "hub.toml"
    path.touch()
    return path


def test_an_account_with_a_token_comes_and_goes(config: Path) -> None:
    added = silohash("account", "add", config, "Ada", "--admin", "--password-stdin")
    assert added.code == 0, added.err
    made = silohash(
        "account", "token", config, "ada", "--scope", "search", "--scope", "items", "--label", "nightly", "--days", 3
    )
    secret = made.out.strip()
    assert secret.startswith("silohash_")
    with Accounts(config.parent / "accounts.sqlite") as accounts:
        assert accounts.verify("ada", PASSWORD)
        assert accounts.token(secret).scopes == {"search", "items"}
    listed = silohash("account", "list", config)
    [entry] = silohash("account", "list", config, "--json").document()["accounts"]
    assert (entry["name"], entry["admin"]) == ("ada", True)
    [token] = entry["tokens"]
    assert (token["label"], token["scopes"]) == ("nightly", ["items", "search"])
    assert f"token {token['id']}  items, search  until {token['expires']}  nightly" in listed.out
    changed = silohash("account", "password", config, "ada", "--password-stdin")
    revoked = silohash("account", "revoke", config, token["id"])
    assert silohash("account", "list", config).out.splitlines() == [f"ada  administrator  since {entry['created']}"]
    removed = silohash("account", "remove", config, "ada")
    assert silohash("account", "list", config).out == ""
    for said in (added, made, listed, changed, revoked, removed):
        assert said.code == 0, said.err
        assert PASSWORD not in said.out + said.err
        assert "another one!" not in said.out + said.err
        assert said is made or secret not in said.out + said.err


def test_a_token_lasts_a_year_by_default(config: Path) -> None:
    assert silohash("account", "add", config, "ada", "--password-stdin").code == 0
    assert silohash("account", "token", config, "ada").code == 0
    [entry] = silohash("account", "list", config, "--json").document()["accounts"]
    [token] = entry["tokens"]
    left = datetime.fromisoformat(token["expires"]) - datetime.fromisoformat(entry["created"])
    assert abs(left - timedelta(days=365)) < timedelta(days=2)


def test_a_password_is_asked_for_twice_and_not_shown(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", lambda text, **options: asked.append({"text": text, **options}) or PASSWORD)
    assert silohash("account", "add", config, "ada").code == 0
    assert asked == [{"text": "Password", "hide_input": True, "confirmation_prompt": True, "err": True}]
    with Accounts(config.parent / "accounts.sqlite") as accounts:
        assert accounts.verify("ada", PASSWORD)


def test_mistakes_are_explained(config: Path) -> None:
    assert "hub2.toml does not exist" in silohash("account", "list", config.with_name("hub2.toml")).err
    assert "Use --password-stdin" in silohash("account", "add", config, "ada").err
    assert 'no account "eve"' in silohash("account", "token", config, "eve").err
    assert "not a scope" in silohash("account", "token", config, "eve", "--scope", "all").err
    assert "no token" in silohash("account", "revoke", config, "abc").err
