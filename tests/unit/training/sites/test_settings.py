"""The file of a silo that trains with its own data."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base.errors import InvalidFile, InvalidName
from silohash.training.sites.settings import check_run_name, read_site_settings


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "north.toml"
    file.write_text('silo = "north"\n[data]\npath = "paintings"\n')
    settings = read_site_settings(file)
    assert (settings.silo, settings.state, settings.data.path) == ("north", tmp_path / "state", tmp_path / "paintings")
    assert settings.key == tmp_path / "silos.key"
    assert (settings.device, settings.threads, settings.downloads) == ("auto", None, False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('silo = "north"\n', "data"),
        ('silo = "north"\nkey = 1\n[data]\nname = "glyphs"\n', "key"),
        ('silo = "north"\nthreads = 0\n[data]\nname = "glyphs"\n', "threads"),
        ("silo = 3 = 4", "TOML"),
    ],
)
def test_wrong_files_are_refused_with_the_key(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "north.toml"
    file.write_text(text)
    with pytest.raises(InvalidFile, match=reason):
        read_site_settings(file)


@pytest.mark.parametrize("name", ["first", "run-2_b", "0", "a" * 64])
def test_names_of_runs(name: str) -> None:
    check_run_name(name)


@pytest.mark.parametrize("name", ["", "..", "a/b", "a" * 65, "-x", "a\n", "ä"])
def test_names_that_are_not_folders_are_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        check_run_name(name)
