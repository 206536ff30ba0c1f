"""The table at the end: from the applications' own records and from the Spark proofs, never from our status."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from watershed.lab.account import RunAccount, build_account, find_applications
from watershed.lab.application_records import (
    ENTRY_DTYPES,
    ENTRY_FIELDS,
    ENTRY_FORMAT,
    read_application_description,
    read_words,
)
from watershed.lab.demo.demo_setup import DEMO_SOURCE, DEMO_TARGET, DEMO_WAVE, DemoFolders


@dataclass(frozen=True, slots=True)
class _DemoResult:
    """What the demonstration showed. `unproven` None: no proof at all."""

    states: dict[str, str]  # DAG id -> final state of its run
    account: RunAccount
    written: dict[str, int]  # cluster -> records acknowledged there
    proofs: dict[str, dict[str, Any]]  # step -> summary.json
    seconds: float
    evidence: Path

    @property
    def unproven(self) -> int | None:
        """Of the last proof, which covers everything up to the barrier; worse of the two when both exist."""
        found = [int(proof["unproven"]) for proof in self.proofs.values()]
        return max(found) if "tail_proof" in self.proofs else None

    @property
    def copied(self) -> int:
        """Records whose content is proven equal on both sides."""
        tail = self.proofs.get("tail_proof") or self.proofs.get("history_proof") or {}
        return int(tail.get("proven", 0)) + int(tail.get("proven_earlier", 0))

    @property
    def good(self) -> bool:
        runs = all(state == "success" for state in self.states.values())
        a = self.account
        clean = a.lost == 0 and a.repeated == 0 and a.out_of_order_per_key == 0
        return runs and clean and self.unproven == 0 and self.copied >= self.written[DEMO_SOURCE]


def build_demo_result(stage: DemoFolders, states: dict[str, str], run: Path, seconds: float) -> _DemoResult:
    """`run` is the folder of the migration's run in Airflow's state."""
    steps = {name: run / f"{DEMO_WAVE}.{name}" for name in ("history_proof", "tail_proof")}
    proofs = {name: found for name, step in steps.items() if (found := _summary(step))}
    applications = find_applications(stage.applications)
    counted = build_account(applications)
    producers = [path for path in applications if read_application_description(path)["role"] == "producer"]
    written = {alias: sum(_acknowledged(path, alias) for path in producers) for alias in (DEMO_SOURCE, DEMO_TARGET)}
    written[DEMO_SOURCE] += counted.preloaded
    return _DemoResult(states, counted, written, proofs, seconds, run / "evidence" / DEMO_WAVE)


def render_demo_result(result: _DemoResult) -> str:
    """Plain text, one row a number, and where each number comes from."""
    a = result.account
    unproven = "no proof" if result.unproven is None else f"{result.unproven:,}"
    rows = [
        (
            f"records written to {DEMO_SOURCE}",
            f"{result.written[DEMO_SOURCE]:,}",
            f"acknowledged; {a.preloaded:,} of them before",
        ),
        ("records copied and proven equal", f"{result.copied:,}", "Spark, record fingerprints"),
        (f"records written to {DEMO_TARGET} since", f"{result.written[DEMO_TARGET]:,}", "acknowledged"),
        ("unproven", unproven, "Spark: missing, altered, reordered, unverifiable, extra"),
        ("lost", f"{a.lost:,}", "acknowledged and never processed by billing"),
        ("repeated", f"{a.repeated:,}", "processed twice by billing"),
        ("out of order", f"{a.out_of_order_per_key:,}", "within a key, as billing saw them"),
    ]
    rows += [
        (f"seconds without writes, {name}", f"{gap:.1f}", "last acknowledgement at the source to first at the target")
        for name, gap in a.seconds_without_writes.items()
    ]
    rows.append(("duration", f"{result.seconds:.0f} s", "everything, from nothing"))
    rows += [(dag, state, "Airflow") for dag, state in result.states.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    lines = [f"  {what:<{widths[0]}}  {value:>{widths[1]}}  {source}" for what, value, source in rows]
    return "\n".join([*lines, "", f"  evidence: {result.evidence}"])


def _acknowledged(application: Path, alias: str) -> int:
    """How many records the application wrote down as acknowledged by this cluster."""
    path, clusters = application / "records.bin", read_words(application)["cluster"]
    if alias not in clusters or not path.exists():
        return 0
    layout = np.dtype({"names": ENTRY_FIELDS, "formats": ENTRY_DTYPES, "itemsize": ENTRY_FORMAT.size})
    entries = np.fromfile(path, dtype=layout, count=path.stat().st_size // ENTRY_FORMAT.size)
    return int(np.count_nonzero(entries["cluster"] == clusters.index(alias)))


def _summary(step: Path) -> dict[str, Any] | None:
    """The summary of a proof's newest attempt."""
    found = sorted(step.glob("*/summary.json"), key=lambda path: int(path.parent.name))
    return dict(json.loads(found[-1].read_text())) if found else None
