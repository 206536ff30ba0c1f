"""What a DAG run left in the state folder for the page: evidence of its waves, and what a step that waits sees now."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from clusters.private_files import read_file_end
from plugins.watershed.page.proof_reports import (
    EVIDENCE_FILES,
    is_inside_state,
    is_proof_attempt,
    list_unlinked_attempts,
)
from plugins.watershed.page.proof_rows import LONGEST_FOLDER_NAME
from plugins.watershed.state_folder import locate_run_folder, make_file_name
from plugins.watershed.steps.live_messages import read_live_message

_Row = dict[str, Any]
_WAVES = 20
_LOG_END = 8 * 1024  # bytes
# Lines of a proof about its progress (`spark.progress`, `spark.proof_run`).
_PROGRESS = re.compile(r"(read [\d,]+ of [\d,]+ chunks|window fixed: |compared [\d,]+ chunks|tried [\d,]+ positions).*")


def list_run_evidence(dag: str, run: str) -> list[_Row]:
    """Of each wave of a DAG run that has evidence: the wave (as the folder is called), and its files."""
    if not _can_be_folder(run):
        return []
    folder = locate_run_folder(dag, run) / "evidence"
    found = []
    for wave in sorted(folder.glob("*"))[:_WAVES]:
        files = [name for name in EVIDENCE_FILES if (wave / name).is_file() and is_inside_state(wave / name)]
        if files:
            found.append({"wave": wave.name, "files": files, "dag": dag, "run": run})
    return found


def read_step_progress(dag: str, run: str, wave: str, step: str) -> _Row | None:
    """What a step under way sees now: `text`, and `at_ms` where that is known; of a proof how far its reading is."""
    if not _can_be_folder(run) or not _can_be_folder(f"{wave}.{step}"):
        return None
    folder = locate_run_folder(dag, run) / make_file_name(f"{wave}.{step}")
    return read_proof_progress(folder) or read_live_message(folder)


def _can_be_folder(name: str) -> bool:
    return len(make_file_name(name).encode()) <= LONGEST_FOLDER_NAME


def read_proof_progress(task: Path) -> _Row | None:
    """The newest line about the progress of a proof that runs in a task's folder; None where none does."""
    tried = [each for each in list_unlinked_attempts(task) if is_proof_attempt(each)]
    if not tried or not tried[-1].alive():
        return None
    try:
        end = read_file_end(tried[-1].log, _LOG_END).decode(errors="replace")
    except OSError:
        return None
    told = [found.group() for found in _PROGRESS.finditer(end)]
    return {"text": told[-1] if told else "the proof runs; it has not begun to read", "at_ms": None}
