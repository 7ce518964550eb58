"""The list of indexed silos: what is entered, what is kept, and which files are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from silohash.base.errors import DamagedFile, OtherVersion, UserError
from silohash.index.listing import LISTING, is_indexed, note_indexed, read_listing


def test_silos_are_entered_one_by_one(tmp_path: Path) -> None:
    assert read_listing(tmp_path) is None
    note_indexed(tmp_path, "north", ["image", "text"], ["north", "south"])
    assert read_listing(tmp_path) == {"north": ("image", "text"), "south": None}
    note_indexed(tmp_path, "more", ["text"], ["north", "south"])
    note_indexed(tmp_path, "south", [], ["north", "south"])
    note_indexed(tmp_path, "north", ["image"], ["north", "south"])
    assert read_listing(tmp_path) == {"north": ("image",), "south": (), "more": ("text",)}
    assert [path.name for path in tmp_path.iterdir()] == [LISTING]


def test_a_silo_is_indexed_once_a_modality_has_a_store(tmp_path: Path) -> None:
    assert not is_indexed(tmp_path, "north")
    (tmp_path / "north").mkdir()
    assert not is_indexed(tmp_path, "north"), "an empty folder is not an index"
    (tmp_path / "north" / "text.sqlite").touch()
    assert is_indexed(tmp_path, "north")
    assert not is_indexed(tmp_path, "south")


@pytest.mark.parametrize(
    "content",
    [[], {}, 3, None, {"silos": []}, {"silos": {"a": 1}}, {"silos": {"a": ["sound"]}}, {"silos": {"a": [["image"]]}}],
)
def test_other_json_is_refused(tmp_path: Path, content: object) -> None:
    (tmp_path / LISTING).write_text(json.dumps(content))
    with pytest.raises(DamagedFile, match=r"silos\.json is damaged .* Remove it, and index the run again"):
        read_listing(tmp_path)
    with pytest.raises(DamagedFile, match=r"silos\.json.*damaged"):
        note_indexed(tmp_path, "north", ["image"], [])


@pytest.mark.parametrize("version", [0, 2])
def test_another_format_is_refused(tmp_path: Path, version: int) -> None:
    (tmp_path / LISTING).write_text(json.dumps({"format_version": version, "silos": {}}))
    with pytest.raises(OtherVersion, match=f"{version}.*1"):
        read_listing(tmp_path)


def test_text_that_is_not_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / LISTING).write_bytes(b"\xff{")
    with pytest.raises(DamagedFile, match=r"silos\.json"):
        read_listing(tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["image", "text"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["silos", "a", "b"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.builds(lambda silos: {"format_version": 1, "silos": silos}, JSON) | JSON)
def test_any_json_is_a_list_of_silos_or_refused(tmp_path: Path, content: object) -> None:
    (tmp_path / LISTING).write_text(json.dumps(content))
    try:
        found = read_listing(tmp_path)
    except UserError:
        return
    assert found is not None
    assert all(held is None or set(held) <= {"image", "text"} for held in found.values())
