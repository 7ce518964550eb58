"""``list`` and ``doctor``: methods with their cards, broken plug-ins, and the state of the machine."""

from __future__ import annotations

import importlib.util
import json
import os
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from silohash import __version__
from silohash.base import registry
from silohash.base.registry import AddedMember, Registry
from silohash.cli import inspect
from silohash.data import ARCHIVES
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS
from tests.runs import silohash, write_archive, write_config


@pytest.mark.parametrize("kind", ["local", "federated", "data", "partition", "measure"])
def test_lists(kind: str) -> None:
    said = silohash("list", kind, "--json")
    assert said.code == 0
    keys = [entry["key"] for entry in said.document()[kind]]
    assert all(entry["summary"] for entry in said.document()[kind])
    known = {"local": LOCAL_METHODS.names(), "federated": FEDERATED_METHODS.names(), "data": ARCHIVES.names()}
    assert keys == known.get(kind, keys)
    plain = silohash("list", kind)
    assert plain.out.startswith(f"{kind}:\n")
    assert all(f"  {key}" in plain.out for key in keys)


@pytest.mark.parametrize(("kind", "family"), [("local", LOCAL_METHODS), ("federated", FEDERATED_METHODS)])
def test_every_method_shows_its_card(kind: str, family: Registry) -> None:
    assert silohash("list", kind).out.splitlines()[-1] == f"Card of a method: silohash list {kind} NAME"
    for name in family.names():
        card, plain = family.card(name), silohash("list", kind, name)
        assert plain.code == 0, plain.err
        words = " ".join(plain.out.split())
        for text in (card.title, card.authors, str(card.year), card.link, card.summary, *card.sends, *card.keeps):
            assert " ".join(text.split()) in words
        assert all(f"- {' '.join(text.split())}" in words for text in card.differs_from_paper)
        (about,) = silohash("list", kind, name, "--json").document()[kind]
        assert [entry["name"] for entry in about["parameters"]] == list(family.resolve(name).Params.model_fields)
        assert all(f"    {entry['name']} = " in plain.out for entry in about["parameters"])
        assert set(about["presets"]) == set(family.resolve(name).presets)


def test_card_of_a_method() -> None:
    said = silohash("list", "federated", "fedhap").out
    assert "  labels: needed\n" in said
    assert "  a silo keeps:\n    - nothing\n" in said
    assert "    min_count = 5\n        Minimum number of items a silo must have" in said
    assert '    paper: min_count = 1, max_labels = 1000, adversary = "printed"' in said
    assert 'did you mean "fedhap"' in silohash("list", "federated", "fedhapp").err
    assert "silohash data card glyphs" in silohash("list", "data", "glyphs").err
    assert silohash("list", "measure", "mAP@all").code == 2


def test_broken_plug_ins_are_listed_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_config(tmp_path / "run.toml", write_archive(tmp_path / "archive"))
    monkeypatch.syspath_prepend(tmp_path)
    about = 'title="x", authors="x", venue="x", year=2020, link="x", summary="x", supervised=True'
    card = f'CARD = MethodCard(key="plug_raises", {about})\n'
    other = "from silohash.base.types import MethodCard\n" + card + "class Other: ...\n"
    sources = {"plug_syntax": "def (:\n", "plug_raises": "raise OSError('no model')\n" + card, "plug_other": other}
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(source)
    reasons = {"plug_syntax": "SyntaxError", "plug_raises": "OSError (no model)", "plug_other": "another key"}
    reasons["plug_missing"] = "its module plug_missing does not exist"
    points = [EntryPoint(name, f"{name}:Other", "silohash.federated") for name in reasons]
    monkeypatch.setattr(
        registry,
        "added_members",
        lambda group: tuple(AddedMember(p.name, p.value, "acme 1.0") for p in points if p.group == group),
    )
    lines = silohash("list", "federated").out.splitlines()
    keys = [line.split()[0] for line in lines[1:-1]]
    assert keys == [*FEDERATED_METHODS.table, *reasons]
    for name, reason in reasons.items():
        (line,) = (line for line in lines if line.startswith(f"  {name} "))
        assert "broken: " in line
        assert reason in line
        for command in (
            ("list", "federated", name),
            ("train", config, "--out", tmp_path / "out", "--set", f"federated.name={name}"),
        ):
            refused = silohash(*command)
            assert (refused.code, refused.out) == (2, "")
            assert f'"{name}"' in refused.err
            assert reason in refused.err.replace("has no MethodCard with the key", "another key")
    assert silohash("list").code == 0


