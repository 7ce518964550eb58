"""Files that a table names as another system writes them: which are found, and which are only suggested."""

from __future__ import annotations

import os
import unicodedata

import pytest

from silohash.data.formats import file_names
from silohash.data.formats.file_names import FoundName, find_names


def made(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def one(folder, name):
    return find_names(folder, [name])[name]


NFC, NFD = (unicodedata.normalize(form, "Übung-café.png") for form in ("NFC", "NFD"))


@pytest.mark.parametrize(
    ("on_disk", "in_table"),
    [
        ("a/1.png", "a/1.png"),
        ("a/1.png", "./a/1.png"),
        ("a/1.png", "a//1.png"),
        ("a/1.png", "a/./1.png"),
        ("a/1.png", "b/../a/1.png"),
        ("a/1.png", "a\\1.png"),
        ("a/1.png", ".\\a\\1.png"),
        ("a\\1.png", "a/1.png"),
        ("a\\1.png", "a\\1.png"),
        (NFD, NFC),
        (NFC, NFD),
        (f"sub/{NFD}", f"sub\\{NFC}"),
        ("a.png", "\ufeffa.png"),
        ("a\u200b.png", "a.png"),
        ("a b.png", "a\u00a0b.png"),
        ("folder /a.png", "folder/a.png"),
        (" a.png", "a.png"),
    ],
)
def test_a_name_in_another_form_is_the_file(tmp_path, on_disk, in_table):
    made(tmp_path, on_disk, "other.png")
    assert one(tmp_path, in_table) == FoundName(on_disk)


@pytest.mark.parametrize(
    ("on_disk", "in_table"),
    [
        ("IMG_1.JPG", "IMG_1.jpg"),
        ("Sub/a.png", "sub/a.png"),
        ("a b.png", "a%20b.png"),
        ("a&b.png", "a&amp;b.png"),
        ("a b.png", "a+b.png"),
        ("a.png", "a (1).png"),
        ("a(1).png", "a.png"),
        ("a_b.png", "a:b.png"),
        ("Übung.png", "#U00dcbung.png"),
        ("\U0001f99c.png", r"\U0001f99c.png"),
        ("Übung.png", "├£bung.png"),
        ("Übung.png", "Ãœbung.png"),
        ("├£bung.png", "Übung.png"),
        ("sub/a.png", "C:\\Users\\me\\pictures\\a.png"),
        ("sub/a.png", "/home/me/a.png"),
        ("a.png", "../a.png"),
        ("a.png", "https://example.org/x/a.png"),
        ("a.jpeg", "a.jpg"),
        ("a.jpg", "a"),
        ("001.jpg", "1.jpg"),
        ("2.0", "2"),
    ],
)
def test_a_name_that_differs_in_more_is_suggested(tmp_path, on_disk, in_table):
    made(tmp_path, on_disk, "other.png")
    assert one(tmp_path, in_table) == FoundName(in_table, f' (did you mean "{on_disk}"?)')


def test_a_name_of_undecodable_bytes_is_suggested(tmp_path):
    path = os.fsencode(tmp_path) + b"/\x9abung.png"  # code page 437, as in archives from Windows
    with open(path, "wb"):  # noqa: PTH123  pathlib does not take bytes
        pass
    assert one(tmp_path, "Übung.png").hint == ' (did you mean "⟨U+DC9A⟩bung.png"?)'


def test_several_files_are_not_chosen_from(tmp_path):
    made(tmp_path, "a\u200b.png", "a\u2060.png")
    assert one(tmp_path, "a.png") == FoundName("a.png", ' (did you mean "a⟨U+200B⟩.png" or "a⟨U+2060⟩.png"?)')
    made(tmp_path, *(f"{number}/x.png" for number in range(5)))
    assert one(tmp_path, "x.png").hint == ' (did you mean "0/x.png" or "1/x.png" or "2/x.png" or 2 more?)'


def test_an_existing_file_is_never_replaced(tmp_path):
    made(tmp_path, NFC, NFD, "a.png", "A.png", "market\\stall.png", "market/stall.png")
    for name in (NFC, NFD, "a.png", "A.png", "market\\stall.png", "market/stall.png"):
        assert one(tmp_path, name) == FoundName(name)


def test_a_step_out_of_a_linked_folder_leads_elsewhere(tmp_path):
    made(tmp_path, "deep/inner/x.png", "deep/a.png", "a.png")
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "inner")
    assert one(tmp_path, "link/../a.png") == FoundName("link/../a.png")
    assert one(tmp_path, "deep/../a.png") == FoundName("a.png")


def test_names_of_nothing(tmp_path):
    made(tmp_path, "a.png")
    assert find_names(tmp_path, ["", "none.png", "a.png", "a.png"]) == {
        "": FoundName(""),
        "none.png": FoundName("none.png"),
        "a.png": FoundName("a.png"),
    }
    assert one(tmp_path, "..") == FoundName("..")


def test_names_are_suggested_for_the_first_missing_files_in_folders_that_are_not_too_large(tmp_path, monkeypatch):
    made(tmp_path, "A.png", "B.png")
    monkeypatch.setattr(file_names, "MOST_ASKED", 1)
    hints = [found.hint for found in find_names(tmp_path, ["a.png", "b.png"]).values()]
    assert hints == [' (did you mean "A.png"?)', ""]
    monkeypatch.setattr(file_names, "MOST_COMPARED", 1)
    assert one(tmp_path, "a.png").hint == ""
    assert one(tmp_path, "A\u200b.png") == FoundName("A.png")
