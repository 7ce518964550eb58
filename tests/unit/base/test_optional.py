"""Optional packages: whether they are there, and the sentence that says how to install them."""

from __future__ import annotations

import logging
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

from silohash.base.errors import DependencyMissing
from silohash.base.optional import EXTRAS, installed, missing_package, only_errors, require, sentence


def test_every_extra_exists(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(EXTRAS.values()) <= set(project["optional-dependencies"])


def test_a_package_that_is_there_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "optuna", raising=False)
    require("optuna", "Tuning")
    assert "optuna" not in sys.modules
    assert installed("json")


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert not installed("torch")
    with pytest.raises(DependencyMissing, match=r"silohash\[train\]"):
        require("torch", "Training")
    assert sentence("h5py", "Reading x.mat").endswith("silohash[matlab]'")


def test_only_a_missing_optional_package_explains_an_error() -> None:
    assert missing_package(ModuleNotFoundError("no", name="torch.nn")) == "torch"
    assert missing_package(ModuleNotFoundError("no", name="numpy")) is None
    assert missing_package(ModuleNotFoundError("no")) is None
    assert missing_package(ImportError("cannot import name x", name="torch")) is None


def test_a_logger_reports_only_errors_within_the_block_and_what_it_did_before_after_it() -> None:
    logger = logging.getLogger("silohash.test of a package")
    logger.setLevel(logging.INFO)
    with suppress(ValueError), only_errors(logger.name):
        assert not logger.isEnabledFor(logging.WARNING)
        assert logger.isEnabledFor(logging.ERROR)
        raise ValueError
    assert logger.level == logging.INFO