@pytest.mark.whole_run
def test_plug_ins_under_the_name_of_a_built_in_method_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = (AddedMember("dcmh", "acme.hashing:Other", "acme 1.0"),)
    monkeypatch.setattr(registry, "added_members", lambda group: added if group == "silohash.local" else ())
    for command in (("list",), ("list", "local"), ("list", "local", "dcmh")):
        shown = " ".join(silohash(*command).out.split())
        assert 'conflict: The package "acme 1.0" adds the local method "dcmh" (acme.hashing:Other)' in shown
        assert "which is not used because silohash has a local method of that name" in shown
    listed = silohash("list", "local", "--json").document()["local"]
    assert [entry["key"] for entry in listed if "conflict" in entry] == ["dcmh"]
    archive = write_archive(tmp_path / "archive")
    config = write_config(tmp_path / "run.toml", archive, federated={"rounds": 1, "local_epochs": 1})
    trained = silohash("train", config, "--out", tmp_path / "out")
    assert trained.code == 0
    assert 'warning: The package "acme 1.0" adds the local method "dcmh"' in trained.err


def test_unknown_kinds_and_names_are_refused() -> None:
    said = silohash("list", "locl")
    assert said.code == 2
    assert 'did you mean "local"' in said.err
    assert "Only local and federated methods have cards." in silohash("list", "partition", "iid").err


def test_method_that_cannot_be_imported_still_shows_its_card(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(self: Registry, name: str) -> None:
        raise inspect.UserError("torch is not installed.")

    monkeypatch.setattr(Registry, "resolve", unavailable)
    said = silohash("list", "federated", "fedavg")
    assert said.code == 0, said.err
    assert "parameters and presets cannot be shown: torch is not installed." in said.out
    about = silohash("list", "federated", "fedavg", "--json").document()["federated"][0]
    assert (about["parameters"], about["presets"]) == (None, None)


def test_doctor_says_what_a_missing_package_is_needed_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "torch":
            raise inspect.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(inspect, "version", version)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else found(name))
    lines = {line.split()[0]: line for line in silohash("doctor").out.splitlines()}
    assert (
        lines["torch"].split(maxsplit=1)[1].startswith("missing: training; indexing, searching and reports do without")
    )
    assert lines["device"].endswith("none (training needs torch)")
    assert lines["numba"].endswith("1.0")


def test_doctor_shows_the_folder_of_the_real_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILOHASH_DATA", str(tmp_path))
    assert silohash("doctor", "--json").document()["real data (SILOHASH_DATA)"] == str(tmp_path)


def test_doctor_tells_what_is_there() -> None:
    facts = silohash("doctor", "--json").document()
    assert facts["silohash"] == __version__
    assert facts["torch"]
    assert silohash("doctor").out.startswith("python ")
    assert facts["cores"] == len(os.sched_getaffinity(0))


def test_doctor_of_a_kit_exits_with_1_if_something_must_be_done(tmp_path: Path) -> None:
    pytest.importorskip("nvflare")
    from silohash.training.engines.flare.kits import write_kits
    from silohash.training.sites.kits import Training

    write_kits(tmp_path / "kits", ["north"], Training())
    said = silohash("doctor", "--kit", tmp_path / "kits" / "server")
    assert (said.code, len(said.out.splitlines())) == (0, 2)
    said = silohash("doctor", "--kit", tmp_path / "kits" / "north", "--json")
    assert said.code == 1
    assert {one["subject"]: one["good"] for one in json.loads(said.out)["findings"]}["data"] is False
