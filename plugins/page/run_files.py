"""What a DAG run left in the state folder for the page: evidence of its waves, and what a step that waits sees now."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from watershed.clusters.private_files import read_file_end, read_private_file
from watershed.plugins.page.proof_reports import (
    EVIDENCE_FILES,
    can_be_folder,
    is_inside_state,
    is_proof_attempt,
    list_unlinked_attempts,
)
from watershed.plugins.state_folder import locate_run_folder, make_file_name
from watershed.plugins.steps.live_messages import read_live_message
from watershed.plugins.steps.migration_dag_tasks import ALL_WAVES
from watershed.plugins.steps.standby_proof import is_proving, locate_proof_log

_Row = dict[str, Any]
_WAVES = 20
_LARGEST = 16 * 1024 * 1024  # bytes of evidence that is compared
_LOG_END = 8 * 1024  # bytes
_TOGETHER = ("failover", "failback")  # all their waves are one run, and one folder
# Lines of a proof about its progress (`spark.progress`, `spark.proof_run`), or why it has none (`spark.cluster_cores`).
_PROGRESS = re.compile(
    r"(read [\d,]+ of [\d,]+ chunks|window fixed: |compared [\d,]+ chunks|tried [\d,]+ positions"
    r"|waiting for Spark: |Spark has begun: ).*"
)


def list_run_evidence(dag: str, run: str, runs: Sequence[_Row] = ()) -> list[_Row]:
    """Of each wave of a DAG run that has evidence: the wave (as the folder is called), and its files.

    runs: rows of the journal (`migration_rows`). `state` is that of the wave's run there, None where it is not among
    them; `sealed`: the journal has the outcome of the step that seals, with the root that the file names.
    """
    if not can_be_folder(run):
        return []
    folder = locate_run_folder(dag, run) / "evidence"
    found = []
    for wave in sorted(folder.glob("*"))[:_WAVES]:
        files = [name for name in EVIDENCE_FILES if (wave / name).is_file() and is_inside_state(wave / name)]
        if files:
            row = next((row for row in runs if _is_run_of(row, dag, run, wave.name)), None)
            root = row["sealed_root"] if row is not None else None
            sealed = root is not None and "evidence.json" in files and _find_root(wave / "evidence.json") == root
            state = row["state"] if row is not None else None
            found.append({"wave": wave.name, "files": files, "dag": dag, "run": run, "state": state, "sealed": sealed})
    return found


def _is_run_of(row: _Row, dag: str, run: str, folder: str) -> bool:
    wave = ALL_WAVES if row["kind"] in _TOGETHER else make_file_name(row["wave"])
    return (row["dag"], row["dag_run"], wave) == (dag, run, folder)


def _find_root(path: Path) -> str | None:
    """The journal's root that evidence names; None where it names none."""
    seen = path.stat()
    return _read_root(path, seen.st_mtime_ns, seen.st_size)


@lru_cache(maxsize=256)
def _read_root(path: Path, _changed_ns: int, _size: int) -> str | None:
    """A file that has not changed is not read again every two seconds."""
    try:
        return str(json.loads(read_private_file(path, _LARGEST))["journal"]["root"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def read_step_progress(dag: str, run: str, kind: str, wave: str, step: str) -> _Row | None:
    """What a step under way sees now: `text`, and `at_ms` where that is known; of a proof how far its reading is.

    kind, wave: of the run in the journal. Its proofs lie in a folder of their own for each step, also where one task
    does several steps; what it said last is one file of the wave (`StepOrder.folder`, `live_messages`).
    """
    place = ALL_WAVES if kind in _TOGETHER else wave
    if not can_be_folder(run) or not can_be_folder(f"{place}.{step}") or not can_be_folder(f"{place}.now.json"):
        return None
    proof = read_proof_progress(locate_run_folder(dag, run) / make_file_name(f"{place}.{step}"))
    said = read_live_message(dag, run, place)
    return proof or (said if said is not None and said["step"] == step else None)


def read_proof_progress(task: Path) -> _Row | None:
    """The newest line about the progress of a proof that runs in a task's folder; None where none does."""
    tried = [each for each in list_unlinked_attempts(task) if is_proof_attempt(each)]
    if not tried or not is_proving(tried[-1]):
        return None
    log = locate_proof_log(tried[-1])
    try:
        end = read_file_end(log, _LOG_END).decode(errors="replace") if is_inside_state(log) else ""
    except OSError:
        return None
    told = [found.group() for found in _PROGRESS.finditer(end)]
    return {"text": told[-1] if told else "the proof runs; it has not begun to read", "at_ms": None}
