"""``audit``: measure what a run reveals. ``audit-log``: check the audit log of a silo."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from silohash.base.optional import require
from silohash.base.visible import visible
from silohash.cli.console import print_json, print_result, print_status, print_table, spinner
from silohash.cli.help import AsJson, argument

if TYPE_CHECKING:
    from rich.table import Table

    from silohash.training.leakage.leaks import Leak


def verify(
    file: Annotated[Path, argument("FILE", "Audit log of a silo, such as RUN/audit/SILO.jsonl.")],
    as_json: AsJson = False,
) -> None:
    """Check that no line of an audit log was changed or removed, over all files of the log.

    Lines that were removed at the end do not show. Keep the printed number and digest elsewhere, and compare them with
    those of a later check.
    """
    from silohash.service.audit import verify_log

    tail = verify_log(file)
    if as_json:
        print_json({"lines": tail.number, "digest": tail.digest})
    else:
        print_result(f"{file}: {tail.number:,} lines, all unchanged. Digest of the last line: {tail.digest or 'none'}")


def audit(
    run: Annotated[list[Path], argument("RUN", "Folders of trained runs, such as with and without noise.")],
    as_json: AsJson = False,
) -> None:
    """Measure what a curious server learns from what it received: members, labels and vectors of items.

    The attacks use the updates of the last round, which a run keeps with exchange.keep_updates = true, the counts and class
    statistics that silos send, and the codes of items. They are simple, so a small figure does not prove that nothing can
    be learned. Differential privacy limits what any attack can learn (docs/how-to/privacy.md).
    """
    from silohash.run.folder import Run
    from silohash.training.leakage.leaks import Attacker, protection

    require("torch", "An audit")
    found: list[tuple[str, str, list[Leak]]] = []
    for each in [Run.open(folder) for folder in run]:
        attacker = Attacker(each)
        if remark := attacker.missing():
            print_status(remark)
        with spinner(f"Attacking {visible(each.name)}"):
            found.append((each.name, protection(each), list(attacker.leaks())))
    if as_json:
        print_json({"runs": [{"run": n, "protection": p, "leaks": list(map(asdict, leaks))} for n, p, leaks in found]})
        return
    print_table(_leak_table(found))
    print_result(
        "AUC: the probability that the attacker tells the right one of two; 0.5 is guessing. explained: the share of the "
        "vectors' variance that the attacker reconstructs; 0 is nothing. Intervals are 95 %."
    )


def _leak_table(found: list[tuple[str, str, list[Leak]]]) -> Table:
    """Return one row per attack and run."""
    from rich.table import Table

    table = Table()
    for name in ("guessed", "seen", "run", "protection"):
        table.add_column(name)
    for name in ("figure", "value", "95 %", "nothing seen"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = [(leak, visible(run), protected) for run, protected, leaks in found for leak in leaks]
    attacks = list(dict.fromkeys((leak.attack, leak.seen) for leak, _, _ in rows))
    for leak, run, protected in sorted(rows, key=lambda row: attacks.index((row[0].attack, row[0].seen))):
        table.add_row(
            leak.attack, leak.seen, run, protected, leak.figure, f"{leak.value:.3f}",
            f"{leak.low:.3f}–{leak.high:.3f}", f"{leak.without:.1f}",
        )  # fmt: skip
    return table
