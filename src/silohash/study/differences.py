"""In what the runs of a study differ from what a paper states, found by comparing their complete configs with it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field, field_validator

from silohash.base.errors import UnknownName
from silohash.base.forms import model_in
from silohash.base.registry import suggestion
from silohash.base.visible import markdown
from silohash.report.tables import markdown_table
from silohash.run.config.load import ResolvedConfig, resolve
from silohash.run.config.sections import RunConfig, Section
from silohash.run.config.toml import toml_value
from silohash.study.config import Choices, StudyConfig
from silohash.study.plan import planned_runs

BEYOND_CONFIG = "paper."
"""Beginning of the keys of what the config of a run cannot express."""

NOT_SET = "none"
"""How a setting without a value is stated and shown."""

ROUNDED = 1e-3
"""Numbers that differ by less than this share are equal, because papers print rounded ones."""


class Stated(Section):
    """What a paper states about one setting, and where."""

    value: Any
    source: str = Field(min_length=1)
    """Page, section or equation."""
    where: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Axis -> the choices that it holds for, or dotted key -> the values of the run's config; all runs by default."""

    @field_validator("where", mode="before")
    @classmethod
    def _as_lists(cls, value: Any) -> Any:  # noqa: ANN401  pydantic's
        return {k: (v,) if isinstance(v, str) else v for k, v in value.items()} if isinstance(value, dict) else value

    def holds_for(self, choices: Choices, resolved: ResolvedConfig) -> bool:
        """Return whether the statement is about a run."""
        return all(
            (str(resolved.value_of(name)) if "." in name else choices.get(name)) in values
            for name, values in self.where.items()
        )


Statements = Mapping[str, Sequence[Stated]]
"""Dotted key -> what a paper states about it."""


@dataclass(frozen=True)
class SettingDifference:
    """A setting in which runs differ from the paper.

    ``ours`` is empty for what the config cannot express, and ``runs``, the choices of the runs, for all of them.
    """

    key: str
    paper: str
    ours: str
    source: str
    runs: str = ""

    def __str__(self) -> str:
        """Return the difference as a line of text."""
        ours = f"here {self.ours}" if self.ours else "cannot be set here"
        return f"{self.key}: {self.paper} in the paper ({self.source}), {ours}{f' for {self.runs}' * bool(self.runs)}"


def differences(stated: Statements, config: StudyConfig) -> list[SettingDifference]:
    """Return the settings in which a study's runs differ from what a paper states, in the paper's order.

    A parameter of a method or a partition is compared in the runs that have it.

    Raises:
        UserError: If a stated key is not one of the config, or a run's config is wrong.
    """
    planned = planned_runs(config.model_copy(update={"seeds": config.seeds[:1]}), refuse_equal=False)
    runs = [(run.choices, resolve(run.config)) for run in planned]
    found: list[SettingDifference] = []
    for key, one in ((key, one) for key, statements in stated.items() for one in statements):
        if key.startswith(BEYOND_CONFIG):
            found.append(SettingDifference(key, shown(one.value), "", one.source))
            continue
        optional, differing = _belongs_to_a_method(key), dict[str, list[Choices]]()
        for choices, run in runs:
            ours = run.value_of(key)
            compared = one.holds_for(choices, run) and not (optional and ours is None)
            if compared and not _equal(one.value, ours):
                differing.setdefault(shown(ours), []).append(choices)
        for ours, some in differing.items():
            described = _described(some, [choices for choices, _ in runs])
            found.append(SettingDifference(key, shown(one.value), ours, one.source, described))
    return found


def shown(value: object) -> str:
    """Return a value as it is shown: as in TOML, but strings without quotation marks."""
    if value is None:
        return NOT_SET
    return value if isinstance(value, str) else toml_value(value)


def differences_table(found: Sequence[SettingDifference]) -> str:
    """Return differences as Markdown."""
    if not found:
        return "No setting is known to differ from the paper."
    lines = [
        [f"`{d.key}`", *map(markdown, (d.paper, d.source, d.ours or "cannot be set", d.runs or "all"))] for d in found
    ]
    table = markdown_table(["setting", "paper", "source", "here", "runs"], lines, numbers_from=5)
    return f"Settings that differ from the paper:\n\n{table}"


def _belongs_to_a_method(key: str) -> bool:
    """Return whether only some methods or partitions have a setting.

    Raises:
        UserError: If no config has the setting.
    """
    model: type[BaseModel] | None = RunConfig
    for part in key.split("."):
        if model is None:  # within a table whose keys depend on its kind
            break
        if part not in model.model_fields:
            if model.model_config.get("extra") == "allow":
                return True
            raise UnknownName(
                f'There is no setting "{key}"{suggestion(part, model.model_fields)}. What no setting expresses has a key '
                f'that begins with "{BEYOND_CONFIG}".'
            )
        model = model_in(model.model_fields[part].annotation)
    return False


def _equal(paper: object, ours: object) -> bool:
    """Return whether two values are equal, apart from the rounding of printed numbers."""
    if ours is None:
        return paper == NOT_SET
    numbers = [value for value in (paper, ours) if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == 2:
        return math.isclose(*numbers, rel_tol=ROUNDED)
    return type(paper) is type(ours) and paper == ours


def _described(some: Sequence[Choices], everything: Sequence[Choices]) -> str:
    """Return in words which runs some are of all; empty for all of them."""
    parts, combined = [], 1
    for axis in everything[0]:
        names, known = (list(dict.fromkeys(choices[axis] for choices in runs)) for runs in (some, everything))
        combined *= len(names)
        if len(names) < len(known):
            parts.append(f"{axis} {', '.join(names)}")
    if len(some) < combined and len(some) < len(everything):
        parts.append(f"{len(some)} of {len(everything)} runs")
    return "; ".join(parts)
