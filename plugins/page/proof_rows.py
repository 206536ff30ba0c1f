"""What the page says of proofs, as JSON: the verdicts that runs of a topology's DAGs left in the state folder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from watershed.clusters.private_files import read_private_file
from watershed.cutover.evidence.proof_summary import PROOF_COUNTS, PROVEN_VERDICTS
from watershed.plugins.detached_process import DetachedProcess
from watershed.plugins.page.proof_reports import (
    PROOF_REPORT_FILE,
    can_be_folder,
    is_proof_attempt,
    list_unlinked_attempts,
)
from watershed.plugins.state_folder import locate_state_folder, make_file_name, require_folder_name
from watershed.plugins.steps.standby_proof import is_proving

_Row = dict[str, Any]
_PROOFS = 50
_VERDICTS = ("proven", "repeated", "different", "incomplete", "error")
_FINDINGS = 5
_LONG = 400
_LARGEST = 16 * 1024 * 1024  # bytes of a summary
_COUNTABLE = 2**53 - 1


def list_newest_proofs(dags: Iterable[str], run: str = "") -> list[_Row]:
    """The newest attempts of every proof of these DAGs, the newest first. run: only of this DAG run.

    A run is told by the name of its folder, which the route of reports takes as well as its id.
    """
    found = []
    if not can_be_folder(run):
        return []  # no folder is called so
    for dag in dags:
        folder = locate_state_folder() / "runs" / require_folder_name(dag)
        for task in folder.glob(f"{make_file_name(run) if run else '*'}/*"):
            tried = [each for each in list_unlinked_attempts(task) if is_proof_attempt(each)]
            if tried:
                found.append((tried[-1].folder.stat().st_mtime_ns, dag, task, tried[-1]))
    found.sort(key=lambda each: each[0], reverse=True)
    return [_row(dag, task, program, at // 1_000_000) for at, dag, task, program in found[:_PROOFS]]


def _row(dag: str, task: Path, program: DetachedProcess, at_ms: int) -> _Row:
    """What a summary says, where it is of the kind that a proof writes; anything else is left out, as if it were not
    there, and makes no verdict."""
    told = _summary(program.folder)
    verdict = str(told["verdict"]) if told else "running" if is_proving(program) else "none"
    return {
        "dag": dag,
        "run": task.parent.name,
        "task": task.name,
        "attempt": program.folder.name,
        "verdict": verdict,
        "at_ms": at_ms,
        "unproven": _number(told.get("unproven")),
        "counts": {name: count for name in PROOF_COUNTS if (count := _number(told.get(name)))},
        "records": _number(told.get("records")),
        "level": _text(told.get("level")),
        "mode": _text(told.get("mode")),
        "ended_at": _text(told.get("ended_at")),
        "proof_root": _text(told.get("proof_root")),
        "findings": [each[:_LONG] for each in _list(told.get("findings"))[:_FINDINGS] if isinstance(each, str)],
        "report": (program.folder / PROOF_REPORT_FILE).is_file() or verdict == "running",
    }


def _summary(folder: Path) -> _Row:
    """Empty unless its verdict is one that a proof comes to, and fits its number."""
    try:
        told = json.loads(read_private_file(folder / "summary.json", _LARGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(told, dict) or str(told.get("verdict")) not in _VERDICTS:
        return {}
    return {} if told["verdict"] in PROVEN_VERDICTS and _number(told.get("unproven")) != 0 else told


def _number(value: object) -> int | None:
    """A count that a browser can hold."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _COUNTABLE
    return value if is_count else None  # type: ignore[return-value]


def _text(value: object) -> str | None:
    return value[:_LONG] if isinstance(value, str) else None


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
