from __future__ import annotations

import json
import stat
import subprocess

import nkeys
import pytest

from silohash.base.errors import AlreadyExists, MissingFile, RepeatedValue, SettingNeeded, WrongKindOfFile
from silohash.service.nats_server import Subjects, new_key, public_key, secret_key, server_config, token
from tests.nats import SERVER, Federation, needs_nats


def test_a_new_key_is_secret_and_gives_its_public_key(tmp_path):
    path = tmp_path / "keys" / "north.key"
    public = new_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert public == public_key(path)
    assert public.startswith("U")
    assert len(public) == 56
    pair = nkeys.from_seed(bytearray(secret_key(path), "ascii"))
    assert pair.public_key.decode() == public
    with pytest.raises(AlreadyExists):
        new_key(path)
    assert public_key(path) == public
    assert new_key(tmp_path / "other.key") != public


@pytest.mark.parametrize("content", [b"", b"SUsecret", b"\xff\xfe", b"UAAA"])
def test_a_file_without_a_key_is_refused_without_repeating_it(tmp_path, content):
    path = tmp_path / "north.key"
    path.write_bytes(content)
    with pytest.raises(WrongKindOfFile) as error:
        secret_key(path)
    assert "secret\n" not in str(error.value)
    assert "SUsecret" not in str(error.value)


def test_a_missing_key_is_explained(tmp_path):
    with pytest.raises(MissingFile, match=r"north.key.*missing"):
        secret_key(tmp_path / "north.key")


def test_subjects_name_the_federation_and_the_silo():
    subjects = Subjects("museums")
    assert subjects.requests("north") == "silohash.museums.ask.north"
    assert subjects.answer("north", "ab", 7) == "silohash.museums.answer.north.ab.7"
    assert subjects.answers("north", "ab") == "silohash.museums.answer.north.ab.*"


def test_permissions_are_those_of_one_silo_or_of_the_hub():
    subjects = Subjects("museums")
    assert subjects.permissions("north") == {
        "publish": {"allow": ["silohash.museums.answer.north.>"]},
        "subscribe": {"allow": ["silohash.museums.ask.north"]},
    }
    assert subjects.permissions(None) == {
        "publish": {"allow": ["silohash.museums.ask.*"]},
        "subscribe": {"allow": ["silohash.museums.answer.>"]},
    }


def test_names_become_single_parts_of_subjects():
    names = ["north", "a.b", "a b", "*", ">", "a>", "é", "=", "x" * 101, "tab\t", "a", "A", "=TXVz", "Mus"]
    tokens = [token(name) for name in names]
    assert len(set(tokens)) == len(names)
    for part in tokens:
        assert not set(part) & set(" .*>\t\r\n")
        assert part
    assert token("a-B_9") == "a-B_9"


@pytest.mark.whole_run
@needs_nats
def test_the_server_accepts_the_config(tmp_path):
    federation = Federation(tmp_path, "north", 'it\'s "quoted"', mutual=True)
    done = subprocess.run([SERVER, "-t", "-c", tmp_path / "nats.conf"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    text = server_config(federation.hub)
    for secret in tmp_path.glob("*.key"):
        assert secret.read_text().strip() not in text
    for key in federation.keys.values():
        assert json.dumps(key) in text
    assert "verify: true" in text
    assert "max_payload: 8388608" in text


def test_the_config_needs_a_table_and_different_keys(tmp_path):
    federation = Federation(tmp_path, "north")
    with pytest.raises(SettingNeeded):
        server_config(federation.hub.model_copy(update={"nats": None}))
    same = federation.hub.model_copy(update={"silos": {"north": federation.keys["hub"]}})
    with pytest.raises(RepeatedValue):
        server_config(same)
    assert "verify: false" in server_config(federation.hub)
