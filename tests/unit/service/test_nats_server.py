from __future__ import annotations

import json
import subprocess

import pytest

from silohash.base.certificates import subject
from silohash.base.errors import RepeatedValue, SettingNeeded
from silohash.service.nats_server import Subjects, server_config, token
from tests.nats import SERVER, Federation, needs_nats


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
    silo = 'it\'s "quoted"'
    federation = Federation(tmp_path, "north", silo)
    done = subprocess.run([SERVER, "-t", "-c", tmp_path / "nats.conf"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    text = server_config(federation.hub)
    for secret in tmp_path.glob("*.key"):
        assert secret.read_text().strip() not in text
    for name in ("hub", "north", silo):
        assert json.dumps(subject(name)) in text
    assert "verify_and_map: true" in text
    assert "max_payload: 8388608" in text


def test_the_config_needs_a_table_and_different_subjects(tmp_path):
    federation = Federation(tmp_path, "north")
    with pytest.raises(SettingNeeded):
        server_config(federation.hub.model_copy(update={"nats": None}))
    same = federation.hub.model_copy(update={"silos": {"north": subject("hub")}})
    with pytest.raises(RepeatedValue):
        server_config(same)
