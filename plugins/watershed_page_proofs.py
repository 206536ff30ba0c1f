"""What the page says of proofs, as JSON: the verdicts that runs of a topology's DAGs left in the state folder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cutover.evidence.proofs import COUNTS
from plugins.watershed_process import Detached
from plugins.watershed_reports import REPORT, proves
from plugins.watershed_spark import attempts
from plugins.watershed_state import file_name, same_name, state_folder

Row = dict[str, Any]
PROOFS = 50
FINDINGS = 5
LONG = 400


def proofs(dags: Iterable[str], run: str = "") -> list[Row]:
    """The newest attempts of every proof of these DAGs, the newest first. run: only of this DAG run.

    A run is told by the name of its folder, which the route of reports takes as well as its id.
    """
    found = []
    for dag in dags:
        folder = state_folder() / "runs" / same_name(dag)
        for task in folder.glob(f"{file_name(run) if run else '*'}/*"):
            tried = [each for each in attempts(task) if proves(each)]
            if tried:
                found.append((tried[-1].folder.stat().st_mtime_ns, dag, task, tried[-1]))
    found.sort(key=lambda each: each[0], reverse=True)
    return [_row(dag, task, program, at // 1_000_000) for at, dag, task, program in found[:PROOFS]]


def _row(dag: str, task: Path, program: Detached, at_ms: int) -> Row:
    told = _summary(program.folder)
    verdict = str(told["verdict"]) if told else "running" if program.alive() else "none"
    return {
        "dag": dag,
        "run": task.parent.name,
        "task": task.name,
        "attempt": program.folder.name,
        "verdict": verdict,
        "at_ms": at_ms,
        "unproven": told.get("unproven"),
        "counts": {name: told[name] for name in COUNTS if told.get(name)},
        "records": told.get("records"),
        "level": told.get("level"),
        "mode": told.get("mode"),
        "ended_at": told.get("ended_at"),
        "proof_root": told.get("proof_root"),
        "findings": [str(each)[:LONG] for each in (told.get("findings") or ())[:FINDINGS]],
        "report": (program.folder / REPORT).is_file() or verdict == "running",
    }


def _summary(folder: Path) -> Row:
    try:
        told = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        return told if isinstance(told, dict) and "verdict" in told else {}
    except (OSError, ValueError):
        return {}
