"""What every benchmark writes: `bench/results/NAME.json`, and the same as a table on the terminal.

With BENCH_SMOKE=1 every benchmark runs with sizes that take seconds: it shows that the program works, its figures mean
nothing. No file is written then, and no goal is missed.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

RESULTS_FOLDER = Path(__file__).resolve().parent / "results"
_Size = TypeVar("_Size")


@dataclass(frozen=True, slots=True)
class BenchGoal:
    """A number that was promised; `better` says which side of `goal` holds."""

    name: str
    value: float
    goal: float
    better: Literal["higher", "lower"]

    @property
    def holds(self) -> bool:
        """Whether the value is on the right side of the goal."""
        return self.value >= self.goal if self.better == "higher" else self.value <= self.goal


def is_smoke_run() -> bool:
    """Whether BENCH_SMOKE asks for sizes that take seconds."""
    return os.environ.get("BENCH_SMOKE", "0") not in ("", "0")


def choose_size(full: _Size, smoke: _Size) -> _Size:
    """The second of the two in a smoke run."""
    return smoke if is_smoke_run() else full


def report_progress(text: str) -> None:
    """One line on standard error, with the time of day: a benchmark takes minutes."""
    click.echo(f"{time.strftime('%H:%M:%S')}  {text}", err=True)


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints rows that have the same columns."""
    columns = list(rows[0])
    widths = {column: max(len(column), *(len(str(row[column])) for row in rows)) for column in columns}
    click.echo("  ".join(f"{column:<{widths[column]}}" for column in columns))
    for row in rows:
        click.echo("  ".join(f"{row[column]!s:<{widths[column]}}" for column in columns))


def publish_results(
    name: str, rows: Sequence[dict[str, Any]], goals: Sequence[BenchGoal], more: Mapping[str, Any] | None = None
) -> int:
    """Write and print the results; `more` is written only. The exit code: 0 when every goal holds, 1 otherwise.

    A smoke run writes no file, and its exit code is 0: the goals are for the full sizes.
    """
    machine = {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
    document = {
        "machine": machine,
        "rows": list(rows),
        **(more or {}),
        "goals": [asdict(goal) | {"holds": goal.holds} for goal in goals],
    }
    text = json.dumps(document, indent=2) + "\n"
    print_table(rows)
    for goal in goals:
        sign = ">=" if goal.better == "higher" else "<="
        click.echo(f"{'holds ' if goal.holds else 'MISSED'}  {goal.name}: {goal.value:g} (goal {sign} {goal.goal:g})")
    if is_smoke_run():
        click.echo("smoke run: no figure counts, nothing is written")
        return 0
    RESULTS_FOLDER.mkdir(exist_ok=True)
    path = RESULTS_FOLDER / f"{name}.json"
    path.write_text(text)
    click.echo(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
    return 0 if all(goal.holds for goal in goals) else 1
