"""Links in a folder: which lead out of it, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base.errors import NotPermitted
from silohash.data.links import Boundary, check_link


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files and links, and files outside it."""
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    for path in (outside / "a.txt", outside / "deep" / "b.txt", folder / "in.txt", folder / "sub" / "in.txt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for name, target in {
        "out.txt": outside / "a.txt",
        "relative.txt": Path("../outside/a.txt"),
        "linked": outside / "deep",
        "sub/back": Path(".."),
        "within.txt": Path("sub/in.txt"),
        "chain.txt": Path("out.txt"),
        "round.txt": Path("../folder/in.txt"),
        "base": Path(),
    }.items():
        (folder / name).symlink_to(target)
    (tmp_path / "folder-2").mkdir()
    (tmp_path / "folder-2" / "c.txt").touch()
    (folder / "beside.txt").symlink_to(tmp_path / "folder-2" / "c.txt")
    return folder


INSIDE = ("in.txt", "sub/in.txt", "within.txt", "round.txt", "sub/back/in.txt", "base/in.txt", "base", "none.txt", "")
OUTSIDE = ("out.txt", "relative.txt", "chain.txt", "linked", "linked/b.txt", "sub/back/out.txt", "beside.txt")


@pytest.mark.parametrize("name", INSIDE)
def test_files_inside(folder: Path, name: str) -> None:
    assert Boundary(folder).contains(name)
    check_link(folder, name, follow_links=False)


@pytest.mark.parametrize("name", OUTSIDE)
def test_files_outside(folder: Path, name: str) -> None:
    assert not Boundary(folder).contains(name)
    with pytest.raises(NotPermitted, match="follow_links"):
        check_link(folder, name, follow_links=False)
    check_link(folder, name, follow_links=True)


def test_a_folder_may_be_a_link_itself(folder: Path, tmp_path: Path) -> None:
    linked = tmp_path / "elsewhere"
    linked.symlink_to(folder)
    boundary = Boundary(linked)
    assert [boundary.contains(name) for name in ("in.txt", "sub/in.txt", "out.txt", "in.txt")] == [
        True, True, False, True,
    ]  # fmt: skip


def test_a_stated_path_elsewhere_is_not_a_link(folder: Path) -> None:
    check_link(folder, "../outside/a.txt", follow_links=False)
    check_link(folder, "sub/../../outside/a.txt", follow_links=False)
    check_link(folder, str(folder.parent / "outside" / "a.txt"), follow_links=False)
