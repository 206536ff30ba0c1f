"""What a step said last: one small file for each wave of a DAG run, replaced with every message.

A step logs what it waits for, but its log ends where the task is deferred, and the journal holds what was decided, not
what was seen on the way. The page shows the newest message beside the step, wherever the step waits, and whether it has
a task of its own or shares a stage with others: the file is the wave's, and names the step.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from watershed.clusters.private_files import read_private_file
from watershed.plugins.state_folder import locate_run_folder, make_file_name, write_json_file
from watershed.topology.text_escaping import escape_control_lines

_LARGEST = 64 * 1024  # bytes that a reader takes
_MOST_CHARS = 2_000


def keep_live_message(dag: str, run: str, wave: str, step: str, text: str) -> None:
    """Replaces the message of the wave. dag, run: as Airflow calls them. Raises OSError."""
    told = {"step": step, "text": escape_control_lines(text)[:_MOST_CHARS], "at_ms": int(time.time() * 1000)}
    write_json_file(_locate(dag, run, wave), told)


def read_live_message(dag: str, run: str, wave: str) -> dict[str, Any] | None:
    """`step`, `text` (the numbers of a gate) and `at_ms` (since 1970) of the newest message; None where there is none,
    or it cannot be read. run: as Airflow calls it, or as its folder is called."""
    try:
        told = json.loads(read_private_file(_locate(dag, run, wave), _LARGEST))
        step, text, at_ms = told["step"], told["text"], told["at_ms"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    is_message = isinstance(step, str) and isinstance(text, str) and isinstance(at_ms, int)
    return {"step": step, "text": text[:_MOST_CHARS], "at_ms": at_ms} if is_message else None


def _locate(dag: str, run: str, wave: str) -> Path:
    return locate_run_folder(dag, run) / make_file_name(f"{wave}.now.json")
